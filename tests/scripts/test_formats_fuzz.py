# SPDX-License-Identifier: GPL-2.0-only
"""Durabench's own files, mutated: measurements, runs with all that is in their folders, acknowledged changes, noise. Each is read, or
refused by one error that names the file; commands end by a documented status, and never by a traceback.

`make test` takes some hundreds of mutants, always the same; DURABENCH_FUZZ=N takes more, and each time others.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_run
from durabenchlib import cli, formats, measurement
from durabenchlib.errors import Exit, Failure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_run import SampleRun, device, document, job, observed

FUZZ = int(os.environ.get("DURABENCH_FUZZ", "0"))
MUTANTS = settings(
    max_examples=FUZZ or 200, derandomize=not FUZZ, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
FEW = settings(MUTANTS, max_examples=FUZZ // 10 or 25)

DEEP: list[Any] = []
for _ in range(150):
    DEEP = [DEEP]

# What stands in place of a value.
VALUES: list[Any] = [
    None, True, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-308, float("nan"), float("inf"), "", "x", "0", "-1", "9" * 400,
    "\0", "\x1b[2J", "a\nb", "../../evil", "/", ".", "\ud800", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{LINE SEPARATOR}", "²", "x" * 5000, "$(id)",
    "`id`", "${TARGET}", "a/write.iops", "write.clat.p100", "write.clat.p0", "write.clat.p99999999999", "write.iops", "sync.lat.p50", "fua",
    "dsync", "2026-11-30T10:00:00Z", "9999-99-99", [], {}, [[]], {"": {}}, ["x"], DEEP, "durabench-run/1",
]  # fmt: skip


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something else somewhere in it."""
    places: list[tuple[Any, Any]] = []

    def visit(inner: Any) -> None:
        if isinstance(inner, (dict, list)):
            for key in inner if isinstance(inner, dict) else range(len(inner)):
                places.append((inner, key))
                visit(inner[key])

    value = copy.deepcopy(value)
    visit(value)
    holder, key = chance.choice(places)
    kind = chance.randrange(4)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 0:
        holder.append(copy.deepcopy(holder[key]))
    elif kind == 1 and isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        with contextlib.suppress(OverflowError):
            holder[key] *= chance.choice([-1, 0, 2, 1000, 1e18])
    elif kind == 2:
        other, which = chance.choice(places)
        holder[key] = copy.deepcopy(other[which])
    else:
        holder[key] = chance.choice(VALUES)
    return value


def mutated(value: Any, seed: int) -> Any:
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 4)):
        if not value:
            break
        value = changed(value, chance)
    return value


def scrambled(data: bytes, seed: int) -> bytes:
    """The bytes of a file with others among them."""
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        part = chance.choice([b"", b"\0", b"\xff", b"\n", b"[", b"]", b'"', b"=", b"9" * 5000, b"[" * 2000, b"nan", b"1e999", b"\xe2\x80\xa8"])
        data = chance.choice(
            [data[:at] + part + data[at:], data[:at] + part + data[at + 1 + len(part) :], data[:at] + data[at + 20 :], data[: 3 * at]]
        )
    return data


seeds = st.integers(0, 2**32)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def is_one_error(failure: Failure, path: Path) -> None:
    assert failure.status in (Exit.INPUT, Exit.USAGE)
    assert len(str(failure)) < 10_000
    assert str(path) in str(failure) or failure.status == Exit.USAGE


# A measurement


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the only measurement there is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield sample_run.only_measurement(tmp_path_factory.mktemp("library"), monkeypatch)


LAB = """
[demo]
RUNTIME = { memory = 0.5, min = "1m", max = "2g" }
[lab]
comparisons = [{ before = "6.12:dsync", after = "7.3:fua", cases = ["seq"] }]
memory = "512m"
[lab.set.seq]
RUNTIME = "2"
[lab.set."seq:fua"]
RUNTIME = "3"
[[lab.device]]
model = "nbdkit"
plugin = "devicemodel"
size = "32m"
settings = { keep = "false", cache = 3 }
"""
WORDS = re.compile(rb'"[^"\n]*"|(?<== )\d[\d.]*|^\w+(?= =)', re.MULTILINE)
IN_PLACE = [
    b'""', b'"x"', b"0", b"-1", b"1e999", b"nan", b"inf", b"-0.0", b"9" * 30, b"true", b"[]", b"{}", b"1979-05-27T07:32:00Z", b'"\\u0000"',
    b'"\\u001b[2J"', b'"a b; id"', b'"../x"', b'"9999999999999999999g"', b'"' + b"9" * 5000 + b'g"', b'"x/write.clat.p99"', b'"-rf"',
    b"schema", b"name", b"case", b"memory", b"[" * 1500 + b"]" * 1500,
]  # fmt: skip


@MUTANTS
@given(seed=seeds)
def test_measurements(library: Path, seed: int) -> None:
    chance = random.Random(seed)
    text = (sample_run.MEASUREMENT + LAB).encode()
    for _ in range(chance.randrange(1, 4)):
        word = chance.choice(list(WORDS.finditer(text)))
        text = text[: word.start()] + chance.choice([*IN_PLACE, word[0]]) + text[word.end() :]
    path = library / "measurement.toml"
    path.write_bytes(scrambled(text, seed) if chance.random() < 0.3 else text)
    try:
        found, folder = measurement.find(str(library))
        for shortened in (found.demo, found.lab.variables if found.lab else {}):
            values = measurement.variables(found, {}, shortened=shortened, memory_bytes=1 << 33, target_bytes=1 << 30)
            for case in measurement.choose_cases(found, []):
                rendered = measurement.render("[a]\nruntime=${RUNTIME}\nsize=${RUNTIME}\n", {"RUNTIME": "1", **values, **case.set}, path)
                measurement.load_of(rendered)
    except Failure as failure:
        is_one_error(failure, path)
    else:
        names = [found.name, *found.strategies, *(case.name for case in found.case), *found.variables]
        assert all(re.fullmatch(r"[\w.+-]+", name, re.ASCII) and not name.startswith(("-", ".")) for name in names)


@MUTANTS
@given(text=st.text(max_size=60), parts=st.lists(st.sampled_from(["9" * 20, "1", ".", "m", "s", "=", "\n", "[", "runtime=", "size=", "g"]), max_size=8))
def test_what_a_job_file_asks_for(text: str, parts: list[str]) -> None:
    for job_file in (text, f"[global]\nruntime={text}\n[a]\nsize={text}", "[a]\n" + "".join(parts)):
        load = measurement.load_of(job_file)
        assert load.runtime_s is None or 0 <= load.runtime_s < 1e15
        assert load.io_bytes >= 0


# A run, and the commands that read it


@pytest.fixture(scope="module")
def run(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (library / "measurement.toml").write_text(sample_run.MEASUREMENT)
    made = SampleRun(tmp_path_factory.mktemp("runs") / "run", notes=["a note"])
    for strategy in ("dsync", "fua", "dsync", "fua"):
        folder = made.add(
            "seq",
            strategy,
            document(job(writes=[100_000] * 50, runtime_ms=5, log_avg_msec="100")),
            observed(device(writes=50, flushes=50)),
            [{"writes": 50, "durable_writes": 50, "syncs": 0, "flush_calls": 0}],
        )
        samples = [{"schema": "durabench-samples/1", "interval_ms": 100.0, "devices": ["loop0"]}]
        samples += [{"t": t / 10, "dirty": t, "writeback": 1, "cached": 5, "cpu": {}, "dev": {"loop0": [1, 2, 3, 4, t, 6]}} for t in range(5)]
        (folder / "samples.jsonl").write_text("".join(json.dumps(each) + "\n" for each in samples))
        (folder / "seq_bw.1.log").write_text("".join(f"{100 * n}, {1000 + n}, 1, 4096, 0\n" for n in range(1, 5)))
        (folder / "command.json").write_text(json.dumps({"command": ["fio"], "environment": {"A": "b"}}))
    return made.write()


@contextlib.contextmanager
def changed_file(path: Path, content: bytes) -> Iterator[None]:
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


def mutant_of(path: Path, seed: int) -> bytes:
    """Half of them are JSON still, as JSON lines where these are."""
    data = path.read_bytes()
    if seed % 3 == 0 or path.suffix == ".log":
        return scrambled(data, seed)
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        return "".join(json.dumps(line) + "\n" for line in mutated(lines, seed)).encode()
    return json.dumps(mutated(json.loads(data), seed)).encode()


def ended(*words: object) -> tuple[int, str, str]:
    """Exit status, output and errors of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as error:  # argparse
            status = int(error.code or 0)
    return status, out.getvalue(), err.getvalue()


def can_be_printed(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n"))
    text.encode()


@MUTANTS
@given(seed=seeds, which=st.sampled_from(["run.json", "fio.json", "observe.json", "counters.jsonl", "samples.jsonl"]))
def test_runs(run: Path, seed: int, which: str) -> None:
    path = run / which if which == "run.json" else run / "001-seq-dsync-1" / which
    with changed_file(path, mutant_of(path, seed)):
        form = ("text", "md", "csv", "json")[seed % 4]
        status, out, err = ended("compare", run, "--format", form)
        assert status in (Exit.OK, Exit.INPUT, Exit.USAGE), err
        assert (status == Exit.OK) == (err == ""), err
        assert len(err) < 10_000
        can_be_printed(err)
        if form == "json" and out:
            json.loads(out, parse_constant=no_constant)
        else:
            can_be_printed(out)
        if seed % 3 == 0:
            status, out, err = ended("history", run, "--format", "json")
            assert status in (Exit.OK, Exit.INPUT, Exit.USAGE), err
            json.loads(out or "0", parse_constant=no_constant)
        elif seed % 3 == 1:
            reports = ["--json", run / "gate.out", "--junit", run / "gate.xml", "--markdown", run / "gate.md"]
            status, out, err = ended("gate", "--baseline", f"{run}:dsync", "--candidate", f"{run}:fua", *reports)
            assert status in (0, 1, 2, 3, 64), err
            can_be_printed(out)


@FEW
@given(seed=seeds, which=st.sampled_from(["run.json", "command.json", "samples.jsonl", "seq_bw.1.log", "fio.json"]))
def test_figures_and_reports(run: Path, seed: int, which: str) -> None:
    path = run / which if which == "run.json" else run / "001-seq-dsync-1" / which
    with changed_file(path, mutant_of(path, seed)):
        status, out, err = ended("report", run, "--terminal", "--figure", "series", "--figure", "rates")
        assert status in (Exit.OK, Exit.INPUT, Exit.USAGE), err
        can_be_printed(re.sub(r"\x1b\[[\d;]*m", "", out))
        if seed % 4 == 0:
            status, _, err = ended("report", run, "-o", run.parent / "report.html", "--figure", "ratios")
            assert status in (Exit.OK, Exit.INPUT, Exit.USAGE), err


@MUTANTS
@given(seed=seeds)
def test_noise_and_acknowledgements(run: Path, seed: int) -> None:
    metric = {
        "case": "seq", "strategy": "fua", "metric": "write.iops", "repetitions": 7, "blocks": 2, "within": 0.01, "between": 0.02,
        "floor": 0.03, "needed": {"0.03": 7, "0.1": None},
    }  # fmt: skip
    noise = {
        "schema": "durabench-noise/1", "durabench": "0.1.0", "created": "", "runs": ["a"], "environment": {"cpu_model": "x"},
        "alpha": 0.05, "power": 0.8, "metrics": [metric],
    }  # fmt: skip
    path = run.parent / "noise.json"
    data = json.dumps(mutated(noise, seed)).encode()
    path.write_bytes(scrambled(data, seed) if seed % 5 == 0 else data)
    status, out, err = ended("gate", "--baseline", f"{run}:dsync", "--candidate", f"{run}:fua", "--noise", path, "--json", run.parent / "gate.json")
    assert status in (0, 1, 2, 3, 64), err
    can_be_printed(out)
    if (run.parent / "gate.json").exists():
        json.loads((run.parent / "gate.json").read_text(), parse_constant=no_constant)

    path = run.parent / "known.toml"
    path.write_bytes(scrambled(b'schema = "durabench-acknowledged/1"\n[[change]]\nat = "a"\nreason = "b"\ncase = "seq"\n', seed))
    status, out, err = ended("history", run, "--acknowledged", path)
    assert status in (Exit.OK, Exit.INPUT), err
    can_be_printed(out + err)


KINDS = [formats.Run, formats.Comparison, formats.FetchedKernel, formats.Published]
ROOT = Path(__file__).resolve().parent.parent.parent
COMPARED = json.loads((ROOT / "results/reference/odsync-patch-seq.json").read_text())


@MUTANTS
@given(seed=seeds)
def test_comparisons(seed: int) -> None:
    path = Path("c.json")
    data = mutated(COMPARED, seed)
    try:
        found = formats.decode(formats.Comparison, data, formats.COMPARISON, path)
    except Failure as failure:
        is_one_error(failure, path)
    else:
        assert dataclass_is_finite(found)


def dataclass_is_finite(found: formats.Comparison) -> bool:
    """In all that has a type; an environment is what it was."""
    values = [number for each in found.measurements for case in each.cases for metric in case.metrics for number in (metric.ratio, metric.p)]
    return all(number is None or abs(number) < float("inf") for number in values)


SIZES = st.one_of(st.text(max_size=30), st.from_regex(r"[0-9²٣]{1,30}[kmgtKMGTx]?b?", fullmatch=True))


@MUTANTS
@given(text=SIZES)
def test_sizes(text: str) -> None:
    try:
        assert 0 <= measurement.parse_size(text) < 2**63
    except ValueError as error:
        assert text and len(str(error)) < 1000 or not text

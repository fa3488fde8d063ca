# SPDX-License-Identifier: GPL-2.0-only
"""fio's output, mutated: it is read or refused, and never a wrong number or a traceback.

`make test` takes some thousands of mutants, always the same. For more, and each time others:
DURABENCH_FUZZ=100000 tests/run tests/scripts/test_fio_fuzz.py
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import statistics
from pathlib import Path

import pytest
import sample_run
from durabenchlib import fiojson, formats, show
from durabenchlib.errors import Failure
from durabenchlib.fiojson import document
from durabenchlib.fiojson import text as texts
from durabenchlib.fiojson.latency import Bins
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

DATA = Path(__file__).parent / "data"
FUZZ = int(os.environ.get("DURABENCH_FUZZ", "0"))
MUTANTS = settings(
    max_examples=FUZZ or 3000,
    derandomize=not FUZZ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FEW = settings(MUTANTS, max_examples=200)

SOURCES = [path.read_bytes() for path in sorted([*DATA.glob("shapes/*.txt"), *DATA.glob("fio-*.json")])]

# What programs, people and other fios may put into such a file, and what breaks those that read it.
TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"\t", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b" ",
    b"-", b"0", b"1", b"9" * 40, b"9" * 5000, b"-1", b"1.5", b"1e999", b"1e400", b"nan", b"-nan", b"inf", b"NaN", b"-Infinity",
    b"null", b"true", b'""', b"{}", b"[]", b"[" * 3000, b'{"a":' * 3000, b'"N" : ', b'"N" : -3,', b'"bins" : { "x" : 1 },',
    b'"bins" : 7,', b'"percentile" : { "101" : 5 },', b'"read" : [],', b'"jobs" : [', b'"jobs" : {},', b'"client_stats" : [],',
    b'{\n  "fio version" : "fio-2.1",', b'"fio version" : "fio-99999999999999999999.1",', b'"job options" : [],', b'"error" : 2e3,',
    b'"error" : 4294967296,', b'"timestamp_ms" : 1e30,', b'"eta" : -5,', b'"job_start" : 99999999999999999999,', b'"hostname" : {},',
    b'"io_bytes" : 4,', b'"total_ios" : null,', b'"runtime" : 0,', b"fio: terminating on signal 2\n", b'"numjobs" : "999999999999"',
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{ARABIC-INDIC DIGIT THREE}".encode(), b"\x1b[2J", b"\\ud800", b"\xe2\x80\xa8", b'"sync" : { "lat_ns" : 1 },',
]  # fmt: skip

# What is put in the place of a number, so that most mutants are JSON still.
NUMBERS = [
    b"0", b"1", b"-1", b"0.5", b"-0.0", b"2147483647", b"2147483648", b"17112760320", b"18446744073709551615", b"18446744073709551616",
    b"9" * 400, b"1e19", b"1e999", b"-1e999", b"nan", b"-inf", b"null", b"true", b'"7"', b"[]", b"{}", b'{ "N" : 1 }',
]  # fmt: skip
_NUMBER = re.compile(rb"(?<=: )-?\d[\d.e+]*")
_STRING = re.compile(rb'"[^"\n]*"')

EDITS = (*["number"] * 8, *["string"] * 4, "flip", "drop", "insert", "replace", "repeat", "move", "cut", "splice")


def mutate(data: bytes, edits: list[tuple[str, int, int, int]]) -> bytes:
    """The data with some edits made: each a kind, a place, a length and a choice."""
    for kind, place, length, choice in edits:
        at = place % (len(data) + 1)
        end = min(at + length, len(data))
        if kind in ("number", "string"):
            found = list((_NUMBER if kind == "number" else _STRING).finditer(data))
            if found:
                old = found[place % len(found)]
                new = NUMBERS[choice % len(NUMBERS)] if kind == "number" else found[choice % len(found)][0]
                data = data[: old.start()] + new + data[old.end() :]
        elif kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << choice % 8)]) + data[at + 1 :]
        elif kind == "drop":
            data = data[:at] + data[end:]
        elif kind == "insert":
            data = data[:at] + TOKENS[choice % len(TOKENS)] + data[at:]
        elif kind == "replace":
            data = data[:at] + TOKENS[choice % len(TOKENS)] + data[end:]
        elif kind == "repeat":
            data = data[:end] + data[at:end] + data[end:]
        elif kind == "move":
            other = choice * 7919 % (len(data) + 1)
            part, rest = data[at:end], data[:at] + data[end:]
            data = rest[:other] + part + rest[other:]
        elif kind == "cut":
            data = data[:at]
        elif kind == "splice":
            source = SOURCES[choice % len(SOURCES)]
            data = data[:at] + source[place % (len(source) + 1) :][: 8 * length]
    return data


edits = st.tuples(
    st.sampled_from(EDITS), st.integers(0, 20_000), st.integers(0, 400), st.integers(0, 10_000)
)
mutants = st.builds(mutate, st.sampled_from(SOURCES), st.lists(edits, min_size=1, max_size=4))


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


# What was found once.
JOB = b'{"fio version": "fio-3.43", "jobs": [{"jobname": "a", %s}]}'
NAME_OF_LINES = JOB % b'"a\\r\\nb": {"io_bytes": 1, "io_kbytes": 0, "clat_ns": {"mean": 18446744073709551616, "N": 2}}'
HISTOGRAM_IN_AN_OPTION = JOB % b'"job options": {"clat_ns": {"N": 1, "bins": {"1004": 1}}}, "write": {"io_bytes": 1, "total_ios": 1}'


@MUTANTS
@given(data=mutants)
@example(data=NAME_OF_LINES)
def test_a_mutant_is_read_or_refused(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fio.json"
    path.write_bytes(data)
    found = show.look(path)
    if found.refused is not None:
        assert found.kind == "unknown" and found.refused.startswith(f"{path}: ") and "\n" not in found.refused
    shown = show.Show([found], [])
    values = json.loads(formats.to_json(shown), parse_constant=no_constant)["files"][0]
    for row in values["rows"]:
        numbers = [value for value in row.values() if isinstance(value, int | float)]
        assert all(value >= 0 for value in [*numbers, *row["percentiles_ns"].values()])
    printed = io.StringIO()
    if len(data) % 10 == 0:
        show.print_text(shown, Console(file=printed))
    for written in (show.markdown(shown), show.comma_separated(shown), printed.getvalue()):
        written.encode()


@settings(MUTANTS, max_examples=FUZZ or 1000)
@given(data=mutants)
@example(data=HISTOGRAM_IN_AN_OPTION)
def test_what_is_read_the_fast_way_is_what_the_document_says(data: bytes) -> None:
    found = document._plain(data)
    assert found is None or found == fiojson.parse(texts.decode(data), "f")


def test_what_fio_prints_is_read_the_fast_way() -> None:
    found = document._plain((DATA / "fio-3.33-fdatasync.json").read_bytes())
    assert found is not None
    assert all(isinstance(latency.bins, Bins) for job in found.jobs for _, latency in fiojson.distributions(job))


# Documents that stand alone in their file, up to its end
SINGLE = [data for data in SOURCES if data.count(b'"fio version"') == 1 and data.rstrip().endswith(b"\n}")]


@FEW
@given(data=st.sampled_from(SINGLE), share=st.floats(0, 1))
def test_a_file_that_is_cut_off_is_refused(data: bytes, share: float) -> None:
    text = texts.decode(data)
    whole = fiojson.parse(text, "f") if text.count('"jobname"') else None
    cut = text[: int(share * len(text))]
    if cut.rstrip() == text.rstrip():
        assert fiojson.parse(cut, "f") == whole
    else:
        with pytest.raises(Failure):
            fiojson.parse(cut, "f")


DOCUMENTS = [
    sample_run.document(sample_run.job(name, writes=[1000 * length + 1] * length, syncs=[500] * 3), version=version)
    for name, length, version in (("a", 3, "fio-3.33"), ("b", 500, "fio-3.33"), ("a", 20, "fio-3.41"))
]


@FEW
@given(picked=st.lists(st.sampled_from(DOCUMENTS), min_size=2, max_size=6), noise=st.sampled_from(["", "note: x\n", "}\n"]))
def test_of_any_documents_in_any_order_the_last_is_told_and_the_others_are_no_secret(picked: list[str], noise: str) -> None:
    found = fiojson.parse(noise.join(picked), "f")
    assert found.jobs == fiojson.parse(picked[-1], "f").jobs
    assert found.interim + found.others == len(picked) - 1
    assert {each.code for each in fiojson.suspicions(found)} & {"several-runs", "status-interval"}


samples = st.lists(st.lists(st.integers(1, 17_000_000_000), max_size=40), min_size=1, max_size=5)


@FEW
@given(parts=samples, percent=st.sampled_from([1.0, 50.0, 90.0, 99.0, 99.9, 100.0]), seed=st.integers())
def test_merged_distributions_are_those_of_all_samples(parts: list[list[int]], percent: float, seed: int) -> None:
    jobs = [sample_run.job(writes=part, start_ms=1_000_000) for part in parts]
    together = sample_run.job(writes=[each for part in parts for each in part], start_ms=1_000_000)
    random.Random(seed).shuffle(jobs)
    apart, one = (
        fiojson.merge(job.directions["write"].clat for job in fiojson.parse(sample_run.document(*of), "f").jobs)
        for of in (jobs, [together])
    )
    assert (apart.n, apart.min, apart.max, dict(apart.bins)) == (one.n, one.min, one.max, dict(one.bins))
    assert apart.percentile(percent) == one.percentile(percent)
    everything = [each for part in parts for each in part]
    if everything:
        assert apart.mean == pytest.approx(statistics.mean(everything))
        exact = sorted(everything)[max(0, -(-len(everything) * round(percent * 10) // 1000) - 1)]
        assert apart.percentile(percent) == pytest.approx(exact, rel=1 / 127, abs=1)

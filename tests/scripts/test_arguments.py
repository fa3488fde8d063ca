# SPDX-License-Identifier: GPL-2.0-only
"""Every argument of every command, as argparse has them, with every evil name: as the name of nothing, of a file, of a run and of what
no text is read from. Each ends by a documented status and in lines that may go to a terminal; nothing is run, nothing is waited for,
and no file is made but the one that was named."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sample_run
from durabenchlib import cli, demo, environment, figures, layout, plots, runner
from sample_run import SampleRun, device, document, job, observed

from command import COMMAND, PATIENCE_S
from command import environment as environment_of

# Whatever runs one of the names leaves this file.
CANARY = "canary"
# Each is the name of a file or folder, all of what a shell, fio, rich, printf or a glob could take for more than that together.
EVIL = {
    "option": "--format=json",
    "options": "-rf",
    "dashes": "--",
    "shell": f"a b';touch {CANARY};\"$(touch {CANARY})`touch {CANARY}`|&<>!^",
    "glob": "*?[a]{b,c}~",
    "home": "~root",
    "format": "%s%n%d{0}{x!r}",
    "markup": "[bold]x[/bold][/][link=file:x]",
    "list": r"a:b\:c,d\e@f=g#h;i",
    "blanks": " \N{NO-BREAK SPACE} ",
    "lines": "a\n::error::b\r\x1b[2J\x07",
    "bytes": "\udcff\udcfe\udc80x",
    "bidirectional": "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}",
    "long": "x" * 255,
    "too-long": "y" * 256,
    "empty": "",
    "folder": "..",
    "no-folder": "nowhere/x",
}
# What an argument that has to be given is when another is tested, by its metavar.
GIVEN = {
    "MEASUREMENT": "sample",
    "--target": "target",
    "RUN[:STRATEGY]": "run",
    "RUN|FILE": "run",
    "RUN": "run",
    "FILE": "fio.json",
    "KERNEL": "0.0",
    "--baseline": "run",
    "--candidate": "run2",
    "--output": "output",
}
# Arguments with these are no names of files.
PLAIN = {"N", "NAME", "TEXT", "SECONDS", "NAME=VALUE", "NAME[=MARGIN]", "RATIO", "SIZE", "SERIES", "HOST[,HOST...]", "MODEL,size=SIZE[,NAME=VALUE…]"}
# docs/formats.md, "Exit status"; those of `gate` are among them.
STATUS = {0, 1, 2, 3, 64, 69}


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """The commands that have no others below them, with the words that they are called by."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, each in action.choices.items():
            yield from commands(each, (*words, name))
    if not inner:
        yield words, parser


def arguments() -> Iterator[object]:
    """A command, and one of its arguments that take a word."""
    for words, parser in commands(cli._parser()):
        for action in parser._actions:
            if action.nargs != 0:
                yield pytest.param(words, parser, action, id=" ".join([*words, (action.option_strings or [action.dest])[-1]]))


def line(words: Sequence[str], parser: argparse.ArgumentParser, tested: argparse.Action, evil: str) -> list[str]:
    """A command line with one evil word in it."""
    options, places = [], []
    for action in parser._actions:
        name = (action.option_strings or [""])[-1]
        needed = action.required if name else action.nargs in (None, "+")
        if action is tested:
            word = evil
        elif needed:
            word = GIVEN[name] if name in GIVEN else GIVEN[str(action.metavar)]
        else:
            continue
        # `--option=WORD` takes any word, also one that begins with a hyphen.
        (options if name else places).append(f"{name}={word}" if name else word)
    if words == ("run",):
        options.append("--dry-run")
    return [*words, *options, "--", *places]


def sample(folder: Path, slower: int = 1) -> Path:
    run = SampleRun(folder)
    for number, strategy in enumerate(["dsync", "fua"] * 2):
        times = [1000 * slower + number] * 20
        run.add("seq", strategy, document(job("seq", writes=times)), observed(device(writes=20, flushes=20)))
    return run.write()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with good results, which is the current one, and `sample` the only measurement there is."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as monkeypatch:
        library = sample_run.only_measurement(tmp_path_factory.mktemp("library"), monkeypatch)
        text = (library / "measurement.toml").read_text().replace('targets = ["block"]', 'targets = ["block", "file", "directory"]')
        (library / "measurement.toml").write_text(text)
        (library / "seq.fio").write_text("[seq]\nioengine=null\nfilename=${TARGET}\nsize=4k\nruntime=${RUNTIME}\n")
        monkeypatch.setattr(layout, "results", lambda: folder / "results")
        monkeypatch.setattr(layout, "build", lambda: folder / "build")
        # What fio makes of names is tested below, and what it says is the same each time.
        monkeypatch.setattr(environment, "collect", functools.cache(environment.collect))
        monkeypatch.setattr(runner, "parse", lambda *_: None)
        # To draw takes as long as all else.
        monkeypatch.setattr(plots, "_drawn", lambda *_, **__: b"<svg></svg>")
        # With an output of any name, the demo has nothing to measure.
        monkeypatch.setattr(demo, "STAGES", {})
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        monkeypatch.chdir(folder)
        sample(folder / "run")
        sample(folder / "run2", 2)
        (folder / "fio.json").write_text(document(job("seq", writes=[1000] * 20)))
        yield folder


def run(words: Sequence[str], encoding: str = "utf-8") -> tuple[int, str, str]:
    """Status, output and errors of the command, as a terminal of this encoding gets them."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors) for errors in ("strict", "backslashreplace")]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            status = cli.main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    return status, texts[0], texts[1]


def all_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def names_of(word: str) -> set[str]:
    """The first parts of the names of what may be made. No name at all is the current folder."""
    first = Path(word).parts[:1] or {f"1-sample-1-seq-{name}.{kind}" for name in figures.FIGURES for kind in ("dat", "gp", "svg", "png")}
    return {*first, f"{Path(word).stem}-gnuplot", "report.html", "report-gnuplot", "results", "build", "output"}


@pytest.mark.parametrize(("words", "parser", "tested"), arguments())
def test_an_evil_name(place: Path, words: tuple[str, ...], parser: argparse.ArgumentParser, tested: argparse.Action) -> None:
    for each in place.iterdir():
        if each.name not in ("run", "run2", "fio.json"):
            clear(each)
    before = all_of(place)
    content = {name: (place / name).read_bytes() for name in before if (place / name).is_file()}
    for what, word in EVIL.items():
        is_name = tested.metavar not in PLAIN and len(word) < 256 and word not in ("", "..") and "/" not in word
        for there in ("nothing", "file", "run") if is_name else ("nothing",):
            path = place / word
            if there == "file":
                shutil.copyfile(place / "fio.json", path)
            elif there == "run":
                shutil.copytree(place / "run", path)
            told = (what, there)
            was = all_of(place)
            status, out, err = run(line(words, parser, tested, word))
            assert status in STATUS, (*told, err)
            for text in (out, err):
                assert all(char.isprintable() for char in text.replace("\n", "")), (*told, text)
                assert not re.search(r"(?m)^\s*::", text), (*told, text)
            assert all(each.startswith(("durabench: ", "usage: ", " ", "durabench ")) for each in err.splitlines() if status), (*told, err)
            assert status == 0 or err, told
            new = all_of(place) - was
            assert {Path(name).parts[0] for name in new} <= names_of(word), (*told, new)
            for name in {Path(name).parts[0] for name in all_of(place) - before}:
                clear(place / name)
            assert not list(place.parent.glob(CANARY))
    assert {name: (place / name).read_bytes() for name in content} == content


def test_what_a_terminal_has_no_character_for(place: Path) -> None:
    """A name in UTF-8 on a terminal in ASCII, and whatever sign of our own."""
    name = place / "\N{GREEK SMALL LETTER OMEGA}.json"
    name.write_text(document(job("\N{SNOWMAN}", writes=[1000] * 20)))
    for words in (["show"], ["compare", name], ["gate", "--baseline", name, "--candidate"], ["history"], ["doctor", "--target"]):
        for form in ("text", "md", "csv", "json"):
            given = [str(word) for word in (*words, place / "fio.json" if "compare" in words or "gate" in words else name)]
            status, out, err = run([*given, *(["--format", form] if words[0] != "gate" else [])], "ascii")
            assert status in STATUS and (out or err), (given, form)
    name.unlink()


def measured(folder: Path, jobs: str, output: Path, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """A run of a measurement whose only job is in `jobs`, by the command itself."""
    (folder / "few").mkdir(exist_ok=True)
    (folder / "few/measurement.toml").write_text(FEW)
    (folder / "few/few.fio").write_text(jobs)
    command = [COMMAND, "run", folder / "few", "--repeat", "1", f"--output={output}", *words]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=environment_of(), cwd=folder)


FEW = """
schema = "durabench-measurement/1"
name = "few"
title = "few writes"
engine = "fua-dsync"
targets = ["file", "directory"]
before = "none"
after = "none"
strategies = ["none"]
[[case]]
name = "few"
job = "few.fio"
metrics = [{ name = "write.iops", better = "higher" }]
"""
JOB = """
[few]
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
bs=4k
size=8k
rw=write
"""


@pytest.mark.parametrize("kind", ["filename", "directory"])
def test_fio_takes_a_name_for_what_it_is(tmp_path: Path, kind: str) -> None:
    """All that fio could split, strip or expand; what it was measured on is all that was written, and is removed."""
    name, sibling = "-a' \"b\"%s *?[c]{d}~@,=!:e\\:f\\g\\", tmp_path / "sibling"
    sibling.mkdir()
    if kind == "directory":
        (tmp_path / name).mkdir()
    before = all_of(tmp_path)
    done = measured(tmp_path, f"{JOB}{kind}=${{TARGET}}\n", tmp_path / f"{name}out", f"--target={name}")
    assert done.returncode == 0, done.stderr
    made = {each for each in all_of(tmp_path) - before if Path(each).parts[0] not in (f"{name}out", "few")}
    assert not made
    run = json.loads((tmp_path / f"{name}out/run.json").read_text())
    assert (run["status"], run["target"]["resolved"]) == ("complete", str(tmp_path / name))


@pytest.mark.parametrize("name", ["a ", "a\t", "a\nfilename=b", "a#b", "a;b", "$a", "`a`", "\udcff", "\x7f"])
def test_a_name_that_fio_takes_for_another_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text("stays")
    done = measured(tmp_path, f"{JOB}filename=${{TARGET}}\n", tmp_path / "out", f"--target={name}")
    assert (done.returncode, done.stdout) == (64, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("durabench: TARGET=") and "which a fio job file can't hold" in line
    assert all_of(tmp_path) == {"a", "few", "few/measurement.toml", "few/few.fio"} and (tmp_path / "a").read_text() == "stays"


SPARSE_BYTES = 1 << 40
KINDS = ("pipe", "socket", "zero", "full", "dangling", "circular", "folder", "sparse", "empty", "unreadable")


@contextlib.contextmanager
def odd(path: Path, kind: str) -> Iterator[None]:
    """What is no file, or none that can be read, at a path; gone afterwards."""
    clear(path)
    with contextlib.ExitStack() as stack:
        stack.callback(clear, path)
        if kind == "pipe":
            os.mkfifo(path)
            # Whoever reads it waits for ever, whoever writes to it does not.
            stack.callback(os.close, os.open(path, os.O_RDWR))
        elif kind == "socket":
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            # Its name may be longer than a socket's address.
            here = os.open(path.parent, os.O_PATH)
            server.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        elif kind in ("zero", "full"):
            path.symlink_to(f"/dev/{kind}")
        elif kind in ("dangling", "circular"):
            path.symlink_to("nowhere/x" if kind == "dangling" else path.name)
        elif kind == "folder":
            path.mkdir()
        else:
            path.touch(0 if kind == "unreadable" else 0o644)
            os.truncate(path, SPARSE_BYTES if kind == "sparse" else 0)
        yield


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """What takes longer hangs, and what takes more memory reads without end."""

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (2 << 30), limits[1]))
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def told(status: int, out: str, err: str, known: set[int] = STATUS) -> None:
    assert status in known, (status, err)
    assert status == 0 or err or out, status
    for text in (out, err):
        assert all(char.isprintable() for char in text.replace("\n", "")), text


@pytest.mark.parametrize(("words", "parser", "tested"), [each for each in arguments() if each.values[2].metavar not in PLAIN])  # type: ignore[attr-defined]
def test_an_odd_file(place: Path, words: tuple[str, ...], parser: argparse.ArgumentParser, tested: argparse.Action) -> None:
    for kind in KINDS:
        with odd(place / "odd.json", kind), soon():
            # With a slash it is a path for all of them.
            told(*run(line(words, parser, tested, "./odd.json")))
            assert kind not in ("pipe", "socket", "full", "zero") or stat.S_IFMT((place / "odd.json").lstat().st_mode) != stat.S_IFREG


PARTS = ["run.json", "measurement.toml", *(f"001-seq-dsync-1/{name}" for name in (
    "fio.json", "observe.json", "counters.jsonl", "samples.jsonl", "job.fio", "command.json", "a_clat_hist.1.log"
)), "001-seq-dsync-1"]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_an_odd_part_of_a_run(place: Path, part: str) -> None:
    for kind in KINDS:
        clear(place / "odd")
        sample(place / "odd")
        with odd(place / "odd" / part, kind), soon():
            for words in (["show"], ["compare"], ["report", "--output=odd.html"], ["history"], ["gate", "--baseline=run", "--candidate"]):
                told(*run([*words, "odd"]))


def test_who_may_not_read(tmp_path: Path) -> None:
    """Without root's rights, one line for each and a status that is no alarm of `history`; root reads all."""
    user = None if os.geteuid() else 65534
    for folder in (tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in folder.parents:
            folder.chmod(0o755)
    (tmp_path / "in").mkdir()
    run = sample(tmp_path / "in/run")
    (run / "measurement.toml").write_text(sample_run.MEASUREMENT.replace('published = "sample.toml"', ""))
    for path in (COMMAND, run / "run.json"):
        if subprocess.run(["test", "-r", path], user=user, cwd="/").returncode:
            pytest.skip(f"another user can't reach {path}")
    judged = ("compare", "history")
    cases = [("run.json", 3, judged), ("measurement.toml", 3, judged), (".", 3, (*judged, "show", "calibrate")), ("..", 3, (*judged, "show", "calibrate"))]
    for name, status, commands in [*cases, ("001-seq-dsync-1/fio.json", 0, ["compare"])]:
        usual = (run / name).stat().st_mode
        (run / name).chmod(0)
        for command in commands:
            done = subprocess.run([COMMAND, command, run], capture_output=True, text=True, timeout=PATIENCE_S, env=environment_of(), user=user, cwd="/")
            assert done.returncode == status, (name, command, done.stderr)
            assert len(done.stderr.splitlines()) == (status != 0) and "Traceback" not in done.stderr, (name, command, done.stderr)
        (run / name).chmod(usual)


@pytest.mark.parametrize("word", [word for name, word in EVIL.items() if name != "dashes"])
def test_the_guard_tells_a_name_as_text(tmp_path: Path, word: str) -> None:
    """Also of a file of that name, which is no device."""
    if word and "/" not in word and word != ".." and len(word) < 256:
        (tmp_path / word).touch()
    before = all_of(tmp_path)
    for options in ([], ["--json"], [f"--destroy={word}"]):
        done = subprocess.run([layout.guard(), *options, f"./{word}"], capture_output=True, cwd=tmp_path, timeout=PATIENCE_S)
        (line,) = done.stderr.decode(errors="replace").removesuffix("\n").split("\n")
        assert (done.returncode, done.stdout) == (2, b"") and line.startswith("durabench-guard: ")
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
    assert all_of(tmp_path) == before

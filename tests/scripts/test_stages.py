# SPDX-License-Identifier: GPL-2.0-only
"""A signal at every stage of a command (tests/stage): before each folder, each renaming of what was written, each program that is started.

After one that asks to stop, nothing is left and the exit status tells it. What `kill -9` leaves, the next start finds, removes and names.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from durabenchlib import formats
from durabenchlib.errors import Exit
from sample_run import document, job

import stages as at
from command import COMMAND, PATIENCE_S, environment, eventually, processes

MEASUREMENT = """
schema = "durabench-measurement/1"
name = "small"
title = "a small measurement"
engine = "fua-dsync"
targets = ["directory"]
before = "dsync"
after = "fua"
strategies = ["dsync", "fua"]
[variables]
[[case]]
name = "one"
job = "one.fio"
headline = true
metrics = [{ name = "write.iops", better = "higher" }]
"""
JOB = """[global]
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
directory=${TARGET}
bs=4k
size=64k
rw=write
[one]
"""
@dataclass
class Stages:
    """Runs the command in a folder, in which all is that it writes to or makes for a while."""

    folder: Path

    def run(self, *arguments: str | Path, stage: str = "", number: str = "SIGKILL") -> subprocess.CompletedProcess[str]:
        return at.run(arguments, stage, number, TMPDIR=self.folder / "tmp")

    def left(self) -> set[str]:
        return at.left(self.folder)


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    for name in ("tmp", "place", "runs", "jobs/small"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jobs/small/measurement.toml").write_text(MEASUREMENT)
    (tmp_path / "jobs/small/one.fio").write_text(JOB)
    return Stages(tmp_path)


def run_arguments(stages: Stages) -> Iterator[list[str | Path]]:
    number = 0
    while True:
        number += 1
        options = ["--target", stages.folder / "place", "--strategy", "fua", "--repeat", "1"]
        yield ["run", stages.folder / "jobs/small", *options, "--output", stages.folder / f"runs/{number}"]


def run_stages(stages: Stages) -> list[str]:
    """The first program that a run starts, of those that say what the machine is; the observer; who removes the target's folder (while
    nothing is left, whose removal starts programs too). Then its folder, that of the target, that of the repetition; run.json,
    measurement.toml, job.fio, command.json, run.json when the repetition ended and in the end. How many programs say what the machine
    is depends on the machine."""
    arguments = next(run_arguments(stages))
    everything = at.all_of([*arguments[:-1], stages.folder / "runs/counted"], stages.folder / "calls", TMPDIR=stages.folder / "tmp")
    programs = sum(stage.startswith("subprocess.Popen") for stage in everything)
    others = [f"os.mkdir:{n}" for n in (1, 2, 3)] + [f"os.rename:{n}" for n in (1, 2, 3, 4, 5, 6)]
    return [*(f"subprocess.Popen:{n}" for n in (1, programs, programs - 1)), *others]


def test_killed_while_running(stages: Stages) -> None:
    left: set[str] = set()
    everything: set[str] = set()
    points = run_stages(stages)
    for stage, arguments in zip([*points, ""], run_arguments(stages)):
        done = stages.run(*arguments, stage=stage)
        assert done.returncode == (-signal.SIGKILL if stage else 0), (stage, done.stderr)
        assert at.named(done.stderr) == left, stage
        assert eventually(lambda arguments=arguments: not processes(arguments[-1]))
        if stage != points[2]:  # who would remove it
            assert eventually(lambda: not list((stages.folder / "place").iterdir()))
        left = stages.left()
        everything |= left
        output = Path(arguments[-1])
        if (output / "run.json").exists():
            assert formats.read_run(output).status == ("running" if stage else "complete")
    assert not left and not list((stages.folder / "tmp").iterdir())
    # Each was left at least once: the folder in the target, and what was not yet renamed.
    assert {Path(path).parent.name for path in everything} >= {"place", "001-one-fua-1"}


def test_stopped_while_running(stages: Stages) -> None:
    for number, (stage, arguments) in enumerate(zip(run_stages(stages), run_arguments(stages))):
        name = at.STOPPING[number % len(at.STOPPING)]
        done = stages.run(*arguments, stage=stage, number=name)
        output = Path(arguments[-1])
        said = [line for line in done.stderr.splitlines() if line.startswith("durabench: ")]
        if stage in ("os.rename:6", "os.mkdir:1"):
            # It was complete but for being written down; or nothing was begun, and then it is.
            assert done.returncode in (0, Exit[name]), (stage, name, done.stderr)
        else:
            assert (done.returncode, said) == (Exit[name], [f"durabench: stopped by {name}"]), (stage, done.stderr)
        if output.exists() and done.returncode:
            assert formats.read_run(output).status == "partial", stage
        assert not stages.left() and not list((stages.folder / "place").iterdir()), stage
        assert not processes(output)
    done = stages.run(*arguments[:-1], stages.folder / "runs/pipe", stage="os.rename:2", number="SIGPIPE")
    assert done.returncode == 0, done.stderr


def test_nobody_reads_what_is_said(stages: Stages) -> None:
    arguments = next(run_arguments(stages))
    command = subprocess.Popen([COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment())
    assert command.stdout
    command.stdout.close()
    assert command.wait(PATIENCE_S) == 0
    assert formats.read_run(Path(arguments[-1])).status == "complete"


def test_what_is_ignored_does_not_stop(stages: Stages) -> None:
    """nohup(1)."""
    arguments = next(run_arguments(stages))
    done = at.run(arguments, "os.rename:2", "SIGHUP", under=["env", "--ignore-signal=HUP"])
    assert done.returncode == 0, done.stderr


WRITERS = {
    "compare": (["compare", "{one}", "{two}", "--format", "json", "--output", "{out}/compared.json"], ["os.rename:1"]),
    "gate": (["gate", "--baseline", "{one}", "--candidate", "{two}", "--json", "{out}/g.json", "--junit", "{out}/g.xml"], ["os.rename:2"]),
    "report": (["report", "{one}", "{two}", "-o", "{out}/r.html", "--pictures", "{out}/pictures"], ["os.rename:1", "os.rename:2", "os.rename:4"]),
}


@pytest.mark.parametrize("command", WRITERS)
def test_results_that_are_being_written(stages: Stages, command: str) -> None:
    """What was there before stays until there is the whole of the new."""
    words, points = WRITERS[command]
    out = stages.folder / "out"
    places = {"out": out}
    for number, name in enumerate(("one", "two")):
        places[name] = stages.folder / f"{name}.json"
        places[name].write_text(document(job("w", writes=[100_000 + number] * 100)))
    arguments = [word.format(**places) for word in words]
    out.mkdir()
    first = stages.run(*arguments)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert before and not at.named(first.stderr)
    left: set[str] = set()
    for number, stage in enumerate(points):
        done = stages.run(*arguments, stage=stage)
        assert done.returncode == -signal.SIGKILL and at.named(done.stderr) == left, done.stderr
        left = stages.left()
        assert len(left) == 1
        assert {path: path.read_bytes() for path in before} == before
        name = at.STOPPING[(len(command) + number) % len(at.STOPPING)]
        done = stages.run(*arguments, stage=stage, number=name)
        assert at.named(done.stderr) == left and done.stderr.endswith(f"durabench: stopped by {name}\n"), done.stderr
        assert done.returncode == Exit[name] and not stages.left()
        assert {path: path.read_bytes() for path in before} == before
        left = set()


def test_no_room_for_a_run(stages: Stages, mount) -> None:
    """At whatever point it is full: one message, and what was there before is as it was."""
    place = mount("tmpfs", "64k")
    (place / "earlier").write_text("earlier")
    for number, (size, arguments) in enumerate(zip((0, 8, 16, 24), run_arguments(stages))):
        (place / "filled").unlink(missing_ok=True)
        statistics = os.statvfs(place)
        (place / "filled").write_bytes(bytes(statistics.f_bavail * statistics.f_frsize - (size << 10)))
        output = place / f"run-{number}"
        done = stages.run(*arguments[:-1], output)
        own = [line for line in done.stderr.splitlines() if line.startswith("durabench: ")]
        assert done.returncode == 1 and len(own) == 1, done.stderr
        assert "No space left on device" in own[0], own
        assert (place / "earlier").read_text() == "earlier"
        assert not list((stages.folder / "place").iterdir()) and not stages.left()
        if (output / "run.json").exists():
            assert formats.read_run(output).status in ("failed", "running")
        shutil.rmtree(output, ignore_errors=True)

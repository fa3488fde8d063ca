# SPDX-License-Identifier: GPL-2.0-only
"""Running durabench-observe and reading what it wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD

@dataclass
class Observation:
    """A run that has ended; `exit_status` is minus the signal that ended it."""

    exit_status: int
    stdout: str
    stderr: str
    summary: dict[str, Any] | None
    header: dict[str, Any] | None
    samples: list[dict[str, Any]]

    def device(self, name: str) -> dict[str, Any]:
        assert self.summary is not None, self.stderr
        found = [each for each in self.summary["devices"] if each["name"] == Path(name).name]
        assert len(found) == 1, self.summary["devices"]
        return found[0]


@dataclass
class Observer:
    """Starts the observer with -o and -j in a folder."""

    program: Path
    folder: Path

    @property
    def results(self) -> list[Path]:
        return [self.folder / "samples.jsonl", self.folder / "summary.json"]

    @property
    def parts(self) -> list[Path]:
        return [path.with_name(path.name + ".part") for path in self.results]

    def command(self, *arguments: str | bytes | Path) -> list[str | bytes | Path]:
        return [self.program, "-o", self.results[0], "-j", self.results[1], *arguments]

    def start(self, *arguments: str | bytes | Path, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace", **options}
        return subprocess.Popen(self.command(*arguments), **options)

    def end(self, process: subprocess.Popen[str]) -> Observation:
        stdout, stderr = process.communicate(timeout=60)
        assert "Sanitizer" not in stderr and "runtime error" not in stderr, stderr
        samples, summary = self.results
        lines = [json.loads(line) for line in samples.read_text().splitlines()] if samples.exists() else []
        return Observation(
            exit_status=process.returncode,
            stdout=stdout,
            stderr=stderr,
            summary=json.loads(summary.read_text()) if summary.exists() else None,
            header=lines[0] if lines else None,
            samples=lines[1:],
        )

    def run(self, *arguments: str | bytes | Path, **options: Any) -> Observation:
        return self.end(self.start(*arguments, **options))


@pytest.fixture
def observer(tmp_path: Path) -> Observer:
    program = BUILD / "observe/durabench-observe"
    assert program.exists(), f"{program} is missing: run make"
    return Observer(program, tmp_path)


RECORDER = """\
#!/usr/bin/python3
# Says "ready", then the name of each signal it gets, and ends at the last.
import signal, sys
wanted = int(sys.argv[1])
signals = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with open(sys.argv[2], "a", buffering=1) as out:
    print("ready", file=out)
    for _ in range(wanted):
        print(signal.Signals(signal.sigwait(signals)).name, file=out)
sys.exit(23)
"""


@dataclass
class Recorder:
    """A command that records the signals it gets."""

    script: Path
    log: Path

    def command(self, wanted: int) -> list[str | Path]:
        return [self.script, str(wanted), self.log]

    def wait_for(self, count: int) -> list[str]:
        """The first `count` things it recorded, waiting for them."""
        done = subprocess.run(
            ["timeout", "60", "sh", "-c", 'until [ "$(wc -l < "$0")" -ge $1 ]; do sleep 0.02; done', self.log, str(count)]
        )
        assert done.returncode == 0, f"waited in vain for {count} lines: {self.log.read_text()!r}"
        return self.log.read_text().split()


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    made = Recorder(tmp_path / "recorder", tmp_path / "recorded")
    made.script.write_text(RECORDER)
    made.script.chmod(0o755)
    made.log.touch()
    return made


@pytest.fixture
def started() -> Iterator[Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]]]:
    """started(process) -> the process, which is ended with the test if it still runs."""
    processes: list[subprocess.Popen[Any]] = []

    def keep(process: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
        processes.append(process)
        return process

    yield keep
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()

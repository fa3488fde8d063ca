# SPDX-License-Identifier: GPL-2.0-only
"""What the parts of the benchmark share.

A part is a module beside this one with `figures(context) -> Iterator[Figure]`,
which yields each figure as soon as it has it; tests/bench/run lists them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from durabenchlib import fiojson, layout


@dataclass(frozen=True)
class Figure:
    """One result. `spread` is where the middle 80% of the rounds lie."""

    name: str
    value: float
    goal: float
    met: bool
    spread: tuple[float, float] | None = None

    @classmethod
    def at_least(cls, name: str, value: float, goal: float, spread: tuple[float, float] | None = None) -> Figure:
        return cls(name, value, goal, value >= goal, spread)

    @classmethod
    def at_most(cls, name: str, value: float, goal: float, spread: tuple[float, float] | None = None) -> Figure:
        return cls(name, value, goal, value <= goal, spread)


class Unmeasured(Exception):
    """A part can't be measured here; the text says why."""


@dataclass(frozen=True)
class Context:
    """`directory` is on a tmpfs, `out` on a file system with a device below it; `log_mb` is the size of logs that are made to be
    read, `fio_plot` a checkout of fio-plot if one is given."""

    directory: Path
    out: Path
    rounds: int
    runtime: float
    log_mb: int
    fio_plot: Path | None

    def fio(self, *options: str, under: list[str | Path] | None = None) -> fiojson.Document:
        """Run fio, which must succeed. `under` is a command that runs it."""
        output = self.out / "fio.json"
        command = [*(under or []), layout.fio(), "--output-format=json", f"--output={output}", *options]
        done = subprocess.run(["timeout", "600", *command], capture_output=True, text=True)
        if done.returncode:
            raise Unmeasured(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
        return fiojson.read(output)

    @contextmanager
    def mounted(self, kind: str = "xfs", size: str = "1G") -> Iterator[Path]:
        """A new file system of that kind on a loop device."""
        image, point = self.out / f"{kind}.img", self.out / kind
        point.mkdir(parents=True, exist_ok=True)
        image.unlink(missing_ok=True)
        try:
            for command in (
                ["truncate", "-s", size, image],
                [f"mkfs.{kind}", "-q", image],
                ["mount", "-o", "loop", image, point],
            ):
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise Unmeasured(f"{kind} on a loop device can't be made here: {done.stderr.strip()}")
            try:
                yield point
            finally:
                subprocess.run(["umount", point], check=True)
        finally:
            image.unlink(missing_ok=True)


def engine(name: str) -> list[str]:
    """fio's option for one of our engines; its own options follow."""
    return [f"--ioengine=external:{layout.engines() / f'fio-{name}.so'}"]

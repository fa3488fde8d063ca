# SPDX-License-Identifier: GPL-2.0-only
"""dm-linear-flush: what a long table costs, once and at each I/O.

The lookup is counted by callgrind: a binary search has one step more for each
doubling of the table, so instructions grow with the logarithm of its lines.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from math import log2
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from common import Context, Figure, Unmeasured

PROGRAM = Path(__file__).resolve().parents[2] / "build/tests/bench_linear_table"
LINES = 65536
LOOKUPS = 10000
LOAD_GOAL_S = 0.1


def make_table(folder: Path, lines: int, devices: int) -> Path:
    """Lines that alternate over so many files."""
    files = [folder / f"device-{i}" for i in range(devices)]
    for file in files:
        file.touch()
    subprocess.run(["truncate", "--size=4096", *files], check=True)
    table = folder / f"table-{lines}-{devices}"
    table.write_text("".join(f"{i * 8} 8 linear {files[i % devices]} 0\n" for i in range(lines)))
    return table


def load_s(table: Path, rounds: int) -> float:
    """The best of some rounds: what disturbs it only adds."""
    runs = [subprocess.run([PROGRAM, table, "0"], capture_output=True, text=True, check=True) for _ in range(rounds)]
    return min(float(run.stdout) for run in runs)


def lookup(context: Context, table: Path) -> float:
    """Instructions of one."""
    profile = context.out / "callgrind-table"
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=linear_table_find", f"--callgrind-out-file={profile}"]
    subprocess.run([*command, PROGRAM, table, str(LOOKUPS)], capture_output=True, check=True)
    return int(re.findall(r"^totals: (\d+)", profile.read_text(), re.MULTILINE)[0]) / LOOKUPS


def figures(context: Context) -> Iterator[Figure]:
    if not which("valgrind"):
        raise Unmeasured("valgrind is missing")
    with TemporaryDirectory(dir=context.directory) as folder:
        for devices in (1, 2, 900):
            table = make_table(Path(folder), LINES, devices)
            name = f"table of {LINES} lines, {devices} device{'s' * (devices > 1)}, s to load"
            yield Figure.at_most(name, load_s(table, context.rounds), LOAD_GOAL_S)

        one, two = (lookup(context, make_table(Path(folder), lines, 1)) for lines in (1, 2))
        for lines in (1, 16, 256, 4096, LINES):
            value = lookup(context, make_table(Path(folder), lines, 1))
            goal = one + (two - one) * log2(lines)
            yield Figure.at_most(f"lookup in a table of {lines} lines, instructions", value, goal)

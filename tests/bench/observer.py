# SPDX-License-Identifier: GPL-2.0-only
"""The CPU that the observer takes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from common import Context, Figure
from durabenchlib import layout

CPU_GOAL = 1.0  # % of one CPU


def figures(context: Context) -> Iterator[Figure]:
    summary = context.out / "observe.json"
    command = [layout.observer(), "-i", "100ms", "-j", summary, "--", "sleep", "5"]
    subprocess.run(command, check=True, capture_output=True)
    observed = json.loads(summary.read_text())
    cpu = observed["system"]["observer_cpu_s"] / observed["elapsed_s"] * 100
    yield Figure.at_most("durabench-observe at 10 Hz, % of a CPU", cpu, CPU_GOAL)

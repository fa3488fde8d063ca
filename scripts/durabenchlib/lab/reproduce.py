# SPDX-License-Identifier: GPL-2.0-only
"""`durabench lab reproduce`: every published measurement, before and after, on the kernels and devices of its [lab], in one
report."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import compare, formats, layout, measurement, report, results, signals
from ..errors import Exit, Failure
from ..formats import Comparison
from ..results import Run
from . import guest, kernels, plan


def add_parser(subparsers: Any) -> None:
    """Add `lab reproduce` to the command's parsers."""
    parser = subparsers.add_parser(
        "reproduce",
        help="all published measurements, before and after, in guests",
        description="Run all measurements on the kernels and devices of their [lab], fetching what kernels are missing, and compare. "
        "Writes report.html and comparison.json.",
    )
    parser.add_argument("measurement", metavar="MEASUREMENT", nargs="*", help="default: all")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="a new or empty folder (default: build/reproduce, replaced)")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench lab reproduce`."""
    console = Console(stderr=True)
    names = args.measurement or [name for name in measurement.names() if measurement.find(name)[0].lab]
    output = layout.output(args.output, "reproduce")
    chosen = {name: _kernels(name) for name in names}
    plans = {name: [plan.make(plan.Request(name, kernel)) for kernel in found] for name, found in chosen.items()}
    signals.die_with_parent(signal.SIGTERM)
    with signals.caught() as stop:
        guest.shown([(one, output / name / one.kernel.name) for name, each in plans.items() for one in each], console, stop)
    runs: list[Run] = []
    comparison = Comparison([])
    for name, each in plans.items():
        done = [results.load_run(output / name / one.kernel.name) for one in each]
        runs += done
        comparison.measurements += _compared(done).measurements
    formats.write_json(output / "comparison.json", comparison)
    report.write_html(output / "report.html", runs, comparison)
    compare.print_text(comparison, Console())
    console.print(f"report: {output / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
    return Exit.OK


def _kernels(name: str) -> list[kernels.Kernel]:
    """The kernels of a measurement's [lab], fetched if they are not there."""
    found, _ = measurement.find(name)
    if found.lab is None:
        raise Failure(Exit.USAGE, f"{name} has no [lab] in its measurement.toml, so there is nothing to reproduce it with")
    have = {kernels.series_of(kernel.version) for kernel in kernels.fetched()}
    missing = [series for series in found.lab.kernels if series not in have]
    if missing:
        kernels.fetch(missing)
    return [kernels.find(series) for series in found.lab.kernels]


def _compared(runs: Sequence[Run]) -> Comparison:
    """Two kernels by the strategies that leave it to the kernel, one by those that stand for before and after."""
    return compare.compare_runs(runs[0], runs[-1])

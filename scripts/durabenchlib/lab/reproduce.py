# SPDX-License-Identifier: GPL-2.0-only
"""`durabench lab reproduce`: every published measurement, before and after, on the kernels and devices of its [lab], in one
report."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import compare, formats, layout, leftovers, measurement, report, results, signals, tables
from ..errors import Exit, Failure
from ..formats import Comparison, LabComparison, Measurement, MeasurementComparison
from ..progress import say
from ..results import Run
from . import guest, kernels, plan
from .kernels import Kernel

# A guest's run, or why there is none; by the measurement's name and by the kernel as its [lab] names it.
Runs = Mapping[tuple[str, str], Run | Failure]


def add_parser(subparsers: Any) -> None:
    """Add `lab reproduce` to the command's parsers."""
    parser = subparsers.add_parser(
        "reproduce",
        help="all published measurements, before and after, in guests",
        description="Make all comparisons of the measurements' [lab], fetching what kernels are missing. Writes report.html and "
        "comparison.json. If a guest fails, the others' results are reported, and what is missing; the exit status is that failure's.",
    )
    parser.add_argument("measurement", metavar="MEASUREMENT", nargs="*", help="default: all")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="a new or empty folder (default: build/reproduce, replaced)")
    parser.set_defaults(func=run, places=_places)


def _places(args: argparse.Namespace) -> Iterator[Path]:
    """Where one that was killed may have left something; its own folder is emptied."""
    yield from (leftovers.temporary(), kernels.folder())
    if args.output:
        yield args.output
        for measured in args.output.iterdir() if args.output.is_dir() else ():
            yield from leftovers.of_runs(measured)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench lab reproduce`."""
    console = Console(stderr=True)
    names = args.measurement or [name for name in measurement.names() if measurement.find(name)[0].lab]
    found = [measurement.find(name)[0] for name in dict.fromkeys(names)]
    signals.die_with_parent(signal.SIGTERM)
    with ExitStack() as kept, signals.caught() as stop:
        # By measurement and kernel, the strategies of each case.
        needed = {(each.name, series): cases for each in found for series, cases in plan.needed(each).items()}
        with stop.heeded():
            there, gone = _kernels([series for _, series in needed])
        requests = {
            (name, series): plan.Request(name, there[series], cases) for (name, series), cases in needed.items() if series in there
        }
        made = plan.all_of(requests.values(), stop)
        output = kept.enter_context(layout.output(args.output, "reproduce"))
        plans = [(each, output / each.run.measurement.name / each.kernel.name) for each in made]
        failures = guest.shown(plans, console, stop)
    runs: dict[tuple[str, str], Run | Failure] = {key: gone[key[1]] for key in needed if key[1] in gone}
    runs |= {key: _loaded(path, failures.get(path)) for key, (_, path) in zip(requests, plans, strict=True)}
    comparison = compared(found, runs)
    formats.write_json(output / "comparison.json", comparison)
    if comparison.measurements:
        report.write_html(output / "report.html", [each for each in runs.values() if isinstance(each, Run)], comparison)
        # Wide enough for the table, where no terminal limits it.
        _print(comparison, Console() if sys.stdout.isatty() else Console(width=120))
        say(console, f"report: {output / 'report.html'}")
    for text in comparison.missing:
        say(console, f"missing: {text}")
    for failure in (*gone.values(), *failures.values()):
        raise failure
    return Exit.OK


def _kernels(names: Sequence[str]) -> tuple[dict[str, Kernel], dict[str, Failure]]:
    """The kernels of these series, fetched if they are not there; and why those that can't be had can't."""
    have = {kernels.series_of(kernel.version) for kernel in kernels.fetched()}
    there: dict[str, Kernel] = {}
    gone: dict[str, Failure] = {}
    for series in dict.fromkeys(names):
        try:
            there[series] = kernels.find(series) if series in have else kernels.fetch([series])[0]
        except Failure as failure:
            gone[series] = failure
    return there, gone


def _loaded(path: Path, failure: Failure | None) -> Run | Failure:
    try:
        return results.load_run(path)
    except Failure as unusable:
        return failure or unusable


def compared(found: Sequence[Measurement], runs: Runs) -> Comparison:
    """All comparisons of the measurements' [lab], as far as the runs go, and what is missing of them."""
    made = Comparison([])
    for each in found:
        for comparison in each.lab.comparisons if each.lab else []:
            measurements, missing = _one(each, comparison, runs)
            made.measurements += measurements
            made.missing += missing
    return made


def _one(found: Measurement, comparison: LabComparison, runs: Runs) -> tuple[list[MeasurementComparison], list[str]]:
    (before_kernel, before_strategy), (after_kernel, after_strategy) = measurement.sides(comparison)
    before, after = runs[found.name, before_kernel], runs[found.name, after_kernel]
    name = f"{found.name}, {comparison.before} against {comparison.after}"
    for side in (before, after):
        if isinstance(side, Failure):
            return [], [f"{name}: {side}"]
    assert isinstance(before, Run) and isinstance(after, Run)
    cases = [case.name for case in measurement.compared_cases(found, comparison)]
    try:
        made = compare.compare_runs(before.only(cases), after.only(cases), before_strategy, after_strategy).measurements
    except Failure as failure:
        return [], [f"{name}: {before.manifest.reason or after.manifest.reason or failure}"]
    for each in made:
        each.before = f"{before.manifest.environment.kernel}:{before_strategy}"
        each.after = f"{after.manifest.environment.kernel}:{after_strategy}"
    have = {case.name for each in made for case in each.cases}
    reason = before.manifest.reason or after.manifest.reason or "it was not measured on both sides"
    return made, [f"{name}: {case}: {reason}" for case in cases if case not in have]


def _print(comparison: Comparison, console: Console) -> None:
    """The cells of all comparisons, beside those that were published."""
    for title, rows in _tables(comparison):
        console.print(Text(tables.printable(title), style="bold"), soft_wrap=True)
        table = Table(box=None, padding=(0, 1, 0, 0))
        for head in ("case", "metric", "before", "after", "ratio", "published", "", "ratio", "ours/theirs"):
            table.add_column(head, justify="left" if head in ("case", "metric") else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(tables.printable(cell)) for cell in row))
        console.print(table)
        console.print()


def _tables(comparison: Comparison) -> Iterator[tuple[str, list[list[str]]]]:
    """A title and rows for each comparison."""
    for each in comparison.measurements:
        rows = []
        for case in each.cases:
            for metric, row in zip(case.metrics, tables.metric_rows(case), strict=True):
                over = tables.ratio(metric.published.ratio_of_ratios) if metric.published else ""
                rows.append([case.name, row.name, row.before, row.after, row.ratio, *row.published, over])
        yield f"{each.name}: {each.before} -> {each.after}", rows

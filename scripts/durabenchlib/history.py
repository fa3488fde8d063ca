# SPDX-License-Identifier: GPL-2.0-only
"""`durabench history`: where a metric changed over many results, and which of these changes are known."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import __version__, compare, foreign, formats, judge, results, stats, tables
from .errors import Exit, Failure
from .formats import Acknowledgements, Change, History, Metric, Series
from .results import Run

# Results between two changes, and so before the first and after the last: one that strays is no change.
_LEAST = 3


def find(runs: Sequence[tuple[str, Run]], known: Acknowledgements) -> History:
    """The changes over results in their order, each with its name. A result counts as one value of each metric: the median of its
    repetitions."""
    measurement = runs[0][1].measurement
    names = {run.measurement.name for _, run in runs}
    if len(names) > 1:
        raise Failure(Exit.USAGE, f"these are results of {' and '.join(sorted(names))}; a history is that of one measurement")
    seen: set[int] = set()
    series = [
        _series(runs, case, strategy, metric, known, seen)
        for case, metrics in _cases(runs).items()
        for strategy in dict.fromkeys(each.entry.strategy for _, run in runs for each in run.repetitions if each.entry.case == case)
        for metric in metrics
    ]
    unseen = [f"{each.at}: {each.reason}" for number, each in enumerate(known.change) if number not in seen]
    return History(__version__, measurement.name, [each for each in series if each.values], unseen)


def _cases(runs: Sequence[tuple[str, Run]]) -> dict[str, list[Metric]]:
    """The cases of all results, with the metrics that any of them has: of fio's own files each has its own."""
    cases: dict[str, dict[str, Metric]] = {}
    for _, run in runs:
        for case in run.measurement.case:
            for metric in case.metrics:
                cases.setdefault(case.name, {}).setdefault(metric.name, metric)
    return {name: list(metrics.values()) for name, metrics in cases.items()}


def _series(
    runs: Sequence[tuple[str, Run]], case: str, strategy: str, metric: Metric, known: Acknowledgements, seen: set[int]
) -> Series:
    points: list[tuple[str, str, float]] = []
    for name, run in runs:
        values = [each.metric(metric.name) for each in run.of(case, strategy)]
        there = [value for value in values if value is not None]
        if there and statistics.median(there) > 0:
            points.append((name, run.manifest.label, statistics.median(there)))
    margin = judge.margin(metric.name) if metric.margin is None else metric.margin
    series = Series(
        case=case,
        strategy=strategy,
        metric=metric.name,
        unit=results.unit(metric.name),
        better=metric.better,
        margin=margin,
        results=[name for name, _, _ in points],
        values=[value for _, _, value in points],
        changes=[],
    )
    places = stats.change_points([math.log(value) for value in series.values], least=_LEAST)
    ends = [0, *(place for place, _ in places), len(points)]
    for number, (place, p) in enumerate(places, 1):
        before, after = (statistics.median(series.values[ends[i] : ends[i + 1]]) for i in (number - 1, number))
        ratio = after / before
        if 1 / (1 + margin) <= ratio <= 1 + margin:
            continue
        worse = (ratio > 1) == (metric.better == "lower")
        change = Change(points[place][0], before, after, ratio, p, "regressed" if worse else "improved")
        _acknowledge(change, series, points[place][:2], known, seen)
        series.changes.append(change)
    return series


def _acknowledge(change: Change, series: Series, names: Sequence[str], known: Acknowledgements, seen: set[int]) -> None:
    for number, each in enumerate(known.change):
        wanted = (each.case, each.strategy, each.metric)
        of = (series.case, series.strategy, series.metric)
        if each.at in names and all(word in ("", name) for word, name in zip(wanted, of)):
            change.acknowledged = each.reason
            seen.add(number)


def text(history: History) -> Iterator[str]:
    """A line for each change, the series without any summed up."""
    quiet = [each for each in history.series if not each.changes]
    for series in history.series:
        for change in series.changes:
            line = (
                f"{change.verdict}: {_name(series)} at {change.at}: {tables.number(change.before)} -> {tables.number(change.after)} "
                f"{series.unit}, {tables.ratio(change.ratio)} (p {change.p:.1g})"
            )
            yield line if change.acknowledged is None else f"{line}; known: {change.acknowledged}"
    for series in quiet:
        yield f"no change: {_name(series)}, {len(series.values)} results{_short(series)}"
    for each in history.unseen:
        yield f"warning: acknowledged, but no change is seen there: {each}"


def _name(series: Series) -> str:
    return " ".join(filter(None, (series.case, series.strategy if series.strategy != foreign.STRATEGY else "", series.metric)))


def _short(series: Series) -> str:
    """Whether a change could be found at all."""
    least = 2 * stats.repetitions_needed(1)
    return "" if len(series.values) >= least else f", too few: to find a change takes {least}"


def add_parser(subparsers: Any) -> None:
    """Add `history` to the command's parsers."""
    parser = subparsers.add_parser(
        "history",
        help="find where results changed over time",
        description="Find change points over many results of one measurement. A result is a run's folder (these are put in the order "
        "in which they were created), a file of fio's own JSON, or a folder of such (in the order given; the files of a single "
        "folder are a result each). Exit status: 0, or 1 if there is a regression that is not acknowledged.",
    )
    parser.add_argument("results", metavar="RUN|FILE", nargs="+")
    parser.add_argument("--acknowledged", metavar="FILE", type=Path, help="changes that are known (durabench-acknowledged/1)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench history`."""
    known = formats.read_acknowledgements(args.acknowledged) if args.acknowledged else Acknowledgements()
    found = find(_load(args.results), known)
    with contextlib.suppress(BrokenPipeError):  # that nobody reads it hides no alarm
        if args.format == "json":
            sys.stdout.write(formats.to_json(found))
        else:
            for line in text(found):
                print(tables.printable(line))
    alarms = [each for series in found.series for each in series.changes if each.verdict == "regressed" and each.acknowledged is None]
    return Exit.FAILED if alarms else Exit.OK


def _load(words: Sequence[str]) -> list[tuple[str, Run]]:
    if len(words) == 1 and os.path.isdir(words[0]) and foreign.is_fio(Path(words[0])):
        words = [str(path) for path in foreign.files(Path(words[0]))]
    foreign.refuse_twice(compare.selection(word)[0] for word in words)
    loaded = [(Path(word).name, compare.load_side([word], Path(word).name)[0]) for word in words]
    if all(run.manifest.created for _, run in loaded):
        loaded.sort(key=lambda each: each[1].manifest.created)
    return loaded

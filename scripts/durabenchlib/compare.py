# SPDX-License-Identifier: GPL-2.0-only
"""`durabench compare`: two strategies of one run, or two runs, metric by metric, beside what was published and what
kernel and device did."""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from . import advice, foreign, formats, judge, leftovers, outputs, results, strategies, tables
from .errors import Exit, Failure
from .formats import CaseComparison, Comparison, MeasurementComparison, MetricComparison, Noise, PublishedCell
from .results import Pair, Repetition, Run

FORMATS = ("text", "md", "json", "csv")


def load_side(words: Sequence[str], label: str) -> tuple[Run, str | None]:
    """One side of a comparison: the folder of a run and the strategy named with it, if one is (RUN[:STRATEGY]), or fio's own
    files and folders of such; `label` names these."""
    path, strategy = selection(words[0])
    if strategy is None and foreign.is_fio(path):
        return foreign.load([Path(word) for word in words], label), None
    if len(words) > 1:
        raise Failure(Exit.USAGE, f"{label}: one run makes a side, or fio's own files; {path} is none of these")
    return results.load_run(path), strategy


def compare_runs(
    before: Run,
    after: Run,
    before_strategy: str | None = None,
    after_strategy: str | None = None,
    noise: Noise | None = None,
) -> Comparison:
    """Compare two strategies of one run (where none are named, those that stand for before and after), or the same
    cases and strategies of two runs. Margins are raised to the noise."""
    if before.manifest.measurement != after.manifest.measurement:
        raise Failure(
            Exit.USAGE,
            f"{before.path} measured {before.manifest.measurement} and {after.path} {after.manifest.measurement}; "
            "runs of one measurement can be compared",
        )
    pairs = _pairs(before, after, before_strategy, after_strategy)
    measurement = MeasurementComparison(
        name=before.measurement.name,
        title=before.measurement.title,
        before=_head([pair.before_strategy for pair in pairs], before.manifest.label),
        after=_head([pair.after_strategy for pair in pairs], after.manifest.label),
        environment={"before": environment(before), "after": environment(after)},
        warnings=advice.warnings(before, after, pairs),
        cases=[_case(pair, before) for pair in pairs],
    )
    judge.judge(measurement, noise)
    return Comparison([measurement])


def _pairs(before: Run, after: Run, before_strategy: str | None, after_strategy: str | None) -> list[Pair]:
    chosen: list[tuple[formats.Case, str, str]] = []
    for case in before.measurement.case:
        if before_strategy is not None and after_strategy is not None:
            chosen.append((case, before_strategy, after_strategy))
        elif before.path == after.path:
            chosen.append((case, case.before or before.measurement.before, case.after or before.measurement.after))
        else:
            chosen += [(case, strategy, strategy) for strategy in before.measurement.strategies]
    pairs = [Pair(case, old, new, before.of(case.name, old), after.of(case.name, new)) for case, old, new in chosen]
    pairs = [pair for pair in pairs if pair.before and pair.after]
    if not pairs:
        asked = " and ".join(dict.fromkeys(name for _, old, new in chosen for name in (old, new)))
        has = "; ".join(
            f"{run.path} has "
            + ", ".join(dict.fromkeys(f"{each.entry.case}:{each.entry.strategy}" for each in run.repetitions))
            for run in ([before] if before.path == after.path else [before, after])
        )
        raise Failure(Exit.INPUT, f"no case was measured on both sides with {asked}: {has}")
    return pairs


def _head(names: list[str], label: str) -> str:
    """Head of a column: the strategy where all cases have the same, else the run's label."""
    return names[0] if len(set(names)) == 1 else label


def environment(run: Run) -> dict[str, Any]:
    """What a comparison tells of the run of one side."""
    return {
        "run": str(run.path),
        "label": run.manifest.label,
        "created": run.manifest.created,
        "demo": run.manifest.demo,
        **dataclasses.asdict(run.manifest.environment),
        "target": dataclasses.asdict(run.manifest.target),
    }


def _case(pair: Pair, run: Run) -> CaseComparison:
    case = CaseComparison(
        name=pair.case.name,
        variant=pair.case.variant,
        before=pair.before_strategy,
        after=pair.after_strategy,
        repetitions={"before": len(pair.before), "after": len(pair.after)},
        metrics=[_metric(metric, pair, run) for metric in pair.case.metrics],
        mechanism={"before": _mechanism(pair.before), "after": _mechanism(pair.after)},
    )
    case.checks = judge.checks(pair, case)
    return case


def _metric(metric: formats.Metric, pair: Pair, run: Run) -> MetricComparison:
    before, after = (
        [value for value in (each.metric(metric.name) for each in repetitions) if value is not None]
        for _, repetitions in pair.sides()
    )
    distribution = results.distribution(metric.name)
    ratio = _ratio(_median(before), _median(after))
    return MetricComparison(
        name=metric.name,
        unit=results.unit(metric.name),
        better=metric.better,
        before=_median(before),
        after=_median(after),
        ratio=ratio,
        values={"before": before, "after": after},
        published=_published(metric.name, ratio, pair, run),
        samples=min(n for _, side in pair.sides() for n in (each.latency(distribution).n for each in side) if n)
        if distribution and before + after
        else None,
        margin=judge.margin(metric.name) if metric.margin is None else metric.margin,
    )


def _published(metric: str, ratio: float | None, pair: Pair, run: Run) -> PublishedCell | None:
    """What was published for a metric whose measured ratio is `ratio`, where the two sides stand for what was compared there: the
    measurement's two strategies on one kernel, or the kernel's own way on two."""
    case, measurement = pair.case, run.measurement
    stands_for = (case.before or measurement.before, case.after or measurement.after)
    sides = (pair.before_strategy, pair.after_strategy)
    if run.published is None or not (sides == stands_for or (sides[0] == sides[1] and strategies.is_kernels(sides[0]))):
        return None
    for table in run.published.table:
        for row in table.rows:
            if table.case == (case.published or case.name) and row.metric == metric:
                published = _ratio(row.before, row.after)
                return PublishedCell(row.before, row.after, published, _ratio(published, ratio))
    return None


def _mechanism(repetitions: list[Repetition]) -> dict[str, float | None]:
    return {
        key: _median(each.mechanism[key] for each in repetitions if each.mechanism[key] is not None)
        for key in results.MECHANISM
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after is not None else None


def print_text(comparison: Comparison, console: Console) -> None:
    """Print a comparison as text for people."""
    for kind, line in tables.lines(comparison):
        console.print(Text(line, style={"heading": "bold", "warning": "yellow"}.get(kind, "")), soft_wrap=True)


def add_parser(subparsers: Any) -> None:
    """Add `compare` to the command's parsers."""
    parser = subparsers.add_parser(
        "compare",
        help="show before, after and ratio beside what was published and what the kernel did",
        description="Compare the before and after strategies of one run, or two runs of one measurement case by case "
        "(two kernels, two devices). RUN is a run's folder; RUN:STRATEGY picks one strategy, for both sides or none.",
    )
    parser.add_argument("before", metavar="RUN[:STRATEGY]")
    parser.add_argument(
        "after", metavar="RUN[:STRATEGY]", nargs="?", help="the run to compare with (default: the same)"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to FILE instead of standard output")
    parser.set_defaults(func=run, places=lambda args: leftovers.beside(args.output))


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench compare`."""
    if args.output:
        outputs.check([args.output], [selection(word)[0] for word in (args.before, args.after) if word])
    before, before_strategy = load_side([args.before], "before")
    if args.after is None and before.measurement.name == foreign.NAME:
        raise Failure(Exit.USAGE, f"{args.before}: fio's own files are compared with others; name both")
    after, after_strategy = load_side([args.after], "after") if args.after else (before, None)
    if (before_strategy is None) != (after_strategy is None):
        raise Failure(Exit.USAGE, "name a strategy on both sides (RUN:STRATEGY RUN:STRATEGY) or on neither")
    comparison = compare_runs(before, after, before_strategy, after_strategy)
    if args.format == "text" and not args.output:
        print_text(comparison, Console())
        return Exit.OK
    write = {"text": tables.text, "md": tables.markdown, "csv": tables.comma_separated, "json": formats.to_json}[
        args.format
    ]
    written = write(comparison)
    if args.output:
        formats.write_text(args.output, written)
    else:
        sys.stdout.write(written)
    return Exit.OK


def selection(text: str) -> tuple[Path, str | None]:
    """Folder and strategy of RUN[:STRATEGY]; a colon in the folder's own name is no separator."""
    path = Path(text)
    if not os.path.exists(path) and ":" in text:
        folder, strategy = text.rsplit(":", 1)
        return Path(folder), strategy
    return path, None

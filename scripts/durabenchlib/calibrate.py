# SPDX-License-Identifier: GPL-2.0-only
"""`durabench calibrate`: the noise of a host, from repetitions of unchanged code, and how many of them find what."""

from __future__ import annotations

import argparse
import bisect
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import __version__, compare, environment, foreign, formats, judge, leftovers, outputs, stats, tables
from .errors import Exit, Failure
from .formats import MetricNoise, Noise
from .results import Run

# Shares of slowdown that are found, and how often they have to be.
_EFFECTS = (0.02, 0.05, 0.10)
_POWER = 0.95
# Simulated in so many trials, a share that is at least _POWER in truth is below this in one of twenty.
_TRIALS = 1000
_LEAST_SHARE = _POWER + 1.645 * (_POWER * (1 - _POWER) / _TRIALS) ** 0.5

# Repetitions that are tried. Beyond the last, a quieter host or another metric helps more than patience.
_LADDER = (5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 50, 64, 80, 100)

# A single run is split into blocks of this many repetitions, in their order.
_BLOCK = 5


def measure(runs: Sequence[Run], effects: Sequence[float] = _EFFECTS, alpha: float = stats.ALPHA) -> Noise:
    """The noise in runs of one measurement, of unchanged code on one host. Each is a block; a single one is split into blocks of
    five repetitions."""
    names = {run.measurement.name for run in runs}
    if len(names) > 1:
        raise Failure(Exit.USAGE, f"these are runs of {' and '.join(sorted(names))}; the noise is that of one measurement")
    metrics: list[MetricNoise] = []
    short: dict[str, int] = {}
    for case in runs[0].measurement.case:
        for strategy in dict.fromkeys(each.entry.strategy for each in runs[0].repetitions if each.entry.case == case.name):
            for metric in case.metrics:
                series = [_values(run, case.name, strategy, metric.name) for run in runs]
                blocks = _split(series[0]) if len(series) == 1 else series
                if not any(series):
                    continue
                if len(blocks) < 2 or min(len(block) for block in blocks) < 2 or min(map(min, blocks)) <= 0:
                    short[f"{case.name} {strategy} {metric.name}"] = sum(map(len, series))
                    continue
                tests = sum(len(each.metrics) for each in runs[0].measurement.case if runs[0].of(each.name, strategy))
                least = judge.margin(metric.name) if metric.margin is None else metric.margin
                metrics.append(_noise((case.name, strategy, metric.name), blocks, least, tests, effects, alpha))
    if not metrics:
        name, n = next(iter(short.items()), ("", 0))
        raise Failure(
            Exit.INPUT,
            f"{runs[0].path}: the noise can't be told: {name} has {n} values above 0. Give two runs of two repetitions or more, or "
            f"one of {2 * _BLOCK} or more (durabench run --repeat 20)",
        )
    return Noise(
        durabench=__version__,
        created=environment.now(),
        runs=[str(run.path) for run in runs],
        environment=compare.environment(runs[0]),
        alpha=alpha,
        power=_POWER,
        metrics=metrics,
    )


def _values(run: Run, case: str, strategy: str, metric: str) -> list[float]:
    values = (each.metric(metric) for each in run.of(case, strategy))
    return [value for value in values if value is not None]


def _split(values: Sequence[float]) -> list[Sequence[float]]:
    """Blocks of at least five values, in their order."""
    blocks = max(1, len(values) // _BLOCK)
    ends = [round(number * len(values) / blocks) for number in range(blocks + 1)]
    return [values[start:end] for start, end in zip(ends, ends[1:])]


def _noise(
    name: tuple[str, str, str],
    blocks: Sequence[Sequence[float]],
    least: float,
    tests: int,
    effects: Sequence[float],
    alpha: float,
) -> MetricNoise:
    spread = stats.spread(blocks)
    floor = spread.floor(alpha)
    return MetricNoise(
        *name,
        repetitions=sum(map(len, blocks)),
        blocks=len(blocks),
        within=spread.within,
        between=spread.between,
        floor=floor,
        needed=_needed(spread, effects, max(least, floor), tests, alpha),
    )


def _needed(
    spread: stats.Spread, effects: Sequence[float], margin: float, tests: int, alpha: float
) -> dict[str, int | None]:
    """For each effect the repetitions on each side that find it; None where it lies within the margin, or none of those tried
    do."""

    @functools.cache
    def shares(n: int) -> dict[float, float]:
        return dict(zip(effects, stats.power(spread, effects, n, margin, tests, alpha, _TRIALS), strict=True))

    ladder = [n for n in _LADDER if n >= stats.repetitions_needed(tests, alpha)]
    needed: dict[str, int | None] = {}
    for effect in effects:
        place = len(ladder)
        if effect > margin:
            place = bisect.bisect_left(ladder, True, key=lambda n: bool(shares(n)[effect] >= _LEAST_SHARE))
        needed[f"{effect:g}"] = ladder[place] if place < len(ladder) else None
    return needed


def text(noise: Noise) -> Iterator[str]:
    """The noise as a table, widest effect last, and how to read it."""
    effects = list(noise.metrics[0].needed)
    head = ["metric", "n", "within", "between", "floor", *(f"{100 * float(effect):g}%" for effect in effects)]
    rows = [
        [
            f"{each.case} {each.strategy} {each.metric}",
            str(each.repetitions),
            f"{each.within:.2%}",
            f"{each.between:.2%}",
            f"{each.floor:.2%}",
            *("-" if n is None else str(n) for n in each.needed.values()),
        ]
        for each in noise.metrics
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        yield tables.printable("  ".join(cells))
    yield ""
    yield "within, between: standard deviations of repetitions, and of blocks of them beyond that"
    yield f"floor: what blocks of unchanged code differ by in {noise.alpha:.0%} of the cases; margins are raised to it"
    yield (
        f"{', '.join(head[5:])}: repetitions on each side that find such a slowdown in {noise.power:.0%} of the cases; -: none up to "
        f"{_LADDER[-1]} do, or it lies within the margin"
    )


def add_parser(subparsers: Any) -> None:
    """Add `calibrate` to the command's parsers."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure the noise of a host, and how many repetitions find what",
        description="Measure the noise of a host from runs of unchanged code: of two or more, each is a block; a single one is split "
        "into blocks of five repetitions in their order. Or from folders and files of fio's own JSON.",
    )
    parser.add_argument("runs", metavar="RUN|FILE", nargs="+")
    parser.add_argument(
        "--effect",
        metavar="RATIO",
        action="append",
        type=_effect,
        help=f"slowdown to be found, as 0.03 for 3%% (default: {', '.join(f'{effect:g}' for effect in _EFFECTS)})",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the noise for durabench gate --noise")
    parser.set_defaults(func=run, places=lambda args: leftovers.beside(args.output))


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench calibrate`."""
    if args.output:
        outputs.check([args.output], [compare.selection(word)[0] for word in args.runs])
    noise = measure(list(_runs(args.runs)), sorted(set(args.effect or _EFFECTS)))
    if args.output:
        formats.write_json(args.output, noise)
    for line in text(noise):
        print(tables.printable(line))
    return Exit.OK


def _runs(words: Sequence[str]) -> Iterable[Run]:
    """Files are the repetitions of one run, each folder is one."""
    foreign.refuse_twice(compare.selection(word)[0] for word in words)
    files = [word for word in words if os.path.isfile(word) and Path(word).name != "run.json"]
    if files:
        yield compare.load_side(files, "files")[0]
    for word in words:
        if word not in files:
            yield compare.load_side([word], word)[0]


def _effect(word: str) -> float:
    try:
        effect = float(word)
    except ValueError:
        effect = 0.0
    if not 0 < effect < 10:
        raise argparse.ArgumentTypeError(f"{word!r} is no slowdown; give a ratio less 1, as 0.03 for 3%")
    return effect

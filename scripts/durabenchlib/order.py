# SPDX-License-Identifier: GPL-2.0-only
"""Warns where the order of the repetitions shows in their values: a machine that drifts, or one repetition that leaves something
behind for the next. Interleaved sides (ABBA) share such an effect, so that their ratio may stand; their intervals grow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from . import judge, stats
from .results import Pair, Repetition, Run

# Of chance alone one case in a hundred is warned of.
_ALPHA = 0.01


def warnings(pairs: Sequence[Pair]) -> Iterator[str]:
    """Trends and effects of the position that are beyond chance and beyond the margin of the headline metric of a case."""
    for pair in pairs:
        if not pair.case.metrics:
            continue
        metric = pair.case.metrics[0]
        least = math.log1p(judge.margin(metric.name) if metric.margin is None else metric.margin)
        name = f"{pair.case.name} {metric.name}"
        sides = [_deviations(repetitions, metric.name) for _, repetitions in pair.sides()]
        if _of_one_run(pair):
            series = [(f"of {pair.before_strategy} and {pair.after_strategy}", sides[0] + sides[1])]
        else:
            series = [("before", sides[0]), ("after", sides[1])]
        for of, values in series:
            values.sort(key=lambda each: each[0].entry.order)
            change, p = stats.trend([value for _, value in values])
            if p < _ALPHA and abs(change) > least:
                yield (
                    f"{name} {'rises' if change > 0 else 'falls'} by {_share(change)} over the {len(values)} repetitions {of} "
                    f"(p {p:.1g}): the machine or the device was not in a steady state. Precondition the device, or let it settle "
                    "and repeat."
                )
        yield from _position(name, sides[0], sides[1], least) if _of_one_run(pair) else ()


def one_after_the_other(before: Run, after: Run) -> Iterator[str]:
    """A warning if all of one run was measured before all of the other, by a clock that others' work matters to."""
    lab = after.manifest.environment.lab
    if lab and lab.clock == "virtual":
        return
    old, new = (sorted(filter(None, map(_started, run.repetitions))) for run in (before, after))
    if old and new and (old[-1] < new[0] or new[-1] < old[0]):
        yield (
            "All of one side was measured before all of the other: a machine that changed meanwhile looks like a change of what is "
            "judged. Interleave them (two strategies of one run are), measure in virtual time, or raise margins to the noise of this "
            "host by --noise (durabench calibrate)."
        )


def _started(repetition: Repetition) -> str | None:
    """When a repetition began, in a form that sorts: by the manifest, or by fio, which tells from 3.36 on."""
    starts = [job.start_ms for job in repetition.fio.jobs if job.start_ms is not None]
    return repetition.entry.started or (f"{min(starts):015}" if starts else None)


def _position(
    name: str, before: Sequence[tuple[Repetition, float]], after: Sequence[tuple[Repetition, float]], least: float
) -> Iterator[str]:
    """Whether what comes first in a round differs from what comes second, whichever side it is."""
    rounds = {each.entry.round: [(each, value)] for each, value in before}
    for each, value in after:
        rounds.setdefault(each.entry.round, []).append((each, value))
    whole = [sorted(both, key=lambda each: each[0].entry.order) for both in rounds.values() if len(both) == 2]
    if not whole:
        return
    first, second = ([both[place][1] for both in whole] for place in (0, 1))
    change = statistics.median(second) - statistics.median(first)
    p = float(stats.rank_test(first, second))
    if p < _ALPHA and abs(change) > least:
        yield (
            f"{name}: what comes second in a round is {_share(change)} {'higher' if change > 0 else 'lower'} than what comes first, "
            f"on either side (p {p:.1g}): a repetition leaves something behind for the next, as a cache that is warm or a device "
            "that is busy. Pause between them, or drop the caches."
        )


def _of_one_run(pair: Pair) -> bool:
    """Whether the sides were interleaved: then no two repetitions have the same place."""
    orders = [each.entry.order for _, repetitions in pair.sides() for each in repetitions]
    return len(set(orders)) == len(orders) and pair.before[0].folder.parent == pair.after[0].folder.parent


def _deviations(repetitions: Sequence[Repetition], metric: str) -> list[tuple[Repetition, float]]:
    """Logarithm of each value less their mean; none where one is not above 0. (A median would be one of two values where each is
    first as often as second.)"""
    values = [(each, each.metric(metric)) for each in repetitions]
    known = [(each, value) for each, value in values if value is not None]
    if not known or min(value for _, value in known) <= 0:
        return []
    middle = statistics.fmean(math.log(value) for _, value in known)
    return [(each, math.log(value) - middle) for each, value in known]


def _share(change: float) -> str:
    return f"{abs(math.expm1(change)):.0%}"

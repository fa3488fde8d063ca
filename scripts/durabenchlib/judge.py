# SPDX-License-Identifier: GPL-2.0-only
"""Says of each metric and each part of the mechanism of a comparison whether it improved, did not change, regressed, can't be told,
or was not measured properly, and why (docs/statistics.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import results, stats, units
from .formats import Better, CaseComparison, Check, MeasurementComparison, MetricComparison, Noise, Statistics
from .results import Pair, Repetition

# Fewer values have no interval of the confidence that is claimed (docs/statistics.md has the coverage).
LEAST_REPETITIONS = 5

# Repetitions in virtual time that differ by no more than this have no noise to be told from.
_EXACT_SPREAD = 0.01

# Margins where the measurement has none of its own. A bucket of fio's histogram is up to 1/64 wide, so that no percentile can be
# told more finely than by 2%; the further out, the fewer samples it stands on.
_MARGIN = 0.02
_MARGIN_P99 = 0.05
_MARGIN_TAIL = 0.10
_MARGINS = {"dirty_peak": 0.10, "cpu": 0.05}


@dataclass(frozen=True)
class _Rule:
    """How a part of the mechanism is compared: which way is worse, and by how much ranges must lie apart, relative and in its
    unit. What is counted by operation leaves room for what the file system and the device do over time on their own."""

    better: Better
    tolerance: float
    slack: float
    note: str = ""


_WRITES_PER_SYNC = 100

_ACROSS = "the interval reaches across the margin"

_FEWER = "see that what has to be durable still is"
_RULES = {
    "flushes_per_write": _Rule("lower", 0.05, 0.02, _FEWER),
    "flush_calls_per_sync": _Rule("lower", 0.05, 0.02, _FEWER),
    "requests_per_write": _Rule("lower", 0.05, 0.02),
    "requests_per_sync": _Rule("lower", 0.05, 0.02),
    "durable_writes_per_write": _Rule("higher", 0.0, 0.001),
    "dirty_writeback_peak_bytes": _Rule("lower", 0.25, 16 * units.MIB),
}


def margin(name: str) -> float:
    """The margin of a metric of this name where its measurement has none."""
    if name.rpartition("/")[2] in _MARGINS:
        return _MARGINS[name.rpartition("/")[2]]
    percent = results.percent(name)
    if name.endswith(".max") or (percent is not None and percent > 99):
        return _MARGIN_TAIL
    return _MARGIN_P99 if percent is not None and percent > 90 else _MARGIN


def judge(measurement: MeasurementComparison, noise: Noise | None = None, alpha: float = stats.ALPHA) -> None:
    """Fill in the verdicts of all metrics and how they were reached. The tests share `alpha` by Holm's rule. Margins are raised to
    what unchanged code was seen to need in `noise`."""
    if noise:
        _raise_margins(measurement, noise)
    exact = all((side.get("lab") or {}).get("clock") == "virtual" for side in measurement.environment.values())
    tested: list[MetricComparison] = []
    for metric in (metric for case in measurement.cases for metric in case.metrics):
        before, after = metric.values["before"], metric.values["after"]
        if not before and not after:
            continue
        problem = _problem(metric)
        if problem:
            metric.verdict, metric.reason = "invalid", problem
        elif min(before + after) == 0:
            # There is no ratio; all of them are 0, or else _problem() would have said so.
            metric.verdict = "no change"
        elif exact and _exact(before) and _exact(after):
            metric.interval = [min(after) / max(before), max(after) / min(before)]
            _decide(metric, p=0.0, alpha=alpha)
            metric.reason = _ACROSS if metric.verdict == "inconclusive" else "exact: in virtual time the repetitions agree"
        elif min(len(before), len(after)) < 2:
            metric.verdict, metric.reason = "inconclusive", "one repetition does not tell how much the next one differs"
            tested.append(metric)
        else:
            metric.interval = [float(end) for end in stats.ratio_interval(before, after, alpha)]
            metric.p = float(stats.rank_test(before, after))
            tested.append(metric)
    needed = max(LEAST_REPETITIONS, stats.repetitions_needed(len(tested), alpha))
    measurement.statistics = Statistics(alpha, len(tested), needed)
    # One that has no p yet is one of the tests all the same.
    adjusted = stats.holm([1.0 if metric.p is None else metric.p for metric in tested])
    for metric, p in zip(tested, adjusted, strict=True):
        if metric.p is not None:
            metric.p_adjusted = p
            _decide(metric, p, alpha)
        if metric.verdict == "inconclusive":
            _say_what_it_takes(metric, measurement.statistics)


def _raise_margins(measurement: MeasurementComparison, noise: Noise) -> None:
    for case in measurement.cases:
        for metric in case.metrics:
            floors = [
                each.floor
                for each in noise.metrics
                if (each.case, each.metric) == (case.name, metric.name) and each.strategy in (case.before, case.after)
            ]
            metric.margin = max([metric.margin or 0.0, *floors])


def _problem(metric: MetricComparison) -> str:
    """Why the values can't be compared; empty if they can."""
    values = metric.values
    for side, other in (("before", "after"), ("after", "before")):
        if not values[side]:
            return f"it was measured {other} only"
    together = values["before"] + values["after"]
    if not all(math.isfinite(value) and value >= 0 for value in together):
        return "a value is no number, or below 0"
    percent = results.percent(metric.name)
    if percent is not None and percent < 100 and metric.samples is not None:
        least = math.ceil(1 / (1 - percent / 100) - 1e-9)
        if metric.samples < least:
            return (
                f"a repetition has {metric.samples} samples, and below {least} this percentile is nothing but the maximum: "
                "run longer, or judge by a lower one"
            )
    if min(together) == 0 < max(together):
        return "a value is 0, so there is no ratio"
    return ""


def _exact(values: Sequence[float]) -> bool:
    return len(values) > 1 and max(values) <= (1 + _EXACT_SPREAD) * min(values)


def _decide(metric: MetricComparison, p: float, alpha: float) -> None:
    assert metric.interval is not None and metric.margin is not None
    low, high = metric.interval
    metric.verdict = str(stats.decide(low, high, p, metric.margin, metric.better, alpha))
    if metric.p is not None and min(map(len, metric.values.values())) < LEAST_REPETITIONS:
        metric.verdict = "inconclusive"


def _say_what_it_takes(metric: MetricComparison, statistics: Statistics) -> None:
    before, after = (len(values) for values in metric.values.values())
    needed = statistics.repetitions_needed
    least = stats.least_p(before, after)
    if statistics.tests * least > statistics.alpha or min(before, after) < LEAST_REPETITIONS:
        together = f" for {statistics.tests} metrics together" if statistics.tests > 1 else ""
        metric.reason = (
            f"p of {before} + {after} repetitions can't be below {least:.2g}; to reach {statistics.alpha:g}{together} it "
            f"takes {needed} on each side"
        )
    else:
        metric.reason = f"{_ACROSS}; more repetitions make it narrower"


def checks(pair: Pair, case: CaseComparison) -> list[Check]:
    """The parts of the mechanism that both sides have, compared by their ranges over the repetitions."""
    found = []
    for name, rule in _RULES.items():
        # The whole machine's dirty pages are noise where the case is not about them.
        if name == "dirty_writeback_peak_bytes" and all(metric.name != "dirty_peak" for metric in case.metrics):
            continue
        before, after = (_known(_counted(each)[name] for each in side) for _, side in pair.sides())
        if before and after:
            found.append(_check(name, rule, before, after))
    return found


def _counted(repetition: Repetition) -> dict[str, float | None]:
    """The mechanism of a repetition, with what is derived from it for the checks alone."""
    mechanism, counters = repetition.mechanism, repetition.counters
    writes = sum(each.writes or 0 for each in counters) or mechanism["writes"] or 0
    syncs = sum(each.syncs or 0 for each in counters) or mechanism["syncs"] or 0
    requests, durable = mechanism["requests_per_write"], mechanism["durable_writes"]
    # With fewer syncs, as one at the end, it would follow from how much was written in the time.
    periodic = syncs and syncs * _WRITES_PER_SYNC >= writes
    return {
        **mechanism,
        "requests_per_sync": requests * writes / syncs if requests is not None and writes and periodic else None,
        "durable_writes_per_write": durable / writes if durable is not None and writes else None,
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _check(name: str, rule: _Rule, before: list[float], after: list[float]) -> Check:
    low, high = [min(before), max(before)], [min(after), max(after)]
    check = Check(name, low, high, rule.tolerance, rule.slack, "no change")
    apart = max(low[1], high[1]) * rule.tolerance + rule.slack
    if high[0] > low[1] + apart:
        check.verdict = "regressed" if rule.better == "lower" else "improved"
    elif high[1] < low[0] - apart:
        check.verdict = "improved" if rule.better == "lower" else "regressed"
    else:
        return check
    if max(low[1] - low[0], high[1] - high[0]) > apart and stats.least_p(len(before), len(after)) > stats.ALPHA:
        # Ranges of a few values that stray lie apart by chance.
        check.verdict = "inconclusive"
        check.reason = (
            "the repetitions of one side differ among themselves: others use the device or the machine, or it is not settled"
        )
    elif check.verdict == "improved":
        check.reason = rule.note
    return check

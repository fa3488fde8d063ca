# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts on metrics: what is exact, what is no basis, and what margins there are."""

from __future__ import annotations

import math

import pytest
from durabenchlib import judge
from durabenchlib.formats import CaseComparison, MeasurementComparison, MetricComparison

VIRTUAL = {"lab": {"clock": "virtual"}}
HOST = {"lab": None}


def judged(
    before: list[float], after: list[float], name: str = "write.iops", samples: int | None = None, sides: tuple = (HOST, HOST)
) -> MetricComparison:
    metric = MetricComparison(name, "", "higher", 1.0, 1.0, 1.0, {"before": before, "after": after})
    metric.samples, metric.margin = samples, judge.margin(name)
    case = CaseComparison("c", "as-described", "", "", {}, [metric], {})
    judge.judge(MeasurementComparison("m", "", "", "", dict(zip(("before", "after"), sides)), [], [case]))
    return metric


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([100.0, 100.5], [100.2, 100.4], "no change"),
        ([100.0, 100.5], [90.0, 90.1], "regressed"),
        ([100.0, 100.5], [110.0, 110.1], "improved"),
        ([100.0, 102.0], [110.0, 110.1], "inconclusive"),
        ([100.0], [110.0], "inconclusive"),
    ],
)
def test_virtual_time_is_exact_where_it_repeats(before: list[float], after: list[float], verdict: str) -> None:
    found = judged(before, after, sides=(VIRTUAL, VIRTUAL))
    assert (found.verdict, found.p) == (verdict, found.p if verdict == "inconclusive" else None)


def test_the_hosts_time_is_not() -> None:
    assert judged([100.0, 100.0], [90.0, 90.0], sides=(VIRTUAL, HOST)).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([], [1.0], "measured after only"),
        ([1.0], [], "measured before only"),
        ([1.0, math.nan], [1.0], "no number"),
        ([1.0, -1.0], [1.0], "below 0"),
        ([0.0, 0.0], [1.0, 1.0], "there is no ratio"),
    ],
)
def test_no_basis(before: list[float], after: list[float], reason: str) -> None:
    found = judged(before, after)
    assert (found.verdict, reason in found.reason) == ("invalid", True)


def test_nothing_on_either_side() -> None:
    assert judged([], []).verdict is None
    assert judged([0.0] * 5, [0.0] * 5).verdict == "no change"


@pytest.mark.parametrize(("samples", "verdict"), [(999, "invalid"), (1000, "no change")])
def test_samples_of_a_percentile(samples: int, verdict: str) -> None:
    assert judged([5.0] * 6, [5.0] * 6, "write.clat.p99.9", samples).verdict == verdict


def test_margins() -> None:
    names = ("write.iops", "a/write.clat.p90", "sync.lat.p99", "write.clat.p99.9", "write.clat.max", "dirty_peak", "cpu")
    assert [judge.margin(name) for name in names] == [0.02, 0.02, 0.05, 0.1, 0.1, 0.1, 0.05]

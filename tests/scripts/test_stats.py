# SPDX-License-Identifier: GPL-2.0-only
"""The statistics of a comparison, against scipy's own and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from durabenchlib import stats


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 5), (6, 9), (30, 20)])
def test_the_rank_test_is_scipys(n: int, m: int) -> None:
    random = np.random.default_rng(n)
    before, after = random.normal(size=(4, n)), random.normal(0.7, size=(4, m))
    expected = scipy.stats.mannwhitneyu(before, after, axis=1, method="exact").pvalue
    assert stats.rank_test(before, after) == pytest.approx(expected)


def test_the_rank_test_is_exact_with_ties() -> None:
    before, after = [1.0, 1, 2, 3, 3], [3.0, 3, 4, 5, 5, 5]
    ranks = scipy.stats.rankdata(before + after)
    middle = ranks.mean() * len(before)
    sums = [sum(chosen) - middle for chosen in itertools.combinations(ranks, len(before))]
    found = abs(ranks[: len(before)].sum() - middle)
    assert stats.rank_test(before, after) == pytest.approx(np.mean(np.abs(sums) >= found - 1e-9))
    assert stats.rank_test([1.0] * 5, [1.0] * 5) == 1


def test_many_values_are_tested_by_the_normal_approximation() -> None:
    random = np.random.default_rng(7)
    before, after = random.normal(size=51), random.normal(0.3, size=51)
    assert stats.rank_test(before, after) == pytest.approx(stats.rank_test(before[:-1], after[:-1]), abs=0.03)


def test_least_p_and_the_repetitions_it_asks_for() -> None:
    assert stats.least_p(3, 3) == pytest.approx(0.1)
    assert stats.least_p(5, 5) == pytest.approx(stats.rank_test(np.arange(5), np.arange(5) + 10))
    assert [stats.repetitions_needed(tests) for tests in (1, 2, 4, 5, 17, 18)] == [5, 6, 6, 7, 7, 8]


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == [1, 1]
    assert stats.holm([]) == []


def test_the_interval_is_scipys_percentile_bootstrap() -> None:
    random = np.random.default_rng(3)
    before, after = random.lognormal(0, 0.02, 12), random.lognormal(0.05, 0.02, 9)
    low, high = stats.ratio_interval(before, after)
    expected = scipy.stats.bootstrap(
        (before, after),
        lambda x, y, axis: np.median(y, axis) / np.median(x, axis),
        method="percentile",
        confidence_level=1 - stats.ALPHA,
        n_resamples=20_000,
        random_state=1,
    ).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=0.004)
    assert stats.ratio_interval(before, after) == (low, high)


@pytest.mark.parametrize("n", [5, 8, 15])
def test_the_interval_holds_the_truth_as_often_as_it_says(n: int) -> None:
    random = np.random.default_rng(n)
    low, high = stats.ratio_interval(random.lognormal(0, 0.1, (400, n)), random.lognormal(0.2, 0.1, (400, n)))
    assert np.mean((low <= np.exp(0.2)) & (np.exp(0.2) <= high)) > 0.965


@pytest.mark.parametrize(
    ("low", "high", "p", "higher", "lower"),
    [
        (1.03, 1.10, 0.001, "improved", "regressed"),
        (0.90, 0.97, 0.001, "regressed", "improved"),
        (1.03, 1.10, 0.05, "inconclusive", "inconclusive"),
        (1.01, 1.10, 0.001, "inconclusive", "inconclusive"),
        (0.99, 1.01, 0.5, "no change", "no change"),
        (1.005, 1.015, 0.001, "no change", "no change"),
        (0.97, 1.01, 0.5, "inconclusive", "inconclusive"),
    ],
)
def test_verdicts(low: float, high: float, p: float, higher: str, lower: str) -> None:
    assert str(stats.decide(low, high, p, 0.02, "higher")) == higher
    assert str(stats.decide(low, high, p, 0.02, "lower")) == lower


def test_a_trend() -> None:
    change, p = stats.trend([1.0, 1.1, 1.2, 1.35, 1.4, 1.5])
    assert (change, p < 0.01) == (pytest.approx(0.5, abs=0.02), True)
    assert stats.trend([1.0, 1.2, 0.9, 1.1, 1.0, 1.1])[1] > 0.3
    assert stats.trend([1.0, 2, 3, 4]) == (0, 1)
    assert stats.trend([1.0] * 9) == (0, 1)


def steps(*levels: tuple[int, float], seed: int = 1) -> list[float]:
    random = np.random.default_rng(seed)
    return [level + random.normal(0, 0.01) for count, level in levels for _ in range(count)]


@pytest.mark.parametrize(
    ("series", "places"),
    [
        (steps((20, 1.0), (20, 1.05)), [20]),
        (steps((15, 1.0), (12, 1.05), (20, 1.0)), [15, 27]),
        (steps((40, 1.0)), []),
        (steps((19, 1.0), (2, 1.5), (19, 1.0)), []),
        ([1.0] * 6 + [2.0] * 6, [6]),
        ([1.0] * 4 + [2.0] * 4, []),
        ([1.0] * 12, []),
        ([], []),
    ],
)
def test_change_points(series: list[float], places: list[int]) -> None:
    """A change, one that is taken back, none, and two that stray; and what so few values can't show."""
    assert [place for place, _ in stats.change_points(series)] == places


def test_unchanged_series_have_no_change_points() -> None:
    assert sum(bool(stats.change_points(steps((12, 1.0), seed=seed))) for seed in range(40)) <= 3

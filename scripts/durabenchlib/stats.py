# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of a comparison, on plain numbers (docs/statistics.md has the reasons and the sources).

The sample is the repetition: one number each. Two sides are compared by the ratio of their medians, `after` over `before`, with
a bootstrap interval, and by an exact rank test. The functions take arrays of shape (..., repetitions) and work along the last
axis, so that thousands of comparisons are judged at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used

from .formats import Better

# Both sides of every test and interval together; so half of it bounds how often unchanged code is said to be worse.
ALPHA = 0.01

RESAMPLES = 10_000
_PERMUTATIONS = 499
_SEED = 20_200_101

# Ranks of more values than this are tested by the normal approximation, which is as good as exact by then.
_EXACT_VALUES = 100


@functools.lru_cache(maxsize=64)
def _middles(n: int, seed: int, resamples: int) -> np.ndarray:
    """Of each bootstrap resample of n sorted values the places of the two in its middle (one twice if n is odd): shape
    (resamples, 2). They do not depend on the values."""
    places = np.random.default_rng((_SEED, n, seed)).integers(n, size=(resamples, n))
    places.sort(axis=1)
    return places[:, [(n - 1) // 2, n // 2]]


def _medians(values: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Medians of the bootstrap resamples: shape (..., resamples)."""
    ordered = np.sort(values, axis=-1)
    middles = _middles(ordered.shape[-1], seed, resamples)
    return (ordered[..., middles[:, 0]] + ordered[..., middles[:, 1]]) / 2


def ratio_interval(
    before: np.ndarray, after: np.ndarray, alpha: float = ALPHA, resamples: int = RESAMPLES
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the percentile bootstrap interval of the ratio of medians, after over before, at confidence 1 - alpha. All values
    have to be above 0.

    Percentile and not BCa: the acceleration of BCa is a jackknife estimate, which is inconsistent for a median (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, 11.7). Seeded, so that the same values have the same interval.
    """
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    ratios = _medians(after, 1, resamples) / _medians(before, 0, resamples)
    # Of a resample's values, not between them: "linear" would make ends that no resample has.
    low = np.quantile(ratios, alpha / 2, axis=-1, method="inverted_cdf")
    high = np.quantile(ratios, 1 - alpha / 2, axis=-1, method="inverted_cdf")
    return low, high


def rank_test(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Two-sided p of the Mann-Whitney test: exact up to 100 values in all, ties included.

    The exact distribution is that of the sum of ranks over all ways to choose one side (Streitberg and Roehmel, Statistical
    Software Newsletter 12, 1986: the shift algorithm).
    """
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    n, total = before.shape[-1], before.shape[-1] + after.shape[-1]
    if total > _EXACT_VALUES:
        return np.asarray(scipy.stats.mannwhitneyu(before, after, axis=-1, method="asymptotic").pvalue)
    together = np.concatenate([before, after], axis=-1).reshape(-1, total)
    # Doubled, midranks are whole numbers.
    doubled = np.rint(2 * scipy.stats.rankdata(together, axis=-1)).astype(int)
    distance = np.abs(doubled[:, :n].sum(axis=-1) - n * (total + 1))
    ties, kind = np.unique(np.sort(doubled, axis=-1), axis=0, return_inverse=True)
    p = np.empty(len(together))
    for number, ranks in enumerate(ties):
        rows = kind == number
        p[rows] = _tails(tuple(ranks.tolist()), n)[distance[rows]]
    return np.minimum(p, 1.0).reshape(before.shape[:-1])


@functools.lru_cache(maxsize=256)
def _tails(ranks: tuple[int, ...], n: int) -> np.ndarray:
    """Chance that the sum of n of these whole ranks is this far or further from its mean, by the distance."""
    ways = np.zeros((n + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    distances = np.abs(np.arange(ways.shape[1]) - n * sum(ranks) // len(ranks))
    chances = np.bincount(distances, weights=ways[n]) / math.comb(len(ranks), n)
    return chances[::-1].cumsum()[::-1]


def least_p(before: int, after: int) -> float:
    """The smallest p that this many values on each side can have."""
    return min(1.0, 2 / math.comb(before + after, before))


def repetitions_needed(tests: int, alpha: float = ALPHA) -> int:
    """How many values on each side it takes for a difference to be found at all, when this many tests are made."""
    n = 1
    while tests * least_p(n, n) > alpha:
        n += 1
    return n


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of tests that are made together (Scandinavian Journal of Statistics 6, 1979): to call those below alpha
    errs in one or more of them with chance alpha at most, however they depend on each other."""
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    if len(values):
        steps = np.asarray(values, dtype=float)[order] * np.arange(len(values), 0, -1)
        adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted.tolist()


def decide(
    low: np.ndarray, high: np.ndarray, p: np.ndarray, margin: float, better: Better, alpha: float = ALPHA
) -> np.ndarray:
    """The verdicts, as formats.Verdict, for intervals of the ratio after/before and (adjusted) p.

    Worse or better is what lies wholly outside of the margin and is significant; unchanged what lies wholly within it, which is
    an equivalence test by two one-sided ones (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). Ratios from
    1 / (1 + margin) to 1 + margin do not matter.
    """
    low, high, p = np.asarray(low), np.asarray(high), np.asarray(p)
    bound = 1 + margin
    significant = p < alpha
    larger = (low > bound) & significant
    smaller = (high < 1 / bound) & significant
    worse, improved = (smaller, larger) if better == "higher" else (larger, smaller)
    same = (low >= 1 / bound) & (high <= bound)
    return np.select([worse, improved, same], ["regressed", "improved", "no change"], "inconclusive")


@dataclass(frozen=True)
class Spread:
    """How `values` of unchanged code differ, as standard deviations of their logarithms: `within` a block of repetitions, and
    `between` blocks, which no number of repetitions averages out."""

    within: float
    between: float
    values: np.ndarray

    def floor(self, alpha: float = ALPHA) -> float:
        """The ratio less 1 that two blocks of unchanged code exceed with chance alpha."""
        return float(np.expm1(scipy.stats.norm.isf(alpha / 2) * math.sqrt(2) * self.between))


def spread(blocks: Sequence[Sequence[float]]) -> Spread:
    """Components of variance of at least two blocks of two values above 0 (one-way analysis of variance with random effects:
    Searle, Casella, McCulloch, Variance Components, 1992, 3.6)."""
    logs = [np.log(np.asarray(block, dtype=float)) for block in blocks]
    sizes = np.array([len(block) for block in logs])
    total, k = sizes.sum(), len(logs)
    within = sum(((block - block.mean()) ** 2).sum() for block in logs) / (total - k)
    means = np.array([block.mean() for block in logs])
    among = (sizes * (means - np.concatenate(logs).mean()) ** 2).sum() / (k - 1)
    size = (total - (sizes**2).sum() / total) / (k - 1)
    between = max(0.0, (among - within) / size)
    return Spread(math.sqrt(within), math.sqrt(between), np.exp(np.concatenate(logs)))


def power(
    noise: Spread, effects: Sequence[float], n: int, margin: float, tests: int, alpha: float = ALPHA, trials: int = 1000
) -> np.ndarray:
    """How often each effect (ratio less 1 by which all is slower) is found in n repetitions on each side of this noise, simulated
    by resampling its values, when it takes part in this many tests. Seeded.

    It is the values and not their distances to those of their block, since a percentile of fio's is the middle of a bucket, and
    what is that coarse is harder to tell apart."""
    random = np.random.default_rng((_SEED, n, tests))
    size = (2, trials, n)
    # Equal values of one side make no difference to ranks, and it is quicker without.
    before, after = random.choice(noise.values, size) * (1 + 1e-9 * random.standard_normal(size))
    after *= np.exp(math.sqrt(2) * noise.between * random.standard_normal((trials, 1)))
    low, high = ratio_interval(before, after, alpha, resamples=2000)
    found = []
    for effect in effects:
        # A factor on all values of a side is one on its resamples.
        p = rank_test(before, after * (1 + effect)) * tests
        found.append(np.mean(decide(low * (1 + effect), high * (1 + effect), p, margin, "lower", alpha) == "regressed"))
    return np.array(found)


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Change from the first to the last value along the line of Theil and Sen, and the two-sided p of Kendall's test that there
    is none. No trend is told of fewer than five values: p is 1."""
    if len(values) < 5 or min(values) == max(values):
        return 0.0, 1.0
    places = np.arange(len(values))
    slope = scipy.stats.theilslopes(values, places)[0]
    return float(slope * places[-1]), float(scipy.stats.kendalltau(places, values).pvalue)


def change_points(values: Sequence[float], alpha: float = ALPHA, least: int = 3) -> list[tuple[int, float]]:
    """Where the distribution of a series changes: the place of the first value after each change, and its p, in order. Between
    changes there are at least `least` values.

    E-divisive (Matteson and James, Journal of the American Statistical Association 109, 2014): the split whose sides have the
    greatest energy distance, tested by permutations; then both sides alike. Seeded.
    """
    series = np.asarray(values, dtype=float)
    found: list[tuple[int, float]] = []
    segments = [(0, len(series))]
    while segments:
        start, end = segments.pop()
        if end - start < 2 * least:
            continue
        random = np.random.default_rng((_SEED, start, end))
        # Only the order is permuted, so that all permutations share the distances.
        distances = np.abs(series[start:end, None] - series[None, start:end])
        split, energy = _best_split(distances, least)
        reached = 1
        for _ in range(_PERMUTATIONS):
            order = random.permutation(end - start)
            reached += _best_split(distances[np.ix_(order, order)], least)[1] >= energy - 1e-12
        p = reached / (_PERMUTATIONS + 1)
        if p <= alpha:
            found.append((start + split, p))
            segments += [(start, start + split), (start + split, end)]
    return sorted(found)


def _best_split(distances: np.ndarray, least: int) -> tuple[int, float]:
    """The first place after the best split and its scaled energy distance: of all splits of all beginnings of the series, so that a
    change that is taken back later does not hide."""
    n = len(distances)
    sums = distances.cumsum(axis=0).cumsum(axis=1)
    split, end = (least + index for index in np.triu_indices(n + 1 - least, least))
    first, second = split, end - split
    within_first = sums[split - 1, split - 1]
    across = sums[split - 1, end - 1] - within_first
    within_second = sums[end - 1, end - 1] - within_first - 2 * across
    energy = 2 * across / (first * second) - within_first / (first * (first - 1)) - within_second / (second * (second - 1))
    scaled = energy * first * second / end
    best = int(np.argmax(scaled))
    return int(split[best]), float(scaled[best])

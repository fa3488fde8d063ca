# SPDX-License-Identifier: GPL-2.0-only
"""fio's latency distributions: exact count, minimum, maximum and mean, and a histogram or the percentiles of one.

Percentiles can't be averaged, so those of several jobs or repetitions are computed from their merged histograms, which
JSON+ has as `bins`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

# fio's histogram (stat.h): 64 buckets for each power of two, a bucket stands for its midpoint. What does not fit is
# counted in the last bucket: from 2.99 on of 29 groups in ns, so from 17.1 s on; before of 19 groups in us, from 16.7 s.
_BITS = 6
SATURATED_NS = 17_112_760_320
BUCKETS_US = 19 << _BITS


def midpoint(index: int) -> int:
    """Value that a bucket of fio's histogram stands for (plat_idx_to_val in fio's stat.c)."""
    if index < 2 << _BITS:
        return index
    error_bits = (index >> _BITS) - 1
    width = 1 << error_bits
    return (1 << (error_bits + _BITS)) + (index % (1 << _BITS)) * width + width // 2


class Bins(Mapping[int, int]):
    """Counts by bucket, with the buckets in their order, and how many samples each and those before it have."""

    def __init__(self, buckets: Sequence[int], counts: Sequence[int], reached: Sequence[int]) -> None:
        self.buckets = buckets
        self.counts = counts
        self.reached = reached

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Bins:
        """The same of any mapping."""
        if isinstance(counts, Bins):
            return counts
        buckets = sorted(counts)
        ordered = [counts[each] for each in buckets]
        return cls(buckets, ordered, list(accumulate(ordered)))

    def __len__(self) -> int:
        return len(self.buckets)

    def __iter__(self) -> Iterator[int]:
        return iter(self.buckets)

    def __getitem__(self, bucket: int) -> int:
        at = bisect_left(self.buckets, bucket)
        if at == len(self.buckets) or self.buckets[at] != bucket:
            raise KeyError(bucket)
        return self.counts[at]


@dataclass(frozen=True)
class Latency:
    """A latency distribution in ns.

    `n` is the number of samples, None where they were taken and fio did not tell how many. `bins` maps a bucket's
    midpoint to its count (empty unless JSON+); `percentiles` maps percent to the value that fio printed, which only
    stands for this one distribution. `limit` is the value of the last bucket, which stands for all that is slower.
    """

    n: int | None = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    stddev: float | None = None
    bins: Mapping[int, int] = field(default_factory=dict)
    percentiles: Mapping[float, float] = field(default_factory=dict)
    limit: int = SATURATED_NS

    @cached_property
    def _ordered(self) -> Bins:
        return Bins.of(self.bins)

    @property
    def binned(self) -> int:
        """Samples in all bins."""
        return self._ordered.reached[-1] if self.bins else 0

    def percentile(self, percent: float) -> float | None:
        """Latency in ns that `percent` of the samples do not exceed, by fio's own rule: the first bucket at which the
        count reaches that share. A bucket's midpoint may lie beyond the exact maximum, which then is the answer.
        None if there are no samples, or neither bins nor a printed value."""
        if self.n == 0:
            return None
        value: float | None = None
        if self.bins:
            bins = self._ordered
            rank = -(-round(percent * 1_000_000) * bins.reached[-1] // 100_000_000)
            value = float(bins.buckets[min(bisect_left(bins.reached, rank), len(bins) - 1)])
        else:
            value = self.percentiles.get(percent)
        if value is None or value >= self.limit:
            return value
        if self.max is not None:
            value = min(value, self.max)
        return value if self.min is None else max(value, self.min)

    def tells(self, percent: float) -> bool:
        """Whether it has that percentile."""
        return self.n != 0 and (bool(self.bins) or percent in self.percentiles)

    def saturated(self, percent: float) -> bool:
        """Whether the percentile lies in fio's last bucket, so that all that is known is that it is `limit` or more."""
        if self.bins and self._ordered.buckets[-1] < self.limit:
            return False
        value = self.percentile(percent)
        return value is not None and value >= self.limit


def merge(latencies: Iterable[Latency]) -> Latency:
    """The distribution of all samples together. It has bins only if each part with samples has them; percentiles as fio
    printed them survive only where there is one part."""
    parts = [each for each in latencies if each.n != 0]
    if len(parts) < 2:
        return parts[0] if parts else Latency()
    counts = [each.n for each in parts]
    n = None if None in counts else sum(each or 0 for each in counts)
    bins: Counter[int] = Counter()
    if all(each.bins for each in parts):
        for each in parts:
            bins.update(each.bins)
    means = [each.mean for each in parts]
    mean = None
    if n is not None and None not in means:
        mean = sum((each.n or 0) * (each.mean or 0.0) for each in parts) / n
    stddev = None
    if n is not None and mean is not None and all(each.stddev is not None for each in parts):
        square = sum(
            ((each.n or 0) - 1) * (each.stddev or 0.0) ** 2 + (each.n or 0) * ((each.mean or 0.0) - mean) ** 2
            for each in parts
        )
        stddev = math.sqrt(square / (n - 1))
    return Latency(
        n=n,
        min=min((each.min for each in parts if each.min is not None), default=None),
        max=max((each.max for each in parts if each.max is not None), default=None),
        mean=mean,
        stddev=stddev,
        bins=dict(bins),
        limit=min(each.limit for each in parts),
    )

# SPDX-License-Identifier: GPL-2.0-only
"""Reads fio's bandwidth, IOPS and latency logs (`write_bw_log` and its siblings), and its logs of latency histograms
(`write_hist_log`), by `fiolog`, in memory that does not grow with them, unless all of one is asked for (`read`).

Sync latencies are in no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from . import fiojson, fiolog, inputs
from .errors import Exit, Failure
from .fiojson import Latency
from .fiojson.latency import midpoint
from .fiolog import DIRECTIONS

if TYPE_CHECKING:
    import numpy as np

_NAME = re.compile(r".*_(bw|iops|clat_hist|clat|slat|lat)(?:\.\d+)?\.log")
_NUMBER_OF_JOB = re.compile(r"\.\d+\.log$")
_LINE = re.compile(r"\s*\d{1,20}(?:\s*,\s*(?:0x[0-9a-f]{1,16}|\d{1,20})){3,7}\s*", re.ASCII)
# More columns than any other log has.
_HISTOGRAM = re.compile(r"\s*\d{1,20}(?:\s*,\s*\d{1,20}){8}", re.ASCII)
_PIECE = 1 << 20  # read at once
_ROWS = 1 << 16  # taken at once

# Buckets of fio's histograms (stat.h), and what their unit is in ns: fio 3, and those before it. Each step of
# log_hist_coarseness halves them.
_UNITS = {29 * 64: 1, 19 * 64: 1000}


# Numbers that what is told of a run's intervals may have: some GiB.
_MOST_NUMBERS = 1 << 28


@dataclass(frozen=True)
class Log:
    """Columns of one log: time in s since the job's start, value in fio's unit (bw KiB/s, latencies ns), direction
    0..2."""

    time: np.ndarray
    value: np.ndarray
    direction: np.ndarray

    def only(self, direction: str) -> Log:
        """The lines of one direction: read, write or trim."""
        mask = self.direction == DIRECTIONS.index(direction)
        return Log(self.time[mask], self.value[mask], self.direction[mask])


def is_log(path: Path) -> bool:
    """Whether a file is a log, by how it begins, or by its name if it does not begin as JSON does."""
    try:
        first = _beginning(path)
    except OSError:
        return False
    return bool(_LINE.fullmatch(first) or _HISTOGRAM.match(first)) or (kind(path) is not None or path.suffix == ".fz") and "{" not in first


def _beginning(path: Path) -> str:
    with inputs.opened(path) as file:
        return file.read(256).lstrip().partition(b"\n")[0].decode("utf-8", "replace")


def kind(path: Path) -> str | None:
    """What a log's name says it holds: bw, iops, clat, slat, lat, or clat_hist; None if it is no log's."""
    match = _NAME.fullmatch(path.name)
    return match[1] if match else None


def of_all_jobs(path: Path) -> Path:
    """A log's name with `*` for the number of its job."""
    return path.with_name(_NUMBER_OF_JOB.sub(".*.log", path.name))


@dataclass(frozen=True)
class Histograms:
    """I/Os that completed in each interval of time, by their latency: `ends` of the intervals in s, `bounds` of the buckets in
    ns (one more than there are buckets), and `counts` by interval and bucket."""

    ends: np.ndarray
    bounds: np.ndarray
    counts: np.ndarray


def joint_histograms(paths: Iterable[Path], direction: str, interval_s: float) -> Histograms | None:
    """The histograms of all jobs together, from logs of one log_hist_msec and log_hist_coarseness; None if they have no line of
    this direction. fio writes a line when the first I/O after an interval completes; what completed after the last line is in no
    log."""
    import numpy as np

    found: dict[int, np.ndarray] = {}
    row = np.empty(3 + fiolog.HISTOGRAM, dtype=np.int64)
    for path in paths:
        with _opened(path) as log:
            while buckets := log.next_histogram(row.ctypes.data_as(c_void_p)):
                if row[1] != DIRECTIONS.index(direction):
                    continue
                counts = row[3 : 3 + buckets].copy()
                interval = max(int(row[0] / 1000 / interval_s - 0.5), 0)
                if interval * buckets > _MOST_NUMBERS:
                    raise Failure(Exit.INPUT, f"{path}: {_too_late(row[0] / 1000, interval_s)}")
                if found and counts.shape != next(iter(found.values())).shape:
                    raise Failure(Exit.INPUT, f"{path}: has {len(counts)} buckets and another log of the run has not")
                found[interval] = found.get(interval, 0) + counts
    if not found:
        return None
    buckets = len(next(iter(found.values())))
    table = np.zeros((max(found) + 1, buckets), dtype=np.int64)
    for interval, counts in found.items():
        table[interval] = counts
    return Histograms(interval_s * np.arange(1, len(table) + 1), np.array(_bounds(buckets), dtype=float), table)


def _too_late(time_s: float, interval_s: float) -> str:
    return f"has a line at {time_s:.0f} s, so that its intervals of {interval_s:g} s are too many; take longer ones"


def _bounds(buckets: int) -> list[int]:
    """Bounds in ns of that many buckets of a histogram of fio's, one more than there are."""
    most = next(each for each in _UNITS if buckets in (each >> step for step in range(7)))
    return [_UNITS[most] * _lower(index) for index in range(0, most + 1, most // buckets)]


def _lower(index: int) -> int:
    """The least value in each of fio's buckets: one each up to 127, then 64 for each power of two (stat.c)."""
    return index if index < 128 else (64 + index % 64) << ((index >> 6) - 1)


@contextmanager
def _opened(path: Path) -> Iterator[fiolog.Log]:
    if path.suffix == ".fz":
        raise Failure(Exit.INPUT, f"{path}: is compressed; `fio --inflate-log={path}` prints what it holds")
    try:
        inputs.check(path)
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None
    with fiolog.opened(path, _PIECE) as log:
        yield log


def read(path: Path, both: bool = False) -> Log:
    """All of a bw, iops or lat log. `both` says that the job had log_window_value=both, which puts the maximum behind the mean."""
    import numpy as np

    columns = fiolog.Columns.BOTH if both else fiolog.Columns.VALUE
    parts = [np.empty((0, 4), dtype=np.int64)]
    with _opened(path) as log:
        while True:
            rows = np.empty((_ROWS, 4), dtype=np.int64)
            got = log.rows(columns, rows.ctypes.data_as(c_void_p), len(rows))
            if not got:
                break
            parts.append(rows[:got])
    table = np.concatenate(parts)
    return Log(table[:, 0] / 1000.0, table[:, 1].astype(float), table[:, 2])


@dataclass(frozen=True)
class Series:
    """What a log has of one direction: the lines' values as a distribution in the log's unit (`bins` are those of fio's
    histograms, so percentiles are exact to 1.6%), and the first and the last time in s. Of histograms the values are the I/Os."""

    values: Latency
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Summary:
    """What a log says: its number of lines, what it has by direction, how often its time goes back, whether all of its lines
    are means over an interval of time (log_avg_msec), which fio writes without a block size, and whether it is one of histograms."""

    lines: int
    series: dict[str, Series]
    resets: int
    averaged: bool
    histograms: bool = False


def summarize(path: Path) -> Summary:
    """What any log says, in memory that does not grow with it."""
    with _opened(path) as log:
        if kind(path) == "clat_hist" or kind(path) is None and _HISTOGRAM.match(_beginning(path)):
            return _of_histograms(log.histograms())
        found = log.summary()
    series = {name: _series(each) for name, each in zip(DIRECTIONS, found.series, strict=True) if each.lines}
    return Summary(found.lines, series, found.resets, found.lines > 0 and not found.sized)


def _series(found: fiolog.Series) -> Series:
    bins = {midpoint(index): count for index, count in enumerate(found.counts) if count}
    values = Latency(found.lines, found.min, found.max, found.mean, found.stddev, bins, limit=2 * fiolog.MAX)
    return Series(values, found.start_msec / 1000, found.end_msec / 1000)


def merge(summaries: Sequence[Summary]) -> Summary:
    """What the logs of several jobs say together."""
    series = {}
    for direction in DIRECTIONS:
        found = [each.series[direction] for each in summaries if direction in each.series]
        if found:
            values = fiojson.merge([each.values for each in found])
            series[direction] = Series(values, min(each.start_s for each in found), max(each.end_s for each in found))
    averaged = any(each.averaged for each in summaries)
    return Summary(sum(each.lines for each in summaries), series, sum(each.resets for each in summaries), averaged)


def _of_histograms(found: fiolog.Histograms) -> Summary:
    """By direction the latencies in ns of all I/Os."""
    series = {}
    for name, each in zip(DIRECTIONS, found.of, strict=True):
        if each.lines:
            bounds = _bounds(each.buckets)
            middles = [(low + high) // 2 for low, high in pairwise(bounds)]
            bins = {middle: count for middle, count in zip(middles, each.counts) if count}
            latency = Latency(sum(bins.values()), bins=bins, limit=middles[-1])
            series[name] = Series(latency, each.start_msec / 1000, each.end_msec / 1000)
    return Summary(found.lines, series, found.resets, averaged=False, histograms=True)


def joint_bandwidth(logs: Iterable[Log], interval_s: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Bandwidth of all jobs together: ends of the intervals in s and MiB/s within each. Takes bw logs of one direction
    that were averaged over such intervals (log_avg_msec). fio writes no line of an interval without I/O (__add_samples in its
    stat.c), so a value stands for the time since the line before it only where that is less than two of them."""
    import numpy as np

    logs = [each for each in logs if len(each.time)]
    if not logs:
        return np.array([]), np.array([])
    last = max(float(each.time.max()) for each in logs)
    if last > _MOST_NUMBERS * interval_s:
        raise Failure(Exit.INPUT, f"a log of bandwidth {_too_late(last, interval_s)}")
    edges = np.arange(0.0, max(each.time[-1] for each in logs) + interval_s / 2, interval_s)
    total = np.zeros(max(len(edges) - 1, 0))
    for each in logs:
        end = np.maximum.accumulate(each.time)
        start = np.insert(end[:-1], 0, 0.0)
        start = np.where(end - start < 2 * interval_s, start, end - interval_s)
        done = np.cumsum(each.value * (end - start))
        kib = np.column_stack((np.insert(done[:-1], 0, 0.0), done))
        total += np.diff(np.interp(edges, np.column_stack((start, end)).ravel(), kib.ravel(), left=0.0))
    return edges[1:], total / 1024 / interval_s

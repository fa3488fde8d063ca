# SPDX-License-Identifier: GPL-2.0-only
"""Reads fio's bandwidth, IOPS and latency logs (`write_bw_log` and its siblings), and its logs of latency histograms
(`write_hist_log`).

A line is `msec, value[, maximum], direction, block size[, offset][, priority][, issue time]`: how many columns there
are depends on fio's release and on options, so they are taken by their position from the left and never counted from
the right. Sync latencies are in no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import Exit, Failure

DIRECTIONS = ("read", "write", "trim")

_NAME = re.compile(r".*_(bw|iops|clat|slat|lat)(?:\.\d+)?\.log")
_HISTOGRAM_NAME = re.compile(r".*_clat_hist(?:\.\d+)?\.log")
_MIN_COLUMNS, _MAX_COLUMNS = 4, 8
_BUCKETS = 29 * 64  # of fio 3's histograms (stat.h); each step of log_hist_coarseness halves them


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


def kind(path: Path) -> str | None:
    """What a log's name says it holds: bw, iops, clat, slat or lat; None if it is no such log."""
    match = _NAME.fullmatch(path.name)
    return match[1] if match else None


@dataclass(frozen=True)
class Histograms:
    """I/Os that completed in each interval of time, by their latency: `ends` of the intervals in s, `bounds` of the buckets in
    ns (one more than there are buckets), and `counts` by interval and bucket."""

    ends: np.ndarray
    bounds: np.ndarray
    counts: np.ndarray


def is_histogram(path: Path) -> bool:
    """Whether a log's name says that it holds histograms of completion latencies."""
    return _HISTOGRAM_NAME.fullmatch(path.name) is not None


def joint_histograms(paths: Iterable[Path], direction: str, interval_s: float) -> Histograms | None:
    """The histograms of all jobs together, from logs of one log_hist_msec and log_hist_coarseness; None if they have no line of
    this direction. fio writes a line when the first I/O after an interval completes; what completed after the last line is in no
    log."""
    found: dict[int, np.ndarray] = {}
    for path in paths:
        for time_s, counts in _histogram_lines(path, DIRECTIONS.index(direction)):
            interval = max(int(time_s / interval_s - 0.5), 0)
            if found and counts.shape != next(iter(found.values())).shape:
                raise Failure(Exit.INPUT, f"{path}: has {len(counts)} buckets and another log of the run has not")
            found[interval] = found.get(interval, 0) + counts
    if not found:
        return None
    buckets = len(next(iter(found.values())))
    table = np.zeros((max(found) + 1, buckets), dtype=np.int64)
    for interval, counts in found.items():
        table[interval] = counts
    index = np.arange(0, _BUCKETS + 1, _BUCKETS // buckets)
    bounds = np.where(index < 128, index, (64 + index % 64) << np.maximum((index >> 6) - 1, 0))
    return Histograms(interval_s * np.arange(1, len(table) + 1), bounds.astype(float), table)


def _histogram_lines(path: Path, direction: int) -> Iterator[tuple[float, np.ndarray]]:
    """Time in s and the counts of each line of one direction: `msec, direction, block size, count, count, …`."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = np.array(line.split(","), dtype=np.int64)
                    if len(row) - 3 not in (_BUCKETS >> step for step in range(7)) or row.min() < 0:
                        raise ValueError
                except (ValueError, OverflowError):
                    what = f"{path}:{number}: is not a line of a histogram log of fio 3: {line.strip()[:80]!r}"
                    raise Failure(Exit.INPUT, what) from None
                if row[1] == direction:
                    yield row[0] / 1000, row[3:]
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None


def read(path: Path, both: bool = False) -> Log:
    """Read a log; `both` says that the job had log_window_value=both, which puts the maximum behind the mean."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        columns = line.split(",")
        if len(columns) > _MAX_COLUMNS:
            raise Failure(
                Exit.INPUT,
                f"{path}:{number}: has {len(columns)} columns, so it is not a bw, iops or lat log but a histogram",
            )
        at = 3 if both else 2
        try:
            if len(columns) < max(_MIN_COLUMNS, at + 2):
                raise ValueError
            row = (int(columns[0]), int(columns[1]), int(columns[at]))
            if row[2] not in range(len(DIRECTIONS)):
                raise ValueError
        except ValueError:
            raise Failure(Exit.INPUT, f"{path}:{number}: is not a line of a fio log: {line.strip()[:80]!r}") from None
        rows.append(row)
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Log(table[:, 0] / 1000.0, table[:, 1].astype(float), table[:, 2])


def joint_bandwidth(logs: Iterable[Log], interval_s: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Bandwidth of all jobs together: ends of the intervals in s and MiB/s within each. Takes bw logs of one direction
    that were averaged (log_avg_msec); each value stands for the time since the line before it."""
    logs = [each for each in logs if len(each.time)]
    if not logs:
        return np.array([]), np.array([])
    edges = np.arange(0.0, max(each.time[-1] for each in logs) + interval_s / 2, interval_s)
    total = np.zeros(max(len(edges) - 1, 0))
    for each in logs:
        time = np.insert(np.maximum.accumulate(each.time), 0, 0.0)
        kib = np.insert(np.cumsum(each.value * np.diff(time)), 0, 0.0)
        total += np.diff(np.interp(edges, time, kib))
    return edges[1:], total / 1024 / interval_s

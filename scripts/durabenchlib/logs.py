# SPDX-License-Identifier: GPL-2.0-only
"""Reads fio's bandwidth, IOPS and latency logs (`write_bw_log` and its siblings), and its logs of latency histograms
(`write_hist_log`).

A line is `msec, value[, maximum], direction, block size[, offset][, priority][, issue time]`: how many columns there
are depends on fio's release and on options, so they are taken by their position from the left and never counted from
the right. Sync latencies are in no log. Logs are read in pieces: memory does not grow with them, unless all of one is asked for
(`read`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import fiojson
from .errors import Exit, Failure
from .fiojson import Latency

DIRECTIONS = ("read", "write", "trim")

_NAME = re.compile(r".*_(bw|iops|clat_hist|clat|slat|lat)(?:\.\d+)?\.log")
_NUMBER_OF_JOB = re.compile(r"\.\d+\.log$")
_NUMBER = r"(?:0x[0-9a-f]{1,16}|\d{1,20})"
_LINE = re.compile(rf"\s*\d{{1,20}}(?:\s*,\s*{_NUMBER}){{3,7}}\s*", re.ASCII)
# Beyond it a float is no more exact, and no latency or rate is.
_MOST = 2**53
_PIECE = 4 << 20
# What stands in a log, to look for anything else at once.
_EXPECTED = b"0123456789abcdefx, \n"
# Columns of hexadecimal numbers are not used: so that all are numbers for numpy.
_AS_NUMBERS = bytes.maketrans(b",abcdefx", b" 0000000")

# Groups of 64 buckets in fio's histograms (stat.h), and what their unit is in ns: fio 3, and those before it. Each step of
# log_hist_coarseness halves the buckets.
_GROUPS = {29: 1, 19: 1000}
# No interval has as many I/Os.
_MOST_IOS = 2**40


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
        with path.open("rb") as file:
            first = file.read(256).lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return False
    return _LINE.fullmatch(first) is not None or (kind(path) is not None or path.suffix == ".fz") and "{" not in first


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
    found: dict[int, np.ndarray] = {}
    for path in paths:
        for time_s, line_direction, counts in _histogram_lines(path):
            if line_direction != DIRECTIONS.index(direction):
                continue
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
    return Histograms(interval_s * np.arange(1, len(table) + 1), _bounds(buckets), table)


def _groups(buckets: int) -> int | None:
    """Of how many groups of fio's histograms these are all buckets; None if of none."""
    return next((groups for groups in _GROUPS if buckets in (groups * 64 >> step for step in range(7))), None)


def _bounds(buckets: int) -> np.ndarray:
    """Bounds in ns of that many buckets of a histogram of fio's, one more than there are."""
    groups = _groups(buckets)
    assert groups is not None
    return _lower(np.arange(0, groups * 64 + 1, groups * 64 // buckets)).astype(float) * _GROUPS[groups]


def _lower(index: np.ndarray) -> np.ndarray:
    """The least value in each of fio's buckets: one each up to 127, then 64 for each power of two (stat.c)."""
    return np.where(index < 128, index, (64 + index % 64) << np.maximum((index >> 6) - 1, 0))


def _index(values: np.ndarray) -> np.ndarray:
    """fio's bucket for each value."""
    shift = np.maximum(np.frexp(values)[1] - 7, 0)
    return (shift << 6) + (values >> shift)


def _histogram_lines(path: Path) -> Iterator[tuple[float, int, np.ndarray]]:
    """Time in s, direction and the counts of each line: `msec, direction, block size, count, count, …`."""
    number = 1
    for piece in _pieces(path):
        table = _fast_histograms(piece)
        if table is not None:
            number += len(table)
            for row in table:
                yield row[0] / 1000, int(row[1]), row[3:]
            continue
        for line in piece.decode("utf-8", "replace").split("\n")[:-1]:
            if line.strip():
                row = _histogram_line(path, number, line)
                yield row[0] / 1000, int(row[1]), row[3:]
            number += 1


def _histogram_line(path: Path, number: int, line: str) -> np.ndarray:
    try:
        row = np.array(line.split(","), dtype=np.int64)
        if _groups(len(row) - 3) is None or row.min() < 0 or row[1] >= len(DIRECTIONS) or row[3:].max() > _MOST_IOS:
            raise ValueError
    except (ValueError, OverflowError):
        raise _broken(path, number, line, "a histogram log") from None
    return row


def _fast_histograms(piece: bytes) -> np.ndarray | None:
    """The rows of a piece whose lines are all as fio writes them, with the same number of buckets; None of any other. Nearly all
    counts are 0, so only digits that are not are looked at."""
    if piece.translate(None, b"0123456789, \n"):
        return None
    data = np.frombuffer(piece, dtype=np.uint8)
    comma = data == ord(",")
    separators = np.flatnonzero(comma | (data == ord("\n")))
    lines = np.count_nonzero(data == ord("\n"))
    columns, left = divmod(len(separators), lines)
    if left or _groups(columns - 3) is None or (data[separators[columns - 1 :: columns]] != ord("\n")).any():
        return None
    # A space behind each comma and no other, and no field is empty.
    if np.count_nonzero(data == ord(" ")) != len(separators) - lines or not (data[1:][comma[:-1]] == ord(" ")).all():
        return None
    if separators[0] < 1 or (np.diff(separators) < 2 + comma[separators[:-1]]).any():
        return None
    digits = np.flatnonzero(data > ord("0"))
    field = np.searchsorted(separators, digits)
    place = separators[field] - 1 - digits
    # So that the sums are exact.
    if len(place) and place.max() > 14:
        return None
    values = np.bincount(field, (data[digits] - ord("0")) * 10.0**place, minlength=len(separators))
    table = values.astype(np.int64).reshape(lines, columns)
    return table if table[:, 1].max() < len(DIRECTIONS) and table[:, 3:].max() <= _MOST_IOS else None


def _broken(path: Path, number: int, line: str, what: str = "a fio log") -> Failure:
    return Failure(Exit.INPUT, f"{path}:{number}: is not a line of {what}: {line.strip()[:80]!r}")


def _pieces(path: Path) -> Iterator[bytes]:
    """A file in pieces of whole lines."""
    if path.suffix == ".fz":
        raise Failure(Exit.INPUT, f"{path}: is compressed; `fio --inflate-log={path}` prints what it holds")
    try:
        with path.open("rb") as file:
            rest = b""
            while data := file.read(_PIECE):
                end = data.rfind(b"\n") + 1
                if end:
                    yield rest + data[:end]
                    rest = data[end:]
                elif len(rest) < _PIECE:
                    rest += data
                else:
                    raise Failure(Exit.INPUT, f"{path}: is no log of fio: a line of it has no end")
            if rest:
                yield rest + b"\n"
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None


def tables(path: Path, both: bool | None = False) -> Iterator[np.ndarray]:
    """A bw, iops or lat log in pieces, of a row for each line: ms, value, direction, block size. `both` says that the job had
    log_window_value=both, which puts the maximum behind the mean; None that it is to be told by what stands where the direction
    would."""
    number = 1
    for piece in _pieces(path):
        # What reads without a maximum has a direction where it would be.
        table = _fast(piece, bool(both))
        if table is not None:
            both = bool(both)
            number += len(table)
        else:
            table, both = _slow(path, number, piece.decode("utf-8", "replace").split("\n")[:-1], both)
            number += piece.count(b"\n")
        yield table


def _fast(piece: bytes, both: bool) -> np.ndarray | None:
    """The table of a piece whose lines are all as fio writes them, with the same number of columns; None of any other."""
    data = np.frombuffer(piece, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    commas = np.flatnonzero(data == ord(","))
    count, left = divmod(len(commas), len(ends))
    used = 4 + both
    if left or not used <= count + 1 <= 8 or piece.translate(None, _EXPECTED):
        return None
    commas = commas.reshape(-1, count)
    starts = np.insert(ends[:-1] + 1, 0, 0)
    limits = np.column_stack((starts - 2, commas, ends))
    widths = limits[:, 1:] - limits[:, :-1] - 2
    # Each line has its commas, each of them a space behind it and no other, and no field is empty.
    if widths.min() < 1 or widths[:, :used].max() > 16 or (data[commas + 1] != ord(" ")).any():
        return None
    if np.count_nonzero(data == ord(" ")) != commas.size or not _hexadecimal(data, limits, used):
        return None
    rows = np.fromstring(piece.translate(_AS_NUMBERS), dtype=np.int64, sep=" ").reshape(len(ends), -1)
    if both and (rows[:, 2] < rows[:, 1]).any():
        return None
    table = rows[:, [0, 1, 3, 4] if both else [0, 1, 2, 3]]
    return table if table[:, :2].max() <= _MOST and table[:, 2].max() < len(DIRECTIONS) else None


def _hexadecimal(data: np.ndarray, limits: np.ndarray, used: int) -> bool:
    """Whether what is no digit is one of a hexadecimal number: of fields that begin with 0x (log_prio), in columns behind those
    that are used."""
    letters = np.flatnonzero(data >= ord("a"))
    if not len(letters):
        return True
    before, after = limits[:, :-1].ravel(), limits[:, 1:].ravel()
    field = np.searchsorted(after, letters)
    marks = data[letters] == ord("x")
    marked = field[marks]
    return (
        bool((field % (limits.shape[1] - 1) >= used).all())
        and np.array_equal(letters[marks], before[marked] + 3)
        and bool((data[before[marked] + 2] == ord("0")).all())
        and bool((after[marked] - before[marked] > 4).all())
        and bool(np.isin(field, marked).all())
    )


def _slow(path: Path, first: int, lines: Iterable[str], both: bool | None) -> tuple[np.ndarray, bool | None]:
    """The table of any lines, and whether they have a maximum if that was not known; refuses what is no line, by its number."""
    numbers = []
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        if line.count(",") > 7:
            what = f"has {line.count(',') + 1} columns, so it is no bw, iops or lat log but a histogram"
            raise Failure(Exit.INPUT, f"{path}:{number}: {what}")
        if not _LINE.fullmatch(line):
            raise _broken(path, number, line)
        numbers.append((number, line, [int(word, 0) if "x" in word else int(word) for word in line.split(",")]))
    if both is None and numbers:
        both = any(row[2] >= len(DIRECTIONS) for _, _, row in numbers)
    at = 3 if both else 2
    table = []
    for number, line, row in numbers:
        if len(row) < at + 2 or row[at] >= len(DIRECTIONS) or both and row[1] > row[2] or max(*row[:2], row[at + 1]) > _MOST:
            raise _broken(path, number, line)
        table.append((row[0], row[1], row[at], row[at + 1]))
    return np.array(table, dtype=np.int64).reshape(-1, 4), both


def read(path: Path, both: bool = False) -> Log:
    """All of a log; `both` as of tables()."""
    table = np.concatenate([np.empty((0, 4), dtype=np.int64), *tables(path, both)])
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
    """What a log says: its number of lines, what it has by direction, how often its time goes back, and whether all of its lines
    are means over an interval of time (log_avg_msec), which fio writes without a block size."""

    lines: int
    series: dict[str, Series]
    resets: int
    averaged: bool


# By how many ms fio's lines are out of order where it writes one log.
_DISORDER_MS = 100
_ALL_BUCKETS = 50 * 64  # beyond _MOST


def summarize(path: Path) -> Summary:
    """What any log says, in memory that does not grow with it."""
    if kind(path) == "clat_hist":
        return _summarize_histograms(path)
    lines = resets = 0
    sized = False
    latest = None
    found: dict[int, _Collected] = {}
    for table in tables(path, None):
        if not len(table):
            continue
        lines += len(table)
        sized = sized or bool(table[:, 3].any())
        time = table[:, 0] if latest is None else np.insert(table[:, 0], 0, latest)
        resets += int((np.diff(time) < -_DISORDER_MS).sum())
        latest = table[-1, 0]
        for direction in np.unique(table[:, 2]):
            of_it = table[table[:, 2] == direction]
            found.setdefault(int(direction), _Collected()).add(of_it[:, 0], of_it[:, 1])
    series = {DIRECTIONS[each]: found[each].series() for each in sorted(found)}
    return Summary(lines, series, resets, lines > 0 and not sized)


class _Collected:
    """The lines of one direction so far."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = self.squares = 0.0
        self.least, self.most = _MOST, 0
        self.start, self.end = _MOST, 0
        self.counts = np.zeros(_ALL_BUCKETS, dtype=np.int64)

    def add(self, time: np.ndarray, values: np.ndarray) -> None:
        """Take lines, in ms and the log's unit; means and squares as Chan, Golub and LeVeque combine them."""
        n, mean = len(values), float(values.mean())
        away = mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + away**2 * self.n * n / (self.n + n)
        self.mean += away * n / (self.n + n)
        self.n += n
        self.least, self.most = min(self.least, int(values.min())), max(self.most, int(values.max()))
        self.start, self.end = min(self.start, int(time.min())), max(self.end, int(time.max()))
        self.counts += np.bincount(_index(values), minlength=_ALL_BUCKETS)

    def series(self) -> Series:
        index = np.flatnonzero(self.counts)
        low, high = _lower(index), _lower(index + 1)
        bins = {int(middle): int(self.counts[at]) for at, middle in zip(index, (low + high) // 2, strict=True)}
        values = Latency(
            self.n, self.least, self.most, self.mean, (self.squares / self.n) ** 0.5, bins, limit=2 * _MOST
        )
        return Series(values, self.start / 1000, self.end / 1000)


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


def _summarize_histograms(path: Path) -> Summary:
    """By direction the latencies in ns of all I/Os."""
    lines = resets = 0
    latest = 0.0
    counts: dict[int, np.ndarray] = {}
    times: dict[int, tuple[float, float]] = {}
    for time, direction, row in _histogram_lines(path):
        lines += 1
        resets += time < latest - _DISORDER_MS / 1000
        latest = time
        if direction in counts and len(row) != len(counts[direction]):
            raise Failure(Exit.INPUT, f"{path}: has lines of {len(row)} and of {len(counts[direction])} buckets, so it is of several runs")
        counts[direction] = counts.get(direction, 0) + row
        start, end = times.get(direction, (time, time))
        times[direction] = min(start, time), max(end, time)
    series = {DIRECTIONS[each]: Series(_of_histogram(counts[each]), *times[each]) for each in sorted(counts)}
    return Summary(lines, series, resets, averaged=False)


def _of_histogram(counts: np.ndarray) -> Latency:
    bounds = _bounds(len(counts))
    middles = (bounds[:-1] + bounds[1:]) // 2
    index = np.flatnonzero(counts)
    bins = {int(middles[at]): int(counts[at]) for at in index}
    return Latency(int(counts.sum()), bins=bins, limit=int(middles[-1]))


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

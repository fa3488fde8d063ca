# SPDX-License-Identifier: GPL-2.0-only
"""What fio's JSON says, as typed values with one unit each, whichever fio wrote it.

| | since |
|---|---|
| `total_ios` | 2.1.14 |
| `io_bytes` in bytes, `io_kbytes` beside it; before, `io_bytes` in KiB alone | 2.21 |
| `clat_ns`, bins by their midpoint; before, `clat` in us, bins by their index | 2.99 |
| `sync.lat_ns` | 3.4 |
| `N`, the number of samples | 3.18 |
| `job_start` | 3.36 |

In client mode the jobs are called `client_stats`, with `unified_rw_reporting` the directions are called `mixed`. What is
absent is None, never 0. A value that fio can't have printed refuses the document.

Two things of fio's own accounting are mended. `sync.total_ios` stays 0 with `fdatasync=` in every release up to 3.42 (the
syncs are counted as short reads), so syncs are counted by `sync.lat_ns.N`. From 3.1 to 3.12, percentiles of the total
latency (`lat_percentiles=1`) are printed as those of the completion latency.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from .. import inputs
from ..errors import Exit, Failure
from . import text as texts
from .cut import cut
from .latency import BUCKETS_US, SATURATED_NS, Bins, Latency, midpoint
from .text import Found, Repeated

DIRECTIONS = ("read", "write", "trim", "mixed")

_VERSION = re.compile(r"fio-(\d{1,4})\.(\d{1,4})")
_STOPPED = re.compile(r"fio: terminating on signal (\d+)")
_KILLED = re.compile(r"fio: pid=\d+, got signal=(\d+)")
_NO_ETA = 2**31 - 1
# A latency where none was taken, as fio prints most.
_NONE_TAKEN = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}


_NOTHING = Latency()


@dataclass(frozen=True)
class Direction:
    """What a job did in one direction: bytes, I/Os, time from its start to its last I/O, and latencies from submission
    (`clat`) and from its request (`lat`) to completion, and from request to submission (`slat`). `iops`, `bw_bytes`
    (bytes/s) and `io_kbytes` are what fio computed of these for this entry alone."""

    io_bytes: int | None = None
    total_ios: int | None = None
    runtime_ms: int | None = None
    clat: Latency = _NOTHING
    lat: Latency = _NOTHING
    slat: Latency = _NOTHING
    iops: float | None = None
    bw_bytes: float | None = None
    io_kbytes: int | None = None


@dataclass(frozen=True)
class Job:
    """One entry of fio's job list: a job, a clone of it, or with group_reporting a group.

    `error` is an errno; `errors` the number of errors that it went on after (continue_on_error). `start_ms` is in
    milliseconds since the epoch, None before fio 3.36. `options` has the job's own options over the global ones. `syncs`
    is the number of fsync, fdatasync and sync_file_range calls that completed, None where fio can't tell;
    `syncs_printed` is what it printed for it.
    """

    name: str
    group: int
    error: int
    start_ms: int | None
    options: Mapping[str, str]
    directions: Mapping[str, Direction]
    sync: Latency
    syncs: int | None
    host: str | None = None
    errors: int = 0
    syncs_printed: int | None = None
    elapsed_s: int | None = None
    eta_s: int | None = None


@dataclass(frozen=True)
class Document:
    """The result of one fio run. `time_s` is when it was written, in seconds since the epoch. `messages` has the lines
    that stood outside of the JSON.

    `interim` is the number of documents before it that show the same run at an earlier time (`status-interval`),
    `others` of those that show other runs; `damaged` says of each that can't be read where and how. `repeated` has the names
    of options that were given more than once.
    """

    version: str
    jobs: list[Job]
    messages: list[str]
    time_s: float | None = None
    interim: int = 0
    others: int = 0
    damaged: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)

    def errors(self) -> list[str]:
        """What went wrong in the run: one text for each job that ended with an error, and for each signal that ended a
        job or fio itself."""
        found = [
            f"job {job.name!r} ended with error {job.error} ({os.strerror(abs(job.error))})"
            for job in self.jobs
            if job.error
        ]
        for line in self.messages:
            if match := _STOPPED.match(line):
                found.append(f"fio was stopped by signal {match[1]} before its end")
            elif match := _KILLED.match(line):
                found.append(f"a job was killed by signal {match[1]}")
        if left := max((job.eta_s or 0 for job in self.jobs), default=0):
            found.append(f"it had not ended: fio expected it to take {left} s more")
        return found


def read(path: Path) -> Document:
    """Read the last fio document of a file."""
    try:
        data = inputs.content(path)
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None
    return _plain(data) or parse(texts.decode(data), str(path))


def _plain(data: bytes) -> Document | None:
    """A file with one document as fio prints it and nothing else, which nearly all are, the fast way; None of any other."""
    found = cut(data)
    if found is None:
        return None
    rest, bins = found
    try:
        raw = json.loads(rest.decode())
        return _document(raw, [], bins) if texts.is_document(raw) and _all_text(raw) else None
    except (ValueError, RecursionError, _Bad):
        return None


def _all_text(raw: Mapping[str, Any]) -> bool:
    """Whether what is told of a document as it stands there is text and numbers, so that no histogram can have been cut out of it."""
    shared = raw.get("global options")
    parts = [shared] if isinstance(shared, dict) else list(shared or ())
    for each in raw.get("client_stats") or raw.get("jobs") or ():
        parts += [{name: each.get(name) for name in ("jobname", "hostname", "port")}, each.get("job options")]
    return not any(isinstance(value, dict | list) for each in parts if isinstance(each, dict) for value in each.values())


def parse(text: str, source: str) -> Document:
    """Find the last fio document in a text; `source` names it in messages."""
    messages: list[str] = []
    damaged: list[str] = []
    last: Found | None = None
    trails: list[_Trail] = []
    for each in texts.scan(text):
        if isinstance(each, str):
            messages.append(each)
            continue
        if isinstance(each, Found):
            trails.append(_Trail.of(each.raw))
            # Of thousands of documents only the last is kept.
            last = each
        else:
            damaged.append(f"document that begins at line {each.line} {each.what}")
            last = None
    if not trails and not damaged:
        says = f"; it says: {messages[0][:100]!r}" if messages else ", it is empty" if not text.strip() else ""
        raise Failure(Exit.INPUT, f"{source}: has no fio JSON in it{says} (run fio with --output-format=json+)")
    if last is None:
        raise Failure(Exit.INPUT, f"{source}: the fio {damaged[-1]}")
    interim = sum(trails[-1].continues(trail) for trail in trails[:-1])
    try:
        return _document(last.raw, messages, [], interim=interim, others=len(trails) - 1 - interim, damaged=damaged)
    except _Bad as bad:
        where = f"the fio document that begins at line {last.line}"
        raise Failure(Exit.INPUT, f"{source}: {where} is not what fio writes: {bad}") from None


@dataclass(frozen=True)
class _Trail:
    """What tells whether one document shows the same run as another, at a later time: when it was written, and how long
    fio had been running, in s."""

    version: object
    jobs: list[tuple[object, object]]
    time_s: float | None
    elapsed_s: float | None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> _Trail:
        entries = raw.get("client_stats", raw.get("jobs"))
        entries = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
        time_ms = _plausible(raw.get("timestamp_ms"))
        return cls(
            raw.get("fio version"),
            [(each.get("jobname"), each.get("job_start")) for each in entries],
            _plausible(raw.get("timestamp")) if time_ms is None else time_ms / 1000,
            _plausible(entries[0].get("elapsed")) if entries else None,
        )

    def continues(self, earlier: _Trail) -> bool:
        """Whether this is the same run as an earlier document, not before it."""
        if self.version != earlier.version or self.jobs != earlier.jobs or self.time_s is None or earlier.time_s is None:
            return False
        if not all(start for _, start in self.jobs):
            if self.elapsed_s is None or earlier.elapsed_s is None:
                return False
            # Both are rounded to seconds.
            if abs((self.time_s - self.elapsed_s) - (earlier.time_s - earlier.elapsed_s)) > 2:
                return False
        return earlier.time_s <= self.time_s


def _plausible(value: object) -> float | None:
    """A time in s or ms."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else None


class _Bad(Exception):
    """A value that fio can't have printed; the text has its place within the document."""


@dataclass(slots=True)
class _Node:
    """An object within the document, and its place there."""

    raw: Mapping[str, Any]
    place: str

    def bad(self, key: str, what: str) -> NoReturn:
        raise _Bad(f"{self.at(key)} {what}")

    def at(self, key: str) -> str:
        # It may be anything, but in a patched fio's document.
        key = key if key.isprintable() and len(key) <= 80 else f"{key!a:.80}"
        return f"{self.place}.{key}" if self.place and not self.place.endswith(": ") else f"{self.place}{key}"

    def get(self, key: str) -> Any:
        if type(self.raw) is Repeated and key in self.raw.repeated:
            self.bad(key, "is there more than once, with different values")
        return self.raw.get(key)

    def items(self) -> Iterator[tuple[str, Any]]:
        """All keys and values."""
        if isinstance(self.raw, Repeated):
            for key in self.raw.repeated:
                self.get(key)
        yield from self.raw.items()

    def node(self, key: str) -> _Node | None:
        """The object of this name, None if it is absent or empty."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            self.bad(key, f"is {value!r:.80}, not an object")
        return _Node(value, self.at(key)) if value else None

    def count(self, key: str) -> int | None:
        """A number that fio counted."""
        value = self.get(key)
        # As nearly all are.
        if type(value) is int and 0 <= value < 2**64:
            return value
        return None if value is None and key not in self.raw else self.as_count(key, value)

    def as_count(self, key: str, value: Any) -> int:
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
            self.bad(key, f"is {value!r:.80}, no count")
        return value

    def number(self, key: str) -> float | None:
        """A number that fio computed; None where it computed none (NaN)."""
        value = self.get(key)
        if type(value) is float and 0 <= value < 2**64:
            return value
        if value is None and key not in self.raw:
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**64:
            self.bad(key, f"is {value!r:.80}, no measured value")
        return float(value)

    def integer(self, key: str) -> int:
        """A C int, 0 where it is absent."""
        value = self.get(key)
        if value is None and key not in self.raw:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) < value < 2**31:
            self.bad(key, f"is {value!r:.80}, no int")
        return value


def _document(raw: Mapping[str, Any], messages: list[str], bins: Sequence[Bins], **found: Any) -> Document:
    """`bins` has the histograms that were cut out of the document."""
    root = _Node(raw, "")
    client = "client_stats" in raw
    key = "client_stats" if client else "jobs"
    entries = root.get(key)
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        root.bad(key, "is not a list of objects")
    if not entries:
        root.bad(key, "is empty: fio ended before any job had run")
    if client:
        # fio adds up the clients itself, in an entry that would be counted twice.
        entries = [each for each in entries if each.get("jobname") != "All clients"] or entries
    version = root.get("fio version")
    number = _VERSION.match(version) if isinstance(version, str) else None
    ports = Counter(host for host, _ in {(str(each.get("hostname")), str(each.get("port"))) for each in entries})
    fio = _Fio(
        (int(number[1]), int(number[2])) if number else None,
        root.get("global options"),
        frozenset(host for host, times in ports.items() if times > 1),
        bins,
    )
    milliseconds = root.count("timestamp_ms")
    seconds = root.count("timestamp") if milliseconds is None else milliseconds / 1000
    jobs = [fio.job(_Node(each, f"job {at} {str(each.get('jobname'))!r:.80}: ")) for at, each in enumerate(entries, 1)]
    repeated = {name for each in (fio.shared, *(each.get("job options") for each in entries)) for name in _repeated(each)}
    return Document(
        version=version if isinstance(version, str) else "",
        jobs=jobs,
        messages=messages,
        time_s=seconds,
        repeated=sorted(repeated),
        **found,
    )


def _repeated(options: Any) -> frozenset[str]:
    """Names of options that were given more than once. In client mode each host has its own."""
    if isinstance(options, list):
        return frozenset(name for each in options for name in _repeated(each))
    return options.repeated if isinstance(options, Repeated) else frozenset()


@dataclass(frozen=True)
class _Fio:
    """The fio that wrote the document, by its version where it tells one; its global options: of all jobs, or in
    client mode a list with those of each host; the hosts on which several servers were asked; and the histograms that were
    cut out."""

    version: tuple[int, int] | None
    shared: Any
    several: frozenset[str]
    bins: Sequence[Bins]

    def job(self, raw: _Node) -> Job:
        options = self._options(raw)
        # Of 2.1, which has `total_err` twice, the second is the first error.
        errors = raw.as_count("total_err", raw.raw.get("total_err", 0))
        sync = raw.node("sync")
        printed = sync.count("total_ios") if sync else None
        latency = self._latency(sync, "lat", printed or None) if sync else _NOTHING
        syncs = latency.n or printed or latency.n if sync else None
        if syncs == 0 and any(is_on(options, name) for name in ("disable_clat", "gtod_reduce")):
            syncs = None
        host = None if raw.get("hostname") is None else str(raw.get("hostname"))
        if host in self.several:
            host += f":{raw.get('port')}"
        return Job(
            name=str(raw.get("jobname") or ""),
            group=raw.integer("groupid"),
            error=raw.integer("error"),
            start_ms=raw.count("job_start") or None,
            options=options,
            directions={name: self._direction(raw, name, options) for name in _directions(raw)},
            sync=latency,
            syncs=syncs,
            host=host,
            errors=errors,
            syncs_printed=printed,
            elapsed_s=raw.count("elapsed"),
            eta_s=_eta(raw.count("eta")),
        )

    def _options(self, raw: _Node) -> dict[str, str]:
        shared = self.shared
        if isinstance(shared, list):
            here = (raw.raw.get("hostname"), raw.raw.get("port"))
            of_host = [each for each in shared if isinstance(each, dict)]
            shared = next((each for each in of_host if (each.get("hostname"), each.get("port")) == here), {})
            shared = {name: value for name, value in shared.items() if name not in ("hostname", "port")}
        # Options have no units of ours and are shown only, so of those that were given twice the last stands, as for fio.
        own = raw.raw.get("job options")
        each = (options for options in (shared, own) if isinstance(options, dict))
        return {str(name): str(value) for options in each for name, value in options.items()}

    def _direction(self, job: _Node, name: str, options: Mapping[str, str]) -> Direction:
        raw = job.node(name)
        if raw is None:
            return Direction()
        ios = raw.count("total_ios")
        clat, lat = self._latency(raw, "clat", ios), self._latency(raw, "lat", ios)
        total = is_on(options, "lat_percentiles") or options.get("clat_percentiles") == "0"
        if total and self.version and (3, 1) <= self.version < (3, 13):
            clat, lat = _moved(clat, lat)
        bandwidth = raw.number("bw_bytes")
        kib = raw.number("bw")
        return Direction(
            io_bytes=self._bytes(raw),
            io_kbytes=raw.count("io_kbytes"),
            total_ios=ios,
            runtime_ms=raw.count("runtime"),
            clat=clat,
            lat=lat,
            slat=self._latency(raw, "slat", ios),
            iops=raw.number("iops"),
            bw_bytes=kib * 1024 if bandwidth is None and kib is not None else bandwidth,
        )

    def _bytes(self, raw: _Node) -> int | None:
        """Bytes of a direction. `io_bytes` is in KiB unless `io_kbytes` stands beside it, which an abridged document may
        lack."""
        value, kib = raw.count("io_bytes"), raw.count("io_kbytes")
        if value is None:
            return None if kib is None else 1024 * kib
        if kib is not None:
            return value
        microseconds = "clat" in raw.raw or "lat" in raw.raw
        nanoseconds = "clat_ns" in raw.raw or "lat_ns" in raw.raw
        if microseconds or (self.version and self.version < (2, 21)):
            return 1024 * value
        if not nanoseconds and self.version is None and value:
            raw.bad("io_bytes", "may be bytes or KiB: nothing tells which fio wrote it")
        return value

    def _latency(self, raw: _Node, name: str, ios: int | None) -> Latency:
        """`ios` is the number of samples where fio prints none (before 3.18) and has measured."""
        in_us = name in raw.raw and f"{name}_ns" not in raw.raw
        found = raw.node(name if in_us else f"{name}_ns")
        if found is None or found.raw == _NONE_TAKEN:
            return _NOTHING
        unit = 1000 if in_us else 1
        values = {key: found.number(key) for key in ("min", "max", "mean", "stddev")}
        bins = self._bins(found, in_us)
        n = found.count("N")
        if n is None:
            measured = bins or values["max"] or values["mean"]
            n = (sum(bins.values()) or ios) if measured else 0
        if n == 0:
            return _NOTHING
        scaled = {key: None if value is None else value * unit for key, value in values.items()}
        limit = 1000 * midpoint(BUCKETS_US - 1) if in_us else SATURATED_NS
        return Latency(n=n, **scaled, bins=bins, percentiles=_percentiles(found, unit), limit=limit)


    def _bins(self, raw: _Node, in_us: bool) -> Mapping[int, int]:
        at = raw.raw.get("bins")
        if not self.bins or not isinstance(at, int):
            found = raw.node("bins")
            return _counted(found, in_us) if found else {}
        if not in_us:
            return self.bins[at]
        named = {str(bucket): count for bucket, count in self.bins[at].items()}
        return _counted(_Node(named, raw.at("bins")), in_us)


def _moved(clat: Latency, lat: Latency) -> tuple[Latency, Latency]:
    """The two with the percentiles (and bins) of the first given to the second."""
    if lat.n != 0:
        lat = replace(lat, percentiles=clat.percentiles or lat.percentiles, bins=clat.bins or lat.bins)
    return replace(clat, percentiles={}, bins={}), lat


def _eta(seconds: int | None) -> int | None:
    return None if seconds == _NO_ETA else seconds


def _directions(job: _Node) -> list[str]:
    """Names of a job's directions. Patched fios have others than fio's own."""
    return [
        name
        for name, value in job.raw.items()
        if name in DIRECTIONS
        or (isinstance(value, dict) and any(key in value for key in ("io_bytes", "io_kbytes", "clat_ns", "clat")))
    ]


def _percentiles(raw: _Node, unit: int) -> dict[float, float]:
    found = raw.node("percentile")
    values: dict[float, float] = {}
    if found is None:
        return values
    if plain := _plain_percentiles(found.raw, unit):
        return plain
    for key, printed in found.items():
        try:
            percent = float(key)
        except ValueError:
            percent = math.nan
        # fio up to 3.3 fills the list up with entries of 0 percent.
        if percent == 0:
            continue
        if not 0 < percent <= 100:
            found.bad(repr(key), "is no percentage")
        value = float(unit * found.as_count(key, printed))
        if values.setdefault(percent, value) != value:
            found.bad(repr(key), "is there more than once, with different values")
    return values


def _plain_percentiles(raw: Mapping[str, Any], unit: int) -> dict[float, float]:
    """Those that are as fio prints them at once; none of any others."""
    values = list(raw.values())
    if type(raw) is Repeated or set(map(type, values)) != {int} or min(values) < 0 or max(values) >= 2**64:
        return {}
    try:
        percents = list(map(float, raw))
    except ValueError:
        return {}
    found = {percent: float(unit * value) for percent, value in zip(percents, values, strict=True)}
    return found if len(found) == len(values) and 0 < min(percents) and max(percents) <= 100 else {}


def _counted(raw: _Node, in_us: bool) -> dict[int, int]:
    """Counts by the midpoint of their bucket in ns. Before 2.99, fio printed the number of each bucket, and constants of
    its histogram among them."""
    values: dict[int, int] = {}
    for key, printed in raw.items():
        if in_us and key.startswith("FIO_IO_U_PLAT"):
            continue
        bucket = int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else -1
        if bucket < 0 or (in_us and bucket >= BUCKETS_US):
            raw.bad(repr(key), "is no bucket")
        value = 1000 * midpoint(bucket) if in_us else bucket
        count = raw.as_count(key, printed)
        if values.setdefault(value, count) != count:
            raw.bad(repr(key), "is there more than once, with different values")
    return {value: count for value, count in values.items() if count}


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is given and not 0."""
    return name in options and options[name] != "0"

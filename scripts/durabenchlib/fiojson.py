# SPDX-License-Identifier: GPL-2.0-only
"""Reads the JSON and JSON+ output of fio 3.0 and newer, as it is found in files rather than as it should be.

fio may print notes and errors before, between and after its JSON documents, prints one cumulative document each status
interval, does not escape control characters, and repeats keys when an option is repeated. In client mode the jobs are
called `client_stats`, with `unified_rw_reporting` the directions are called `mixed`. The last document of a file is the
result.

Two things of fio's own accounting are mended here. `sync.total_ios` stays 0 with `fdatasync=` in every release up to
3.42 (the syncs are counted as short reads), so syncs are counted by `sync.lat_ns.N`. Percentiles can't be averaged, so
those of several jobs are computed from their merged histograms, which JSON+ has as `bins`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Exit, Failure

# Value of the last of fio's 29 x 64 histogram buckets (stat.h): every latency of 17.1 s and more is counted there.
SATURATED_NS = 17_112_760_320

DIRECTIONS = ("read", "write", "trim", "mixed")

_VERSION = re.compile(r"fio-(\d+)\.(\d+)")
_NOT_A_NUMBER = re.compile(r'("\s*:\s*)[-+]?(?:nan|inf)(?:\(\w*\))?(?=\s*[,}\]])', re.IGNORECASE)


@dataclass(frozen=True)
class Latency:
    """A latency distribution in ns. `bins` maps a bucket's midpoint to its count (empty unless JSON+); `percentiles`
    maps percent to the value that fio printed, which only stands for this one distribution."""

    n: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    stddev: float | None = None
    bins: Mapping[int, int] = field(default_factory=dict)
    percentiles: Mapping[float, float] = field(default_factory=dict)

    def percentile(self, percent: float) -> float | None:
        """Latency in ns that `percent` of the samples do not exceed, by fio's own rule: the first bucket at which the
        count reaches that share. A bucket's midpoint may lie beyond the exact maximum, which then is the answer.
        None if there are no samples, or neither bins nor a printed value."""
        if self.n == 0:
            return None
        value: float | None = None
        if self.bins:
            rank = round(percent * 1_000_000) * sum(self.bins.values())
            reached = 0
            for midpoint in sorted(self.bins):
                reached += self.bins[midpoint]
                value = float(midpoint)
                if reached * 100_000_000 >= rank:
                    break
        else:
            value = self.percentiles.get(percent)
        if value is None or value >= SATURATED_NS:
            return value
        if self.max is not None:
            value = min(value, self.max)
        return value if self.min is None else max(value, self.min)

    def saturated(self, percent: float) -> bool:
        """Whether the percentile lies in fio's last bucket, so that all that is known is that it is 17.1 s or more."""
        value = self.percentile(percent)
        return value is not None and value >= SATURATED_NS


def merge(latencies: Iterable[Latency]) -> Latency:
    """The distribution of all samples together. It has bins only if each part with samples has them; percentiles as fio
    printed them survive only where there is one part."""
    parts = [each for each in latencies if each.n]
    if len(parts) < 2:
        return parts[0] if parts else Latency()
    n = sum(each.n for each in parts)
    bins: Counter[int] = Counter()
    if all(each.bins for each in parts):
        for each in parts:
            bins.update(each.bins)
    means = [each.mean for each in parts]
    mean = None if None in means else sum(each.n * (each.mean or 0.0) for each in parts) / n
    stddev = None
    if mean is not None and all(each.stddev is not None for each in parts):
        square = sum(
            (each.n - 1) * (each.stddev or 0.0) ** 2 + each.n * ((each.mean or 0.0) - mean) ** 2 for each in parts
        )
        stddev = math.sqrt(square / (n - 1))
    return Latency(
        n=n,
        min=min((each.min for each in parts if each.min is not None), default=None),
        max=max((each.max for each in parts if each.max is not None), default=None),
        mean=mean,
        stddev=stddev,
        bins=dict(bins),
    )


@dataclass(frozen=True)
class Direction:
    """What a job did in one direction: bytes, I/Os, time from its start to its last I/O, and latencies."""

    io_bytes: int
    total_ios: int
    runtime_ms: int
    clat: Latency
    lat: Latency


@dataclass(frozen=True)
class Job:
    """One entry of fio's job list: a job, a clone of it, or with group_reporting a group.

    `error` is an errno. `start_ms` is in milliseconds since the epoch, None before fio 3.36. `options` has the job's
    own options over the global ones. `syncs` is the number of fsync, fdatasync and sync_file_range calls that
    completed, None where fio can't tell.
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


def joint_seconds(jobs: Iterable[Job], direction: str) -> float | None:
    """Time in s in which the jobs together did what they did in one direction: from the first start to the last end.

    fio tells when a job started from 3.36 on. Before that, the jobs of one group are taken to have started together,
    groups behind a stonewall to have followed each other, and new groups beside each other not; None where options say
    that it was otherwise, or don't say.
    """
    active = [each for each in jobs if direction in each.directions and each.directions[direction].runtime_ms]
    if not active:
        return None
    if all(each.start_ms is not None for each in active):
        ends = [(each.start_ms or 0) + each.directions[direction].runtime_ms for each in active]
        return (max(ends) - min(each.start_ms or 0 for each in active)) / 1000
    if len(active) > 1 and any(is_on(each.options, name) for each in active for name in ("startdelay", "wait_for")):
        return None
    phases = [0]
    group = active[0].group
    for each in active:
        if each.group != group:
            group = each.group
            if "stonewall" in each.options or "wait_for_previous" in each.options:
                phases.append(0)
            elif "new_group" not in each.options:
                return None
        phases[-1] = max(phases[-1], each.directions[direction].runtime_ms)
    return sum(phases) / 1000


@dataclass(frozen=True)
class Document:
    """The result of one fio run. `messages` has the lines that stood outside of the JSON."""

    version: str
    jobs: list[Job]
    messages: list[str]

    def errors(self) -> list[str]:
        """One text for each job that ended with an error."""
        return [f"job {job.name!r} ended with error {job.error}" for job in self.jobs if job.error]


def read(path: Path) -> Document:
    """Read the last fio document of a file."""
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Document:
    """Find the last fio document in a text; `source` names it in messages."""
    raw, messages = _scan(text, source)
    if raw is None:
        says = f"; it says: {messages[0][:200]}" if messages else ", it is empty" if not text.strip() else ""
        raise Failure(Exit.INPUT, f"{source}: has no fio JSON in it{says} (run fio with --output-format=json+)")
    return _document(raw, messages, source)


def _scan(text: str, source: str) -> tuple[dict[str, Any] | None, list[str]]:
    """The last JSON object that is a fio document, and the lines outside of all objects."""
    found: dict[str, Any] | None = None
    messages: list[str] = []
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if line.lstrip().startswith("{"):
            start = position + len(line) - len(line.lstrip())
            value, after = _decode(text, start)
            if after:
                if "jobs" in value or "client_stats" in value:
                    found = value
                position = after
                continue
            if '"fio version"' in text[start : start + 200]:
                number = text.count("\n", 0, start) + 1
                raise Failure(
                    Exit.INPUT, f"{source}: the fio document that begins at line {number} is cut off or damaged"
                )
        if line.strip():
            messages.append(line.strip())
        position = end + 1
    return found, messages


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The JSON object at `start` and the position behind it; position 0 if there is none."""
    decoder = json.JSONDecoder(strict=False)
    try:
        value, after = decoder.raw_decode(text, start)
        return value, after
    except RecursionError:
        return {}, 0
    except ValueError:
        pass
    # fio prints floating point numbers by "%f", which for these is no JSON.
    end = text.find("\n}", start)
    while end >= 0 and '"fio version"' in text[start : start + 200]:
        mended = _NOT_A_NUMBER.sub(r"\1NaN", text[start : end + 2])
        try:
            return decoder.decode(mended), end + 2
        except (ValueError, RecursionError):
            end = text.find("\n}", end + 2)
    return {}, 0


def _document(raw: Mapping[str, Any], messages: list[str], source: str) -> Document:
    version = str(raw.get("fio version", ""))
    number = _VERSION.match(version)
    if number and int(number[1]) < 3:
        raise Failure(
            Exit.INPUT,
            f"{source}: was written by {version}, whose sizes are in KiB and latencies in microseconds; "
            "durabench reads fio 3.0 and newer: measure again with a newer fio",
        )
    entries = raw["client_stats"] if "client_stats" in raw else raw["jobs"]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise Failure(Exit.INPUT, f"{source}: its list of jobs is not a list of objects")
    if not entries:
        raise Failure(Exit.INPUT, f"{source}: its list of jobs is empty: fio ended before any job had run")
    if "client_stats" in raw:
        # fio adds up the clients itself, in an entry that would be counted twice.
        entries = [each for each in entries if each.get("jobname") != "All clients"] or entries
    shared = raw.get("global options")
    try:
        jobs = [_job(each, shared if isinstance(shared, dict) else {}) for each in entries]
    except (TypeError, ValueError, AttributeError) as error:
        raise Failure(Exit.INPUT, f"{source}: is not what fio writes: {error}") from None
    return Document(version=version, jobs=jobs, messages=messages)


def _job(raw: Mapping[str, Any], shared: Mapping[str, Any]) -> Job:
    own = raw.get("job options") or {}
    options = {str(name): str(value) for name, value in {**shared, **own}.items()}
    sync = raw.get("sync") or {}
    latency = _latency(sync.get("lat_ns"))
    syncs: int | None = latency.n or _count(sync.get("total_ios", 0))
    if syncs == 0 and any(is_on(options, name) for name in ("disable_clat", "gtod_reduce")):
        syncs = None
    return Job(
        name=str(raw.get("jobname", "")),
        group=_count(raw.get("groupid", 0)),
        error=_count(raw.get("error", 0)),
        start_ms=_count(raw["job_start"]) if raw.get("job_start") else None,
        options=options,
        directions={name: _direction(raw[name]) for name in DIRECTIONS if name in raw},
        sync=latency,
        syncs=syncs,
        host=str(raw["hostname"]) if "hostname" in raw else None,
    )


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is given and not 0."""
    return name in options and options[name] != "0"


def _direction(raw: Mapping[str, Any]) -> Direction:
    return Direction(
        io_bytes=_count(raw["io_bytes"] if "io_bytes" in raw else 1024 * raw.get("io_kbytes", 0)),
        total_ios=_count(raw.get("total_ios", 0)),
        runtime_ms=_count(raw.get("runtime", 0)),
        clat=_latency(raw.get("clat_ns"), _count(raw.get("total_ios", 0))),
        lat=_latency(raw.get("lat_ns"), _count(raw.get("total_ios", 0))),
    )


def _latency(raw: Mapping[str, Any] | None, ios: int = 0) -> Latency:
    """`ios` is the number of samples where fio prints none (before 3.17) and has measured."""
    if not raw:
        return Latency()
    n = _count(raw["N"]) if "N" in raw else ios if raw.get("max") else 0
    if n == 0:
        return Latency()
    percentiles = {float(name): float(_count(value)) for name, value in raw.get("percentile", {}).items()}
    return Latency(
        n=n,
        min=_number(raw.get("min")),
        max=_number(raw.get("max")),
        mean=_number(raw.get("mean")),
        stddev=_number(raw.get("stddev")),
        bins={int(midpoint): _count(count) for midpoint, count in raw.get("bins", {}).items()},
        # fio up to 3.3 fills the list up with entries of 0 percent.
        percentiles={percent: value for percent, value in percentiles.items() if percent > 0},
    )


def _count(value: Any) -> int:
    """A number that fio counted; ValueError or TypeError for what it can't have."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return int(value)


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

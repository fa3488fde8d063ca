# SPDX-License-Identifier: GPL-2.0-only
"""Reads a run's folder: its manifest, and of each repetition fio's result, the observer's and the engine's counts, as
the metrics and the mechanism that docs/formats.md names."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import fiojson, formats, inputs, layout, logs, measurement
from .errors import Exit, Failure
from .units import MIB

if TYPE_CHECKING:
    import numpy as np

_METRIC = re.compile(
    r"(?:(?P<job>.+)/)?"
    r"(?:(?P<rate>(?:read|write)\.(?:iops|bw))"
    r"|(?P<latency>(?:read|write)\.clat|sync\.lat)\.(?P<value>mean|max|p\d+(?:\.\d+)?)"
    r"|(?P<other>sync\.count|dirty_peak|cpu))"
)
_UNITS = {"iops": "IOPS", "bw": "MiB/s", "sync.count": "count", "dirty_peak": "MiB", "cpu": "%"}

MECHANISM = (
    "writes",
    "syncs",
    "flushes",
    "flushes_per_write",
    "flush_calls",
    "flush_calls_per_sync",
    "requests_per_write",
    "durable_writes",
    "kicks",
    "kicks_coalesced",
    "writeback_bytes",
    "dirty_writeback_peak_bytes",
)


@dataclass(frozen=True)
class Device:
    """Deltas of one block device over the repetition; `flushes` is None where the kernel does not count them."""

    name: str
    role: str
    writes: int
    write_sectors: int
    flushes: int | None = None
    flush_ms: int | None = None
    of: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class System:
    """What the observer saw of the whole machine."""

    dirty_writeback_peak_bytes: int
    cpu_user_s: float
    cpu_system_s: float


@dataclass(frozen=True)
class Observed:
    """The observer's summary of one repetition."""

    elapsed_s: float
    devices: list[Device]
    system: System

    def targets(self) -> list[Device]:
        """The devices that executed the target's requests: in place of one that counts no flushes (dm, md), those below
        it that do."""
        named = [each for each in self.devices if each.role == "target"]
        return list({each.name: each for device in named for each in self._counting(device)}.values())

    def _counting(self, device: Device) -> list[Device]:
        if device.flushes is not None:
            return [device]
        below = [each for lower in self.devices if device.name in lower.of for each in self._counting(lower)]
        return [each for each in below if each.flushes is not None] or [device]


@dataclass(frozen=True)
class Counters:
    """What an engine counted for one job; None where the key has no meaning for the engine."""

    job: str
    writes: int | None = None
    durable_writes: int | None = None
    syncs: int | None = None
    flush_calls: int | None = None
    kicks: int | None = None
    kicks_coalesced: int | None = None
    writeback_bytes: int | None = None


@dataclass(frozen=True)
class Samples:
    """The observer's samples: time in s, memory in bytes, and for each device its flushes since the start."""

    time: np.ndarray
    dirty_writeback: np.ndarray
    flushes: dict[str, np.ndarray]


@dataclass(frozen=True)
class Repetition:
    """One fio run of one case with one strategy."""

    entry: formats.Repetition
    folder: Path
    fio: fiojson.Document
    observed: Observed | None
    counters: list[Counters]

    def metric(self, name: str) -> float | None:
        """Value of a metric, in `unit(name)`; None where this repetition has none."""
        match = _match(name)
        jobs = self._jobs(match["job"])
        if match["rate"]:
            return _rate(jobs, *match["rate"].split("."))
        if match["latency"]:
            latency = _merged(jobs, match["latency"])
            value = match["value"]
            ns = getattr(latency, value) if value in ("mean", "max") else latency.percentile(float(value[1:]))
            return None if ns is None else ns / 1000
        if match["other"] == "sync.count":
            return _sum(each.syncs for each in jobs)
        if self.observed is None or match["job"]:
            return None
        system = self.observed.system
        if match["other"] == "dirty_peak":
            return system.dirty_writeback_peak_bytes / MIB
        share = _per(system.cpu_user_s + system.cpu_system_s, self.observed.elapsed_s)
        return None if share is None else 100 * share

    def latency(self, name: str) -> fiojson.Latency:
        """The distribution of this name (see `distribution`)."""
        match = _match(name + ".max")
        return _merged(self._jobs(match["job"]), match["latency"])

    @cached_property
    def mechanism(self) -> dict[str, float | None]:
        """What kernel, device and engine did for the workload, in the keys of MECHANISM."""
        jobs = self.fio.jobs
        writes = fiojson.total(jobs, "write", "total_ios") if any("write" in each.directions for each in jobs) else None
        found: dict[str, float | None] = {
            "writes": writes,
            "syncs": _sum(each.syncs for each in jobs),
            **{key: _sum(getattr(each, key) for each in self.counters) for key in _COUNTED},
        }
        # Engine and observer saw the ramp time as well, which fio's own count leaves out.
        submitted = _sum(each.writes for each in self.counters) or writes
        found["flush_calls_per_sync"] = _per(found["flush_calls"], _sum(each.syncs for each in self.counters))
        targets = self.observed.targets() if self.observed else []
        found["flushes"] = _sum(each.flushes for each in targets)
        found["flushes_per_write"] = _per(found["flushes"], submitted)
        found["requests_per_write"] = _per(_sum(each.writes for each in targets), submitted)
        found["dirty_writeback_peak_bytes"] = self.observed.system.dirty_writeback_peak_bytes if self.observed else None
        return {key: found[key] for key in MECHANISM}

    @cached_property
    def samples(self) -> Samples | None:
        """The observer's samples; None if they were not kept."""
        path = self.folder / "samples.jsonl"
        return _read_samples(path, self.observed) if path.exists() else None

    def bandwidth(self, direction: str) -> tuple[np.ndarray, np.ndarray]:
        """Bandwidth of all jobs together over time, from fio's averaged logs: ends of their intervals in s, MiB/s.
        Empty without such logs."""
        import numpy as np

        interval_s = self._log_interval_s("log_avg_msec")
        if interval_s is None:
            return np.array([]), np.array([])
        found = [path for path in sorted(self.folder.glob("*.log")) if logs.kind(path) == "bw"]
        both = any(each.options.get("log_window_value") == "both" for each in self.fio.jobs)
        return logs.joint_bandwidth((logs.read(path, both).only(direction) for path in found), interval_s)

    def histograms(self, direction: str) -> logs.Histograms | None:
        """Completion latencies of all jobs together over time, from fio's logs of histograms; None without such logs."""
        interval_s = self._log_interval_s("log_hist_msec")
        if interval_s is None:
            return None
        found = [path for path in sorted(self.folder.glob("*.log")) if logs.kind(path) == "clat_hist"]
        return logs.joint_histograms(found, direction, interval_s)

    def _log_interval_s(self, option: str) -> float | None:
        """What an option says in ms; None where it is not given."""
        text = next((each.options[option] for each in self.fio.jobs if fiojson.is_on(each.options, option)), None)
        if text is None:
            return None
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise Failure(Exit.INPUT, f"{self.folder / 'fio.json'}: {option} is {text!r}, not whole milliseconds")
        return int(text) / 1000

    def _jobs(self, name: str | None) -> list[fiojson.Job]:
        return [each for each in self.fio.jobs if name is None or each.name == name]


_COUNTED = ("durable_writes", "flush_calls", "kicks", "kicks_coalesced", "writeback_bytes")


@dataclass(frozen=True)
class Run:
    """One run. `repetitions` are those that ended well and can be read, in the order in which they were made;
    `unusable` has a sentence for each of the others."""

    path: Path
    manifest: formats.Run
    measurement: formats.Measurement
    published: formats.Published | None
    repetitions: list[Repetition]
    unusable: list[str]

    def only(self, cases: Collection[str]) -> Run:
        """The run as if it had been made with these cases alone."""
        return dataclasses.replace(self, repetitions=[each for each in self.repetitions if each.entry.case in cases])

    def of(self, case: str, strategy: str) -> list[Repetition]:
        """The repetitions of one case with one strategy."""
        return [each for each in self.repetitions if (each.entry.case, each.entry.strategy) == (case, strategy)]


@dataclass(frozen=True)
class Pair:
    """The repetitions of one case that stand against each other, at least one on each side."""

    case: formats.Case
    before_strategy: str
    after_strategy: str
    before: list[Repetition]
    after: list[Repetition]

    def sides(self) -> tuple[tuple[str, list[Repetition]], tuple[str, list[Repetition]]]:
        """Strategy and repetitions, before and after."""
        return (self.before_strategy, self.before), (self.after_strategy, self.after)


def load_run(path: Path) -> Run:
    """Read a run's folder. Damaged repetitions are left out and named; a run without a single usable one is refused."""
    manifest = formats.read_run(path)
    path = path if os.path.isdir(path) else path.parent
    own = path / "measurement.toml"
    definition = formats.read_measurement(own) if own.is_file() else measurement.find(manifest.measurement)[0]
    published = formats.read_published(layout.published() / definition.published) if definition.published else None
    usable: list[Repetition] = []
    unusable: list[str] = []
    for entry in manifest.repetitions:
        if entry.status == "pending":
            continue
        if not re.fullmatch(r"[^/\0]{1,255}", entry.dir) or entry.dir in (".", ".."):
            raise Failure(Exit.INPUT, f"{path / 'run.json'}: repetitions: dir is {entry.dir!r:.100}, no name of a folder in it")
        if entry.status != "ok":
            ended = "failed" if entry.status == "failed" else "was interrupted"
            unusable.append(
                f"Repetition {entry.dir} is left out: it {ended}{f' ({entry.reason})' if entry.reason else ''}."
            )
            continue
        try:
            usable.append(_read_repetition(entry, path / entry.dir))
        except Failure as failure:
            unusable.append(f"Repetition {entry.dir} is left out: {failure}.")
    if not usable:
        none = "The run goes on, or was killed." if manifest.status == "running" else "None was made."
        why = unusable[0] if unusable else none
        raise Failure(Exit.INPUT, f"{path}: has no usable repetition. {why}")
    return Run(path, manifest, definition, published, usable, unusable)


def unit(metric: str) -> str:
    """Unit of a metric."""
    match = _match(metric)
    return "us" if match["latency"] else _UNITS[match["other"] or match["rate"].split(".")[1]]


def distribution(metric: str) -> str | None:
    """Name of the latency distribution that a metric is taken from (`JOB/write.clat`), None if it is from none."""
    match = _match(metric)
    return metric[: match.start("value") - 1] if match["latency"] else None


def percent(metric: str) -> float | None:
    """The percent of a percentile metric, None for all others."""
    value = _match(metric)["value"]
    return float(value[1:]) if value and value.startswith("p") else None


def _match(name: str) -> re.Match[str]:
    match = _METRIC.fullmatch(name)
    if match is None:
        raise Failure(Exit.INPUT, f"there is no metric {name!r} (docs/formats.md lists them)")
    return match


def _rate(jobs: list[fiojson.Job], direction: str, what: str) -> float | None:
    """IOPS or MiB/s of all jobs over the time they took together."""
    if what == "iops":
        return fiojson.rate(jobs, direction, "total_ios")
    bandwidth = fiojson.rate(jobs, direction, "io_bytes")
    return None if bandwidth is None else bandwidth / MIB


def _merged(jobs: list[fiojson.Job], kind: str) -> fiojson.Latency:
    direction = kind.split(".")[0]
    if direction == "sync":
        return fiojson.merge(each.sync for each in jobs)
    return fiojson.merge(each.directions[direction].clat for each in jobs if direction in each.directions)


def _sum(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None if nothing is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _per(count: float | None, of: float | None) -> float | None:
    return count / of if count is not None and of else None


def _read_repetition(entry: formats.Repetition, folder: Path) -> Repetition:
    fio = fiojson.read(folder / "fio.json")
    if fio.errors():
        raise Failure(Exit.INPUT, f"{folder / 'fio.json'}: {fio.errors()[0]}")
    observed: Observed | None = None
    path = folder / "observe.json"
    if path.exists():
        observed = formats.decode(Observed, _json(_text(path), str(path)), formats.OBSERVE, path)
        _refuse_negative(path, [observed.system, *observed.devices])
    counters: list[Counters] = []
    path = folder / "counters.jsonl"
    if path.exists():
        counters = [formats.decode(Counters, line, formats.COUNTERS, Path(where)) for where, line in _json_lines(path)]
        _refuse_negative(path, counters)
    return Repetition(entry, folder, fio, observed, counters)


def _refuse_negative(path: Path, counted: Iterable[Device | System | Counters]) -> None:
    for each in counted:
        for name, value in vars(each).items():
            if isinstance(value, (int, float)) and value < 0:
                raise Failure(Exit.INPUT, f"{path}: is damaged: {name} is {value}, and nothing is counted below 0")


def _read_samples(path: Path, observed: Observed | None) -> Samples:
    import numpy as np

    header, *lines = [line for _, line in _json_lines(path)] or [{}]
    schema = header.get("schema") if isinstance(header, dict) else None
    if schema != formats.SAMPLES:
        raise Failure(Exit.INPUT, f"{path}: has schema {schema!r}; this durabench reads {formats.SAMPLES!r}")
    names = [each.name for each in observed.targets()] if observed else []
    try:
        return Samples(
            time=np.array([each["t"] for each in lines], dtype=float),
            dirty_writeback=np.array([each["dirty"] + each["writeback"] for each in lines], dtype=float),
            flushes={
                name: np.array([each["dev"][name][4] for each in lines], dtype=float)
                for name in names
                if all(each["dev"].get(name, [None] * 5)[4] is not None for each in lines)
            },
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise Failure(Exit.INPUT, f"{path}: a sample is not of the form of {formats.SAMPLES}: {error}") from None


def _text(path: Path) -> str:
    try:
        return inputs.text(path)
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None


def _json(text: str, where: str) -> Any:
    try:
        return formats.parse_json(text)
    except (ValueError, RecursionError) as error:
        raise Failure(Exit.INPUT, f"{where}: is damaged: {error}") from None


def _json_lines(path: Path) -> list[tuple[str, Any]]:
    """The lines of a file, each with its place. Only a line feed ends one: texts have what else Python takes for an end."""
    lines = ((f"{path}:{number}", line) for number, line in enumerate(_text(path).split("\n"), start=1) if line.strip())
    return [(where, _json(line, where)) for where, line in lines]

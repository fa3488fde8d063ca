# SPDX-License-Identifier: GPL-2.0-only
"""Shapes of the files between the stages, with their readers and writers (docs/formats.md is the reference).

A reader refuses a schema it does not know, ignores keys it does not know (a key may be added without a new version) and names
the file and the key of whatever else is wrong. A writer writes beside the file and renames.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import reprlib
import stat
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from . import inputs, leftovers
from .errors import Exit, Failure

RUN = "durabench-run/1"
MEASUREMENT = "durabench-measurement/1"
PUBLISHED = "durabench-published/1"
COMPARISON = "durabench-comparison/1"
COUNTERS = "durabench-counters/1"
GUARD = "durabench-guard/1"
OBSERVE = "durabench-observe/1"
SAMPLES = "durabench-samples/1"
DOCTOR = "durabench-doctor/1"
KERNEL = "durabench-kernel/1"
NOISE = "durabench-noise/1"
GATE = "durabench-gate/1"
ACKNOWLEDGED = "durabench-acknowledged/1"
HISTORY = "durabench-history/1"

Better = Literal["higher", "lower"]
TargetKind = Literal["block", "dm", "directory", "file"]
Variant = Literal["as-described", "as-published"]
RunStatus = Literal["running", "complete", "partial", "failed"]
RepetitionStatus = Literal["pending", "ok", "failed", "interrupted"]
Verdict = Literal["improved", "no change", "regressed", "inconclusive", "invalid"]

T = TypeVar("T")


# A run: RUN/run.json


@dataclass
class Target:
    """What was measured. Sizes in bytes; None where the target has no such property."""

    kind: TargetKind
    path: str
    resolved: str
    device: str | None = None
    model: str | None = None
    serial: str | None = None
    size_bytes: int | None = None
    rotational: bool | None = None
    write_cache: str | None = None
    fua: bool | None = None
    scheduler: str | None = None
    logical_block_size: int | None = None
    filesystem: str | None = None
    mount_options: str | None = None
    backing: str | None = None
    nr_requests: int | None = None
    wbt_lat_usec: int | None = None


@dataclass
class Guest:
    """The lab's guest that it was measured in: whose clock it had, how its CPU was carried out, its devices as the plan made
    them, and what its kernel was found to do (docs/lab.md); `overhead_ns` is what was subtracted from the times of models for the way
    to them."""

    clock: Literal["virtual", "host"]
    accelerator: str
    qemu: str
    devices: list[str]
    abilities: dict[str, float]
    overhead_ns: int | None = None


@dataclass
class Host:
    """A host that was measured by its fio server: the address it was asked at, and what it says of itself."""

    address: str
    hostname: str
    fio: str


@dataclass
class Environment:
    """Where it was measured; `lab` is None where that was no guest. Where it was other hosts, they are `hosts`, and what fio does not
    tell of them is `unknown`, empty or 0."""

    kernel: str
    cmdline: str
    fio: str
    fio_path: str
    engines: str
    machine: str
    cpus: int
    memory_bytes: int
    virtualization: str
    date: str
    cpu_model: str = ""
    lab: Guest | None = None
    hosts: list[Host] = field(default_factory=list)


@dataclass
class Repetition:
    """One fio run of one case with one strategy; `dir` is relative to the run's folder, `elapsed_s` in seconds."""

    order: int
    case: str
    strategy: str
    round: int
    dir: str
    status: RepetitionStatus = "pending"
    exit_status: int | None = None
    reason: str | None = None
    started: str | None = None
    elapsed_s: float | None = None


@dataclass
class Run:
    """The manifest of one invocation of `durabench run`."""

    durabench: str
    measurement: str
    label: str
    created: str
    status: RunStatus
    target: Target
    environment: Environment
    cases: list[str]
    strategies: list[str]
    variables: dict[str, str]
    repeat: int
    repetitions: list[Repetition]
    target2: Target | None = None
    reason: str | None = None
    demo: bool = False
    notes: list[str] = field(default_factory=list)
    schema: str = RUN

    def missing(self) -> str | None:
        """How it ended and what is missing, in words behind a name; None if it is complete."""
        if self.status == "complete":
            return None
        status = "running: it goes on, or was killed" if self.status == "running" else self.status
        reason = f": {self.reason}" if self.reason else ""
        lacking = [each.dir for each in self.repetitions if each.status != "ok"]
        told = ", ".join([*lacking[:3], *([f"{len(lacking) - 3} more"] if len(lacking) > 3 else [])]) or "none"
        done = len(self.repetitions) - len(lacking)
        return f"is {status}{reason}. {done} of {len(self.repetitions)} repetitions ended well; missing: {told}."


# A measurement: jobs/NAME/measurement.toml


@dataclass
class Rule:
    """A size that follows the machine: MemTotal times `memory`, raised to `min`, then limited to the target's capacity times
    `target` and to `max`; without `memory` it starts from the target's capacity. Bounds are in fio's notation."""

    memory: float | None = None
    min: str | None = None
    target: float | None = None
    max: str | None = None


@dataclass
class Source:
    """Where the published measurement is from."""

    title: str = ""
    url: str = ""
    date: str = ""
    kernel: str = ""
    hardware: str = ""
    author: str = ""
    note: str = ""


@dataclass
class Metric:
    """A metric's name as docs/formats.md lists them, which way is better, and the ratio less 1 that is taken for no change where
    that is not the kind's own (judge.py)."""

    name: str
    better: Better
    margin: float | None = None


@dataclass
class Case:
    """One job file of a measurement and what is read from it. `targets` is None where all of the measurement's will do,
    `published` where the case of the published tables has the same name; `generate` has the command of each variable that
    names a generated file."""

    name: str
    job: str
    metrics: list[Metric]
    title: str = ""
    variant: Variant = "as-described"
    headline: bool = False
    before: str | None = None
    after: str | None = None
    set: dict[str, str] = field(default_factory=dict)
    targets: list[TargetKind] | None = None
    devices: int = 1
    generate: dict[str, list[str]] = field(default_factory=dict)
    published: str | None = None


@dataclass
class LabDevice:
    """A device of a guest. `size` is what variables and tables reckon with, and how large the device is made if it is no nbdkit
    plugin's; `settings` are attributes of null_blk, parameters of the plugin, or options of QEMU's -drive."""

    model: Literal["null_blk", "nbdkit", "virtio", "scsi", "nvme"]
    size: str
    plugin: str = ""
    settings: dict[str, str | int] = field(default_factory=dict)


@dataclass
class LabComparison:
    """What is compared: two sides, each a kernel and a strategy (`6.12:kernel`), in `cases`, those of the headline if there are
    none."""

    before: str
    after: str
    cases: list[str] = field(default_factory=list)


@dataclass
class Lab:
    """The guests a measurement is carried out in. What is run by which kernel follows from `comparisons`, of which the first is
    the published one. `tables` has for each case that takes a dm device the command that prints its table. `variables` shorten the
    measurement's, and those in `set` a single case's, or a case's with one strategy (`seq:fua`)."""

    device: list[LabDevice]
    comparisons: list[LabComparison]
    clock: Literal["virtual", "host"] = "virtual"
    memory: str = "1g"
    cpus: int = 1
    variables: dict[str, str | Rule] = field(default_factory=dict)
    set: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Measurement:
    """What is measured, and which strategies stand for before and after. `file_size` is the capacity taken for a target file
    that is not there yet."""

    name: str
    title: str
    engine: str
    targets: list[TargetKind]
    before: str
    after: str
    strategies: list[str]
    case: list[Case]
    summary: str = ""
    destructive: bool = True
    drop_caches: bool = False
    file_size: str | None = None
    published: str | None = None
    source: Source = field(default_factory=Source)
    variables: dict[str, str | Rule] = field(default_factory=dict)
    demo: dict[str, str | Rule] = field(default_factory=dict)
    lab: Lab | None = None
    schema: str = MEASUREMENT


# Published numbers: results/published/NAME.toml


@dataclass
class PublishedRow:
    """One row of a published table, in the unit of its metric; `wrote` has the two cells as the source has them, where that is
    another unit."""

    metric: str
    unit: str
    before: float | None = None
    after: float | None = None
    wrote: list[str] = field(default_factory=list)
    note: str = ""


@dataclass
class PublishedTable:
    """A published table; `before` and `after` are its column heads, `case` is empty for a test that the measurement does not
    have."""

    case: str
    rows: list[PublishedRow]
    caption: str = ""
    before: str = ""
    after: str = ""
    note: str = ""


@dataclass
class PublishedSeries:
    """A published time series: `values` in `unit`, one each `interval_s` seconds."""

    name: str
    unit: str
    interval_s: float
    values: list[float]
    case: str = ""
    strategy: str = ""
    note: str = ""
    source: str = ""


@dataclass
class Published:
    """Published numbers of one source; `measurement` names the one whose they are."""

    name: str
    measurement: str = ""
    source: Source = field(default_factory=Source)
    table: list[PublishedTable] = field(default_factory=list)
    series: list[PublishedSeries] = field(default_factory=list)
    schema: str = PUBLISHED


# A comparison


@dataclass
class PublishedCell:
    """The published counterpart of a metric; `ratio_of_ratios` is the measured ratio over the published one."""

    before: float | None
    after: float | None
    ratio: float | None
    ratio_of_ratios: float | None = None


@dataclass
class MetricComparison:
    """Medians over the repetitions; `values` has each repetition's own, in the order in which they were made; `ratio` is
    after/before. `samples` is the least number of I/Os behind a value that is of a distribution. The rest is judge.py's: ends of
    the ratio's interval, p of the rank test alone and adjusted for all metrics, the margin, and what came out and why."""

    name: str
    unit: str
    better: Better
    before: float | None
    after: float | None
    ratio: float | None
    values: dict[str, list[float]] = field(default_factory=dict)
    published: PublishedCell | None = None
    samples: int | None = None
    margin: float | None = None
    interval: list[float] | None = None
    p: float | None = None
    p_adjusted: float | None = None
    verdict: Verdict | None = None
    reason: str = ""


@dataclass
class Check:
    """A part of the mechanism: the least and the greatest value of the repetitions on each side, and what came out. Counts are
    told apart without statistics: by ranges that lie apart by more than `tolerance` (of the greater) and `slack`."""

    name: str
    before: list[float]
    after: list[float]
    tolerance: float
    slack: float
    verdict: Verdict
    reason: str = ""


@dataclass
class CaseComparison:
    """One case before and after: metrics and mechanism; keys of the dicts are `before` and `after`."""

    name: str
    variant: Variant
    before: str
    after: str
    repetitions: dict[str, int]
    metrics: list[MetricComparison]
    mechanism: dict[str, dict[str, float | None]]
    checks: list[Check] = field(default_factory=list)


@dataclass
class Statistics:
    """How the verdicts were reached: the chance to call any of the unchanged metrics changed, by how many tests it is shared, how
    many repetitions on each side these take to find anything, and the file of the noise that margins were raised to."""

    alpha: float
    tests: int
    repetitions_needed: int
    noise: str | None = None


@dataclass
class MeasurementComparison:
    """One measurement before and after; keys of `environment` are `before` and `after`."""

    name: str
    title: str
    before: str
    after: str
    environment: dict[str, dict[str, Any]]
    warnings: list[str]
    cases: list[CaseComparison]
    statistics: Statistics | None = None


@dataclass
class Comparison:
    """What `durabench compare` writes; `missing` has a sentence for each comparison, or case of one, that was to be made and
    could not."""

    measurements: list[MeasurementComparison]
    missing: list[str] = field(default_factory=list)
    schema: str = COMPARISON


# The noise of a host: what `durabench calibrate` writes


@dataclass
class MetricNoise:
    """Noise of one metric of one case with one strategy: standard deviations of the logarithms within and between `blocks`, the
    margin that unchanged code needs at least, and for each effect (ratio less 1 by which all is slower) the repetitions on each
    side that find it, null where none can."""

    case: str
    strategy: str
    metric: str
    repetitions: int
    blocks: int
    within: float
    between: float
    floor: float
    needed: dict[str, int | None]


@dataclass
class Noise:
    """The noise of a host, of measurements of unchanged code in `runs`; `environment` has what a comparison has for a side."""

    durabench: str
    created: str
    runs: list[str]
    environment: dict[str, Any]
    alpha: float
    power: float
    metrics: list[MetricNoise]
    schema: str = NOISE


# A verdict for CI: what `durabench gate` writes


@dataclass
class Gate:
    """What came out, in one word and one line, with the findings behind it: each names the case, the metric or part of the
    mechanism, and says what is wrong with it."""

    durabench: str
    verdict: Literal["pass", "regression", "inconclusive", "invalid"]
    exit_status: int
    strict: bool
    headline: str
    baseline: list[str]
    candidate: list[str]
    regressions: list[str]
    invalid: list[str]
    inconclusive: list[str]
    improvements: list[str]
    warnings: list[str]
    comparison: Comparison | None
    schema: str = GATE


# Many results: what `durabench history` reads and writes


@dataclass
class Acknowledged:
    """A change that is known, and why it is no alarm: the first result with it, by name or label, of which series (of all that are
    not told apart)."""

    at: str
    reason: str
    case: str = ""
    strategy: str = ""
    metric: str = ""


@dataclass
class Acknowledgements:
    """The changes that are known."""

    change: list[Acknowledged] = field(default_factory=list)
    schema: str = ACKNOWLEDGED


@dataclass
class Change:
    """A change of a series: the first result with it, medians up to the neighbouring changes and their ratio, p of the
    permutation test, and why it is no alarm if it was acknowledged."""

    at: str
    before: float
    after: float
    ratio: float
    p: float
    verdict: Verdict
    acknowledged: str | None = None


@dataclass
class Series:
    """One metric of one case with one strategy over all results that have it."""

    case: str
    strategy: str
    metric: str
    unit: str
    better: Better
    margin: float
    results: list[str]
    values: list[float]
    changes: list[Change]


@dataclass
class History:
    """Changes over many results of one measurement; `unseen` has acknowledgements that no change matches."""

    durabench: str
    measurement: str
    series: list[Series]
    unseen: list[str]
    schema: str = HISTORY


# A kernel of the lab: kernel.json beside it


@dataclass
class FetchedKernel:
    """Which packages a fetched kernel is from, and its parts relative to the folder."""

    package: str
    version: str
    image: str
    modules: str
    schema: str = KERNEL


# Readers and writers


def read_run(path: Path) -> Run:
    """Read RUN/run.json; `path` is the file or the run's folder."""
    if os.path.isdir(path):
        path = path / "run.json"
    return decode(Run, _load(path, "a run"), RUN, path)


def read_measurement(path: Path) -> Measurement:
    """Read jobs/NAME/measurement.toml."""
    return decode(Measurement, _load(path, "a measurement"), MEASUREMENT, path)


def read_published(path: Path) -> Published:
    """Read results/published/NAME.toml."""
    return decode(Published, _load(path, "a table of published numbers"), PUBLISHED, path)


def read_comparison(path: Path) -> Comparison:
    """Read what `durabench compare --format json` wrote."""
    return decode(Comparison, _load(path, "a comparison"), COMPARISON, path)


def read_noise(path: Path) -> Noise:
    """Read what `durabench calibrate --output` wrote."""
    return decode(Noise, _load(path, "the noise of a host"), NOISE, path)


def read_acknowledgements(path: Path) -> Acknowledgements:
    """Read a file of changes that are known."""
    return decode(Acknowledgements, _load(path, "a list of known changes"), ACKNOWLEDGED, path)


def read_kernel(path: Path) -> FetchedKernel:
    """Read a fetched kernel's kernel.json."""
    return decode(FetchedKernel, _load(path, "a kernel of the lab"), KERNEL, path)


def to_json(value: Any) -> str:
    """A dataclass or plain value as JSON text, its schema first."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
        value = {"schema": value.pop("schema"), **value} if "schema" in value else value
    return json.dumps(value, indent=1) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass or plain value as JSON, beside `path` and renamed, so that a reader never sees half of it."""
    write_text(path, to_json(value))


def write_text(path: Path, text: str) -> None:
    """Write a text file, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside the one that `path` leads to and rename, so that also after a power cut there is the whole of one of
    them. What is there and no regular file (a device, a FIFO) is written into, not replaced. An OSError names `path`."""
    try:
        if is_special(path):
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        with leftovers.file(target.parent) as beside:
            beside.write(content)
            beside.flush()
            os.fsync(beside.fileno())
            os.replace(beside.name, target)
        with contextlib.suppress(PermissionError):  # a folder may be written in and not read
            sync(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_special(path: Path) -> bool:
    """Whether something is there, symbolic links followed, and it is no regular file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def decode(cls: type[T], data: Any, schema: str, path: Path) -> T:
    """Make a dataclass of plain data read from `path`, after its schema was found to be `schema`."""
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        says = "has no schema" if found is None else f"has schema {_shown(found)}"
        raise Failure(Exit.INPUT, f"{path}: {says}; this durabench reads {schema!r}")
    return typing.cast(T, _decode(cls, data, path, ""))


def _load(path: Path, what: str) -> Any:
    try:
        text = inputs.content(path).decode("utf-8")
    except FileNotFoundError:
        raise Failure(Exit.INPUT, f"{path}: there is no such file; is this {what}?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else parse_json(text)
    except (ValueError, RecursionError) as error:
        raise Failure(Exit.INPUT, f"{path}: is damaged: {error}") from None


def parse_json(text: str) -> Any:
    """JSON as the standard has it: Python takes NaN and Infinity, which nothing of ours writes and no other program reads.
    ValueError or RecursionError if it is none."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON, or too large")
    return value


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100


def _shown(value: Any) -> str:
    """A value as a message tells it: it may be of any size and depth."""
    return _REPR.repr(value)


def _decode(kind: Any, value: Any, path: Path, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_object(typing.cast(type, kind), value, path, where)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), value, path, where)
    if origin is Literal:
        if value in typing.get_args(kind):
            return value
        raise _mismatch(path, where, f"{_shown(value)} is none of {', '.join(typing.get_args(kind))}")
    if origin is list and isinstance(value, list):
        (item,) = typing.get_args(kind)
        return [_decode(item, each, path, f"{where}[{i}]") for i, each in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        item = typing.get_args(kind)[1]
        return {name: _decode(item, each, path, f"{where}.{name}") for name, each in value.items()}
    if kind is float and _is_number(value):
        return float(value)
    if kind is int and _is_number(value) and isinstance(value, int):
        return value
    if kind in (str, bool) and isinstance(value, kind):
        return value
    raise _mismatch(path, where, f"{_shown(value)} is not {_name(kind)}")


def _is_number(value: Any) -> bool:
    """Neither NaN, infinite, nor beyond what anything is counted in: such would only fail later, or make all behind it worthless."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST


# More than nanoseconds or bytes of anything, and exact enough in a double.
_LARGEST = 2**80


def _decode_object(cls: type, value: Any, path: Path, where: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(path, where, f"{_shown(value)} is not a table")
    hints = typing.get_type_hints(cls)
    given: dict[str, Any] = {}
    for each in dataclasses.fields(cls):
        inner = f"{where}.{each.name}" if where else each.name
        if each.name in value:
            given[each.name] = _decode(hints[each.name], value[each.name], path, inner)
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise _mismatch(path, inner, "is missing")
    return cls(**given)


def _decode_union(kinds: tuple[Any, ...], value: Any, path: Path, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    # A table is told from plain values by its shape, so that the error inside it is the one that is reported.
    tables = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    if isinstance(value, dict) and tables:
        return _decode(tables[0], value, path, where)
    for kind in kinds:
        try:
            return _decode(kind, value, path, where)
        except Failure:
            continue
    raise _mismatch(path, where, f"{_shown(value)} is not {' or '.join(_name(kind) for kind in kinds)}")


def _mismatch(path: Path, where: str, text: str) -> Failure:
    return Failure(Exit.INPUT, f"{path}: {where[:200] or 'the whole'}: {text}")


def _name(kind: Any) -> str:
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    if typing.get_origin(kind) in (list, dict):
        return "a list" if typing.get_origin(kind) is list else "a table"
    return "a table" if dataclasses.is_dataclass(kind) else names.get(kind, str(kind))

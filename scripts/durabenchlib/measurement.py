# SPDX-License-Identifier: GPL-2.0-only
"""Measurements: finding one, choosing its cases, computing its variables and rendering complete fio job files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import formats, layout
from .errors import Exit, Failure
from .formats import Case, Lab, LabComparison, Measurement, Rule

MIB = 1 << 20

# Variables of a job file that the runner gives.
RESERVED = ("TARGET", "TARGET2", "STRATEGY", "COUNTERS", "DURABENCH_ENGINES")

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
# What fio does not take for a part of a value: a new line, its own variables and arithmetic, comments, blanks at an end. Nor is there
# any text for what is no UTF-8.
_NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f$`#;\ud800-\udfff]|^ | \Z")
_SIZE = re.compile(r"([0-9]{1,19})([kmgt]?)b?", re.IGNORECASE)
_LIMIT = re.compile(r"0*[1-9][0-9]*(us|ms|s|m|h|d)?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s|m|h|d)?", re.IGNORECASE)
# They become names of folders and options, and words of a guest's shell.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")


def find(name: str) -> tuple[Measurement, Path]:
    """A measurement and its folder, by the name of a folder in jobs/ or by the path of one."""
    folder = Path(name) if "/" in name else layout.jobs() / name
    if not (folder / "measurement.toml").is_file():
        known = ", ".join(names()) or "none"
        raise Failure(Exit.INPUT, f"{name}: there is no such measurement; there are: {known}")
    measurement = formats.read_measurement(folder / "measurement.toml")
    _check(measurement, folder)
    return measurement, folder.resolve()


def names() -> list[str]:
    """Names of all measurements."""
    return sorted(path.parent.name for path in layout.jobs().glob("*/measurement.toml"))


def choose_cases(measurement: Measurement, wanted: Sequence[str]) -> list[Case]:
    """The cases of these names in the measurement's order; those of the headline if no name is given, `all` for all."""
    if "all" in wanted:
        return measurement.case
    if not wanted:
        return [case for case in measurement.case if case.headline] or measurement.case
    known = {case.name for case in measurement.case}
    for name in wanted:
        if name not in known:
            raise Failure(
                Exit.USAGE, f"{measurement.name} has no case {name!r}; it has {', '.join(sorted(known))} (or: all)"
            )
    return [case for case in measurement.case if case.name in wanted]


def choose_strategies(measurement: Measurement, case: Case, wanted: Sequence[str]) -> list[str]:
    """The strategies to run a case with: the wanted ones, or those that stand for before and after."""
    for name in wanted:
        if name not in measurement.strategies:
            raise Failure(
                Exit.USAGE, f"{measurement.name} has no strategy {name!r}; it has {', '.join(measurement.strategies)}"
            )
    chosen = wanted or [case.before or measurement.before, case.after or measurement.after]
    return list(dict.fromkeys(chosen))


def compared_cases(measurement: Measurement, comparison: LabComparison) -> list[Case]:
    """The cases of a comparison of the lab's."""
    return choose_cases(measurement, comparison.cases)


def sides(comparison: LabComparison) -> list[tuple[str, str]]:
    """Kernel and strategy of each side of a comparison of the lab's, before and after; empty where it does not name them."""
    before, after = (text.partition(":") for text in (comparison.before, comparison.after))
    return [(before[0], before[2]), (after[0], after[2])]


def variables(
    measurement: Measurement,
    settings: Mapping[str, str],
    *,
    shortened: Mapping[str, str | Rule],
    memory_bytes: int,
    target_bytes: int,
) -> dict[str, str]:
    """Text of each variable of the measurement: its own, in their place the `shortened` ones, the user's `settings` last. Those of
    a single case are not among them."""
    rules = {**measurement.variables, **shortened}
    known = set(rules).union(*(case.set for case in measurement.case))
    for name, value in settings.items():
        if name not in known:
            raise Failure(
                Exit.USAGE, f"{measurement.name} has no variable {name!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        if not value:
            raise Failure(Exit.USAGE, f"--set {name}=: a variable can't be empty")
    values = {
        name: rule if isinstance(rule, str) else f"{_size(rule, memory_bytes, target_bytes) // MIB}m"
        for name, rule in rules.items()
    }
    return {**values, **settings}


def render(text: str, values: Mapping[str, str], source: Path) -> str:
    """A complete job file: every ${NAME} outside of comments is replaced. Refuses a value that fio would read as more than one:
    it would write to another file than the one that was checked."""
    for name, value in values.items():
        found = _NOT_PLAIN.search(value)
        if found:
            raise Failure(
                Exit.USAGE,
                f"{name}={value!r} has a {found[0]!r}, which a fio job file can't hold as part of a value; give another, or for a "
                "path a link to it whose name is plain",
            )
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.lstrip().startswith(("#", ";"))
        lines.append(line if comment else substitute(line, values, f"{source}:{number}"))
    return "\n".join(lines) + "\n"


def substitute(text: str, values: Mapping[str, str], source: str) -> str:
    """The text with every ${NAME} replaced; `source` names it if it has one that is no variable."""

    def replace(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise Failure(Exit.INPUT, f"{source}: ${{{match[1]}}} is not a variable of this measurement")
        return values[match[1]]

    return _VARIABLE.sub(replace, text)


def parse_size(text: str) -> int:
    """Bytes of a size in fio's notation (kb_base=1024); ValueError if it is none."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size such as 64k, 100m or 2g")
    size = int(match[1]) << (10 * " kmgt".index(match[2].lower() or " "))
    if size >= 2**63:
        raise ValueError(f"{text!r} is more than any device or file has")
    return size


@dataclass(frozen=True)
class Load:
    """What a job file asks for: seconds it is bound to run (None if it ends with its bytes), bytes it may write or lay out
    in files, bytes that these files take, and whether it fills files first and keeps them."""

    runtime_s: float | None
    io_bytes: int
    footprint_bytes: int
    fills: bool


def load_of(job: str) -> Load:
    """Read a rendered job file as far as its time and space go."""
    groups: list[list[dict[str, str]]] = []
    for options in _sections(job):
        if not groups or "stonewall" in options or "wait_for_previous" in options:
            groups.append([])
        groups[-1].append(options)
    runtime: float | None = 0.0
    for group in groups:
        times = [_runtime(options) for options in group]
        runtime = None if runtime is None or None in times else runtime + max(time or 0.0 for time in times)
    files: dict[str, int] = {}
    io_bytes = 0
    for number, options in enumerate(options for group in groups for options in group):
        size = _number(options.get("size") or options.get("filesize"))
        jobs = _number(options.get("numjobs")) or 1
        io_bytes += size * jobs
        shared = options.get("filename")
        name = shared or f"{options.get('filename_format', '')}#{number}"
        files[name] = max(files.get(name, 0), size if shared else size * jobs)
    fills = any(options.get("overwrite") == "1" and "unlink" not in options for group in groups for options in group)
    return Load(runtime, io_bytes, sum(files.values()), fills)


def _sections(job: str) -> list[dict[str, str]]:
    """Options of each job section, those of the [global] sections before it included. configparser is no help here: fio
    takes several [global] sections, each for what follows."""
    shared: dict[str, str] = {}
    sections: list[dict[str, str]] = []
    current = shared
    for line in job.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            if line == "[global]":
                current = shared
            else:
                current = dict(shared)
                sections.append(current)
            continue
        name, _, value = line.partition("=")
        current[name.strip()] = value.strip()
    return sections


def without_end(job: str) -> str | None:
    """The first option of a rendered job file that is to end a job and does not: fio takes 0 for no limit, `0.5` for 0 and `1:30` for
    1. None if there is none."""
    for options in _sections(job):
        for name in ("runtime", "timeout"):
            if name in options and not _LIMIT.fullmatch(options[name]):
                return f"{name}={options[name]}"
    return None


def _runtime(options: Mapping[str, str]) -> float | None:
    if "runtime" not in options and "timeout" not in options:
        return None
    given = (options.get("runtime") or options.get("timeout"), options.get("ramp_time"), options.get("startdelay"))
    return sum(_seconds(text) for text in given if text)


def _seconds(text: str) -> float:
    match = _TIME.match(text)
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    return float(match[1]) * scale[(match[2] or "s").lower()] if match else 0.0


def _number(text: str | None) -> int:
    """A number of fio's, 0 if there is none or it is of a kind that only fio can tell."""
    try:
        return parse_size(text) if text else 0
    except ValueError:
        return 0


def _size(rule: Rule, memory_bytes: int, target_bytes: int) -> int:
    value = float(target_bytes)
    if rule.memory is not None:
        value = rule.memory * memory_bytes
    if rule.min is not None:
        value = max(value, parse_size(rule.min))
    if rule.target is not None:
        value = min(value, rule.target * target_bytes)
    if rule.max is not None:
        value = min(value, parse_size(rule.max))
    return int(value)


def _check(measurement: Measurement, folder: Path) -> None:
    """What the types can't tell of a measurement."""
    source = folder / "measurement.toml"

    def wrong(text: str) -> Failure:
        return Failure(Exit.INPUT, f"{source}: {text}")

    for what, name in _names(measurement):
        if not _NAME.fullmatch(name):
            raise wrong(f"{what} {name!r:.100}: a name is of letters, digits and _ . + -, 64 at most, the first no sign")
    if measurement.name != folder.resolve().name:
        raise wrong(f"name is {measurement.name!r}, but the folder is {folder.resolve().name!r}")
    if not measurement.case:
        raise wrong("it has no case")
    seen: set[str] = set()
    for case in measurement.case:
        if case.name in seen:
            raise wrong(f"there are two cases {case.name!r}")
        seen.add(case.name)
        if not os.path.isfile(folder / case.job):  # of any text, however long
            raise wrong(f"case {case.name}: its job file {case.job!r:.100} is not there")
        for strategy in (case.before, case.after):
            if strategy and strategy not in measurement.strategies:
                raise wrong(f"case {case.name}: {strategy!r} is not in strategies")
        for name in (*case.set, *case.generate):
            if name in RESERVED:
                raise wrong(f"case {case.name}: {name} is given by the runner and can't be set")
        for metric in case.metrics:
            if metric.margin is not None and not 0 <= metric.margin < 1:
                raise wrong(f"case {case.name}: {metric.name}: a margin is a ratio less 1, from 0 to 1, as 0.03 for 3%")
    for strategy in (measurement.before, measurement.after):
        if strategy not in measurement.strategies:
            raise wrong(f"{strategy!r} is not in strategies")
    lab = measurement.lab.variables if measurement.lab else {}
    own = measurement.lab.set.values() if measurement.lab else []
    # Of one name there may be several, each of which counts somewhere.
    rules = [*measurement.variables.items(), *measurement.demo.items(), *lab.items(), *((name, "") for each in own for name in each)]
    for name, rule in rules:
        if name in RESERVED:
            raise wrong(f"{name} is given by the runner and can't be a variable")
        sizes = [rule.min, rule.max] if isinstance(rule, Rule) else []
        _check_sizes(source, name, sizes)
    _check_sizes(source, "file_size", [measurement.file_size])
    if measurement.lab:
        check_lab(measurement, measurement.lab, str(source))


def _names(measurement: Measurement) -> Iterator[tuple[str, str]]:
    """All names that it gives, each with what it is of."""
    yield "name", measurement.name
    yield from (("strategy", name) for name in measurement.strategies)
    yield from (("case", case.name) for case in measurement.case)
    lab = measurement.lab or Lab([], [])
    yield from (("variable", name) for names in (measurement.variables, measurement.demo, lab.variables) for name in names)
    yield from (("variable", name) for names in lab.set.values() for name in names)
    yield from (("variable", name) for case in measurement.case for name in (*case.set, *case.generate))
    for device in lab.device:
        yield from (("setting", name) for name in device.settings)
        yield from [("plugin", device.plugin)] if device.plugin else []


def check_lab(measurement: Measurement, lab: Lab, source: str) -> None:
    """Refuse a guest that can't be; `source` tells where it is from."""
    if not lab.device:
        raise Failure(Exit.INPUT, f"{source}: lab: it has no device")
    for device in lab.device:
        if lab.clock == "virtual" and device.model in ("virtio", "scsi", "nvme"):
            raise Failure(
                Exit.INPUT, f"{source}: lab: {device.model} is a disk over a file of the host's, which takes its time: clock = \"host\""
            )
    _check_sizes(source, "lab", [lab.memory, *(device.size for device in lab.device)])
    if not lab.comparisons:
        raise Failure(Exit.INPUT, f"{source}: lab: it has no comparisons")
    known = {case.name for case in measurement.case}
    cases = [*lab.tables, *(name for each in lab.comparisons for name in each.cases)]
    strategies = [strategy for each in lab.comparisons for _, strategy in sides(each)]
    for each in lab.comparisons:
        for text, side in zip((each.before, each.after), sides(each), strict=True):
            if not all(side):
                raise Failure(Exit.INPUT, f"{source}: lab: {text!r} is not KERNEL:STRATEGY, such as 6.12:{measurement.before}")
    for text in lab.set:
        case, _, strategy = text.partition(":")
        cases.append(case)
        strategies += [strategy] if strategy else []
    for name in cases:
        if name not in known:
            raise Failure(Exit.INPUT, f"{source}: lab: there is no case {name!r}")
    for strategy in strategies:
        if strategy not in measurement.strategies:
            raise Failure(Exit.INPUT, f"{source}: lab: {strategy!r} is not in strategies")


def _check_sizes(source: Path | str, name: str, sizes: Sequence[str | None]) -> None:
    for size in sizes:
        try:
            parse_size(size or "0")
        except ValueError as error:
            raise Failure(Exit.INPUT, f"{source}: {name}: {error}") from None

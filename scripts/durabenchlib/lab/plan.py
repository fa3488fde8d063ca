# SPDX-License-Identifier: GPL-2.0-only
"""What a guest is to do: the plan of a run on this host, with the paths that things have in the guest, and the files that lab/init
carries out.

Job files and command lines are rendered here in full, as for a run on this host, so that the guest needs no Python.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import environment, formats, layout, leftovers, measurement, runner, signals
from ..errors import Exit, Failure
from ..formats import Case, Environment, Lab, LabDevice, Measurement, Repetition, Target, TargetKind
from . import qemu
from .kernels import Kernel

# Where things are in a guest.
BIN = Path("/bin")
ENGINES = Path("/engines")
MODELS = Path("/models")
PLAN = Path("/plan")
RESULTS = Path("/results")
MOUNT = "/target"
DM = "/dev/dm-0"

# What a kernel needs for a device of a model, for a kind of target, and always; what it may have.
MODULES: dict[str, list[str]] = {
    "null_blk": ["null_blk"],
    "nbdkit": ["nbd"],
    "virtio": ["virtio_blk"],
    "scsi": ["virtio_scsi", "sd_mod"],
    "nvme": ["nvme"],
    "dm": ["dm_mod"],
    "directory": ["xfs"],
    "block": [],
}
ALWAYS = ["virtio_pci", "virtio_blk"]
# Kernels that have no null_blk or dm are not probed by them, a table may have a zero target; XFS asks the crypto layer for crc32c where it is no library.
OPTIONAL = ["crc32c_generic", "null_blk", "dm_mod", "dm_zero"]


@dataclass(frozen=True)
class Request:
    """What is asked for of one kernel: `strategies` has those of each case, `devices`, `clock` and `memory` stand in place of those of
    the measurement's [lab]."""

    measurement: str
    kernel: Kernel
    strategies: Mapping[str, Sequence[str]]
    repeat: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    time_limit_s: float | None = None
    memory: str | None = None
    devices: Sequence[LabDevice] = ()
    clock: qemu.Clock | None = None


@dataclass(frozen=True)
class GuestPlan:
    """A run's plan in which all paths are the guest's, and what the guest is. `kind` is that of the target, `files` the text of those
    that the measurement's commands make."""

    run: runner.Plan
    lab: Lab
    kernel: Kernel
    kind: TargetKind
    memory: str
    files: dict[Path, str]

    @property
    def nodes(self) -> list[str]:
        """Kernel names of the devices: nullb0, nbd1, vdb…"""
        return _nodes(self.lab)

    @property
    def modules(self) -> list[str]:
        """Modules that the devices and the target need."""
        models = [name for device in self.lab.device for name in MODULES[device.model]]
        return list(dict.fromkeys([*ALWAYS, *models, *MODULES[self.kind]]))


def chosen(found: Measurement, cases: Sequence[str], strategies: Sequence[str]) -> dict[str, list[str]]:
    """The cases of these names, each with the strategies to run it with. Where none are named, the cases are those of the first
    comparison of its [lab], and the strategies those of the first that has the case, else those that stand for before and after."""
    lab = _lab(found)
    picked = measurement.choose_cases(found, cases) if cases else measurement.compared_cases(found, lab.comparisons[0])
    return {case.name: measurement.choose_strategies(found, case, strategies or _compared(found, lab, case)) for case in picked}


def _compared(found: Measurement, lab: Lab, case: Case) -> list[str]:
    """The strategies of the first comparison that has the case."""
    comparison = next((each for each in lab.comparisons if case in measurement.compared_cases(found, each)), None)
    return [strategy for _, strategy in measurement.sides(comparison)] if comparison else []


def needed(found: Measurement) -> dict[str, dict[str, list[str]]]:
    """What the comparisons of a measurement's [lab] need: by kernel, the strategies of each case."""
    kernels: dict[str, dict[str, list[str]]] = {}
    for comparison in _lab(found).comparisons:
        for kernel, strategy in measurement.sides(comparison):
            for case in measurement.compared_cases(found, comparison):
                strategies = kernels.setdefault(kernel, {}).setdefault(case.name, [])
                strategies += [strategy] if strategy not in strategies else []
    return kernels


def first_kernels(found: Measurement) -> list[str]:
    """The kernels of the first comparison of a measurement's [lab]."""
    return list(dict.fromkeys(kernel for kernel, _ in measurement.sides(_lab(found).comparisons[0])))


def _lab(found: Measurement) -> Lab:
    if found.lab is None:
        raise Failure(Exit.USAGE, f"{found.name} has no [lab] in its measurement.toml, so the lab has no devices for it")
    return found.lab


def all_of(requests: Iterable[Request], stop: signals.Stop) -> list[GuestPlan]:
    """Plan several runs. Raises when it is to stop."""
    plans = []
    for request in requests:
        with stop.heeded():
            plans.append(make(request))
    return plans


def make(request: Request) -> GuestPlan:
    """Read and check everything, and plan the run: what would fail in the guest is refused here. Writes nothing."""
    found, folder = measurement.find(request.measurement)
    own = _lab(found)
    clock = request.clock or own.clock
    lab = dataclasses.replace(
        own,
        device=list(request.devices) or own.device,
        clock=clock,
        # Which of several CPUs is carried out next is the host's choice.
        cpus=1 if clock == "virtual" else own.cpus,
    )
    measurement.check_lab(found, lab, "--device and --clock")
    cases = [case for case in found.case if case.name in request.strategies]
    kind = _common_kind(found, cases)
    memory = request.memory or lab.memory
    sizes = [measurement.parse_size(device.size) for device in lab.device]
    nodes = _nodes(lab)
    paths = [MOUNT] if kind == "directory" else [DM] if kind == "dm" else [f"/dev/{node}" for node in nodes]
    count = max(case.devices for case in cases)
    if count > len(paths):
        raise Failure(Exit.USAGE, f"{found.name} needs {count} targets, and its [lab] has {len(paths)}")
    asked = runner.Request(
        measurement=request.measurement,
        targets=paths[:count],
        repeat=request.repeat,
        label=request.kernel.name,
        settings=request.settings,
        output=RESULTS,
        time_limit_s=request.time_limit_s,
        notes=[_clock_note(lab)],
    )
    made = runner.Plan(
        request=asked,
        measurement=found,
        folder=folder,
        output=RESULTS,
        targets=[
            Target(kind=kind, path=path, resolved=path, device=path if kind != "directory" else f"/dev/{nodes[0]}")
            for path in asked.targets
        ],
        environment=_environment(request.kernel, lab, memory),
        cases=cases,
        values=measurement.variables(
            found,
            request.settings,
            shortened=lab.variables,
            memory_bytes=measurement.parse_size(memory),
            target_bytes=min(sizes[:count]),
        ),
        repetitions=runner.interleave({case.name: request.strategies[case.name] for case in cases}, request.repeat),
        loads={},
        notes=[*asked.notes],
        warnings=[],
        own_values=lab.set,
    )
    for repetition in made.repetitions:
        job = runner.render(made, repetition, paths, runner.planned_files(made, repetition.case))
        # With some strategies a case may run longer: the longest is what is reckoned with.
        loads = [measurement.load_of(job), *filter(None, [made.loads.get(repetition.case)])]
        made.loads[repetition.case] = max(loads, key=lambda load: math.inf if load.runtime_s is None else load.runtime_s)
        if repetition.round == 1:
            _parse(made, repetition, paths)
    guest = GuestPlan(made, lab, request.kernel, kind, memory, {})
    for case in cases:
        values = runner.case_values(made, case, paths)
        for variable, path in runner.planned_files(made, case.name).items():
            guest.files[Path(path)] = _in_guest(guest, f"{case.name}: {variable}", case.generate[variable], values)
        if kind == "dm":
            guest.files[PLAN / _table_name(case.name)] = _table(guest, case)
    return guest


def write(guest: GuestPlan, root: Path, shell: bool = False) -> None:
    """Write the files of the plan for the guest into `root`, where the guest has them in its own root folder."""
    made = guest.run
    plan = root / PLAN.relative_to("/")
    plan.mkdir()
    paths = [target.resolved for target in made.targets]
    for path, text in guest.files.items():
        file = root / path.relative_to("/")
        file.parent.mkdir(exist_ok=True)
        formats.write_text(file, text)
    for repetition in made.repetitions:
        folder = plan / repetition.dir
        folder.mkdir()
        files = runner.planned_files(made, repetition.case)
        formats.write_text(folder / "job.fio", runner.render(made, repetition, paths, files))
        observer = BIN / layout.observer().name
        words = runner.command(made, repetition, observer)
        own = runner.own_environment(made)
        formats.write_json(folder / "command.json", {"command": words, "environment": own})
        formats.write_text(folder / "command", _script(own, words))
        filling = runner.filling_command(made, repetition, observer)
        if filling:
            formats.write_text(folder / "fill", _script(own, filling))
    if made.measurement.drop_caches:
        (plan / "drop-caches").touch()
    formats.write_text(plan / "plan", "".join(f"{line}\n" for line in _lines(guest, shell)))


def told(guest: GuestPlan) -> str:
    """What a guest is going to do, for people."""
    strategies: dict[str, list[str]] = {}
    for repetition in guest.run.repetitions:
        if repetition.round == 1:
            strategies.setdefault(repetition.case, []).append(repetition.strategy)
    done = "; ".join(f"{case} by {', '.join(names)}" for case, names in strategies.items())
    return f"{done}, {'in virtual time' if guest.lab.clock == 'virtual' else 'by the clock of this host'}"


def device_text(device: LabDevice, node: str) -> str:
    """What a device is, for the results."""
    return " ".join(filter(None, (device.model, node, device.plugin, f"size={device.size}", _settings(device.settings))))


def _device_lines(guest: GuestPlan) -> list[str]:
    """The calls of lab/init that make the devices; QEMU makes the others."""
    lines = []
    for node, device in zip(guest.nodes, guest.lab.device, strict=True):
        if device.model == "null_blk":
            size = measurement.parse_size(device.size) >> 20
            lines.append(f"make_null_blk {node} {_settings({'size': size, **device.settings})}")
        elif device.model == "nbdkit":
            plugin = MODELS / layout.plugin(device.plugin).name
            lines.append(f"make_nbd {node} {plugin} {_settings(device.settings)}")
    return lines


def _nodes(lab: Lab) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for number, device in enumerate(lab.device):
        same = seen.get(device.model, 0)
        seen[device.model] = same + 1
        name = {
            "null_blk": f"nullb{number}",
            "nbdkit": f"nbd{number}",
            # vda is the disk that results come out by.
            "virtio": f"vd{chr(ord('b') + same)}",
            "scsi": f"sd{chr(ord('a') + same)}",
            "nvme": f"nvme{same}n1",
        }
        found.append(name[device.model])
    return found


def _lines(guest: GuestPlan, shell: bool) -> list[str]:
    # By the host's clock, what the way to a model takes is not the same from one moment to the next.
    plugins = {device.plugin for device in guest.lab.device if device.plugin} if guest.lab.clock == "virtual" else set()
    lines = [f"calibrate {MODELS / layout.plugin(plugin).name} {MODELS / 'null.conf'}" for plugin in plugins]
    lines += _device_lines(guest)
    repetitions = guest.run.repetitions
    if guest.kind == "dm":
        lines.append(f"make_dm {PLAN / _table_name(repetitions[0].case)}")
    if guest.kind == "directory":
        device = guest.lab.device[0]
        if device.model == "null_blk" and str(device.settings.get("memory_backed", 0)) != "0":
            lines.append(f"fill_device {guest.nodes[0]}")
        lines.append(f"make_xfs {guest.nodes[0]}")
    for role, target in zip(("target", "target2"), guest.run.targets, strict=False):
        lines.append(f"describe {role} {Path(target.device or '').name}")
    lines.append("begin")
    if shell:
        return [*lines, "prompt"]
    case = repetitions[0].case
    for repetition in repetitions:
        if guest.kind == "dm" and repetition.case != case:
            case = repetition.case
            lines.append(f"make_dm {PLAN / _table_name(case)}")
        lines.append(f"repeat {repetition.dir}")
    return lines


def _table_name(case: str) -> str:
    return f"{case}-table"


def _table(guest: GuestPlan, case: Case) -> str:
    """The table of the dm device that a case is measured on."""
    words = guest.lab.tables.get(case.name)
    if words is None:
        raise Failure(Exit.USAGE, f"{guest.run.measurement.name}: [lab] has no table for case {case.name}")
    return _in_guest(guest, f"lab: {case.name}", words, runner.case_values(guest.run, case, [DM]))


def _in_guest(guest: GuestPlan, what: str, words: Sequence[str], values: Mapping[str, str]) -> str:
    """What a command of the measurement prints of the guest's devices. It is run here, on empty files of their sizes, in place of
    which their paths in the guest then stand."""
    with leftovers.folder(leftovers.temporary()) as folder:
        stand_ins = {}
        for variable, node, device in zip(("TARGET", "TARGET2"), guest.nodes, guest.lab.device, strict=False):
            file = folder / node
            file.touch()
            with open(file, "r+b") as opened:
                opened.truncate(measurement.parse_size(device.size))
            stand_ins[variable] = str(file)
        text = runner.output_of(guest.run, what, words, {**values, **stand_ins})
        return text.replace(f"{folder}/", "/dev/")


def _parse(made: runner.Plan, repetition: Repetition, paths: Sequence[str]) -> None:
    """Let this host's fio, which is also the guest's, read a job with the engines where they are here."""
    here = dataclasses.replace(made.environment, fio_path=str(layout.fio()), engines=str(layout.engines()))
    made = dataclasses.replace(made, environment=here)
    runner.parse(made, repetition, runner.render(made, repetition, paths, runner.planned_files(made, repetition.case)))


def _common_kind(found: Measurement, cases: Sequence[Case]) -> TargetKind:
    """The kind of target that all cases take: a guest has one."""
    kinds = {case.name: _kind(case.targets or found.targets) for case in cases}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise Failure(Exit.USAGE, f"these cases take different targets, so run them apart: {told}")
    return next(iter(kinds.values()))


def _kind(kinds: Sequence[TargetKind]) -> TargetKind:
    preferred: tuple[TargetKind, ...] = ("directory", "block", "dm")
    return next(kind for kind in preferred if kind in kinds)


def _environment(kernel: Kernel, lab: Lab, memory: str) -> Environment:
    """As far as it is known before the guest has told."""
    fio = layout.fio()
    return Environment(
        kernel=kernel.name,
        cmdline="",
        fio=environment.fio_version(fio),
        fio_path=str(BIN / fio.name),
        engines=str(ENGINES),
        machine="x86_64",
        cpus=lab.cpus,
        memory_bytes=measurement.parse_size(memory),
        virtualization="qemu",
        date=environment.now(),
    )


def _clock_note(lab: Lab) -> str:
    if lab.clock == "virtual":
        return "measured in virtual time: latencies are those of the device models and of the guest's instructions at 1 ns each"
    return "measured in a guest by the host's clock: the host's load is in the result"


def _script(environment: Mapping[str, str], words: Sequence[str]) -> str:
    return f"export {_settings(environment)}\nexec {shlex.join(words)}\n"


def _settings(settings: Mapping[str, str | int]) -> str:
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in settings.items())

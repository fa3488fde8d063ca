# SPDX-License-Identifier: GPL-2.0-only
"""`durabench lab powercut`: cuts the power of modelled devices in guests, and counts what was promised to be durable and is lost.

docs/lab.md, "Power cuts", says how; lab/powercut has what does it in the guest.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from .. import environment, formats, layout, leftovers, measurement, run, signals
from ..errors import Exit, Failure
from . import guest, initramfs, kernels, plan, qemu
from .kernels import Kernel

KERNELS = ("6.1", "6.18", "7.3")
MEMORY = "1g"
BLOCK = 4096
SECTOR = 512
# Blocks that each job writes to, again and again: by the number of jobs.
BLOCKS = {1: 256, 16: 64}
# A linear table has targets of so many sectors, each behind a gap of as many.
TARGET = 256
POWERCUT = Path("/powercut")
# The guest's devices, of which those are made that a case needs. All are the model of an NVMe drive, each of whose sectors survives by
# itself, and whose cache is small enough to be emptied in between.
DEVICES: dict[str, dict[str, int | str]] = {
    "nbd0": {"capacity": 64 << 20},
    "nbd1": {"capacity": 64 << 20},
    "nbd2": {"capacity": 64 << 20, "ignore_fua": "true"},
    # mkfs.xfs makes no smaller file system.
    "nbd3": {"capacity": 320 << 20},
    # What the kernel's targets for NVMe and SCSI stand on.
    **{name: {"capacity": 64 << 20} for name in ("nbd4", "nbd5")},
    **{name: {"capacity": 64 << 20, "ignore_fua": "true"} for name in ("nbd6", "nbd7")},
    # Where less survives by itself, ext4 can't always be mounted after a cut.
    "nbd8": {"capacity": 64 << 20, "sector": 4096},
}
# What an engine says on a kernel that can't do what the strategy is about.
REFUSED = "has no RWF_DONTCACHE"

Place = Literal["raw", "ignores-fua", "nvme", "nvme-ignores-fua", "scsi", "scsi-ignores-fua", "table", "table2", "dm", "dm2", "xfs", "ext4"]
Pattern = Literal["write", "randwrite"]
FILES: tuple[Place, ...] = ("xfs", "ext4")
PATTERNS: tuple[Pattern, ...] = ("write", "randwrite")


@dataclass(frozen=True)
class Where:
    """A place: the devices whose power is cut, what fio writes to, the calls of lab/init that make it of them, and what the kernel
    needs for it."""

    devices: tuple[str, ...]
    target: str
    make: str = ""
    modules: tuple[str, ...] = ()


NVME = ("nvmet_tcp", "nvme_tcp")
SCSI = ("target_core_mod", "target_core_iblock", "tcm_loop", "sd_mod", "sg")
PLACES: dict[Place, Where] = {
    "raw": Where(("nbd0",), "/dev/nbd0"),
    "ignores-fua": Where(("nbd2",), "/dev/nbd2"),
    "nvme": Where(("nbd4",), "/dev/nbd4-nvme", "make_nvme nbd4", NVME),
    "nvme-ignores-fua": Where(("nbd6",), "/dev/nbd6-nvme", "make_nvme nbd6", NVME),
    "scsi": Where(("nbd5",), "/dev/nbd5-scsi", "make_scsi nbd5", SCSI),
    "scsi-ignores-fua": Where(("nbd7",), "/dev/nbd7-scsi", "make_scsi nbd7", SCSI),
    "table": Where(("nbd0",), "mapped"),
    "table2": Where(("nbd0", "nbd1"), "mapped"),
    "dm": Where(("nbd0",), plan.DM, modules=("dm_mod",)),
    "dm2": Where(("nbd0", "nbd1"), plan.DM, modules=("dm_mod",)),
    "xfs": Where(("nbd3",), plan.MOUNT, "make_xfs nbd3", ("xfs",)),
    "ext4": Where(("nbd8",), "/ext4", "make_ext4 nbd8 /ext4", ("ext4",)),
}


@dataclass(frozen=True)
class Strategy:
    """What is cut: `options` of its engine, and whether it `promises` that what was acknowledged is durable; one that does not is a
    control, and has to lose. `sync` is fio's fdatasync=, 0 where each write is taken to be promised. `depths` are those of 1 job."""

    name: str
    engine: str
    options: tuple[str, ...]
    places: tuple[Place, ...]
    promises: bool = True
    sync: int = 0
    depths: tuple[int, ...] = (1,)
    jobs: tuple[int, ...] = (1, 16)
    # The first series of kernels that can do it.
    since: tuple[int, int] = (0, 0)

    def on(self, chosen: Sequence[Kernel]) -> list[Kernel]:
        """The kernels that can do it; if none of them can, all, so that they say so."""

        def can(kernel: Kernel) -> bool:
            series = kernels.series_of(kernel.name)
            return not series or tuple(map(int, series.split("."))) >= self.since

        return [kernel for kernel in chosen if can(kernel)] or list(chosen)


def _strategies() -> Iterator[Strategy]:
    for name in ("dsync", "rwf-dsync", "fua", "fua-flush", "write-flush"):
        depths = (1, 32) if name.startswith("fua") else (1,)
        yield Strategy(name, "fua-dsync", (f"strategy={name}",), ("raw", *FILES), depths=depths)
    yield Strategy("nvme-fua", "fua-dsync", ("strategy=nvme-fua",), ("nvme",), depths=(1, 32))
    yield Strategy("scsi-fua", "fua-dsync", ("strategy=scsi-fua",), ("scsi",))
    for coalesce in (0, 1):
        for name in ("kernel", "per-target", "per-device"):
            places: tuple[Place, ...] = ("dm", "dm2")
            if name != "kernel":
                places = ("table", "table2", *places)
            suffix = ",coalesce=1" if coalesce else ""
            yield Strategy(f"{name}{suffix}", "dm-linear-flush", (f"strategy={name}", f"coalesce={coalesce}"), places, sync=2)
    # RWF_DONTCACHE is for files, and a flusher that failed once stays so, until fio is started anew.
    for name in ("buffered", "dontcache", "inline", "kick", "direct"):
        places = ("raw", *FILES)
        if name in ("dontcache", "kick"):
            places = FILES
        since = (6, 14) if name == "dontcache" else (0, 0)
        yield Strategy(f"{name},fdatasync", "dontcache-kick", (f"strategy={name}",), places, sync=4, since=since)
    # The controls.
    yield Strategy("none", "fua-dsync", ("strategy=none",), ("raw",), promises=False)
    yield Strategy("buffered", "dontcache-kick", ("strategy=buffered",), ("xfs",), promises=False)
    ignoring: dict[str, Place] = {"fua": "ignores-fua", "nvme-fua": "nvme-ignores-fua", "scsi-fua": "scsi-ignores-fua"}
    for name, place in ignoring.items():
        yield Strategy(f"{name},device-ignores-it", "fua-dsync", (f"strategy={name}",), (place,), promises=False)
    options = ("strategy=per-device", "coalesce=1")
    yield Strategy("per-device,broken-coalescer", "broken-coalescer", options, ("table",), promises=False, sync=2, jobs=(16,))


STRATEGIES = {each.name: each for each in _strategies()}


@dataclass(frozen=True)
class Case:
    """One run of fio through some cuts."""

    strategy: Strategy
    place: Place
    pattern: Pattern
    jobs: int
    depth: int
    cuts: int
    seed: int

    @property
    def name(self) -> str:
        depth = f",depth={self.depth}" if self.depth > 1 else ""
        return f"{self.place},{'seq' if self.pattern == 'write' else 'rand'},jobs={self.jobs}{depth}"

    @property
    def most_us(self) -> int:
        """How late the cut may be. 16 jobs that sync get to their second one after some 20 ms."""
        return 40000 if self.strategy.sync and self.jobs > 1 else 20000

    @property
    def blocks(self) -> int:
        return self.jobs * BLOCKS[self.jobs]

    @property
    def where(self) -> Where:
        return PLACES[self.place]


@dataclass
class Outcome:
    """What a case came to: durabench-powercut's numbers."""

    kernel: str
    case: str
    cuts: int
    acknowledged: int
    lost: int
    foreign: int
    dropped_sectors: int
    errors: int
    first: dict[str, int] | None
    # Why there are no numbers: the kernel can't do what the strategy is about; anything else, which is a failure.
    refused: str | None = None
    error: str | None = None


@dataclass
class Row:
    """A strategy over all its cases."""

    name: str
    promises: bool
    cuts: int
    acknowledged: int
    lost: int
    dropped_sectors: int
    cases: list[Outcome] = field(default_factory=list)

    @property
    def wrong(self) -> str:
        """What is not as it has to be, empty if nothing."""
        if failed := next((case for case in self.cases if case.error), None):
            return f"{failed.kernel}: {failed.case}: {failed.error}"
        if any(case.foreign for case in self.cases):
            return "what was never written there was found"
        if self.promises:
            return "a promise was broken" if self.lost else "" if self.acknowledged else "nothing was acknowledged"
        return "" if self.lost else "a control that has to lose lost nothing"


def cases_of(strategy: Strategy, cuts: int, seed: int) -> list[Case]:
    """The cases of a strategy in one guest, `cuts` in all. Where there are others, file systems, whose cuts take a mount and a start of
    fio each, get a twentieth."""
    made = [
        Case(strategy, place, pattern, jobs, depth, 0, 0)
        for place in strategy.places
        for pattern in PATTERNS
        for jobs in strategy.jobs
        for depth in (strategy.depths if jobs == 1 else strategy.depths[-1:])
    ]
    files = [case for case in made if case.place in FILES]
    rest = [case for case in made if case.place not in FILES]
    share = cuts / 20 if rest and files else cuts if files else 0
    counts = [(case, math.ceil(share / len(files))) for case in files]
    counts += [(case, math.ceil((cuts - share) / len(rest))) for case in rest]
    return [dataclasses.replace(case, cuts=count, seed=seed + 1000003 * number) for number, (case, count) in enumerate(counts)]


def add_parser(subparsers: Any) -> None:
    """Add `lab powercut` to the command's parsers."""
    parser = subparsers.add_parser(
        "powercut",
        help="cut the power, and count what was promised and is lost",
        description="Have fio write by each strategy to modelled devices in guests, cut their power at seeded moments, and compare what "
        "is left with what was acknowledged. Ends with 1 if a promise was broken, or a control, which has to lose, lost nothing.",
        epilog="Acknowledged: writes that were reported to be durable. Lost: blocks that were older after a cut than acknowledged. Sectors "
        "dropped: of the devices, older after a cut than before it, promised or not. All strategies with --cuts 1000 take more than an "
        "hour of two CPUs.",
    )
    parser.add_argument(
        "--strategy", metavar="NAME", action="append", default=[], help=f"default: all, which are {', '.join(STRATEGIES)}"
    )
    parser.add_argument(
        "--cuts",
        metavar="N",
        type=run.count,
        default=120,
        help="of each strategy, over all kernels; each of its cases (place, pattern, jobs, depth) has one on each at least, so that 2 become a "
        "dozen or more (default: 120)",
    )
    parser.add_argument("--seed", metavar="N", type=run.count, default=1, help="of the moments and of what is lost (default: 1)")
    parser.add_argument(
        "--kernel", metavar="KERNEL", action="append", default=[], help=f"as of lab run (default: {', '.join(KERNELS)})"
    )
    parser.add_argument("--modules", metavar="DIR", type=Path, action="append", default=[], help="as of lab run")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.set_defaults(func=_run, places=lambda args: [leftovers.temporary(), kernels.folder()])


def _run(args: argparse.Namespace) -> int:
    strategies = [_strategy(name) for name in args.strategy] or list(STRATEGIES.values())
    chosen = kernels.find_all(args.kernel or KERNELS, args.modules)
    console = Console(stderr=True)
    with signals.caught() as stop:
        rows = cut(strategies, chosen, args.cuts, args.seed, console, stop)
    if args.format == "json":
        described = {
            "schema": "durabench-powercut/1",
            "seed": args.seed,
            "kernels": [each.name for each in chosen],
            "fio": environment.fio_version(layout.fio()),
            "qemu": qemu.version(),
            "strategies": [dataclasses.asdict(row) for row in rows],
        }
        json.dump(described, sys.stdout, indent=1)
        print()
    else:
        _print(rows, Console() if sys.stdout.isatty() else Console(width=120))
    for row in rows:
        if row.wrong:
            console.print(f"{row.name}: {row.wrong}", markup=False, highlight=False, soft_wrap=True)
    return Exit.FAILED if any(row.wrong for row in rows) else Exit.OK


def _strategy(name: str) -> Strategy:
    if name not in STRATEGIES:
        raise Failure(Exit.USAGE, f"{name} is no strategy that can be cut; these can: {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def cut(
    strategies: Sequence[Strategy], chosen: Sequence[Kernel], cuts: int, seed: int, console: Console, stop: signals.Stop
) -> list[Row]:
    """Cut each strategy at least `cuts` times, over all kernels that can do it."""
    cases: dict[Kernel, list[Case]] = {kernel: [] for kernel in chosen}
    for number, strategy in enumerate(strategies):
        having = strategy.on(chosen)
        for kernel in having:
            cases[kernel] += cases_of(strategy, math.ceil(cuts / len(having)), seed + 7919 * number)
    needed = measurement.parse_size(MEMORY)
    workers = max(1, min(len(os.sched_getaffinity(0)), len(chosen), environment.available_bytes() // needed))
    rows = [Row(strategy.name, strategy.promises, 0, 0, 0, 0) for strategy in strategies]
    by_name = {row.name: row for row in rows}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        outcomes = pool.map(lambda kernel: _guest(kernel, cases[kernel], console, stop) if cases[kernel] else [], chosen)
        for kernel, found in zip(chosen, outcomes, strict=True):
            for case, outcome in zip(cases[kernel], found, strict=True):
                row = by_name[case.strategy.name]
                row.cases.append(outcome)
                for name in ("cuts", "acknowledged", "lost", "dropped_sectors"):
                    setattr(row, name, getattr(row, name) + getattr(outcome, name))
    return rows


def _guest(kernel: Kernel, cases: Sequence[Case], console: Console, stop: signals.Stop) -> list[Outcome]:
    """Carry cases out in a guest of a kernel."""
    with stop.heeded(), leftovers.folder(leftovers.temporary(), "lab") as folder:
        _make_initrd(kernel, cases, folder)
        disk = guest.sparse(folder / "results", guest.RESULTS_BYTES)
        machine = qemu.Machine(kernel.image, folder / "initrd", [qemu.Disk(disk)], qemu.VIRTUAL, MEMORY, 1)
        kept = 0

        def limit_s(word: str, rest: str) -> float:
            return qemu.BOOT_S + (30.0 * cases[int(rest)].cuts if word == "begin" else 0)

        def hear(word: str, rest: str) -> None:
            nonlocal kept
            if word == "kept":
                kept = guest.BLOCK * int(rest)
            elif word == "begin":
                case = cases[int(rest)]
                text = f"{kernel.name}: {int(rest) + 1} of {len(cases)}: {case.strategy.name}: {case.name}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        end = qemu.run(machine, qemu.Console(limit_s, hear), folder / "console.log", stop, lambda: None)
        if stop:
            raise stop.failure()
        guest.unpack(disk, kept, folder / "out", {"guest", *map(str, range(len(cases)))})
        return [_outcome(kernel, case, folder / "out" / str(number), end) for number, case in enumerate(cases)]


def _outcome(kernel: Kernel, case: Case, folder: Path, end: qemu.End) -> Outcome:
    text = (folder / "stdout").read_text(encoding="utf-8") if (folder / "stdout").is_file() else ""
    if not text:
        said = (folder / "stderr").read_text(encoding="utf-8").strip() if (folder / "stderr").is_file() else ""
        if REFUSED in said:
            return Outcome(kernel.name, case.name, 0, 0, 0, 0, 0, 0, None, refused=said.splitlines()[0])
        return Outcome(kernel.name, case.name, 0, 0, 0, 0, 0, 0, None, error=said or end.error or "the guest left it out")
    return Outcome(kernel.name, case.name, **json.loads(text))


def _make_initrd(kernel: Kernel, cases: Iterable[Case], folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    names = ["busybox", "dmsetup", "mkfs.ext4", "mkfs.xfs", "nbdkit", "nbd-client"]
    built = layout.powercut()
    initramfs.add_programs(root, [*map(initramfs.tool, names), layout.fio(), built / "durabench-powercut"])
    guest.put(root, plan.ENGINES, layout.engines().glob("fio-*.so"))
    guest.put(root, POWERCUT, built.glob("fio-*.so"))
    guest.put(root, plan.MODELS, [layout.plugin("devicemodel")])
    conf = layout.lab() / "model" / "nvme.conf"
    (root / plan.MODELS.relative_to("/") / conf.name).write_bytes(conf.read_bytes())
    wheres = list(dict.fromkeys(case.where for case in cases))
    modules = [*plan.ALWAYS, "nbd", *dict.fromkeys(name for where in wheres for name in where.modules)]
    initramfs.add_modules(root, kernel, modules, plan.OPTIONAL)
    (root / "init").write_bytes((layout.lab() / "init").read_bytes())
    (root / "init").chmod(0o755)
    folder = root / plan.PLAN.relative_to("/")
    folder.mkdir()
    # A cut makes hundreds of messages, each of which takes its time on the console.
    lines = ["dmesg -n 1"]
    for name in sorted({name for where in wheres for name in where.devices}):
        settings = DEVICES[name]
        words = [f"{key}={value}" for key, value in {"sector": SECTOR, **settings}.items()]
        words += ["cache=1", f"control=/run/{name}.power", f"file=/dev/shm/{name}"]
        lines.append(f"make_nbd {name} {plan.MODELS}/{layout.plugin('devicemodel').name} conf={plan.MODELS}/{conf.name} {shlex.join(words)}")
    lines += [where.make for where in wheres if where.make] + ["hand_out guest"]
    for number, case in enumerate(cases):
        lines += list(_lines(number, case, folder))
    formats.write_text(folder / "plan", "".join(f"{line}\n" for line in lines))
    initramfs.archive(root, root.parent / "initrd")


def _lines(number: int, case: Case, folder: Path) -> Iterator[str]:
    """The calls of lab/init for a case; writes the tables that they need."""
    strategy = case.strategy
    where = case.where
    images = [f"/dev/shm/{name}" for name in where.devices]
    nodes = [f"/dev/{name}" for name in where.devices]
    per_job = BLOCKS[case.jobs] * BLOCK
    words = ["--seed", str(case.seed), "--cuts", str(case.cuts), "--jobs", str(case.jobs), "--blocks", str(case.blocks)]
    words += ["--table", f"{plan.PLAN}/{number}.left"] + [word for name in where.devices for word in ("--power", f"/run/{name}.power")]
    words += ["--promise", "sync" if strategy.sync else "write", "--most", str(case.most_us)]
    if case.place in FILES:
        words += ["--device", nodes[0], "--directory", where.target, "--filesystem", case.place]
        files = [f"{where.target}/{job}" for job in range(case.jobs)]
        left = "".join(f"{job * per_job // SECTOR} {per_job // SECTOR} linear {file} 0\n" for job, file in enumerate(files))
    else:
        words += [word for image in images for word in ("--image", image)]
        split = case.place.startswith(("table", "dm"))
        left = _table(case, images) if split else f"0 {case.blocks * BLOCK // SECTOR} linear {images[0]} 0\n"
    formats.write_text(folder / f"{number}.left", left)
    fio = ["fio", "--name=t", f"--ioengine=external:{POWERCUT}/fio-witness.so", *(f"--{option}" for option in strategy.options)]
    fio += [f"--rw={case.pattern}", "--bs=4k", f"--size={per_job}", f"--numjobs={case.jobs}", f"--iodepth={case.depth}"]
    fio += ["--time_based", "--runtime=1000000", "--eta=never", "--disk_util=0", "--clocksource=clock_gettime", f"--randseed={case.seed}"]
    fio += [f"--fdatasync={strategy.sync}"] if strategy.sync else []
    fio += ["--serialize_overlap=1"] if case.depth > 1 else []
    if case.place in FILES:
        fio += [f"--directory={where.target}", "--filename_format=$jobnum", "--allow_file_create=0", "--invalidate=0"]
    else:
        fio += [f"--offset_increment={per_job}", f"--filename={where.target}"]
    if case.place.startswith("table"):
        formats.write_text(folder / f"{number}.table", _table(case, nodes))
        fio += [f"--table={plan.PLAN}/{number}.table"]
    elif case.place.startswith("dm"):
        formats.write_text(folder / f"{number}.table", _table(case, nodes))
        yield f"make_dm {plan.PLAN}/{number}.table"
    engine = POWERCUT if strategy.engine == "broken-coalescer" else plan.ENGINES
    yield f"cut_power {number} {engine}/fio-{strategy.engine}.so {shlex.join([*words, '--', *fio])}"
    if case.place.startswith("dm"):
        yield "remove_dm"


def _table(case: Case, devices: Sequence[str]) -> str:
    """A linear table over the devices in turn, with a gap before each target."""
    targets = range(case.blocks * BLOCK // SECTOR // TARGET)
    return "".join(
        f"{i * TARGET} {TARGET} linear {devices[i % len(devices)]} {(2 * (i // len(devices)) + 1) * TARGET}\n" for i in targets
    )


def _print(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in ("strategy", "promises", "cuts", "acknowledged", "lost", "sectors dropped"):
        table.add_column(head, justify="left" if head in ("strategy", "promises") else "right", no_wrap=True)
    for row in rows:
        numbers = (row.cuts, row.acknowledged, row.lost, row.dropped_sectors)
        shown = map(str, numbers) if row.cuts else ["0, nothing shown", "", "", ""]
        table.add_row(row.name, "yes" if row.promises else "no, must lose", *shown)
    console.print(table)

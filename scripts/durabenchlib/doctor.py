# SPDX-License-Identifier: GPL-2.0-only
"""`durabench doctor`: is everything there to measure with, what can this kernel do, and what will a target show."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from . import blockdev, environment, formats, guard, layout, targets
from .errors import Exit, Failure
from .formats import Target
from .progress import say

ENGINES = ("fua-dsync", "dontcache-kick", "dm-linear-flush")

Status = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """One thing looked at. `missing` means that nothing can be measured before it is mended; a `note` tells what to expect."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Examination:
    """All checks: of the tools, of the kernel, and of each target by its path."""

    tools: list[Check]
    kernel: list[Check]
    targets: dict[str, list[Check]]
    schema: str = formats.DOCTOR

    def complete(self) -> bool:
        """Whether nothing is missing."""
        return all(check.status != "missing" for checks in (self.tools, *self.targets.values()) for check in checks)


def examine(paths: list[str]) -> Examination:
    """Look at everything; writes nothing but a temporary file without a name into a directory target."""
    return Examination(
        tools=list(_tools()),
        kernel=list(_kernel(platform.release())),
        targets={path: list(_target(path, platform.release())) for path in paths},
    )


def flushes_per_dsync(device: Target, release: str) -> tuple[int, int]:
    """Flushes that a block device executes for one O_DIRECT|O_DSYNC write to it: by a system call that waits, and asynchronously.
    Linux up to 7.3 flushes once more after a write that waits; without FUA the kernel makes it of a write and a flush."""
    if device.write_cache == "write through":
        return 0, 0
    emulated = 0 if device.fua else 1
    return emulated + (0 if _version(release) >= (7, 4) else 1), emulated


def add_parser(subparsers: Any) -> None:
    """Add `doctor` to the command's parsers."""
    parser = subparsers.add_parser(
        "doctor",
        help="check tools, kernel and a target",
        description="Check that everything is there to measure with, and tell what this kernel and a target are able to do. "
        "Exit status 69 if something is missing.",
    )
    parser.add_argument("--target", metavar="PATH", action="append", default=[], help="device, file or directory to look at")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench doctor`."""
    examination = examine(args.target)
    if args.format == "json":
        lines = json.dumps(dataclasses.asdict(examination), indent=1).split("\n")
    else:
        lines = list(_lines(examination))
    say(Console(), *lines)
    return Exit.OK if examination.complete() else Exit.MISSING


def _lines(examination: Examination) -> Iterator[str]:
    sections = {"tools": examination.tools, f"kernel {platform.release()}": examination.kernel, **examination.targets}
    for title, checks in sections.items():
        yield title
        for check in checks:
            mark = {"ok": "  ", "note": "  ", "missing": "! "}[check.status]
            yield f"{mark}{check.name:<22} {check.found}" + (f" - {check.advice}" if check.advice else "")


def _tools() -> Iterator[Check]:
    fio = None
    try:
        fio = layout.fio()
        yield Check("fio", "ok", f"{environment.fio_version(fio)}, {fio}")
    except Failure as failure:
        yield Check("fio", "missing", str(failure))
    for engine in ENGINES:
        yield _engine(engine, fio)
    yield _found("durabench-observe", lambda: str(layout.observer()))
    yield _found("durabench-guard", lambda: str(layout.guard()))
    for program, package in (("gnuplot", "gnuplot-nox"), ("mkfs.xfs", "xfsprogs")):
        path = shutil.which(program)
        yield Check(program, "ok", path) if path else Check(program, "note", "not there", f"the package {package} has it")


def _found(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", find())
    except Failure as failure:
        return Check(name, "missing", str(failure))


def _engine(name: str, fio: Path | None) -> Check:
    """Whether fio loads an engine: its load guard compares the fio that it was built for with the one that runs."""
    try:
        path = layout.engines() / f"fio-{name}.so"
    except Failure as failure:
        return Check(name, "missing", str(failure))
    if not path.exists():
        return Check(name, "missing", f"{path} is not there", "build again: make")
    if fio is None:
        return Check(name, "note", f"{path}, not tried: there is no fio")
    done = subprocess.run(["timeout", "30", fio, f"--enghelp={path}"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Check(name, "ok", f"{path} loads")
    said = (done.stderr or done.stdout).strip().splitlines()
    return Check(name, "missing", said[0] if said else f"exit status {done.returncode}", f"{path} does not load")


def _kernel(release: str) -> Iterator[Check]:
    error = environment.io_uring_error()
    if error:
        yield Check("io_uring", "note", error, "the strategies fua and fua-flush and the xfs-dontcache jobs can't run")
    else:
        yield Check("io_uring", "ok", "works")
    if _version(release) >= (7, 4):
        yield Check("O_DSYNC", "ok", "one durable action a direct write to a block device (since 7.4)")
    else:
        yield Check("O_DSYNC", "note", "a redundant flush follows each direct write to a block device (until 7.3)")
    yield _ability(
        "uncached writeback",
        environment.kernel_has("WB_REASON_DONTCACHE"),
        "by the flusher thread (since 7.2)",
        "by the writer itself, where there is RWF_DONTCACHE at all (6.14 to 7.1)",
    )
    bypass = environment.kernel_has("flush_bypasses_map", "dm_mod")
    if bypass is None:
        bypass = environment.kernel_has("flush_bypasses_map") or None
    yield _ability("dm flush", bypass, "one a device (since 6.11)", "one a target (until 6.10)")


def _ability(name: str, has: bool | None, yes: str, no: str) -> Check:
    if has is None:
        return Check(name, "note", "can't be told: no type information (the module is not loaded, or there is no BTF)")
    return Check(name, "ok", yes) if has else Check(name, "note", no)


def _target(path: str, release: str) -> Iterator[Check]:
    try:
        target = targets.find(path, ["block", "dm", "directory", "file"])
    except Failure as failure:
        yield Check("target", "missing", str(failure))
        return
    kind = f"{target.kind}, {targets.human(target.size_bytes or 0)}" + (" free" if target.kind == "directory" else "")
    yield Check("target", "ok", kind)
    if target.filesystem:
        yield Check("file system", "ok", f"{target.filesystem} {target.mount_options or ''}".strip())
        folder = Path(target.resolved)
        yield _uncached(folder if folder.is_dir() else folder.parent)
    if target.device is None:
        yield Check("device", "note", "none that can be seen", "flushes can't be counted; only times and memory")
        return
    yield from _device(target, release)


def _uncached(folder: Path) -> Check:
    error = environment.dontcache_error(folder)
    if error:
        return Check("RWF_DONTCACHE", "note", error, "strategy dontcache can't run, kick does the same from user space")
    return Check("RWF_DONTCACHE", "ok", "works")


def _writable(target: Target) -> Check:
    """What the guard says of it to `durabench run`."""
    try:
        with guard.claims() as room:
            guard.claim([target.path], [], room)
    except Failure as failure:
        return Check("run", "note", "refuses it", str(failure).removesuffix(" Nothing was written."))
    return Check("run", "ok", "would write on it: nobody has it, and nothing known is on it")


def _device(target: Target, release: str) -> Iterator[Check]:
    about = ", ".join(text for text in (target.device, target.model, target.serial, target.backing) if text)
    yield Check("device", "ok", about)
    if target.kind in ("block", "dm"):
        yield _writable(target)
    through = target.write_cache == "write through"
    yield Check(
        "write cache",
        "note" if through else "ok",
        target.write_cache or "unknown",
        "a write is durable when it is done; nothing is flushed, all strategies cost the same" if through else "",
    )
    yield Check(
        "FUA",
        "ok" if target.fua or through else "note",
        {True: "yes", False: "no", None: "unknown"}[target.fua],
        "" if target.fua or through else "the kernel makes a durable write of a write and a flush",
    )
    if target.kind == "block":
        waits, asynchronous = flushes_per_dsync(target, release)
        yield Check(
            "flushes expected", "ok", f"{waits} for an O_DSYNC write that waits, {asynchronous} for one by io_uring (fua)"
        )
    yield Check(
        "scheduler",
        "ok",
        f"{target.scheduler or 'none'}, {target.nr_requests or '?'} requests",
        "it reorders; compare runs with the same one only" if target.scheduler not in (None, "none") else "",
    )
    yield Check("rotational", "ok", {True: "yes", False: "no", None: "unknown"}[target.rotational])
    if target.wbt_lat_usec:
        yield Check(
            "writeback throttling",
            "note",
            f"{target.wbt_lat_usec} us",
            "the kernel holds buffered writeback back when reads are slower than that",
        )
    if target.backing:
        yield Check("loop", "note", "a flush is an fsync of the file behind it", "its rates are those of that file system")
    if blockdev.BlockDevice(Path(target.device or "").stat().st_rdev).partition:
        yield Check("partition", "note", "the kernel counts flushes for the whole disk only", "keep the rest of it idle")


def _version(release: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)

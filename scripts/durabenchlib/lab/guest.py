# SPDX-License-Identifier: GPL-2.0-only
"""Carries a plan out in a guest, and makes a run of what comes out, like one on this host."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import errno
import math
import os
import re
import shlex
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from .. import blockdev, environment, formats, layout, leftovers, measurement, runner, signals, targets
from ..errors import Exit, Failure, os_message
from ..formats import Guest, Repetition, Run
from ..progress import Shown, say, span
from . import initramfs, plan, qemu
from .plan import GuestPlan

# The raw disk that results come out by: sparse, so it takes what they take.
RESULTS_BYTES = 1 << 30
BLOCK = 512
# Files in it, and of one of those that tell of a guest, what is read.
MOST_FILES = 100_000
TOLD_BYTES = 1 << 16
# Seconds of this host that a second of a busy guest may take: a CPU that counts its instructions, one a nanosecond, against the few
# hundred million a second that TCG carries out; by the host's clock, none more.
SLOWEST = {"virtual": 20.0, "host": 1.0}


def execute(
    guest: GuestPlan, output: Path, accelerator: qemu.Accelerator, progress: runner.Progress, stop: signals.Stop
) -> Run:
    """Carry the plan out. Raises what ended it early, after the manifest tells so."""
    run = runner.manifest(guest.run)
    try:
        output.mkdir(parents=True, exist_ok=True)
        runner.keep_definition(guest.run, output)
    except OSError as error:
        raise Failure(Exit.USAGE, f"{output}: {error.strerror}") from None
    with leftovers.held(output), runner.recorded(run, output, stop), prepared(guest, accelerator) as machine:
        for path, text in guest.files.items():
            formats.write_text(output / path.name, text)
        run.environment.lab = _guest(guest, machine)
        runner.save(run, output)
        _carry_out(guest, run, machine, output, progress, stop)
    return run


def shown(plans: Sequence[tuple[GuestPlan, Path]], console: Console, stop: signals.Stop) -> dict[Path, Failure]:
    """Carry plans out, each into its folder, and show on the console how they go on. Those in virtual time run side by side, since
    it is the same for them whatever else the host does, those with the most repetitions first; the others by themselves. If one
    fails the others go on; why, by folder. Raises when it is to stop."""
    side_by_side = [each for each in plans if each[0].lab.clock == "virtual"]
    side_by_side.sort(key=lambda each: len(each[0].run.repetitions), reverse=True)
    alone = [each for each in plans if each[0].lab.clock == "host"]
    needed = max((measurement.parse_size(made.memory) for made, _ in side_by_side), default=1)
    workers = max(1, min(len(os.sched_getaffinity(0)), len(side_by_side), environment.available_bytes() // needed))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        begun = {
            output: pool.submit(_shown, made, output, qemu.VIRTUAL, console, stop, several=workers > 1) for made, output in side_by_side
        }
    failures = {output: each.result() for output, each in begun.items()}
    if alone and not stop:
        accelerator = qemu.accelerator("host", alone[0][0].kernel.image)
        failures |= {output: _shown(made, output, accelerator, console, stop) for made, output in alone}
    if stop:
        raise stop.failure()
    return {output: failure for output, failure in failures.items() if failure}


def _shown(
    guest: GuestPlan, output: Path, accelerator: qemu.Accelerator, console: Console, stop: signals.Stop, several: bool = False
) -> Failure | None:
    """Why it failed, None if it did not."""

    if stop:
        return stop.failure()
    name = f"{guest.run.measurement.name}, {guest.kernel.name}"
    say(console, f"{name}: {plan.told(guest)}")
    failure = None
    start = time.monotonic()
    try:
        with Shown(console, name if several else "") as progress:
            execute(guest, output, accelerator, progress, stop)
    except Failure as error:
        failure = error
    except OSError as error:
        failure = Failure(Exit.FAILED, os_message(error, output))
    if failure and not stop:
        say(console, *(f"{name}: {line}" for line in str(failure).split("\n")))
    if output.exists():
        say(console, f"{name}: ended after {span(time.monotonic() - start)}, results: {shlex.quote(str(output))}")
    return failure


@contextlib.contextmanager
def prepared(guest: GuestPlan, accelerator: qemu.Accelerator, shell: bool = False) -> Iterator[qemu.Machine]:
    """The machine of a plan; its files are gone at the end."""
    with leftovers.folder(leftovers.temporary(), "lab") as folder:
        try:
            _make_initrd(guest, folder, shell)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            remedy = "a guest's files take some 200 MiB; TMPDIR names another folder"
            raise Failure(Exit.FAILED, f"{folder.parent}: {error.strerror}: {remedy}") from None
        disks = [qemu.Disk(sparse(folder / "results", RESULTS_BYTES))]
        for device, node in zip(guest.lab.device, guest.nodes, strict=True):
            if device.model == "virtio" or device.model == "scsi" or device.model == "nvme":
                disks.append(qemu.Disk(sparse(folder / node, measurement.parse_size(device.size)), device.model, device.settings))
        yield qemu.Machine(guest.kernel.image, folder / "initrd", disks, accelerator, guest.memory, guest.lab.cpus)


def _make_initrd(guest: GuestPlan, folder: Path, shell: bool) -> None:
    for part in ("tools", "plan"):
        (folder / part).mkdir()
    _fill(guest, folder / "tools")
    plan.write(guest, folder / "plan", shell)
    for part in ("tools", "plan"):
        initramfs.archive(folder / part, folder / "initrd")


def sparse(path: Path, size: int) -> Path:
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def _fill(guest: GuestPlan, root: Path) -> None:
    """The guest's programs, engines, models and modules."""
    names = ["busybox", "dmsetup"]
    names += ["mkfs.xfs"] if guest.kind == "directory" else []
    plugins = {device.plugin for device in guest.lab.device if device.model == "nbdkit"}
    names += ["nbdkit", "nbd-client"] if plugins else []
    programs = [initramfs.tool(name) for name in names]
    programs += [Path(shutil.which("timeout") or ""), layout.fio(), layout.observer()]
    initramfs.add_programs(root, programs)
    put(root, plan.ENGINES, layout.engines().glob("fio-*.so"))
    put(root, plan.MODELS, map(layout.plugin, plugins))
    for file in (layout.lab() / "model").glob("*.conf"):
        shutil.copy(file, root / plan.MODELS.relative_to("/"))
    initramfs.add_modules(root, guest.kernel, guest.modules, plan.OPTIONAL)
    shutil.copy(layout.lab() / "init", root / "init")


def put(root: Path, folder: Path, libraries: Iterable[Path]) -> None:
    """Copy libraries into a folder of the guest, and those they need."""
    inside = root / folder.relative_to("/")
    inside.mkdir()
    for library in libraries:
        shutil.copy(library, inside)
        initramfs.add_libraries(root, library)


def _carry_out(
    guest: GuestPlan, run: Run, machine: qemu.Machine, output: Path, progress: runner.Progress, stop: signals.Stop
) -> None:
    follower = _Follower(guest, run, progress)
    console = qemu.Console(follower.limit_s, follower.hear)
    end = qemu.run(machine, console, output / "console.log", stop, follower.tick)
    folders = {"guest", *(repetition.dir for repetition in run.repetitions)}
    unpack(machine.disks[0].file, follower.kept_bytes, output, folders)
    if (output / "guest").is_dir():
        _describe(run, output / "guest")
    for repetition in run.repetitions:
        _judge(guest, repetition, output, end)
    if stop:
        raise stop.failure()
    failed = next((each for each in run.repetitions if each.status == "failed"), None)
    if end.error:
        raise Failure(Exit.FAILED, f"{guest.kernel.name}: {end.error} (see {output / 'console.log'})")
    if failed:
        raise Failure(Exit.FAILED, f"{output / failed.dir}: {failed.reason}")
    if any(each.status == "pending" for each in run.repetitions):
        raise Failure(Exit.FAILED, f"{guest.kernel.name}: the guest left out a part of its plan (see {output / 'console.log'})")
    run.status = "complete"


class _Follower:
    """Follows what the guest says, shows it, and knows how long it may be silent."""

    def __init__(self, guest: GuestPlan, run: Run, progress: runner.Progress) -> None:
        self.kept_bytes = 0
        self._guest = guest
        self._progress = progress
        self._by_dir = {repetition.dir: repetition for repetition in run.repetitions}
        self._clock = runner.Clock(guest.run)
        self._since = 0.0
        self._current: Repetition | None = None
        # No repetition has more to say, and what goes before them less.
        self._words = 8 * (len(run.repetitions) + 2)

    def limit_s(self, word: str, rest: str) -> float:
        """Seconds within which the guest has to say its next word."""
        if word not in ("begin", "filled"):
            return qemu.BOOT_S
        return qemu.BOOT_S + SLOWEST[self._guest.lab.clock] * self._guest.run.limit_s(self._repetition(rest).case)

    def _repetition(self, name: str) -> Repetition:
        if name not in self._by_dir:
            raise ValueError(name)
        return self._by_dir[name]

    def hear(self, word: str, rest: str) -> None:
        """Take a word of the guest's."""
        self._words -= 1
        if not self._words:
            raise ValueError(word)
        if word == "kept":
            blocks = _whole(rest)
            if not self.kept_bytes <= BLOCK * blocks <= RESULTS_BYTES:
                raise ValueError(rest)
            self.kept_bytes = BLOCK * blocks
        elif word == "begin":
            self._current = self._repetition(rest)
            if self._current.elapsed_s is not None:
                raise ValueError(rest)
            self._since = time.monotonic()
            self._progress.begin(self._current, len(self._by_dir))
        elif word == "end" and self._current:
            self._current.status = "ok" if rest == f"{self._current.dir} 0" else "failed"
            self._current.elapsed_s = time.monotonic() - self._since
            self._clock.end(self._current)
            self._progress.end(self._current)
            self._current = None

    def tick(self) -> None:
        """Time passes."""
        if self._current:
            self._clock.tick(self._progress, self._current, time.monotonic() - self._since)


def _judge(guest: GuestPlan, repetition: Repetition, output: Path, end: qemu.End) -> None:
    """Fill a repetition in from what it left. One that was under way when the guest ended left nothing."""
    folder = output / repetition.dir
    if not (folder / "status").is_file():
        repetition.status = "pending"
        return
    status = _told(folder / "status", _whole)
    repetition.exit_status = status
    repetition.started = _told(folder / "started", _time)
    repetition.elapsed_s = round(_told(folder / "elapsed", _number), 3)
    for name in ("status", "started", "elapsed", "command"):
        (folder / name).unlink(missing_ok=True)
    repetition.reason = runner.reason(guest.run, folder, status, guest.run.limit_s(repetition.case))
    if repetition.reason and end.killed:
        repetition.reason = f"the guest ran out of memory and ended {end.killed}; --memory SIZE gives it more ({repetition.reason})"
    repetition.status = "failed" if repetition.reason else "ok"


def unpack(disk: Path, size: int, output: Path, folders: Collection[str]) -> None:
    """Take the archives that follow each other in the first `size` bytes of the disk apart. What a guest wrote there may be anything:
    only files in these folders of `output` are made, no links, and none larger than what there is of it; all else is left out."""
    size = min(size, disk.stat().st_size)
    with open(disk, "rb") as archive:
        name = ""
        files = 0
        while archive.tell() < size:
            block = archive.read(BLOCK)
            if not block.strip(b"\0"):
                continue
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.TarError, ValueError) as error:
                raise _damaged(output, str(error)) from None
            start = archive.tell()
            files += 1
            if not 0 <= member.size <= size - start or files > MOST_FILES:
                raise _damaged(output, f"{member.name!r} of {member.size} bytes, number {files}, is too much")
            if member.type == tarfile.GNUTYPE_LONGNAME:
                name = archive.read(min(member.size, TOLD_BYTES)).rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                path = _inside(output, name or member.name, folders)
                if path:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with open(path, "xb") as file:
                        for at in range(0, member.size, _COPY_BYTES):
                            file.write(archive.read(min(_COPY_BYTES, member.size - at)))
            if member.type != tarfile.GNUTYPE_LONGNAME:
                name = ""
            archive.seek(start + -(-member.size // BLOCK) * BLOCK)


_COPY_BYTES = 1 << 20


def _inside(output: Path, name: str, folders: Collection[str]) -> Path | None:
    """The file in one of these folders that a name is of; None if it leads anywhere else."""
    parts = name.split("/")
    if len(parts) < 2 or parts[0] not in folders or any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    return output.joinpath(*parts)


def _damaged(output: Path, why: str) -> Failure:
    return Failure(Exit.FAILED, f"{output}: what the guest left is no result of its plan: {why} (see {output / 'console.log'})")


T = TypeVar("T")


def _told(path: Path, kind: Callable[[str], T]) -> T:
    """What a guest says in a file."""
    text = _text(path)
    try:
        return kind(text or "")
    except ValueError:
        raise _damaged(path.parent.parent, f"{path.name} is {text!r:.100}") from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[0-9.e+-]{1,30}", text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def _time(text: str) -> str:
    datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    return text


@dataclass(frozen=True)
class _Kept:
    """A device as the guest described it, in the folders of sysfs."""

    folder: Path
    path: str
    model: str | None
    serial: None = None
    backing_file: None = None

    def attribute(self, name: str) -> str | None:
        """Text of an attribute."""
        return _text(self.folder / name)

    def integer(self, name: str) -> int | None:
        """An attribute that is a number."""
        return blockdev.whole(self.attribute(name))


def _describe(run: Run, folder: Path) -> None:
    """Fill in what the guest told of itself."""
    about = run.environment
    about.kernel = _text(folder / "release") or about.kernel
    about.cmdline = _text(folder / "cmdline") or ""
    memory = re.search(r"^MemTotal: +([0-9]{1,15}) kB$", _text(folder / "meminfo") or "", re.MULTILINE)
    if memory:
        about.memory_bytes = 1024 * int(memory[1])
    about.cpu_model = next(
        (line.partition(":")[2].strip() for line in (_text(folder / "cpuinfo") or "").splitlines() if line.startswith("model name")), ""
    )
    assert about.lab
    about.lab.abilities.update(_told(folder / "abilities", _abilities))
    about.lab.overhead_ns = _told(folder / "overhead", _whole) if _text(folder / "overhead") else None
    mount = (_text(folder / "mount") or "").split()
    for role, target, model in zip(("target", "target2"), (run.target, run.target2), about.lab.devices, strict=False):
        if target:
            kept = _Kept(folder / role, target.device or target.path, model.split()[0])
            targets.describe(target, kept)
            target.size_bytes = BLOCK * (kept.integer("size") or 0)
            if len(mount) > 3:
                target.filesystem, target.mount_options = mount[2], mount[3]


def _abilities(text: str) -> dict[str, float]:
    return {name: _number(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def _text(path: Path) -> str | None:
    """The text of a file, as far as what tells of a guest goes."""
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return file.read(TOLD_BYTES).decode("utf-8", "replace").strip()


def _guest(guest: GuestPlan, machine: qemu.Machine) -> Guest:
    devices = [plan.device_text(device, node) for device, node in zip(guest.lab.device, guest.nodes, strict=True)]
    return Guest(guest.lab.clock, machine.accelerator.name, qemu.version(), devices, {})

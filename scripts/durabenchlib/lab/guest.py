# SPDX-License-Identifier: GPL-2.0-only
"""Carries a plan out in a guest, and makes a run of what comes out, like one on this host."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .. import environment, formats, layout, measurement, runner, signals, targets
from ..errors import Exit, Failure, os_message
from ..formats import Guest, Repetition, Run
from ..progress import Shown, span
from . import initramfs, plan, qemu
from .plan import GuestPlan

# The raw disk that results come out by: sparse, so it takes what they take.
RESULTS_BYTES = 1 << 30
BLOCK = 512
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
    with runner.recorded(run, output, stop), prepared(guest, accelerator) as machine:
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

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if stop:
        return stop.failure()
    name = f"{guest.run.measurement.name}, {guest.kernel.name}"
    say(f"{name}: {plan.told(guest)}")
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
        say(f"{name}: {failure}")
    if output.exists():
        say(f"{name}: ended after {span(time.monotonic() - start)}, results: {shlex.quote(str(output))}")
    return failure


@contextlib.contextmanager
def prepared(guest: GuestPlan, accelerator: qemu.Accelerator, shell: bool = False) -> Iterator[qemu.Machine]:
    """The machine of a plan; its files are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="durabench-lab-") as name:
        folder = Path(name)
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
    unpack(machine.disks[0].file, follower.kept_bytes, output)
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

    def limit_s(self, word: str, rest: str) -> float:
        """Seconds within which the guest has to say its next word."""
        if word not in ("begin", "filled"):
            return qemu.BOOT_S
        return qemu.BOOT_S + SLOWEST[self._guest.lab.clock] * self._guest.run.limit_s(self._by_dir[rest].case)

    def hear(self, word: str, rest: str) -> None:
        """Take a word of the guest's."""
        if word == "kept":
            self.kept_bytes = BLOCK * int(rest)
        elif word == "begin":
            self._current = self._by_dir[rest]
            self._since = time.monotonic()
            self._progress.begin(self._current, len(self._by_dir))
        elif word == "end" and self._current:
            self._current.status = "ok" if rest.split()[1] == "0" else "failed"
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
    status = int((folder / "status").read_text(encoding="ascii"))
    repetition.exit_status = status
    repetition.started = (folder / "started").read_text(encoding="ascii").strip()
    repetition.elapsed_s = round(float((folder / "elapsed").read_text(encoding="ascii")), 3)
    for name in ("status", "started", "elapsed", "command"):
        (folder / name).unlink()
    repetition.reason = runner.reason(guest.run, folder, status, guest.run.limit_s(repetition.case))
    if repetition.reason and end.killed:
        repetition.reason = f"the guest ran out of memory and ended {end.killed}; --memory SIZE gives it more ({repetition.reason})"
    repetition.status = "failed" if repetition.reason else "ok"


def unpack(disk: Path, size: int, output: Path) -> None:
    """Take the archives that follow each other in the first `size` bytes of the disk apart."""
    with open(disk, "r+b") as file:
        file.truncate(size)
        if not size:
            return
        with tarfile.open(fileobj=file, mode="r:", ignore_zeros=True) as archive:
            for member in archive:
                content = archive.extractfile(member)
                path = output / member.name
                if content is None or ".." in path.parts or path.is_absolute() and not path.is_relative_to(output):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


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
        text = self.attribute(name)
        return int(text) if text and text.lstrip("-").isdigit() else None


def _describe(run: Run, folder: Path) -> None:
    """Fill in what the guest told of itself."""
    about = run.environment
    about.kernel = _text(folder / "release") or about.kernel
    about.cmdline = _text(folder / "cmdline") or ""
    for line in (_text(folder / "meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            about.memory_bytes = 1024 * int(line.split()[1])
    about.cpu_model = next(
        (line.partition(":")[2].strip() for line in (_text(folder / "cpuinfo") or "").splitlines() if line.startswith("model name")), ""
    )
    assert about.lab
    for line in (_text(folder / "abilities") or "").splitlines():
        name, _, value = line.partition(" ")
        about.lab.abilities[name] = float(value)
    overhead = _text(folder / "overhead")
    about.lab.overhead_ns = int(overhead) if overhead else None
    mount = (_text(folder / "mount") or "").split()
    for role, target, model in zip(("target", "target2"), (run.target, run.target2), about.lab.devices, strict=False):
        if target:
            kept = _Kept(folder / role, target.device or target.path, model.split()[0])
            targets.describe(target, kept)
            target.size_bytes = BLOCK * (kept.integer("size") or 0)
            if mount:
                target.filesystem, target.mount_options = mount[2], mount[3]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else None


def _guest(guest: GuestPlan, machine: qemu.Machine) -> Guest:
    devices = [plan.device_text(device, node) for device, node in zip(guest.lab.device, guest.nodes, strict=True)]
    return Guest(guest.lab.clock, machine.accelerator.name, qemu.version(), devices, {})

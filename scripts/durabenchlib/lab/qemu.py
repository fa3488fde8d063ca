# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest under QEMU: which accelerator it gets, what it says on its console, and how it ends.

QEMU dies with this process, whatever its end is. The guest has no network and no disk but those over files of this run.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .. import environment, signals
from ..errors import Exit, Failure

Clock = Literal["virtual", "host"]
DiskModel = Literal["virtio", "scsi", "nvme"]

PROGRAM = "qemu-system-x86_64"
# What a command is begun with that is to die with this process.
MORTAL = ("setpriv", "--pdeathsig", "KILL")
# How long a guest may take to boot, and to end after its plan.
BOOT_S = 180.0
# How long KVM may take to boot to the panic for want of a root file system: several times what it takes.
PROBE_S = 10.0
# How long QEMU may take to end after the guest said its last.
END_S = 20.0
# What a guest may print: its kernel may be anything, and this host's disk is not its own.
MOST_BYTES = 64 << 20

# Of a line, what is looked at.
_LINE_BYTES = 4096
_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")
_OOM = re.compile(r"Out of memory: Killed process \d+ \(([^)]*)\)")
_SAID = re.compile(r"durabench: (\w+) ?(.*)")


@dataclass(frozen=True)
class Accelerator:
    """How a guest's CPU is carried out: `name` as the results tell it, and QEMU's arguments."""

    name: str
    arguments: tuple[str, ...]


# The guest's clock counts its instructions, a nanosecond each, and jumps over idle time. Each byte of a `rep movsb` counts as an
# instruction: a kernel that is not told that it is fast copies by words.
VIRTUAL = Accelerator(
    "TCG, counted instructions", ("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max,-erms,-fsrm")
)
TCG = Accelerator("TCG", ("-accel", "tcg,thread=multi", "-cpu", "max"))
KVM = Accelerator("KVM", ("-accel", "kvm", "-cpu", "host"))


@dataclass(frozen=True)
class Disk:
    """A disk over a raw file, with further options of QEMU's -drive. What the guest flushes is not forced out of this host's page
    cache: nothing on it has to outlive the host."""

    file: Path
    model: DiskModel = "virtio"
    options: Mapping[str, str | int] = field(default_factory=dict)

    def arguments(self, number: int) -> list[str]:
        """QEMU's arguments; it is disk number `number`."""
        file = str(self.file).replace(",", ",,")
        options = "".join(f",{name}={value}" for name, value in self.options.items())
        name = f"disk{number}"
        # An error of the file's, as on a full disk, is the guest's too; else QEMU would stop the guest.
        devices = {
            "virtio": [f"virtio-blk-pci,drive={name},werror=report"],
            "scsi": [f"virtio-scsi-pci,id=hba{number}", f"scsi-hd,bus=hba{number}.0,drive={name},serial={name},dpofua=on,werror=report"],
            "nvme": [f"nvme,drive={name},serial={name}"],
        }
        drive = ["-drive", f"file={file},if=none,id={name},format=raw,cache=unsafe{options}"]
        return [*drive, *(argument for device in devices[self.model] for argument in ("-device", device))]


@dataclass(frozen=True)
class Machine:
    """A guest: its kernel and files, its disks, of which the first is for its results, memory in QEMU's notation."""

    image: Path
    initrd: Path
    disks: Sequence[Disk]
    accelerator: Accelerator
    memory: str
    cpus: int

    def command(self, serial: str) -> list[str]:
        """QEMU's command line; `serial` is where the console goes, in QEMU's notation."""
        return [
            program(),
            *self.accelerator.arguments,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-smp", str(self.cpus), "-m", self.memory),
            *("-kernel", str(self.image), "-initrd", str(self.initrd)),
            *("-append", "console=ttyS0 quiet panic=-1 nokaslr null_blk.nr_devices=0 nbd.nbds_max=9"),
            *(argument for number, disk in enumerate(self.disks) for argument in disk.arguments(number)),
            *("-serial", serial),
        ]


@dataclass
class End:
    """How a guest ended. `error` is a sentence, empty if the plan was carried out; `killed` is whom it ended for want of memory."""

    error: str = ""
    killed: str = ""


class Console:
    """Reads what a guest says, line by line. `limit_s` gives the seconds until the next thing it has to say, by what it said last;
    either function raises ValueError or IndexError of what is no part of its plan, and the guest is ended."""

    def __init__(self, limit_s: Callable[[str, str], float], on_word: Callable[[str, str], None]) -> None:
        self._limit_s = limit_s
        self._on_word = on_word
        self._rest = b""
        self._bytes = 0
        self.deadline = time.monotonic() + BOOT_S
        self.last = (
            f"it did not boot in {BOOT_S:.0f} s: this host is too busy, or it has no console on the serial port (CONFIG_SERIAL_8250_CONSOLE)"
        )
        self.panic = self.error = self.killed = ""
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take what came from the console."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._line(line[:_LINE_BYTES].decode("utf-8", "replace").strip())
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self._give_up(f"it printed more than {MOST_BYTES >> 20} MiB")

    def _give_up(self, why: str) -> None:
        self.error = self.error or why
        self.deadline = time.monotonic()

    def _line(self, line: str) -> None:
        if match := _PANIC.search(line):
            self.panic = self.panic or match[1]
        elif match := _OOM.search(line):
            self.killed = match[1]
        elif match := _SAID.search(line):
            word, rest = match.groups()
            self.last = f"the last it said was {word!r} {rest}".rstrip()
            try:
                # A kernel without ACPI does not switch itself off.
                self.deadline = time.monotonic() + (END_S if word in ("done", "error") else self._limit_s(word, rest))
                self._on_word(word, rest)
            except (ValueError, IndexError):
                self._give_up(f"it said {word!r} {rest}, which is no part of its plan")
            if word == "error":
                self.error = rest
            self.done = self.done or word == "done"


def run(machine: Machine, console: Console, log: Path, stop: signals.Stop, tick: Callable[[], None]) -> End:
    """Run a guest to its end and keep its console in `log`; calls `tick` now and then."""
    killed_before = environment.oom_kills()
    with open(log, "wb") as file, open(f"{log}.qemu", "w+b") as errors:
        process = subprocess.Popen(
            [*MORTAL, *machine.command("stdio")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert process.stdout
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                hangs = False
                while not stop and not hangs:
                    if selector.select(0.5):
                        data = os.read(process.stdout.fileno(), 1 << 16)
                        if not data:
                            break
                        file.write(data)
                        file.flush()
                        console.feed(data)
                    hangs = time.monotonic() > console.deadline
                    tick()
            if not stop and not hangs:
                hangs = not signals.wait(process, END_S)
            was_killed = process.poll() == -signal.SIGKILL
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip()
    if not said:
        Path(f"{log}.qemu").unlink()
    error = _how_it_ended(console, hangs, process.returncode, said)
    if was_killed and error:
        error = f"{PROGRAM} was killed (SIGKILL)"
        if environment.oom_kills() > killed_before:
            error += ": out of memory, this machine's or its cgroup's"
    return End(error, console.killed)


def _how_it_ended(console: Console, hangs: bool, status: int, said: str) -> str:
    if console.panic:
        return f"the guest's kernel panicked: {console.panic}"
    if console.error:
        return f"the guest gave up: {console.error}"
    if console.done:
        return ""
    if hangs:
        return f"the guest hangs: {console.last}"
    if "initrd is too large" in said:
        return "the guest's files don't fit into its memory; --memory SIZE gives it more"
    if status and status != -signal.SIGKILL:
        return f"{PROGRAM} ended with status {status}: {said.splitlines()[-1] if said else 'it does not say why'}"
    return f"the guest ended before its plan did: {console.last}"


def accelerator(clock: Clock, image: Path) -> Accelerator:
    """The accelerator for a clock; KVM only if a guest really runs with it, which booting a kernel shows. That may take a while."""
    if clock == "virtual":
        return VIRTUAL
    return TCG if kvm_error(image) else KVM


def kvm_error(image: Path) -> str | None:
    """Why KVM can't be used here; None if it can. That /dev/kvm can be opened proves nothing."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm can't be opened" if os.path.exists("/dev/kvm") else "there is no /dev/kvm"
    # Without a root file system the kernel panics, and -no-reboot ends QEMU.
    command = [*MORTAL, program(), *KVM.arguments, *("-nodefaults", "-no-reboot", "-display", "none", "-m", "512m", "-serial", "stdio")]
    command += ["-kernel", str(image), "-append", "console=ttyS0 panic=-1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"a guest did not boot with it in {PROBE_S:.0f} s"
    if done.returncode == 0 and b"Kernel panic" in done.stdout:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"a guest does not run with it: {said[0] if said else f'status {done.returncode}'}"


def program() -> str:
    """QEMU's path."""
    found = shutil.which(PROGRAM)
    if not found:
        raise Failure(Exit.MISSING, f"{PROGRAM} is not there: install the package qemu-system-x86")
    return found


def version() -> str:
    """QEMU's version."""
    done = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"version (\S+)", done.stdout)
    return match[1] if match else "unknown"


def interactive(machine: Machine) -> int:
    """Run a guest with its console on this terminal; QEMU's exit status."""
    return subprocess.run([*MORTAL, *machine.command("mon:stdio")], check=False).returncode

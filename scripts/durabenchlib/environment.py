# SPDX-License-Identifier: GPL-2.0-only
"""The machine, kernel and fio that a measurement runs with, and what that kernel is able to do."""

from __future__ import annotations

import ctypes
import datetime
import errno
import mmap
import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path

from . import layout
from .errors import Exit, Failure
from .formats import Environment

# include/uapi/linux/fs.h; os.pwritev passes the flag through.
RWF_DONTCACHE = 0x80

_IO_URING_SETUP = 425  # the same on all architectures that Linux has io_uring on, but Alpha
_IO_URING_PARAMS_BYTES = 120


def collect() -> Environment:
    """What stands in a run's manifest."""
    fio = layout.fio()
    return Environment(
        kernel=platform.release(),
        cmdline=_read("/proc/cmdline"),
        fio=fio_version(fio),
        fio_path=str(fio),
        engines=str(layout.engines()),
        machine=platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory_bytes(),
        virtualization=virtualization(),
        date=now(),
        cpu_model=_field("/proc/cpuinfo", "model name"),
    )


def now() -> str:
    """UTC, ISO 8601, in seconds."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def memory_bytes() -> int:
    """MemTotal."""
    return 1024 * int(_field("/proc/meminfo", "MemTotal").split()[0])


def available_bytes() -> int:
    """MemAvailable."""
    return 1024 * int(_field("/proc/meminfo", "MemAvailable").split()[0])


def oom_kills() -> int:
    """Processes that the kernel has killed for want of memory, of the machine's or of a cgroup's, since it booted."""
    found = re.search(r"^oom_kill (\d+)$", _read("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else 0


def fio_version(fio: Path) -> str:
    """The version string of a fio, such as `fio-3.33`."""
    try:
        done = subprocess.run([fio, "--version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(Exit.MISSING, f"{fio} does not run: {error}") from None
    return done.stdout.strip()


def virtualization() -> str:
    """The hypervisor and the container as systemd names them (`kvm, docker`), `none`, or empty if it can't be told."""
    try:
        kinds = [
            subprocess.run(["systemd-detect-virt", kind], capture_output=True, text=True, check=False).stdout.strip()
            for kind in ("--vm", "--container")
        ]
    except FileNotFoundError:
        return "vm" if " hypervisor" in _field("/proc/cpuinfo", "flags") else ""
    return ", ".join(kind for kind in kinds if kind != "none") or "none"


def kernel_has(name: str, module: str = "vmlinux") -> bool | None:
    """Whether the type information of the kernel or of one of its modules has a name; None where it can't be read (the module
    is not loaded, or the kernel was built without BTF)."""
    try:
        with open(f"/sys/kernel/btf/{module}", "rb") as file:
            return b"\0" + name.encode() + b"\0" in file.read()
    except OSError:
        return None


def io_uring_error() -> str | None:
    """Why io_uring can't be used here; None if it can."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(_IO_URING_PARAMS_BYTES))
    if descriptor >= 0:
        os.close(descriptor)
        return None
    code = ctypes.get_errno()
    reason = {
        errno.ENOSYS: "this kernel has none, or a container forbids it",
        errno.EPERM: "it is forbidden here (sysctl kernel.io_uring_disabled, or a container)",
    }
    return reason.get(code, os.strerror(code))


def dontcache_error(folder: Path) -> str | None:
    """Why uncached writes (RWF_DONTCACHE) can't be used on the file system of `folder`; None if they can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.pwritev(file.fileno(), [b"\0" * mmap.PAGESIZE], 0, RWF_DONTCACHE)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return f"Linux {platform.release()} has no RWF_DONTCACHE on this file system"
        return f"{folder}: {error.strerror}"
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    """Value of a `name: value` line, the first of that name."""
    for line in _read(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""

# SPDX-License-Identifier: GPL-2.0-only
"""Block devices and file systems that are gone with the process that made them, whatever its end is.

A loop device is made with its autoclear flag and over a file without a name: the kernel takes both away when the last
descriptor is closed, also that of a killed process. A file system is mounted in a mount namespace of the process's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MIB = 1 << 20

# include/uapi/linux/loop.h
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LO_FLAGS_AUTOCLEAR = 4
_LO_FLAGS_DIRECT_IO = 16
# struct loop_config: fd, block_size; struct loop_info64 with lo_flags at its byte 52, 232 in all; 64 reserved.
_LOOP_CONFIG = struct.Struct("=II52xI176x64x")

# include/uapi/linux/sched.h, mount.h
_CLONE_NEWNS = 0x00020000
_MS_REC = 1 << 14
_MS_SLAVE = 1 << 19


@contextlib.contextmanager
def loop_device(folder: Path, size: int, filled: int = 0, direct: bool = False) -> Iterator[str]:
    """A loop device of `size` bytes over a sparse file in `folder`, of which the first `filled` bytes are written. `direct`: it
    reads and writes the file past the page cache if the file's file system lets it (`is_direct` tells)."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        for _ in range(filled // MIB):
            file.write(bytes(MIB))
        file.flush()
        os.fsync(file.fileno())
        path, descriptor = _configure(file, _LO_FLAGS_AUTOCLEAR | (_LO_FLAGS_DIRECT_IO if direct else 0))
    try:
        yield path
    finally:
        os.close(descriptor)


def is_direct(device: str) -> bool:
    """Whether a loop device passes its file's page cache by. If not, that cache's dirty pages count beside those above it."""
    return Path(f"/sys/block/{Path(device).name}/loop/dio").read_text(encoding="ascii").strip() == "1"


@contextlib.contextmanager
def mounted(device: str, point: Path, kind: str) -> Iterator[None]:
    """A new file system of a kind on a device, mounted on `point`; after private_mounts() for this process and its children
    alone."""
    for command in ([f"mkfs.{kind}", "-q", device], ["mount", "-t", kind, device, str(point)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(errno.EIO, done.stderr.strip() or f"{command[0]} failed")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=False, capture_output=True)


def private_mounts() -> None:
    """Move this process into a mount namespace of its own, out of which no mount spreads. OSError if that is not allowed."""
    here = os.getcwd()
    _call("unshare", _CLONE_NEWNS)
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # In a chroot, "/" need not be a mount, whose propagation could be changed. To join one's own namespace leads out of the
        # chroot, and the descriptor leads back.
        _call("setns", namespace, _CLONE_NEWNS)
        try:
            _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
        finally:
            os.fchdir(root)
            os.chroot(".")
            os.chdir(here)
    finally:
        os.close(namespace)
        os.close(root)


def _configure(file: IO[bytes], flags: int) -> tuple[str, int]:
    """Path and descriptor of a free loop device that now stands on a file."""
    config = _LOOP_CONFIG.pack(file.fileno(), 0, flags)
    with open("/dev/loop-control", "rb") as control:
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, config)
                return path, descriptor
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # another process took it meanwhile
                    raise


def _call(name: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)

# SPDX-License-Identifier: GPL-2.0-only
"""The target of a measurement: what kind it is, whether it may be written over, and having it while the measurement runs.

A block device is refused when it is in use (never overridable), and when libblkid finds something on it, unless the person
confirmed it by a name that only this device has. A device without any signature may be used at once. A file is made and
removed at the end; one that is there already and is not empty counts as holding data. In a directory everything happens in
a fresh folder, which is removed at the end.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from . import blockdev
from .blockdev import BlockDevice
from .errors import Exit, Failure
from .formats import Target, TargetKind


class Described(Protocol):
    """A device as `describe` needs it."""

    @property
    def path(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def serial(self) -> str | None: ...
    @property
    def backing_file(self) -> str | None: ...
    def attribute(self, name: str) -> str | None: ...
    def integer(self, name: str) -> int | None: ...


_KINDS = {
    "block": "a block device",
    "dm": "a device-mapper device",
    "file": "a regular file",
    "directory": "a directory",
}


def find(path: str, kinds: Sequence[TargetKind], file_bytes: int = 0) -> Target:
    """What `path` is; refused if none of `kinds` will do. `file_bytes` is the capacity taken for a file that is yet to be made."""
    if not path:
        raise Failure(Exit.USAGE, "the target is empty; is a variable of a script not set?")
    resolved = Path(os.path.realpath(path))
    kind = _kind(path, resolved)
    if kind not in kinds and not (kind == "dm" and "block" in kinds):
        wanted = " or ".join(_KINDS[each] for each in kinds)
        raise _refused(f"{path} is {_KINDS[kind]}; this measurement takes {wanted}")
    target = Target(kind=kind, path=path, resolved=str(resolved))
    if kind in ("block", "dm"):
        device = _device(target)
        target.size_bytes = device.size_bytes
        describe(target, device)
        return target
    folder = _folder(target)
    target.size_bytes = shutil.disk_usage(folder).free if kind == "directory" else _size(resolved) or file_bytes
    target.filesystem = blockdev.filesystem_of(folder)
    mount = blockdev.mount_of(folder)
    target.mount_options = mount.options if mount else None
    below = blockdev.device_of(folder)
    if below:
        describe(target, below)
    return target


def confirmed(chosen: Sequence[Target], destroy: Sequence[str]) -> list[bool]:
    """Which of the targets a person confirmed by one of its names; refused if a given name is that of none."""
    names = [_names(target) for target in chosen]
    for name in destroy:
        if not any(_is_name(name, each) for each in names):
            raise _refused(f"--destroy={name} is no name of {chosen[0].path}: {_way_out(chosen[0])}")
    return [any(_is_name(name, each) for name in destroy) for each in names]


def guard(target: Target, confirmed: bool, footprint_bytes: int) -> str:
    """Refuse the target if something would be lost or is in the way, or if files of `footprint_bytes` have no room on it.
    Returns a text that says what will be written over."""
    if target.kind in ("block", "dm"):
        return _guard_device(target, confirmed)
    if not os.access(_folder(target), os.W_OK | os.X_OK):
        raise _refused(f"{target.path}: no file can be made in {_folder(target)}: no permission, or mounted read-only")
    note = _guard_file(target, confirmed) if target.kind == "file" else _guard_directory(target)
    free = shutil.disk_usage(_folder(target)).free + (_size(Path(target.resolved)) if target.kind == "file" else 0)
    if footprint_bytes > free:
        raise _refused(
            f"{target.path}: the measurement needs {human(footprint_bytes)} there, {human(free)} are free; "
            "free some, or shorten it by --set (`--dry-run` shows the variables)"
        )
    return note


@contextmanager
def held(target: Target) -> Iterator[str]:
    """Keep the target for the measurement and give the path to measure on. Files that are made are removed at the end; a block
    device can't be mounted meanwhile."""
    if target.kind == "directory":
        folder = tempfile.mkdtemp(prefix="durabench-", dir=target.resolved)
        with removed(folder):
            yield folder
    elif target.kind == "file":
        with removed(target.resolved):
            yield target.resolved
    else:
        descriptor = _open_exclusive(target)
        try:
            yield target.resolved
        finally:
            os.close(descriptor)


@contextmanager
def removed(path: str) -> Iterator[None]:
    """Remove a file or folder at the end, whatever the end is: by a process that waits for this one to leave or to die."""
    remover = subprocess.Popen(
        ["sh", "-c", 'read -r _; exec rm -rf -- "$1"', "sh", path],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        remover.communicate()


def escape(path: str) -> str:
    """A path as fio's filename= and directory= take it, where a colon would separate two."""
    return path.replace("\\", "\\\\").replace(":", "\\:")


def human(size: int) -> str:
    """A size in the largest binary unit that leaves at least one of it."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _kind(path: str, resolved: Path) -> TargetKind:
    try:
        mode = resolved.stat().st_mode
    except FileNotFoundError:
        if not resolved.parent.is_dir():
            raise _refused(f"{path}: there is no folder {resolved.parent}") from None
        if Path("/dev") in resolved.parents and Path("/dev/shm") not in resolved.parents:
            raise _refused(f"{path}: there is no such device") from None
        return "file"
    except OSError as error:
        raise _refused(f"{path}: {error.strerror}") from None
    if stat.S_ISBLK(mode):
        return "dm" if BlockDevice(resolved.stat().st_rdev).is_dm else "block"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    raise _refused(f"{path} is neither a block device nor a file nor a directory")


def describe(target: Target, device: Described) -> None:
    """Note what is known of the device that a target is, or lies on."""

    def flag(name: str) -> bool | None:
        value = device.integer(name)
        return None if value is None else bool(value)

    scheduler = device.attribute("queue/scheduler")
    target.device = device.path
    target.model = device.model
    target.serial = device.serial
    target.rotational = flag("queue/rotational")
    target.write_cache = device.attribute("queue/write_cache")
    target.fua = flag("queue/fua")
    # The chosen one stands in brackets: "[none] mq-deadline".
    target.scheduler = scheduler.partition("[")[2].partition("]")[0] or scheduler if scheduler else None
    target.logical_block_size = device.integer("queue/logical_block_size")
    target.nr_requests = device.integer("queue/nr_requests")
    target.wbt_lat_usec = device.integer("queue/wbt_lat_usec")
    target.backing = device.backing_file


def _guard_device(target: Target, confirmed: bool) -> str:
    device = _device(target)
    path = target.path
    if device.integer("ro"):
        raise _refused(f"{path} is read-only")
    users = list(device.users())
    if device.backing_file:
        # Two loop devices on one file know nothing of each other.
        others = blockdev.loop_users(Path(device.backing_file))
        users += [user for user in others if not user.endswith(f" {device.name}")]
    if users:
        raise _refused(f"{path} is in use: {'; '.join(users)}. Release it first, or take another device")
    os.close(_open_exclusive(target))
    found = ", ".join(str(each) for each in device.signatures())
    what = f"{path} ({', '.join(text for text in (target.model, human(device.size_bytes)) if text)})"
    if found and not confirmed:
        raise _refused(
            f"{what} holds {found}, which the measurement would write over. If that may be lost: {_way_out(target)}"
        )
    return f"{what} will be written over; it holds {found or 'nothing that libblkid knows'}"


def _guard_file(target: Target, confirmed: bool) -> str:
    path = Path(target.resolved)
    users = list(blockdev.loop_users(path))
    if users:
        raise _refused(f"{target.path} is in use: {'; '.join(users)}. Release it first, or take another file")
    size = _size(path)
    if size and not confirmed:
        raise _refused(
            f"{target.path} holds {human(size)}, which the measurement would write over and remove. "
            f"Name a file that is not there yet, or, if that may be lost: {_way_out(target)}"
        )
    return f"{target.path} is written for the measurement and removed at the end"


def _guard_directory(target: Target) -> str:
    return f"files are made in a fresh folder in {target.path} and removed at the end"


def _device(target: Target) -> BlockDevice:
    return BlockDevice(os.stat(target.resolved).st_rdev, target.resolved)


def _folder(target: Target) -> Path:
    """The folder that the files of a file or directory target are in."""
    return Path(target.resolved) if target.kind == "directory" else Path(target.resolved).parent


def _size(path: Path) -> int:
    """Size of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


def _open_exclusive(target: Target) -> int:
    """Open a block device so that nothing else can mount or claim it; refused if something has."""
    try:
        return os.open(target.resolved, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _refused(
                f"{target.path} is in use: the kernel holds it for something (a mount that can't be seen from here, a "
                "volume, another measurement). Release it first, or take another device"
            ) from None
        hint = "; measuring on a block device needs root" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise _refused(f"{target.path} can't be opened for writing: {error.strerror}{hint}") from None


def _names(target: Target) -> list[str]:
    """Names that confirm a target; a file's is its full path, a directory has none as nothing in it is written over."""
    if target.kind in ("block", "dm"):
        return _device(target).names()
    return [target.resolved] if target.kind == "file" else []


def _is_name(given: str, names: Sequence[str]) -> bool:
    return given.removeprefix("/dev/disk/by-id/").removeprefix("/dev/mapper/") in names


def _way_out(target: Target) -> str:
    names = _names(target)
    if target.kind == "directory":
        return "a directory needs no confirmation"
    if not names:
        return f"it has no serial or other name to confirm it by; wipe it yourself (`wipefs -a {target.path}`)"
    return f"confirm it by name: --destroy={names[0]}" + (f" (or {', '.join(names[1:])})" if names[1:] else "")


def _refused(message: str) -> Failure:
    return Failure(Exit.REFUSED, f"{message}. Nothing was written.")

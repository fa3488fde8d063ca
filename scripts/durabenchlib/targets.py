# SPDX-License-Identifier: GPL-2.0-only
"""The target of a measurement: what kind it is, whether it may be written over, and having it while the measurement runs.

Block devices are the guard's to judge (guard.py), and claimed for as long as the measurement runs. A file is made and
removed at the end; one that is there already and is not empty counts as holding data. In a directory everything happens in
a fresh folder, which is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import blockdev, guard, leftovers
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


@dataclass(frozen=True)
class Cleared:
    """Targets that may be written over. `destroy` names the block devices of which what they hold may be lost, `devices` are all of
    them as they were found, `notes` tell what is written over."""

    targets: Sequence[Target]
    destroy: Sequence[str]
    devices: Sequence[guard.Device]
    notes: Sequence[str]


def clear(chosen: Sequence[Target], destroy: Sequence[str], footprint_bytes: int) -> Cleared:
    """Refuse the targets if something would be lost that `destroy` does not name, or is in the way, or if files of `footprint_bytes`
    have no room on them."""
    paths = [target.path for target in chosen if _is_device(target)]
    files = [target.resolved for target in chosen if target.kind == "file"]
    names = [name for name in destroy if name not in files]
    if names and not paths:
        raise _refused(f"--destroy={names[0]} is no name of {chosen[0].path}: {_way_out(chosen[0])}")
    notes = [_clear_files(target, destroy, footprint_bytes) for target in chosen if not _is_device(target)]
    with guard.claims() as room:
        devices = guard.claim(paths, names, room)
    for device, target in zip(devices, filter(_is_device, chosen), strict=True):
        what = f"{device.path} ({', '.join(text for text in (target.model, human(target.size_bytes or 0)) if text)})"
        notes.append(f"{what} will be written over; it holds {device.holds or 'nothing that libblkid knows'}")
    return Cleared(chosen, names, devices, notes)


@contextmanager
def held(cleared: Cleared) -> Iterator[tuple[list[str], guard.Claims]]:
    """Keep the targets for the measurement: the paths to measure on, and the claims on block devices, which nothing else can mount
    meanwhile. Files that are made are removed at the end."""
    with guard.claims() as room, ExitStack() as stack:
        devices = guard.claim([device.path for device in cleared.devices], cleared.destroy, room)
        for then, now in zip(cleared.devices, devices, strict=True):
            if then.identity != now.identity:
                raise _refused(f"{now.path} is another device, or has another medium in it, than when it was checked")
        yield [stack.enter_context(_held(target)) for target in cleared.targets], room


@contextmanager
def _held(target: Target) -> Iterator[str]:
    if target.kind == "directory":
        with leftovers.folder(Path(target.resolved)) as folder:
            yield str(folder)
    elif target.kind == "file":
        with leftovers.removed(Path(target.resolved)):
            yield target.resolved
    else:
        yield target.resolved


def escape(path: str) -> str:
    """A path as fio's filename= and directory= take it, where a colon would separate two. Any other backslash stands for itself."""
    return path.replace(":", "\\:")


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


def _is_device(target: Target) -> bool:
    return target.kind in ("block", "dm")


def _clear_files(target: Target, destroy: Sequence[str], footprint_bytes: int) -> str:
    """Refuse a file or directory, or tell what is written there."""
    if not os.access(_folder(target), os.W_OK | os.X_OK):
        raise _refused(f"{target.path}: no file can be made in {_folder(target)}: no permission, or mounted read-only")
    if target.kind == "file":
        note = _clear_file(target, destroy)
    else:
        note = f"files are made in a fresh folder in {target.path} ({_where(target)}) and removed at the end"
    free = shutil.disk_usage(_folder(target)).free + (_size(Path(target.resolved)) if target.kind == "file" else 0)
    if footprint_bytes > free:
        raise _refused(
            f"{target.path}: the measurement needs {human(footprint_bytes)} there, {human(free)} are free; "
            "free some, or shorten it by --set (`--dry-run` shows the variables)"
        )
    return note


def _clear_file(target: Target, destroy: Sequence[str]) -> str:
    path = Path(target.resolved)
    users = list(blockdev.loop_users(path))
    if users:
        raise _refused(f"{target.path} is in use: {'; '.join(users)}. Release it first, or take another file")
    size = _size(path)
    if size and target.resolved not in destroy:
        raise _refused(
            f"{target.path} holds {human(size)}, which the measurement would write over and remove. "
            f"Name a file that is not there yet, or, if that may be lost: {_way_out(target)}"
        )
    return f"{target.path} ({_where(target)}) is written for the measurement and removed at the end"


def _where(target: Target) -> str:
    """The file system and the device that a file or directory is on."""
    device = ", ".join(text for text in (target.device, target.model) if text) or "no block device of its own"
    return f"on {target.filesystem}, {device}"


def _device(target: Target) -> BlockDevice:
    return BlockDevice(os.stat(target.resolved).st_rdev, target.resolved)


def _folder(target: Target) -> Path:
    """The folder that the files of a file or directory target are in."""
    return Path(target.resolved) if target.kind == "directory" else Path(target.resolved).parent


def _size(path: Path) -> int:
    """Size of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


def _way_out(target: Target) -> str:
    return "a directory needs no confirmation" if target.kind == "directory" else f"confirm it by name: --destroy={target.resolved}"


def _refused(message: str) -> Failure:
    return Failure(Exit.REFUSED, f"{message}. Nothing was written.")

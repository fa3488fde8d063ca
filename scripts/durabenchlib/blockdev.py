# SPDX-License-Identifier: GPL-2.0-only
"""What the system knows of a block device: its attributes, the file systems on it. Asks sysfs and util-linux."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Exit, Failure

_SYS = Path("/sys/dev/block")


@dataclass(frozen=True)
class Mount:
    """A mounted file system as findmnt tells it; `source` is a device path or whatever the file system calls itself."""

    target: str
    source: str
    fstype: str
    options: str


class BlockDevice:
    """A block device by its number, and a path to open it by (default: the kernel's). `name` is the kernel's (`sda1`), `disk` the
    sysfs folder of the whole disk."""

    def __init__(self, number: int, path: str | None = None) -> None:
        self.number = f"{os.major(number)}:{os.minor(number)}"
        self.sys = (_SYS / self.number).resolve()
        self.name = self.sys.name
        self.partition = (self.sys / "partition").exists()
        self.disk = self.sys.parent if self.partition else self.sys
        self.path = path or "/dev/" + self.name.replace("!", "/")

    def attribute(self, name: str) -> str | None:
        """Text of a sysfs attribute of the device, or of its disk for those that partitions share (`queue/…`)."""
        return _read((self.disk if name.startswith(("queue/", "device/")) else self.sys) / name)

    def integer(self, name: str) -> int | None:
        """An attribute that is a number."""
        return whole(self.attribute(name))

    @property
    def is_dm(self) -> bool:
        """Whether it is made by device-mapper."""
        return (self.sys / "dm").is_dir()

    @property
    def size_bytes(self) -> int:
        """Capacity."""
        return 512 * (self.integer("size") or 0)

    @property
    def backing_file(self) -> str | None:
        """File behind a loop device."""
        return self.attribute("loop/backing_file")

    @property
    def model(self) -> str | None:
        """The disk's model as lsblk tells it."""
        return self._lsblk("MODEL")

    @property
    def serial(self) -> str | None:
        """The disk's serial number as lsblk tells it."""
        return self._lsblk("SERIAL")

    def _lsblk(self, column: str) -> str | None:
        rows = _rows("blockdevices", "lsblk", "--json", "--nodeps", "--output", column, self.path)
        return _text(rows[0], column.lower()) or None if rows else None


def loop_users(path: Path) -> Iterator[str]:
    """Loop devices that stand on this file or device."""
    for attribute in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        backing = Path(_read(attribute) or "")
        try:
            if backing.is_absolute() and backing.samefile(path):
                yield f"{path} is behind {attribute.parent.parent.name}"
        except OSError:
            continue


def mount_of(path: Path) -> Mount | None:
    """The mount that a path is on; None where it can't be told (in a chroot whose own root is no mount)."""
    rows = _rows("filesystems", "findmnt", "--json", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS", "--target", str(path))
    return _mount(rows[-1]) if rows else None


def device_of(path: Path) -> BlockDevice | None:
    """The block device under the file system that a path is on; None where there is none (tmpfs, NFS, overlay)."""
    number = path.stat().st_dev
    if (_SYS / f"{os.major(number)}:{os.minor(number)}").exists():
        return BlockDevice(number)
    # btrfs gives each subvolume a number of its own; its source is the device.
    mount = mount_of(path)
    source = Path(mount.source) if mount else None
    if source and source.is_block_device():
        return BlockDevice(source.stat().st_rdev)
    return None


def filesystem_of(path: Path) -> str:
    """Type of the file system that a path is on."""
    mount = mount_of(path)
    if mount:
        return mount.fstype
    device = device_of(path)
    for folder in Path("/sys/fs").glob(f"*/{device.name}") if device else ():
        return folder.parent.name
    return subprocess.run(
        ["stat", "--file-system", "--format=%T", str(path)], capture_output=True, text=True, check=False
    ).stdout.strip()


def whole(text: str | None) -> int | None:
    """An attribute of a device that is a number."""
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,19}", text) else None


def _mount(row: dict[str, Any]) -> Mount:
    # A bind mount's source is followed by its folder in brackets.
    source = _text(row, "source").partition("[")[0]
    return Mount(_text(row, "target"), source, _text(row, "fstype"), _text(row, "options"))


def _text(row: dict[str, Any], key: str) -> str:
    """Empty where there is none."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _rows(name: str, *command: str) -> list[dict[str, Any]]:
    """The table of that name which a util-linux program prints. Empty if it prints nothing (findmnt of a path on no mount)."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except FileNotFoundError:
        raise Failure(Exit.MISSING, f"{command[0]} is not there: install the package util-linux") from None
    try:
        answer = json.loads(done.stdout) if done.stdout.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Failure(Exit.FAILED, f"{command[0]}: its answer is damaged: {error}") from None
    rows = answer.get(name) if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

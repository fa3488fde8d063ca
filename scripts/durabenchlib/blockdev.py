# SPDX-License-Identifier: GPL-2.0-only
"""What the system knows of a block device: names, attributes, who uses it, what it holds. Asks sysfs and util-linux."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Exit, Failure

_BY_ID = Path("/dev/disk/by-id")
_SYS = Path("/sys/dev/block")

# Partition tables as libblkid calls them.
_TABLES = ("dos", "gpt", "PMBR", "mac", "bsd", "sgi", "sun", "atari", "solaris_x86", "unixware", "ultrix")


@dataclass(frozen=True)
class Mount:
    """A mounted file system as findmnt tells it; `source` is a device path or whatever the file system calls itself."""

    dev: str
    target: str
    source: str
    fstype: str
    options: str


@dataclass(frozen=True)
class Signature:
    """Something libblkid found on a device: a file system, a partition table, a RAID or LVM member…"""

    device: str
    type: str
    label: str

    def __str__(self) -> str:
        what = f"a {self.type} partition table" if self.type in _TABLES else self.type
        return f"{what} {self.label!r} on {self.device}" if self.label else f"{what} on {self.device}"


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
        text = self.attribute(name)
        return int(text) if text and text.lstrip("-").isdigit() else None

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
        return self._lsblk().get("model") or None

    @property
    def serial(self) -> str | None:
        """The disk's serial number as lsblk tells it."""
        return self._lsblk().get("serial") or None

    def names(self) -> list[str]:
        """Names by which a person can confirm that this device and no other is meant; those that are stable: serial and WWN of
        a whole disk, links of /dev/disk/by-id, a partition's UUID, a dm device's name, a loop device's file. Best first."""
        about = self._lsblk()
        found: list[str | None] = []
        if self.partition:
            found.append(about.get("partuuid"))
        else:
            found += [about.get("serial"), about.get("wwn"), self.backing_file, self.attribute("dm/name")]
        links = sorted(_BY_ID.iterdir()) if _BY_ID.is_dir() else []
        found += [link.name for link in links if _number(link) == self.number]
        return list(dict.fromkeys(name for name in found if name))

    def partitions(self) -> list[BlockDevice]:
        """Its partitions, if it is a whole disk."""
        if self.partition:
            return []
        return [
            BlockDevice(_device_number(path / "dev"))
            for path in sorted(self.sys.glob(f"{self.name}*"))
            if (path / "partition").exists()
        ]

    def users(self) -> Iterator[str]:
        """Who uses the device, its partitions or what is built on them, as texts."""
        family = [self, *self.partitions()]
        for device in family:
            yield from device._direct_users()
            for holder in sorted((device.sys / "holders").glob("*")):
                yield f"{device.name} is part of {holder.name}"
                yield from BlockDevice(_device_number(holder / "dev")).users()

    def signatures(self) -> list[Signature]:
        """What libblkid finds on the device and on its partitions."""
        found = []
        for device in (self, *self.partitions()):
            for each in _json("wipefs", "--no-act", "--json", device.path, must=True).get("signatures", []):
                found.append(Signature(device.name, each["type"], each.get("label") or ""))
        return list(dict.fromkeys(found))

    def _direct_users(self) -> Iterator[str]:
        for mount in mounts():
            if self.number in (mount.dev, _number(Path(mount.source))):
                yield f"{self.name} is mounted on {mount.target}"
        for line in (_read(Path("/proc/swaps")) or "").splitlines()[1:]:
            if line and _number(Path(line.split()[0])) == self.number:
                yield f"{self.name} is swap"
        yield from loop_users(Path(self.path))

    def _lsblk(self) -> dict[str, Any]:
        answer = _json("lsblk", "--json", "--nodeps", "--output", "SERIAL,WWN,MODEL,PARTUUID", self.path)
        devices: list[dict[str, Any]] = answer.get("blockdevices") or [{}]
        return devices[0]


def loop_users(path: Path) -> Iterator[str]:
    """Loop devices that stand on this file or device."""
    for attribute in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        backing = Path(_read(attribute) or "")
        try:
            if backing.is_absolute() and backing.samefile(path):
                yield f"{path} is behind {attribute.parent.parent.name}"
        except OSError:
            continue


def mounts() -> list[Mount]:
    """All file systems mounted in this mount namespace."""
    answer = _json("findmnt", "--json", "--list", "--output", "MAJ:MIN,TARGET,SOURCE,FSTYPE,OPTIONS")
    return [_mount(each) for each in answer.get("filesystems", [])]


def mount_of(path: Path) -> Mount | None:
    """The mount that a path is on; None where it can't be told (in a chroot whose own root is no mount)."""
    answer = _json("findmnt", "--json", "--output", "MAJ:MIN,TARGET,SOURCE,FSTYPE,OPTIONS", "--target", str(path))
    found = answer.get("filesystems")
    return _mount(found[-1]) if found else None


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


def _mount(raw: dict[str, str | None]) -> Mount:
    # A bind mount's source is followed by its folder in brackets.
    source = (raw.get("source") or "").partition("[")[0]
    return Mount(raw["maj:min"] or "", raw["target"] or "", source, raw["fstype"] or "", raw["options"] or "")


def _number(path: Path) -> str | None:
    """MAJOR:MINOR of a path that is a block device."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _device_number(path: Path) -> int:
    major, _, minor = (_read(path) or "").partition(":")
    return os.makedev(int(major), int(minor))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _json(*command: str, must: bool = False) -> dict[str, Any]:
    """Answer of a util-linux program. Empty if it has none (findmnt of a path on no mount), unless it must succeed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failure(Exit.MISSING, f"{command[0]} is not there: install the package util-linux") from None
    if must and done.returncode:
        raise Failure(Exit.REFUSED, f"{done.stderr.strip() or command[0] + ' failed'}. Nothing was written.")
    answer = json.loads(done.stdout) if done.stdout.strip() else {}
    return answer if isinstance(answer, dict) else {}

# SPDX-License-Identifier: GPL-2.0-only
"""A disk with something on it is not written: what libblkid knows of file systems, RAID members, encryption and partition tables, at the
beginning, the end and in between, on loop devices. Made by the programs that make them, where there are some, else of the bytes that
libblkid looks for."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import BUILD, RunFio

GUARD = BUILD / "guard/durabench-guard"
SIZE = 64 << 20  # the least for ZFS
END = SIZE // 512  # in sectors

# Where bytes lie.
Bytes = list[tuple[int, bytes]]


def gpt(own: int, other: int, entries_at: int) -> Bytes:
    """A header of a partition table in sector `own`, with one partition."""
    entry = bytes.fromhex("af3dc60f838472478e793d69d8477de4") + bytes(range(1, 17)) + struct.pack("<QQQ72s", 2048, 8191, 0, b"p\0")
    entries = entry.ljust(128 * 128, b"\0")

    def header(crc: int) -> bytes:
        places = struct.pack("<QQQQ16sQ", own, other, 34, END - 34, bytes(range(16)), entries_at)
        return struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, crc, 0) + places + struct.pack("<III", 128, 128, zlib.crc32(entries))

    return [(own * 512, header(zlib.crc32(header(0)))), (entries_at * 512, entries)]


def md(at: int) -> Bytes:
    """The superblock of metadata 1.x of an array that is not assembled, in sector `at`."""
    return [(at * 512, struct.pack("<III4x16s32s64xQQQ", 0xA92B4EFC, 1, 0, bytes(range(16)), b"host:0", 2048, END - 4096, at))]


def exfat() -> Bytes:
    first = b"\xeb\x76\x90EXFAT   ".ljust(64, b"\0")
    first += struct.pack("<QQIIIIIIHHBBB", 0, END, 24, 256, 512, 4096, 4, 0x1234, 0x100, 0, 9, 3, 1).ljust(446, b"\0") + b"\x55\xaa"
    return [(0, first)]


def ntfs() -> Bytes:
    boot = struct.pack("<3s8sHB7xB18xQQQb3xb", b"\xeb\x52\x90", b"NTFS    ", 512, 8, 0xF8, END - 1, 4, 8, -10, 1).ljust(510, b"\0") + b"\x55\xaa"
    return [(0, boot), *((4 * 4096 + number * 1024, b"FILE") for number in range(4))]


def bitlocker() -> Bytes:
    boot = b"\xeb\x58\x90-FVE-FS-".ljust(160, b"\0") + bytes.fromhex("3bd66749292ed84a8399f6a339e3d001") + struct.pack("<Q", 65536)
    return [(0, boot), (65536, b"-FVE-FS-" + struct.pack("<HH", 64, 2))]


# What the refusal calls it, then where its bytes are.
BYTES: dict[str, tuple[str, Bytes]] = {
    "gpt": ("a gpt partition table", gpt(1, END - 1, 2)),
    "gpt-backup": ("a gpt partition table", gpt(END - 1, 1, END - 33)),
    "md-0.90": ("linux_raid_member", [((END // 128 * 128 - 128) * 512, struct.pack("<4I", 0xA92B4EFC, 0, 90, 0))]),
    "md-1.0": ("linux_raid_member 'host:0'", md(END - 16)),
    "md-1.1": ("linux_raid_member 'host:0'", md(0)),
    "md-1.2": ("linux_raid_member 'host:0'", md(8)),
    "intel-raid": ("isw_raid_member", [(SIZE - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00")]),
    "ddf-raid": ("ddf_raid_member", [(SIZE - 512, struct.pack(">I", 0xDE11DE11))]),
    "zfs": ("zfs_member", [(131072 + number * 1024, struct.pack("<QQ", 0x00BAB10C, 5000)) for number in range(8)]),
    "bcache-backing": ("bcache", [(4096, struct.pack("<8xQQ", 8, 1) + bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"))]),
    "bitlocker": ("BitLocker", bitlocker()),
    "luks2-second-header": ("crypto_LUKS", [(16384, b"SKUL\xba\xbe\0\2")]),
    "dm-integrity": ("DM_integrity", [(0, b"integrt\0\1")]),
    "dm-verity": ("DM_verity_hash", [(0, b"verity\0\0\1")]),
    "dm-snapshot": ("DM_snapshot_cow", [(0, b"SnAp" + struct.pack("<III", 1, 1, 8))]),
    "lvm1": ("LVM1_member", [(0, b"HM\1\0")]),
    "ceph": ("ceph_bluestore", [(0, b"bluestore block device\n")]),
    "oracle-asm": ("oracleasm", [(32, b"ORCLDISK")]),
    "vmfs": ("VMFS_volume_member", [(1 << 20, bytes.fromhex("0dd001c0"))]),
    "hibernation": ("swsuspend", [(4086, b"S1SUSPEND\0")]),
    "apfs": ("apfs", [(0, struct.pack("<QQQII4sI", 0, 1, 2, 0x80000001, 0, b"NXSB", 4096))]),
    "ntfs": ("ntfs", ntfs()),
    "refs": ("ReFS", [(0, b"\0\0\0ReFS\0")]),
    "exfat": ("exfat", exfat()),
    "iso9660": ("iso9660", [(32768, b"\1CD001\1"), (34816, b"\xffCD001\1")]),
}
# What the refusal calls it, then what makes it on a device.
PROGRAMS = {
    "ext4": ("ext4 'precious'", ["mkfs.ext4", "-q", "-L", "precious"]),
    "ext4-journal": ("jbd", ["mkfs.ext4", "-q", "-O", "journal_dev"]),
    "btrfs": ("btrfs 'precious'", ["mkfs.btrfs", "-q", "-M", "-L", "precious"]),
    "swap": ("swap 'precious'", ["mkswap", "-L", "precious"]),
}


def beginning(path: Path) -> bytes:
    """Where fio writes."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


def write(path: Path, found: Bytes) -> None:
    with open(path, "r+b") as file:
        for at, content in found:
            file.seek(at)
            file.write(content)


@pytest.mark.parametrize("name", [*BYTES, *PROGRAMS])
def test_it_is_refused_where_fio_writes(run_fio: RunFio, loop_device: Callable[..., str], tmp_path: Path, name: str) -> None:
    device, backing = loop_device(str(SIZE)), tmp_path / "loop-0.img"
    if name in BYTES:
        says, content = BYTES[name]
        write(backing, content)
    else:
        says, command = PROGRAMS[name]
        subprocess.run([*command, device], check=True, capture_output=True)
    before = beginning(backing)
    done = subprocess.run([GUARD, device], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and f"holds {says} on " in done.stderr, done.stderr
    assert beginning(backing) == before
    assert subprocess.run([GUARD, f"--destroy={backing}", device], capture_output=True).returncode == 0
    assert run_fio("psync", filename=device, rw="write", bs="64k", size="64k", direct=1).exit_status == 0
    assert beginning(backing) != before

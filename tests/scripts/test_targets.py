# SPDX-License-Identifier: GPL-2.0-only
"""The target guard: what it refuses and by which words it lets a person override, on real loop devices and files."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from durabenchlib import blockdev, targets
from durabenchlib.errors import Exit, Failure

from command import eventually

KINDS = ["block", "dm", "directory", "file"]


def refusal(path: str | Path, *destroy: str, footprint: int = 0) -> str:
    """What the guard says when it refuses; fails if it does not."""
    with pytest.raises(Failure) as caught:
        let(path, *destroy, footprint=footprint)
    assert caught.value.status == Exit.REFUSED
    return str(caught.value)


def let(path: str | Path, *destroy: str, footprint: int = 0) -> str:
    """What the guard says when it lets a target pass."""
    (note,) = clear(path, *destroy, footprint=footprint).notes
    return note


def clear(path: str | Path, *destroy: str, footprint: int = 0) -> targets.Cleared:
    return targets.clear([targets.find(str(path), KINDS)], destroy, footprint)


def backing_of(device: str) -> Path:
    """The file behind a loop device."""
    return Path(Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip())


def digest(path: Path) -> str:
    """Checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def held_by_mount(mount, loop_device, tmp_path: Path) -> tuple[str, Path]:
    """A loop device with ext4 that is mounted, and where."""
    point = mount("ext4", "64M")
    mounted = blockdev.mount_of(point)
    assert mounted
    return mounted.source, point


@pytest.fixture
def partitioned(loop_device) -> Iterator[str]:
    """A loop device with an MBR and ext4 on its only partition."""
    device = loop_device("64M")
    with open(device, "r+b") as disk:
        disk.seek(446)
        disk.write(struct.pack("<B3sB3sII", 0, b"\0\0\0", 0x83, b"\0\0\0", 2048, 65536))
        disk.seek(510)
        disk.write(b"\x55\xaa")
    done = subprocess.run(["partx", "--add", device], capture_output=True, text=True)
    if done.returncode or not eventually(Path(f"{device}p1").exists, 5):
        pytest.skip(f"no partitions on loop devices here: {done.stderr.strip()}")
    subprocess.run(["mkfs.ext4", "-q", "-L", "backup", f"{device}p1"], check=True)
    yield device
    subprocess.run(["partx", "--delete", device], check=True)


def test_empty_device_needs_no_confirmation(loop_device) -> None:
    device = loop_device("64M")
    assert "nothing that libblkid knows" in let(device)


def test_facts_of_a_device(loop_device) -> None:
    device = loop_device("64M")
    target = targets.find(device, ["block"])
    assert target.size_bytes == 64 << 20
    assert target.write_cache == Path(f"/sys/block/{Path(device).name}/queue/write_cache").read_text().strip()
    assert target.backing == str(backing_of(device))
    assert target.logical_block_size == 512


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_signature_is_refused_until_confirmed_by_name(loop_device, kind: str) -> None:
    device = loop_device("320M")
    subprocess.run([f"mkfs.{kind}", "-q", "-L", "precious", device], check=True)
    backing = backing_of(device)
    before = digest(backing)
    said = refusal(device)
    assert f"{kind} 'precious'" in said and f"--destroy={backing}" in said and "320.0 MiB" in said
    assert "Nothing was written" in said
    assert "is no name of" in refusal(device, "otherdisk")
    assert "precious" in let(device, str(backing))
    assert digest(backing) == before


def test_names_that_are_no_text(loop_device, tmp_path: Path) -> None:
    device = loop_device("64M")
    subprocess.run(["mkfs.ext4", "-q", "-L", b"a\xffb", device], check=True)
    link = os.fsencode(tmp_path) + b"/\xfe"
    os.symlink(device, link)
    for path in (device, os.fsdecode(link)):
        assert "holds ext4 'a\ufffdb' on " in refusal(path)
    subprocess.run(["wipefs", "-q", "-a", device], check=True)
    with targets.held(clear(os.fsdecode(link))) as (paths, _):
        assert paths == [device]


def test_wrong_name_is_refused_even_for_an_empty_device(loop_device) -> None:
    assert "is no name of" in refusal(loop_device("64M"), "otherdisk")


def test_kernel_name_does_not_confirm(loop_device) -> None:
    device = loop_device("64M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert "is no name of" in refusal(device, device)
    assert "is no name of" in refusal(device, Path(device).name)


def test_link_to_a_device_is_followed(held_by_mount, tmp_path: Path) -> None:
    device, point = held_by_mount
    link = tmp_path / "disk"
    link.symlink_to(device)
    assert f"is mounted on {point}" in refusal(link)


def test_mounted_is_never_overridable(held_by_mount) -> None:
    device, point = held_by_mount
    assert f"{Path(device).name} is mounted on {point}" in refusal(device)
    assert f"is mounted on {point}" in refusal(device, str(backing_of(device)))


def test_mount_that_can_not_be_seen(loop_device, mount_namespace, tmp_path: Path) -> None:
    device = loop_device("64M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"mount {device} {tmp_path} && echo && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout and holder.stdout.readline() == b"\n"
        assert "the kernel holds it" in refusal(device, str(backing_of(device)))
    finally:
        holder.communicate()


def test_another_loop_device_on_the_same_file(loop_device) -> None:
    device = loop_device("64M")
    other = loop_device("64M", backing=backing_of(device))
    try:
        assert f"the file behind {Path(device).name} is behind {Path(other).name}" in refusal(device, str(backing_of(device)))
    finally:
        subprocess.run(["losetup", "--detach", other], check=True)


def test_held_by_another_program(loop_device) -> None:
    device = loop_device("64M")
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        assert "the kernel holds it" in refusal(device)
    finally:
        os.close(descriptor)


def test_swap(loop_device) -> None:
    device = loop_device("64M")
    subprocess.run(["mkswap", device], check=True, capture_output=True)
    assert "swap" in refusal(device)
    done = subprocess.run(["swapon", device], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no swap can be added here: {done.stderr.strip()}")
    try:
        assert f"{Path(device).name} is swap" in refusal(device, str(backing_of(device)))
    finally:
        subprocess.run(["swapoff", device], check=True)


def test_read_only(loop_device) -> None:
    device = loop_device("64M")
    subprocess.run(["blockdev", "--setro", device], check=True)
    try:
        assert "read-only" in refusal(device, str(backing_of(device)))
    finally:
        subprocess.run(["blockdev", "--setrw", device], check=True)


def test_partition_table_and_what_is_in_it(partitioned: str) -> None:
    said = refusal(partitioned)
    assert "a dos partition table" in said and f"ext4 'backup' on {Path(partitioned).name}p1" in said
    said = refusal(f"{partitioned}p1")
    assert "ext4 'backup'" in said and "wipefs -a" in said
    assert "is no name of" in refusal(f"{partitioned}p1", str(backing_of(partitioned)))


def test_disk_of_a_mounted_partition(partitioned: str, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    subprocess.run(["mount", f"{partitioned}p1", point], check=True)
    try:
        assert f"p1 is mounted on {point}" in refusal(partitioned, str(backing_of(partitioned)))
    finally:
        subprocess.run(["umount", point], check=True)


def test_device_behind_a_loop_device(loop_device) -> None:
    below = loop_device("64M")
    above = subprocess.run(["losetup", "--find", "--show", below], capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert f"is behind {Path(above).name}" in refusal(below)
    finally:
        subprocess.run(["losetup", "--detach", above], check=True)


def test_file_behind_a_loop_device(loop_device) -> None:
    device = loop_device("64M")
    backing = backing_of(device)
    assert f"is behind {Path(device).name}" in refusal(backing, str(backing))


def test_nothing_can_mount_a_held_device(loop_device, tmp_path: Path) -> None:
    device = loop_device("64M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    with targets.held(clear(device, str(backing_of(device)))) as (paths, _):
        assert paths == [device]
        assert subprocess.run(["mount", device, tmp_path], capture_output=True).returncode
    subprocess.run(["mount", device, tmp_path], check=True)
    subprocess.run(["umount", tmp_path], check=True)


def test_file_with_content(tmp_path: Path) -> None:
    path = tmp_path / "database"
    path.write_bytes(b"x" * 5000)
    said = refusal(path)
    assert "holds 4.9 KiB" in said and f"--destroy={path}" in said
    assert path.read_bytes() == b"x" * 5000
    assert "removed at the end" in let(path, str(path))


def test_file_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert "removed at the end" in let(path)
    with targets.held(clear(path)) as (held, _):
        assert held == [str(path)]
        path.write_bytes(b"data")
    assert not path.exists()


def test_directory_gets_a_fresh_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("stays")
    with targets.held(clear(tmp_path)) as (held, _):
        folder = Path(held[0])
        assert folder.parent == tmp_path and folder.name.startswith("durabench-")
        (folder / "file").write_text("goes")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_free_space(tmp_path: Path) -> None:
    assert "are free" in refusal(tmp_path, footprint=1 << 60)
    assert "are free" in refusal(tmp_path / "new", footprint=1 << 60)


@pytest.mark.parametrize(
    ("path", "kinds", "says"),
    [
        ("/dev/null", KINDS, "neither a block device nor a file nor a directory"),
        ("/dev/no-such-disk", KINDS, "there is no such device"),
        ("/no/such/folder/file", KINDS, "there is no folder /no/such/folder"),
        ("/tmp", ["block", "file"], "is a directory; this measurement takes a block device or a regular file"),
    ],
)
def test_wrong_kind(path: str, kinds: list, says: str) -> None:
    with pytest.raises(Failure) as caught:
        targets.find(path, kinds)
    assert caught.value.status == Exit.REFUSED and says in str(caught.value)


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_file_system_that_no_mount_tells(mount, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a chroot, whose own root is no mount."""
    point = mount(kind, "320M")
    monkeypatch.setattr(blockdev, "mount_of", lambda path: None)
    assert blockdev.filesystem_of(point) == kind


def test_paths_for_fio() -> None:
    assert targets.escape("/dev/disk/by-path/pci-0000:00:1f.2") == r"/dev/disk/by-path/pci-0000\:00\:1f.2"


def test_device_that_changed_since_it_was_checked(loop_device, tmp_path: Path) -> None:
    device = loop_device("64M")
    cleared = clear(device)
    other = tmp_path / "other"
    subprocess.run(["truncate", "-s", "64M", other], check=True)
    subprocess.run(["losetup", "--detach", device], check=True)
    subprocess.run(["losetup", device, other], check=True)
    with pytest.raises(Failure, match="another medium in it, than when it was checked"), targets.held(cleared):
        pass


def test_a_name_has_to_be_of_one_of_the_targets(loop_device, tmp_path: Path) -> None:
    devices = [loop_device("64M"), loop_device("64M")]
    subprocess.run(["mkfs.ext4", "-q", devices[0]], check=True)
    chosen = [targets.find(path, KINDS) for path in [*devices, str(tmp_path / "new")]]
    names = [str(backing_of(devices[0])), str(tmp_path / "new")]
    assert len(targets.clear(chosen, names, 0).notes) == 3
    for wrong in ([], names[1:], [*names, "otherdisk"]):
        with pytest.raises(Failure):
            targets.clear(chosen, wrong, 0)


def test_nothing_is_kept_after_a_refusal(loop_device) -> None:
    """Of two devices the first was claimed already when the second was refused."""
    devices = [loop_device("64M"), loop_device("64M")]
    subprocess.run(["mkfs.ext4", "-q", devices[1]], check=True)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(Failure):
        targets.clear([targets.find(path, KINDS) for path in devices], [], 0)
    assert os.listdir("/proc/self/fd") == before
    for device in devices:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))

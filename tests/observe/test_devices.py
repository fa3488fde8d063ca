# SPDX-License-Identifier: GPL-2.0-only
"""Finding devices, and counting what they execute, on loop devices."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Observer, Recorder

LoopDevice = Callable[..., str]
Mount = Callable[..., Path]


def disk_below(path: Path) -> str | None:
    """The disk of a file's file system, found apart from the observer; None if it has none."""
    number = os.stat(path).st_dev
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        return None
    folder = link.resolve()
    return folder.parent.name if (folder / "partition").exists() else folder.name


def kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


WRITES = 64


def fio_command(fio: Path, device: str, engine: str, *options: str) -> list[str | Path]:
    return [
        "timeout", "60", fio, "--name=t", f"--filename={device}", f"--ioengine={engine}", "--direct=1", "--rw=write",
        "--bs=4k", f"--size={4 * WRITES}k", "--output=/dev/null", *options,
    ]  # fmt: skip


@pytest.fixture
def plain_loop(loop_device: LoopDevice) -> str:
    """A loop device as the kernel makes it by default: volatile cache, no FUA."""
    device = loop_device("16M")
    queue = Path("/sys/block", Path(device).name, "queue")
    if (queue / "write_cache").read_text() != "write back\n" or (queue / "fua").read_text() != "0\n":
        pytest.skip("loop devices of this kernel have another write cache than those the counts are known for")
    return device


@pytest.mark.parametrize(
    ("engine", "options", "flushes", "requests"),
    [
        # Before Linux 7.4 a synchronous write to a block device is written as FUA, which for want of FUA becomes a
        # flush, and flushed again. Since 7.4 it is written plainly and flushed. A flush that was asked for is a
        # write request of its own; the one in place of FUA is part of its write.
        ("psync", ["--sync=dsync"], 2 if kernel() < (7, 4) else 1, 2),
        # An asynchronous write is FUA alone.
        ("libaio", ["--sync=dsync", "--iodepth=1"], 1, 1),
        ("io_uring", ["--sync=dsync", "--iodepth=1"], 1, 1),
        # The write, then a flush that was asked for.
        ("psync", ["--fdatasync=1"], 1, 2),
        ("psync", [], 0, 1),
    ],
)
def test_flushes_per_write(
    observer: Observer, fio: Path, plain_loop: str, engine: str, options: list[str], flushes: int, requests: int
) -> None:
    found = observer.run("-d", plain_loop, "-b", "4k", "--", *fio_command(fio, plain_loop, engine, *options))
    if found.exit_status and engine == "io_uring" and "Operation not permitted" in found.stderr:
        pytest.skip("io_uring is not permitted here")
    assert found.exit_status == 0, found.stderr
    device = found.device(plain_loop)
    # fdatasync=1 asks for none after the last write of a file, fio's close does not either
    last = 1 if "--fdatasync=1" in options else 0
    assert device["write_sectors"] == 8 * WRITES
    assert device["flushes"] in (flushes * WRITES, flushes * (WRITES - last))
    assert device["writes"] == WRITES + (requests - 1) * device["flushes"] // max(flushes, 1)
    assert device["flushes_per_write"] == device["flushes"] / WRITES
    assert device["requests_per_write"] == device["writes"] / WRITES
    assert f"# {device['flushes'] / WRITES:.2f} per write\n" in found.stderr
    if not device["flushes"]:
        assert device["flush_ms"] == 0


def test_without_write_size_it_is_per_request(observer: Observer, fio: Path, plain_loop: str) -> None:
    found = observer.run("-d", plain_loop, "--", *fio_command(fio, plain_loop, "io_uring", "--sync=dsync"))
    device = found.device(plain_loop)
    assert device["flushes_per_write"] is None and device["requests_per_write"] is None
    assert device["flushes"] == device["writes"] == WRITES
    assert "# 1.00 per write request\n" in found.stderr


def test_reads_are_counted_apart(observer: Observer, plain_loop: str) -> None:
    found = observer.run("-d", plain_loop, "dd", f"if={plain_loop}", "of=/dev/null", "bs=64k", "count=4", "iflag=direct")
    device = found.device(plain_loop)
    assert (device["reads"], device["read_sectors"], device["writes"], device["flushes"]) == (4, 512, 0, 0)


def test_every_name_of_a_device_leads_to_it(observer: Observer, loop_device: LoopDevice, tmp_path: Path) -> None:
    device = loop_device()
    link = tmp_path / "by-id"
    link.symlink_to(device)
    for name in (device, Path(device).name, link):
        found = observer.run("-d", name, "true")
        assert found.summary is not None
        target = found.summary["devices"][0]
        assert (target["name"], target["role"], target["argument"]) == (Path(device).name, "target", str(name))
    # named three times it is still one
    found = observer.run("-d", device, "-d", Path(device).name, "-d", link, "true")
    assert found.device(device)["argument"] == device


def test_disk_below_a_loop_device(observer: Observer, loop_device: LoopDevice, tmp_path: Path) -> None:
    device = loop_device()
    lower = disk_below(tmp_path)
    if lower is None:
        pytest.skip(f"the file system of {tmp_path} has no block device")
    found = observer.run("-d", device, "true")
    below = found.device(lower)
    assert (below["role"], below["argument"], below["of"]) == ("below", None, [Path(device).name])
    found = observer.run("-d", device, "-d", lower, "true")
    below = found.device(lower)
    assert (below["role"], below["of"]) == ("target", [Path(device).name])


def test_file_and_folder_stand_for_their_disk(observer: Observer, mount: Mount) -> None:
    folder = mount("xfs")
    (folder / "file").write_text("")
    source = subprocess.run(["findmnt", "-no", "SOURCE", folder], capture_output=True, text=True, check=True)
    loop = Path(source.stdout.strip()).name
    for path in (folder, folder / "file"):
        found = observer.run("-d", path, "true")
        assert (found.device(loop)["role"], found.device(loop)["argument"]) == ("target", str(path))
    # a name without a slash is a path too, if the kernel knows no such device
    found = observer.run("-d", "file", "true", cwd=folder)
    assert found.device(loop)["argument"] == "file"


def test_loop_device_over_a_loop_device(observer: Observer, mount: Mount, loop_device: LoopDevice) -> None:
    folder = mount("ext4", "64M")
    backing = folder / "inner"
    inner = loop_device("8M", backing=backing)
    try:
        found = observer.run("-d", inner, "-b", "4k", "dd", "if=/dev/zero", f"of={inner}", "bs=4k", "count=1", "oflag=direct", "conv=fsync")
        assert found.summary is not None
        names = [device["name"] for device in found.summary["devices"]]
        outer = disk_below(backing)
        assert outer is not None
        assert names[:2] == [Path(inner).name, outer]
        assert found.device(outer)["of"] == [Path(inner).name]
        # the fsync went through both
        assert found.device(inner)["flushes"] >= 1 and found.device(outer)["flushes"] >= 1
    finally:
        subprocess.run(["losetup", "--detach", inner], check=True)


def partition_table(sectors: int) -> bytes:
    """A master boot record with one partition of `sectors` from sector 64."""
    entry = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 64, sectors)
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def test_partition_stands_for_its_disk(observer: Observer, loop_device: LoopDevice) -> None:
    device = loop_device()
    Path(device).write_bytes(partition_table(2048))
    done = subprocess.run(["partx", "--add", device], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no partition can be made here: {done.stderr.strip()}")
    try:
        name = Path(device).name + "p1"
        found = observer.run("-d", name, "-b", "512", "dd", "if=/dev/zero", f"of={device}", "bs=512", "count=3", "seek=64", "oflag=direct")
        target = found.device(device)
        assert (target["role"], target["argument"], target["writes"]) == ("target", name, 3)
        assert "of loop" in found.stderr
    finally:
        subprocess.run(["partx", "--delete", device], check=True)


LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81


@pytest.fixture
def spare_loop() -> Iterator[tuple[str, Callable[[], None]]]:
    """A loop device of its own number, and what removes it from the kernel."""
    if os.geteuid():
        pytest.skip("loop devices need root")
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no loop device can be made here: {error}")
    number = 1000 + os.getpid()
    try:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
    except OSError as error:
        pytest.skip(f"no loop device can be made here: {error}")

    def remove() -> None:
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)

    yield f"loop{number}", remove
    if Path(f"/sys/block/loop{number}").exists():
        remove()
    os.close(control)


def test_device_that_disappears(
    observer: Observer, recorder: Recorder, spare_loop: tuple[str, Callable[[], None]], started: Any
) -> None:
    name, remove = spare_loop
    process = started(observer.start("-d", name, "-i", "10ms", *recorder.command(wanted=1)))
    recorder.wait_for(1)
    remove()
    process.terminate()
    found = observer.end(process)
    assert found.exit_status == 23
    gone = found.device(name)["gone_s"]
    assert found.summary is not None
    assert 0 < gone <= found.summary["elapsed_s"]
    assert found.device(name)["writes"] == 0
    assert list(found.samples[-1]["dev"]) == [name]
    assert "gone" in found.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-disk", "'no-such-disk': No such file or directory"),
        ("/no/such/path", "'/no/such/path': No such file or directory"),
        ("", "'': No such file or directory"),
        ("/dev/null", "'/dev/null' is neither a block device nor a file or directory on one"),
        ("/proc/stat", "'/proc/stat': no block device stands behind its file system"),
    ],
)
def test_what_is_no_device_is_refused(observer: Observer, name: str, message: str) -> None:
    ran = observer.folder / "ran"
    found = observer.run("-d", name, "touch", ran)
    assert found.exit_status == 69
    assert found.stderr.startswith(f"durabench-observe: {message}")
    assert len(found.stderr.splitlines()) == 1
    assert not list(observer.folder.iterdir())


def test_tmpfs_has_no_device(observer: Observer, mount: Mount) -> None:
    folder = mount("tmpfs", "1M")
    found = observer.run("-d", folder, "true")
    assert found.exit_status == 69
    assert found.stderr.startswith(f"durabench-observe: '{folder}': no block device stands behind its file system (tmpfs")


def test_kernel_threads_are_found(observer: Observer) -> None:
    children = Path("/proc/2/task/2/children")
    if Path("/proc/2/comm").read_text() != "kthreadd\n" or not children.exists():
        pytest.skip("kernel threads can't be seen here")
    names = [Path("/proc", pid, "comm").read_text() for pid in children.read_text().split() if Path("/proc", pid).exists()]
    found = observer.run("true")
    assert found.summary is not None
    assert (found.summary["system"]["kswapd_cpu_s"] is None) == (not any(name.startswith("kswapd") for name in names))
    assert found.summary["system"]["flusher_cpu_s"] is not None


def test_kernel_threads_are_unknown_in_a_pid_namespace(observer: Observer, mount_namespace: None) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", *observer.command("true")]
    subprocess.run(command, check=True, capture_output=True)
    system = json.loads(observer.results[1].read_text())["system"]
    assert system["kswapd_cpu_s"] is None and system["flusher_cpu_s"] is None


def test_without_privileges(observer: Observer) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user; the other tests ran without privileges")
    disk = sorted(Path("/sys/block").iterdir())[0].name
    with tempfile.TemporaryDirectory() as folder:  # others may not enter pytest's
        Path(folder).chmod(0o777)
        copy = shutil.copy(observer.program, folder)
        command = [copy, "-d", disk, "-j", "summary", "true"]
        done = subprocess.run(command, capture_output=True, text=True, user="nobody", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(Path(folder, "summary").read_text())["devices"][0]["name"] == disk

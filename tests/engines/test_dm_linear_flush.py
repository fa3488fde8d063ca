# SPDX-License-Identifier: GPL-2.0-only
"""dm-linear-flush inside fio: what a sync flushes, where the data lands, that
fio's file stays alone, and what an error looks like."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ENGINES, sanitizer_environment

SECTOR = 512
WRITES = 64
BY_TABLE = ["per-target", "per-device"]
ENGINE = "dm-linear-flush"


@dataclass(frozen=True)
class Line:
    """One line of a table, in sectors; no device: a zero target."""

    start: int
    length: int
    device: str | Path | None
    offset: int = 0

    def __str__(self) -> str:
        target = "zero" if self.device is None else f"linear {self.device} {self.offset}"
        return f"{self.start} {self.length} {target}"


def published_table(devices: list[str | Path], targets: int = 1024) -> list[Line]:
    """Targets of 8000 sectors, 16384 apart, spread evenly over the devices."""
    return [Line(i * 8000, 8000, devices[i * len(devices) // targets], i * 16384) for i in range(targets)]


def uneven_table(devices: list[Path], targets: int, seed: int = 0) -> list[Line]:
    """Short targets in random order on the devices, one of them a zero target."""
    pick = random.Random(seed)
    places = [(device, offset) for device in devices for offset in range(0, 32 * targets, 32)]
    pick.shuffle(places)
    lines, start = [], 0
    for i in range(targets):
        length = pick.randint(1, 31)
        device, offset = places[i]
        lines.append(Line(start, length, None if i == targets // 2 else device, offset))
        start += length
    return lines


def mapped_size(lines: list[Line]) -> int:
    return sum(line.length for line in lines) * SECTOR


def image(lines: list[Line], device: Path, mapped: bytes, size: int) -> bytes:
    """What `device` holds if it held zeros before and `mapped` was written through the table."""
    held = bytearray(size)
    for line in lines:
        if line.device == device:
            piece = mapped[line.start * SECTOR : (line.start + line.length) * SECTOR]
            held[line.offset * SECTOR : line.offset * SECTOR + len(piece)] = piece
    return bytes(held)


@pytest.fixture
def table(tmp_path):
    """table(lines) -> a file with them."""
    counter = 0

    def write(lines: Iterable[Line | str]) -> Path:
        nonlocal counter
        counter += 1
        path = tmp_path / f"table-{counter}"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


@pytest.fixture
def files(tmp_path):
    """files(n, size) -> regular files of zeros; under `folder` if given."""

    def make(n: int, size: int | str, folder: Path = tmp_path) -> list[Path]:
        made = [folder / f"backing-{i}" for i in range(n)]
        subprocess.run(["truncate", "-s", str(size), *made], check=True)
        return made

    return make


def workload(**more):
    return {"rw": "randwrite", "bs": "4k", "io_size": WRITES * 4096, "filename": "mapped", **more}


def flushes_of_a_sync(strategy: str, targets: int, devices: int) -> int:
    return targets if strategy == "per-target" else devices


# ---- flushes -------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", ["file", "tmpfs", "block"])
def test_the_published_table(run_fio, loop_device, mount, files, table, devices, kind):
    if kind == "block":
        targets = [loop_device("8200M") for _ in range(devices)]
    elif kind == "file":
        targets = files(devices, "8200M")
    else:
        targets = files(devices, "8200M", mount("tmpfs", "64M"))
    writes = 8
    result = run_fio(
        ENGINE,
        table=table(published_table(targets)),
        fdatasync=1,
        end_fsync=1,
        jobs=[{"name": strategy, "strategy": strategy} for strategy in BY_TABLE],
        stonewall=True,
        **workload(size="2G", io_size=writes * 4096, invalidate=1),
    )
    assert result.exit_status == 0, result.stderr
    assert result.stderr == ""
    for strategy in BY_TABLE:
        done = result.of(strategy)
        # A sync comes before the next write, so end_fsync does the last.
        assert done.job["sync"]["lat_ns"]["N"] == writes - 1
        flushes = writes * flushes_of_a_sync(strategy, 1024, devices)
        expected = {"writes": writes, "write_bytes": writes * 4096, "syncs": writes, "flush_calls": flushes, "error": 0}
        assert {key: done.counter[key] for key in expected} == expected
        assert done.counter["durable_writes"] == 0
        assert done.counter["strategy"] == strategy


@pytest.mark.parametrize("strategy", BY_TABLE)
def test_what_the_devices_execute(run_fio, loop_device, executed, table, strategy):
    """Every flush call is a request of its own to the device it is for."""
    first, second = loop_device("300M"), loop_device("300M")
    lines = published_table([first, second], targets=32)
    run = {}

    def on_both():
        run["done"] = executed(second, go)

    def go():
        run["result"] = run_fio(ENGINE, strategy=strategy, table=table(lines), fdatasync=1, **workload(rw="write"))

    run["first"] = executed(first, on_both)
    result, syncs = run["result"], WRITES - 1
    assert result.exit_status == 0, result.stderr
    # All writes go to the first device; field 5 of its stat counts flushes too.
    of_first = syncs * (16 if strategy == "per-target" else 1)
    assert run["first"]["write_sectors"] == WRITES * 8
    assert run["first"]["writes"] == of_first + WRITES
    assert run["done"]["writes"] == of_first
    assert run["done"]["write_sectors"] == 0
    assert result.counter["flush_calls"] == 2 * of_first


def test_a_table_of_many_thousand_targets(run_fio, files, table, mount):
    (backing,) = files(1, "8M", mount("tmpfs", "16M"))
    lines = [Line(i, 1, backing, i) for i in range(10000)]
    result = run_fio(ENGINE, strategy="per-target", table=table(lines), fdatasync=1, **workload(io_size="16k"))
    assert result.exit_status == 0, result.stderr
    assert result.counter["flush_calls"] == 3 * 10000


def test_zero_targets_are_not_flushed(run_fio, files, table):
    (backing,) = files(1, "1M")
    lines = [Line(0, 8, backing), Line(8, 800, None), Line(808, 8, backing, 8)]
    result = run_fio(ENGINE, strategy="per-target", table=table(lines), end_fsync=1, **workload())
    assert result.exit_status == 0, result.stderr
    assert result.counter["flush_calls"] == 2


@pytest.mark.parametrize("strategy", BY_TABLE)
@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_the_system_calls_of_a_sync(strace_fio, files, table, strategy, sync):
    devices = [str(path) for path in files(2, "4M")]
    lines = [Line(i * 100, 100, devices[i // 20], (i % 20) * 200) for i in range(30)]
    calls = strace_fio(
        "pwrite64,sync_file_range,fsync,fdatasync",
        ENGINE,
        strategy=strategy,
        table=table(lines),
        # The writes go to the first line, and to the first device, alone.
        **workload(rw="write", io_size=12 * 4096, size=12 * 4096),
        **{sync: 4},
    )
    one, two = (20, 10) if strategy == "per-target" else (1, 1)
    io = [call for call in calls if call[1] in devices]
    writes = [("pwrite64", devices[0])] * 4
    write_back = [("sync_file_range", device) for device in devices] * 2
    flushes = sorted([(sync, devices[0])] * one + [(sync, devices[1])] * two)
    length = len(writes + write_back + flushes)
    # Two syncs, since there is none after the last write; flushes in any order.
    assert len(io) == 2 * length + 4
    for part in io[:length], io[length : 2 * length]:
        assert part[: len(writes + write_back)] == writes + write_back
        assert sorted(part[len(writes + write_back) :]) == flushes
    assert io[2 * length :] == writes


@pytest.mark.parametrize("kind", ["file", "block"])
def test_kernel_strategy(run_fio, loop_device, executed, tmp_path, kind):
    device = loop_device()
    target = device if kind == "block" else tmp_path / "file"
    run = {}

    def go():
        run["result"] = run_fio(ENGINE, strategy="kernel", fdatasync=1, end_fsync=1, **workload(size="1M", filename=target))

    done = executed(device, go)
    result = run["result"]
    assert result.exit_status == 0, result.stderr
    assert result.counter["syncs"] == result.counter["flush_calls"] == WRITES
    assert result.counter["writes"] == WRITES
    if kind == "block":
        assert done["flushes"] == WRITES


def test_kernel_is_the_default_and_costs_what_fio_s_own_engine_costs(run_fio, loop_device, executed):
    device = loop_device()
    options = workload(size="1M", filename=device, fdatasync=1)
    ours = executed(device, lambda: run_fio(ENGINE, **options))
    fios = executed(device, lambda: run_fio("psync", **options))
    assert ours == fios


# ---- mapping -------------------------------------------------------------


@pytest.mark.parametrize("strategy", BY_TABLE)
@pytest.mark.parametrize("bs", ["512", "4k", "12k", "64k"])
@pytest.mark.parametrize("direct", [0, 1])
def test_data_lands_where_the_table_says(run_fio, files, table, strategy, bs, direct):
    devices = files(2, "4M")
    lines = uneven_table(devices, 200)
    size = mapped_size(lines)
    block = int(bs.rstrip("k")) * (1024 if bs.endswith("k") else 1)
    result = run_fio(
        ENGINE,
        strategy=strategy,
        table=table(lines),
        filename="mapped",
        rw="write",
        bs=bs,
        direct=direct,
        fdatasync=64,
        # Each block is filled with its own offset.
        verify="pattern",
        verify_pattern="%o",
        do_verify=0,
    )
    assert result.exit_status == 0, result.stderr
    blocks = size // block
    mapped = b"".join(struct.pack("<q", i * block) * (block // 8) for i in range(blocks))
    for device in devices:
        assert device.read_bytes() == image(lines, device, mapped, 4 << 20)
    assert result.counter["writes"] == blocks


@pytest.mark.parametrize("kind", ["file", "block"])
def test_verify_round_trip(run_fio, files, loop_device, table, kind):
    devices = files(2, "4M") if kind == "file" else [loop_device("4M"), loop_device("4M")]
    # Without the zero target: what is written there does not come back.
    lines = [Line(line.start, line.length, line.device or devices[0], line.offset) for line in uneven_table(devices, 200, seed=1)]
    jobs = [{"name": f"{rw}-{bs}", "rw": rw, "bs": bs} for rw in ("write", "randwrite", "randrw") for bs in ("4k", "16k")]
    result = run_fio(
        ENGINE,
        strategy="per-device",
        table=table(lines),
        fdatasync=3,
        verify="crc32c",
        verify_fatal=1,
        filename="mapped",
        jobs=jobs,
        stonewall=True,
    )
    assert result.exit_status == 0, result.stderr
    for job in jobs:
        done = result.of(job["name"])
        assert done.job["error"] == 0
        assert done.counter["reads"] >= done.counter["writes"] > 0


def test_verify_finds_what_changed_behind_the_table(run_fio, files, table):
    (backing,) = files(1, "1M")
    lines = [Line(0, 16, backing, 64), Line(16, 16, backing, 16)]
    options = workload(table=table(lines), strategy="per-device", rw="write", io_size="16k", verify="crc32c")
    assert run_fio(ENGINE, do_verify=0, **options).exit_status == 0
    assert run_fio(ENGINE, verify_only=True, **options).exit_status == 0
    with backing.open("r+b") as file:
        file.seek((16 + 9) * SECTOR)
        file.write(b"\xff")
    again = run_fio(ENGINE, verify_only=True, **options)
    assert again.exit_status == 1
    assert again.job["error"] == 84


def test_zero_targets_read_as_zeros(run_fio, files, table):
    (backing,) = files(1, "1M")
    backing.write_bytes(b"\xff" * (1 << 20))
    lines = [Line(0, 1, backing), Line(1, 6, None), Line(7, 1, backing, 7)]
    options = workload(table=table(lines), strategy="per-device", rw="write", io_size="4k")
    assert run_fio(ENGINE, buffer_pattern="0xaa", **options).exit_status == 0
    assert backing.read_bytes()[: 8 * SECTOR] == b"\xaa" * SECTOR + b"\xff" * (6 * SECTOR) + b"\xaa" * SECTOR
    options |= {"offset": SECTOR, "size": 6 * SECTOR, "bs": SECTOR, "io_size": 6 * SECTOR, "rw": "read"}
    result = run_fio(ENGINE, verify="pattern", verify_pattern="0x00", **options)
    assert result.exit_status == 0, result.stderr
    assert result.counter["reads"] == 6


def test_devices_by_number_and_by_several_names(run_fio, loop_device, table, tmp_path):
    """A device of three names is opened, and flushed, once."""
    device = loop_device("4M")
    number = os.stat(device).st_rdev
    link = tmp_path / "link"
    link.symlink_to(device)
    lines = [
        Line(0, 16, device, 8),
        Line(16, 16, f"{os.major(number)}:{os.minor(number)}", 100),
        Line(32, 16, link, 200),
    ]
    result = run_fio(
        ENGINE, strategy="per-device", table=table(lines), end_fsync=1, buffer_pattern="0xa5", **workload(rw="write", io_size="24k")
    )
    assert result.exit_status == 0, result.stderr
    assert result.counter["flush_calls"] == 1
    data = Path(device).read_bytes()
    for line in lines:
        assert data[line.offset * SECTOR : (line.offset + 16) * SECTOR] == b"\xa5" * (16 * SECTOR)
    assert data.count(b"\xa5") == 48 * SECTOR


def test_a_device_in_the_working_directory(run_fio, files, table):
    """Relative names are those of fio's working directory, as in filename=."""
    (backing,) = files(1, "1M")
    result = run_fio(ENGINE, strategy="per-device", table=table([Line(0, 8, backing.name)]), **workload(io_size="4k"))
    assert result.exit_status == 0, result.stderr


def test_short_transfers(run_fio, files, table, shim):
    """What the system calls leave over is asked for again."""
    preload = shim(
        "#include <unistd.h>\n"
        "#define SHORT(name, type)\\\n"
        "ssize_t name(int fd, type *buf, size_t n, off64_t pos)\\\n"
        "{\\\n"
        "	ssize_t (*next)(int, type *, size_t, off64_t) = dlsym(RTLD_NEXT, #name);\\\n"
        "	return next(fd, buf, n > 1000 ? 1000 : n, pos);\\\n"
        "}\n"
        "SHORT(pwrite64, const void)\n"
        "SHORT(pread64, void)\n"
    )
    devices = files(2, "1M")
    lines = [Line(i * 5, 5, devices[i % 2], i * 7) for i in range(64)]
    result = run_fio(
        ENGINE, strategy="per-device", table=table(lines), verify="crc32c", verify_fatal=1, preload=preload, **workload(rw="write", io_size="128k")
    )
    assert result.exit_status == 0, result.stderr
    assert result.job["write"]["short_ios"] > 0
    assert result.counter["writes"] == result.job["write"]["total_ios"] > 32


# ---- the name of the mapped device ---------------------------------------


@pytest.mark.parametrize("unlink", [0, 1])
@pytest.mark.parametrize("create_serialize", [0, 1])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("good", [True, False])
def test_a_file_of_that_name_is_left_alone(run_fio, files, table, tmp_path, unlink, create_serialize, there, good):
    backing, name = *files(1, "1M"), tmp_path / "mapped"
    if there:
        name.write_bytes(b"mine")
    result = run_fio(
        ENGINE,
        strategy="per-device",
        table=table([Line(0, 800, backing) if good else Line(1, 800, backing)]),
        unlink=unlink,
        unlink_each_loop=unlink,
        overwrite=1,
        fallocate="posix",
        loops=2,
        create_serialize=create_serialize,
        fdatasync=1,
        **workload(filename=name, size="400k"),
    )
    assert (result.exit_status == 0) == good, result.stderr
    assert name.read_bytes() == b"mine" if there else not name.exists()
    assert backing.stat().st_size == 1 << 20


def test_nothing_is_opened_under_that_name(strace_fio, files, table, tmp_path):
    (backing,) = files(1, "1M")
    strace_fio("pwrite64", ENGINE, strategy="per-device", table=table([Line(0, 800, backing)]), **workload(filename=tmp_path / "it"))
    # -y shows the path of a descriptor only, so look for the name in another trace.
    log = (tmp_path / "strace.log").read_text()
    assert str(backing) in log and "/it" not in log


def test_the_size_is_that_of_the_table(run_fio, files, table):
    (backing,) = files(1, "4M")
    lines = [Line(0, 100, backing, 8), Line(100, 60, backing, 4000)]
    result = run_fio(ENGINE, strategy="per-device", table=table(lines), filename="mapped", rw="write", bs="4k")
    assert result.exit_status == 0, result.stderr
    assert result.counter["write_bytes"] == 160 * SECTOR


@pytest.mark.parametrize("rw", ["write", "randwrite"])
def test_a_larger_size_ends_where_a_block_device_ends_it(run_fio, loop_device, table, rw):
    device = loop_device("1M")
    options = {"rw": rw, "bs": "4k", "size": "4M"}
    on_table = run_fio(ENGINE, strategy="per-device", table=table([Line(0, 2048, device)]), filename="mapped", **options)
    on_device = run_fio("psync", filename=device, **options)
    assert on_table.exit_status == on_device.exit_status
    assert on_table.job["write"]["io_bytes"] == on_device.job["write"]["io_bytes"] == 1 << 20


@pytest.mark.parametrize("offset, written", [(100 * SECTOR, 0), (96 * SECTOR, 4 * SECTOR)])
def test_a_replayed_log_ends_where_a_block_device_ends_it(run_fio, files, table, tmp_path, offset, written):
    (backing,) = files(1, "1M")
    log = tmp_path / "log"
    log.write_text(f"fio version 2 iolog\nmapped add\nmapped open\nmapped write {offset} 4096\nmapped close\n")
    result = run_fio(ENGINE, strategy="per-device", table=table([Line(0, 100, backing)]), read_iolog=log)
    assert result.exit_status == 1
    assert result.job["error"] == 28
    assert result.counter["write_bytes"] == written
    assert backing.stat().st_size == 1 << 20
    assert not (tmp_path / "mapped").exists()


def test_the_backing_device_itself_may_give_the_name(run_fio, loop_device, table):
    device = loop_device("16M")
    options = workload(filename=device, strategy="per-device", table=table([Line(0, 800, device, 5)]))
    result = run_fio(ENGINE, **options, size="400k", fdatasync=1, invalidate=1)
    assert result.exit_status == 0, result.stderr
    assert result.counter["writes"] == WRITES


@pytest.mark.parametrize("invalidate", [0, 1])
def test_invalidate_drops_what_the_table_maps(strace_fio, files, table, tmp_path, invalidate):
    one, two = files(2, "1M")
    lines = [Line(0, 512, one, 1024), Line(512, 512, one, 8), Line(1024, 8, two, 0)]
    calls = strace_fio(
        "fadvise64,pread64",
        ENGINE,
        strategy="per-device",
        table=table(lines),
        filename="mapped",
        rw="read",
        bs="4k",
        io_size="4k",
        invalidate=invalidate,
    )
    dropped = [path for name, path in calls if name == "fadvise64"]
    assert dropped == ([str(one), str(two)] if invalidate else [])
    if invalidate:
        log = (tmp_path / "strace.log").read_text()
        assert f"{8 * SECTOR}, {1528 * SECTOR}, POSIX_FADV_DONTNEED" in log
        assert f"0, {8 * SECTOR}, POSIX_FADV_DONTNEED" in log


# ---- jobs ----------------------------------------------------------------


@pytest.mark.parametrize("strategy", BY_TABLE)
@pytest.mark.parametrize("thread", [0, 1])
@pytest.mark.parametrize("create_serialize", [0, 1])
def test_jobs_by_fork_and_by_thread(run_fio, files, table, strategy, thread, create_serialize):
    devices = files(2, "4M")
    lines = uneven_table(devices, 50)
    result = run_fio(
        ENGINE,
        strategy=strategy,
        table=table(lines),
        numjobs=16,
        thread=thread,
        create_serialize=create_serialize,
        group_reporting=1,
        fdatasync=8,
        **workload(),
    )
    assert result.exit_status == 0, result.stderr
    assert result.job["write"]["total_ios"] == 16 * WRITES
    assert sorted(line["subjob"] for line in result.counters) == list(range(16))
    # One of the 50 targets is a zero target.
    flushes = flushes_of_a_sync(strategy, 49, 2) * (WRITES // 8 - 1)
    assert {(line["writes"], line["flush_calls"]) for line in result.counters} == {(WRITES, flushes)}


def test_strategies_side_by_side_in_one_process(run_fio, files, table, tmp_path):
    (backing,) = files(1, "4M")
    tables = table([Line(i * 100, 100, backing, i * 200) for i in range(10)])
    jobs = [
        {"name": "kernel", "strategy": "kernel", "filename": tmp_path / "file", "size": "1M"},
        {"name": "per-target", "strategy": "per-target", "table": tables, "filename": "a"},
        {"name": "per-device", "strategy": "per-device", "table": tables, "filename": "b"},
    ]
    common = {key: value for key, value in workload().items() if key != "filename"}
    result = run_fio(ENGINE, thread=1, fdatasync=1, jobs=jobs, **common)
    assert result.exit_status == 0, result.stderr
    syncs = WRITES - 1
    assert {line["strategy"]: line["flush_calls"] for line in result.counters} == {
        "kernel": syncs,
        "per-target": 10 * syncs,
        "per-device": syncs,
    }
    # A job without a table makes its file as ever.
    assert (tmp_path / "file").stat().st_size == 1 << 20


@pytest.mark.parametrize("strategy", BY_TABLE)
def test_time_based_and_rate(run_fio, files, table, strategy):
    (backing,) = files(1, "4M")
    result = run_fio(
        ENGINE,
        strategy=strategy,
        table=table([Line(i * 8, 8, backing, i * 16) for i in range(64)]),
        time_based=True,
        runtime="1s",
        rate_iops=50,
        fdatasync=1,
        **workload(),
    )
    assert result.exit_status == 0, result.stderr
    assert 0 < result.counter["writes"] <= 60


def test_mixed_load_and_syncs_without_a_table(run_fio, tmp_path):
    result = run_fio(ENGINE, rw="randrw", bs="4k", size="1M", filename=tmp_path / "f", fsync=4, verify="crc32c", verify_fatal=1)
    assert result.exit_status == 0, result.stderr
    assert result.counter["reads"] > 0 and result.counter["writes"] > 0
    assert result.counter["syncs"] == result.job["sync"]["lat_ns"]["N"] > 0


@pytest.mark.parametrize("nrfiles", [1, 3])
def test_a_sync_goes_to_the_file_just_written(strace_fio, tmp_path, nrfiles):
    calls = strace_fio(
        "pwrite64,fdatasync",
        ENGINE,
        directory=tmp_path,
        nrfiles=nrfiles,
        file_service_type="roundrobin",
        fdatasync=1,
        rw="write",
        bs="4k",
        size=12 * 4096,
    )
    io = [(name, path) for name, path in calls if path.startswith(str(tmp_path))]
    syncs = [number for number, (name, _) in enumerate(io) if name == "fdatasync"]
    assert len(syncs) == 11
    for number in syncs:
        assert io[number - 1] == ("pwrite64", io[number][1])


# ---- shared flushes ------------------------------------------------------

# An fdatasync(2) that takes its time, so that others come to wait for it, and
# that does something else once in all processes.
SLOW_FLUSH = """
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
int fdatasync(int fd)
{
	usleep(1000);
	if (open("once", O_CREAT | O_EXCL, 0600) >= 0) {
		%s
	}
	return 0;
}
"""


def sums(result, *keys):
    return [sum(line[key] for line in result.counters) for key in keys]


@pytest.mark.parametrize("strategy", ["kernel", *BY_TABLE])
@pytest.mark.parametrize("thread", [0, 1])
def test_jobs_share_flushes(run_fio, files, table, shim, tmp_path, strategy, thread):
    one, two = files(2, "4M")
    mapped = {"table": table(uneven_table([one, two], 50))} if strategy != "kernel" else {"filename": tmp_path / "file", "size": "1M"}
    options = workload(strategy=strategy, thread=thread, numjobs=16, coalesce=1, fdatasync=4, preload=shim(SLOW_FLUSH % ""))
    result = run_fio(ENGINE, **{**options, **mapped})
    assert result.exit_status == 0, result.stderr
    assert len(result.counters) == 16
    syncs, calls, shared = sums(result, "syncs", "flush_calls", "flushes_shared")
    assert syncs == 16 * (WRITES // 4 - 1)
    assert calls + shared == syncs * (1 if strategy == "kernel" else flushes_of_a_sync(strategy, 49, 2))
    assert shared > 0


def test_jobs_of_different_tables_share_a_device(run_fio, files, table, shim, tmp_path):
    """No device is ever flushed by three of them at a time, be they processes or threads."""
    preload = shim(
        "#include <fcntl.h>\n"
        "#include <stdio.h>\n"
        "#include <sys/stat.h>\n"
        "#include <unistd.h>\n"
        "int fdatasync(int fd)\n"
        "{\n"
        "	struct stat st;\n"
        "	char busy[32];\n"
        "	int i, file = -1;\n"
        "	fstat(fd, &st);\n"
        "	for (i = 0; i < 2 && file < 0; i++) {\n"
        "		sprintf(busy, \"busy-%lu-%d\", (unsigned long)st.st_ino, i);\n"
        "		file = open(busy, O_CREAT | O_EXCL, 0600);\n"
        "	}\n"
        "	if (file < 0)\n"
        "		creat(\"three-at-a-time\", 0600);\n"
        "	close(file);\n"
        "	usleep(1000);\n"
        "	unlink(busy);\n"
        "	return 0;\n"
        "}\n"
    )
    one, two = files(2, "1M")
    jobs = [
        {"name": "first", "table": table([Line(0, 800, one)])},
        {"name": "second", "table": table([Line(0, 400, two), Line(400, 400, one, 800)]), "thread": 1},
    ]
    options = workload(strategy="per-device", fdatasync=1, jobs=jobs, numjobs=4, preload=preload)
    result = run_fio(ENGINE, coalesce=1, **options)
    assert result.exit_status == 0, result.stderr
    syncs, calls, shared = sums(result, "syncs", "flush_calls", "flushes_shared")
    assert syncs == 8 * (WRITES - 1)
    assert calls + shared == syncs // 2 * (1 + 2)
    assert shared > 0
    assert not (tmp_path / "three-at-a-time").exists()
    # Without coalesce=1 they do.
    assert run_fio(ENGINE, **options).exit_status == 0
    assert (tmp_path / "three-at-a-time").exists()


@pytest.mark.parametrize("coalesce", [0, 1])
def test_one_job_shares_with_nobody(run_fio, loop_device, executed, table, coalesce):
    device = loop_device()
    run = {}

    def go():
        lines = table([Line(0, 8000, device)])
        run["result"] = run_fio(ENGINE, strategy="per-device", coalesce=coalesce, table=lines, fdatasync=1, end_fsync=1, **workload())

    done = executed(device, go)
    expected = {"syncs": WRITES, "flush_calls": WRITES, "flushes_shared": 0, "error": 0}
    assert {key: run["result"].counter[key] for key in expected} == expected
    assert done["flushes"] == WRITES
    assert done["write_sectors"] == WRITES * 8


@pytest.mark.parametrize("strategy", ["kernel", "per-device"])
def test_the_device_executes_the_flushes_that_are_made(run_fio, loop_device, executed, table, strategy):
    device = loop_device()
    mapped = {"table": table([Line(0, 8000, device)])} if strategy == "per-device" else {"filename": device, "size": "1M"}
    run = {}

    def go():
        run["result"] = run_fio(ENGINE, **{**workload(strategy=strategy, coalesce=1, numjobs=8, fdatasync=1), **mapped})

    done = executed(device, go)
    assert run["result"].exit_status == 0, run["result"].stderr
    syncs, calls, shared = sums(run["result"], "syncs", "flush_calls", "flushes_shared")
    assert syncs == calls + shared == 8 * (WRITES - 1)
    # Two at a time, which the kernel may merge.
    assert calls // 2 <= done["flushes"] <= calls


@pytest.mark.parametrize("strategy", ["kernel", *BY_TABLE])
@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_the_system_calls_of_a_shared_sync(strace_fio, files, table, strategy, sync):
    """A flush of the devices below writes back their page cache: nothing else does."""
    devices = [str(path) for path in files(2, "4M")]
    lines = [Line(i * 100, 100, devices[i // 20], (i % 20) * 200) for i in range(30)]
    mapped = {"table": table(lines)} if strategy != "kernel" else {"filename": devices[0]}
    calls = strace_fio(
        "pwrite64,sync_file_range,fsync,fdatasync",
        ENGINE,
        strategy=strategy,
        coalesce=1,
        **{**workload(rw="write", io_size=8 * 4096, size=8 * 4096), **mapped},
        **{sync: 4},
    )
    io = [call for call in calls if call[1] in devices]
    flushes = {"kernel": (1, 0), "per-target": (20, 10), "per-device": (1, 1)}[strategy]
    writes = [("pwrite64", devices[0])] * 4
    assert io[:4] == io[-4:] == writes
    assert sorted(io[4:-4]) == sorted((sync, device) for device, n in zip(devices, flushes) for _ in range(n))


@pytest.mark.parametrize("strategy", ["kernel", *BY_TABLE])
def test_a_job_that_is_killed_in_its_flush_blocks_nobody(run_fio, files, table, shim, tmp_path, strategy):
    if sanitizer_environment(ENGINES / f"fio-{ENGINE}.so"):
        pytest.skip("fio 3.33 itself frees the options of a killed job twice, which ends it under ASan")
    one, two = files(2, "1M")
    mapped = {"table": table([Line(0, 400, one), Line(400, 400, two)])} if strategy != "kernel" else {"filename": tmp_path / "file", "size": "1M"}
    options = workload(strategy=strategy, coalesce=1, fdatasync=1, numjobs=16, preload=shim(SLOW_FLUSH % "raise(SIGKILL);"))
    result = run_fio(ENGINE, **{**options, **mapped})
    # fio's exit status tells nothing of it: 0, or that of fio's crash where it frees the options of a killed job twice.
    assert "got signal=9" in result.stderr + result.stdout + (tmp_path / "fio-1.json").read_text()
    assert len(result.counters) == 15
    assert {(line["error"], line["syncs"]) for line in result.counters} == {(0, WRITES - 1)}


@pytest.mark.parametrize("strategy", BY_TABLE)
def test_a_shared_flush_that_fails_fails_for_all(run_fio, files, table, shim, strategy):
    """What any of them wrote before may have been lost by it. It fails once each job has written."""
    preload = shim(
        "#include <errno.h>\n"
        "#include <fcntl.h>\n"
        "#include <sys/stat.h>\n"
        "#include <unistd.h>\n"
        "ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t pos)\n"
        "{\n"
        "	ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, \"pwrite64\");\n"
        "	static int writers;\n"
        "	if (!writers) {\n"
        "		writers = open(\"writers\", O_CREAT | O_APPEND | O_WRONLY, 0600);\n"
        "		write(writers, \"x\", 1);\n"
        "	}\n"
        "	return next(fd, buf, n, pos);\n"
        "}\n"
        "int fdatasync(int fd)\n"
        "{\n"
        "	struct stat st;\n"
        "	usleep(1000);\n"
        "	if (stat(\"writers\", &st) || st.st_size < 8 || open(\"once\", O_CREAT | O_EXCL, 0600) < 0)\n"
        "		return 0;\n"
        "	errno = EIO;\n"
        "	return -1;\n"
        "}\n"
    )
    one, two = files(2, "1M")
    lines = table([Line(0, 400, one), Line(400, 400, two)])
    options = workload(strategy=strategy, table=lines, numjobs=8, fdatasync=1, io_size="16M", preload=preload)
    result = run_fio(ENGINE, coalesce=1, **options)
    assert result.exit_status != 0
    assert [line["error"] for line in result.counters] == [5] * 8
    assert all(line["syncs"] < 4095 for line in result.counters)


# ---- refusals and errors -------------------------------------------------


@pytest.mark.parametrize(
    "lines, message",
    [
        (["0 800 linear {backing} 0", "", "# a gap", "801 8 linear {backing} 0"], ":4: starts at sector 801, not at 800; "),
        (["0 800 linear {backing} 0", "792 8 linear {backing} 0"], ":2: starts at sector 792, not at 800; "),
        (["0 0 linear {backing} 0"], ":1: has a length of 0; "),
        (["0 8 linear {backing}"], ':1: "linear" is followed by a device and an offset, and nothing else'),
        (["0 8 linear {backing} 0 ro"], ':1: "linear" is followed by a device and an offset, and nothing else'),
        (["0 8 linear {backing} 4k"], ':1: offset "4k" is not a number of sectors'),
        (["0 8 striped 1 8 {backing} 0"], ':1: target type "striped" is not supported; linear and zero are'),
        (["hello"], ":1: is not a target; "),
        ([], ":0: the table ends without a linear target"),
        (["0 8 zero"], ":1: the table ends without a linear target"),
        (["0 8 linear /nonexistent/device 0"], ":1: device /nonexistent/device: No such file or directory; "),
        (["0 8 linear 4095:77 0"], ":1: 4095:77 is not the number of a block device here; "),
        (["0 8 linear /dev/null 0"], ":1: /dev/null is neither a block device nor a regular file"),
        (["0 8 linear / 0"], ":1: / is neither a block device nor a regular file"),
        (["0 800 linear {backing} 0", "800 8 linear {backing} 2041"], ":2: ends at sector 2049 of {backing}, which has 2048; "),
    ],
)
@pytest.mark.parametrize("create_serialize", [1, 0])
def test_a_mistake_in_the_table(run_fio, files, table, lines, message, create_serialize):
    (backing,) = files(1, "1M")
    path = table(line.format(backing=backing) for line in lines)
    result = run_fio(ENGINE, strategy="per-device", table=path, create_serialize=create_serialize, **workload())
    assert result.exit_status == 1
    assert result.job["error"] == 22 or not create_serialize
    assert f"{path}{message.format(backing=backing)}" in result.stderr
    assert result.stderr.count(f"fio-{ENGINE}:") == 1
    assert backing.read_bytes() == bytes(1 << 20)
    assert result.counters == []


def test_clones_say_it_once(run_fio, table):
    result = run_fio(ENGINE, strategy="per-device", table=table(["hello"]), numjobs=16, **workload())
    assert result.exit_status != 0
    assert result.stderr.count(f"fio-{ENGINE}:") == 1


@pytest.mark.parametrize("missing, message", [("nope", "No such file or directory"), (".", ".:1: Is a directory")])
def test_no_table_to_be_read(run_fio, missing, message):
    result = run_fio(ENGINE, strategy="per-device", table=missing, size="1M", **workload())
    assert result.exit_status == 1
    assert message in result.stderr
    assert result.stderr.count(f"fio-{ENGINE}:") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"strategy": "kernel"}, "strategy=kernel is about a table in the kernel; with table= take per-target or per-device"),
        ({"filename": "a:b"}, "is for one mapped device; give one filename="),
        ({"iodepth": 4}, "submits one I/O at a time"),
        ({"rw": "randtrim"}, "trims are not supported"),
        ({"sync": "dsync"}, "remove sync="),
        ({"io_submit_mode": "offload"}, "io_submit_mode=offload is not supported"),
        ({"counters": "/nonexistent/counters"}, "counters=/nonexistent/counters: No such file"),
    ],
)
def test_refused_before_any_io(run_fio, files, table, options, message):
    (backing,) = files(1, "1M")
    lines = table([Line(0, 800, backing)])
    result = run_fio(ENGINE, **{**workload(), "strategy": "per-target", "table": lines, **options})
    assert result.exit_status == 1
    assert message in result.stderr
    assert result.stderr.count(f"fio-{ENGINE}:") == 1
    assert backing.read_bytes() == bytes(1 << 20)
    assert result.counters == []


def test_a_shared_sync_is_of_one_file(run_fio, tmp_path):
    result = run_fio(ENGINE, strategy="kernel", coalesce=1, directory=tmp_path, nrfiles=2, rw="write", size="1M", fdatasync=1)
    assert result.exit_status == 1
    assert "coalesce=1 with strategy=kernel is for one mapped device; give one filename=" in result.stderr
    assert result.stderr.count(f"fio-{ENGINE}:") == 1


@pytest.mark.parametrize("strategy", BY_TABLE)
@pytest.mark.parametrize("kind", ["file", "block"])
def test_neither_a_table_nor_a_dm_device(run_fio, loop_device, tmp_path, strategy, kind):
    target = loop_device() if kind == "block" else tmp_path / "file"
    result = run_fio(ENGINE, strategy=strategy, **workload(filename=target, size="1M"))
    assert result.exit_status == 1
    assert f"strategy={strategy}: {target} is not a device-mapper device; name one in filename=, or give a table=" in result.stderr
    assert result.stderr.count(f"fio-{ENGINE}:") == 1


def test_a_mounted_device_is_refused(run_fio, loop_device, table, tmp_path):
    device = loop_device("64M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    # Sectors of the file system that hold nothing yet.
    lines = table(["0 8 linear {} 0".format(loop_device()), f"8 8 linear {device} 100000"])
    point = tmp_path / "point"
    point.mkdir()
    subprocess.run(["mount", device, point], check=True)
    try:
        options = workload(strategy="per-device", table=lines, io_size="8k")
        refused = run_fio(ENGINE, **options)
        assert refused.exit_status == 1
        assert f"{device} is in use: {os.path.basename(device)} is mounted on {point}" in refused.stderr
        assert refused.stderr.count(f"fio-{ENGINE}:") == 1
        assert run_fio(ENGINE, **{**options, "rw": "read"}).exit_status == 0
        for option in ({"allow_mounted_write": 1}, {"destroy": tmp_path / "loop-0.img"}, {"create_serialize": 0}):
            assert run_fio(ENGINE, **options, **option).exit_status == 1
    finally:
        subprocess.run(["umount", point], check=True)


@pytest.mark.parametrize("strategy", BY_TABLE)
def test_io_error(run_fio, broken_device, table, strategy):
    """Buffered writes go well; writing back fails."""
    lines = [Line(i * 1024, 1024, broken_device, i * 1024) for i in range(64)]
    result = run_fio(ENGINE, strategy=strategy, table=table(lines), filename="mapped", rw="write", bs="64k", size="8M", fdatasync=4)
    assert result.exit_status == 1
    assert result.job["error"] in (5, 28)
    assert result.counter["error"] == result.job["error"]
    assert result.counter["syncs"] < 32


def test_a_flush_that_fails(run_fio, files, table, shim):
    """One of many concurrent flushes; a shim stands for the device."""
    preload = shim(
        "#include <errno.h>\n"
        "#include <stdatomic.h>\n"
        "int fdatasync(int fd)\n"
        "{\n"
        "	static atomic_int calls;\n"
        "	if (++calls != 70)\n"
        "		return 0;\n"
        "	errno = EIO;\n"
        "	return -1;\n"
        "}\n"
    )
    (backing,) = files(1, "1M")
    lines = [Line(i * 8, 8, backing, i * 8) for i in range(100)]
    result = run_fio(ENGINE, strategy="per-target", table=table(lines), fdatasync=1, preload=preload, **workload())
    assert result.exit_status == 1
    assert result.job["error"] == 5
    expected = {"error": 5, "writes": 1, "syncs": 0, "flush_calls": 100}
    assert {key: result.counter[key] for key in expected} == expected


def test_threads_that_can_t_be_made(run_fio, files, table, shim):
    """A container limits its processes; a shim stands for it."""
    preload = shim(
        "#include <errno.h>\n"
        "#include <pthread.h>\n"
        "int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *d)\n"
        "{\n"
        "	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, \"pthread_create\");\n"
        "	size_t stack = 0;\n"
        "	if (a)\n"
        "		pthread_attr_getstacksize(a, &stack);\n"
        "	return stack == 256 << 10 ? EAGAIN : next(t, a, f, d);\n"
        "}\n"
    )
    (backing,) = files(1, "1M")
    options = workload(table=table([Line(0, 8, backing), Line(8, 8, backing, 8)]), io_size="8k", end_fsync=1, preload=preload)
    refused = run_fio(ENGINE, strategy="per-target", **options)
    assert refused.exit_status == 1
    assert "the threads for concurrent flushes can't be made: Resource temporarily unavailable; raise the limits" in refused.stderr
    # A single flush is done by the job itself.
    assert run_fio(ENGINE, strategy="per-device", **options).counter["flush_calls"] == 1


def test_misaligned_direct_io(run_fio, loop_device, table):
    """A border in the middle of a logical block of the device."""
    device = loop_device("4M", sector_size=4096)
    lines = [Line(0, 9, device, 0), Line(9, 7, device, 16)]
    options = workload(strategy="per-device", table=table(lines), rw="write", io_size="8k")
    assert run_fio(ENGINE, **options).exit_status == 0
    result = run_fio(ENGINE, direct=1, **options)
    assert result.exit_status == 1
    assert result.job["error"] == 22
    assert "refused: bs= and offsets must be multiples" in result.stderr


def test_readonly_run_refuses_to_write(run_fio, files, table):
    (backing,) = files(1, "1M")
    result = run_fio(ENGINE, strategy="per-device", table=table([Line(0, 800, backing)]), args=["--readonly"], **workload())
    assert result.exit_status != 0
    assert backing.read_bytes() == bytes(1 << 20)


def test_help_of_every_option(engine_help):
    options = dict(line.split(":", 1) for line in engine_help(ENGINE).splitlines())
    assert {name.strip() for name in options} == {"strategy", "table", "coalesce", "destroy", "counters"}
    assert all(len(text) > 20 for text in options.values())

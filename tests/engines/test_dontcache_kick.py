# SPDX-License-Identifier: GPL-2.0-only
"""dontcache-kick inside fio: what each strategy submits and from which thread,
what is left in the page cache, and what an error looks like."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest

from conftest import ENGINES, sanitizer_environment
from strategies import takes_dontcache

STRATEGIES = ["buffered", "dontcache", "inline", "kick", "direct"]
SUBMITS = ["pwritev2", "io_uring"]
DROPPING = ["dontcache", "inline", "kick"]

ENGINE = "dontcache-kick"
BLOCK = 64 << 10
WRITES = 256


def workload(**more):
    return {"rw": "write", "bs": BLOCK, "size": WRITES * BLOCK, **more}


def need_strategy(strategy: str, path: Path | str) -> None:
    """Skip what the running kernel can't do on the file system of a folder, or
    on a device; a file is looked at since folders are never read this way."""
    if strategy != "dontcache":
        return
    probe = Path(path)
    if probe.is_dir():
        probe = probe / "probe"
        probe.touch()
    if not takes_dontcache(probe):
        pytest.skip(f"Linux {os.uname().release} has no RWF_DONTCACHE for {path}")


@pytest.fixture(params=["ext4", "xfs"])
def folder(request, mount) -> Path:
    return mount(request.param, "512M")


@pytest.fixture
def disk(mount) -> Path:
    """A folder on a file system that has writeback and knows RWF_DONTCACHE."""
    return mount("xfs", "512M")


def resident(path: Path) -> int:
    """Bytes of a file that are in the page cache."""
    done = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output=RES", path], capture_output=True, text=True, check=True
    )
    return int(done.stdout or 0)


def keeps(run, path: Path):
    """The result of a job that leaves a file in the page cache; up to three
    times, since who measures meanwhile may drop all of the machine's."""
    for _ in range(3):
        result = run()
        if resident(path) == WRITES * BLOCK:
            break
    return result


def settled(path: Path, limit: int) -> int:
    """The same, when it has come down to a limit or will not: the kernel drops
    pages when their writeback ends, which may be after the writer has."""
    for _ in range(50):
        if resident(path) <= limit:
            break
        time.sleep(0.1)
    return resident(path)


def uncached_file(path: Path) -> Path:
    """A file of zeroes as long as a workload; none of it is in the page cache."""
    with path.open("wb") as file:
        file.write(bytes(WRITES * BLOCK))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def check(result) -> None:
    assert result.exit_status == 0, result.stderr
    assert result.stderr == ""


def assert_counters(counter: dict, strategy: str, writes: int = WRITES, block: int = BLOCK) -> None:
    written = writes * block
    worked = written if strategy in ("inline", "kick") else 0
    expected = {
        "strategy": strategy,
        "error": 0,
        "writes": writes,
        "write_bytes": written,
        "durable_writes": 0,
        "flush_calls": 0,
        "writeback_bytes": worked,
        "dropped_bytes": worked,
    }
    assert {key: counter[key] for key in expected} == expected
    if strategy == "kick":
        assert counter["kicks"] > 0
        assert counter["kicks"] + counter["kicks_coalesced"] == writes
    else:
        assert counter["kicks"] == counter["kicks_coalesced"] == counter["throttled"] == 0


# ---- what it does ----------------------------------------------------------


@pytest.mark.parametrize("submit", SUBMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_on_a_file(run_fio, folder, strategy, submit):
    """What is counted, what stays in the page cache, and what is in the file."""
    need_strategy(strategy, folder)
    target = folder / "f"
    options = dict(strategy=strategy, submit=submit, filename=target, buffer_pattern="0xa5", offset="8k", **workload())
    run = functools.partial(run_fio, ENGINE, **options)
    result = keeps(run, target) if strategy == "buffered" else run()
    check(result)
    assert result.job["write"]["total_ios"] == WRITES
    assert result.job["write"]["short_ios"] == 0
    assert_counters(result.counter, strategy)
    if strategy == "buffered":
        assert resident(target) == WRITES * BLOCK
    else:
        assert settled(target, WRITES * BLOCK // 100) <= WRITES * BLOCK // 100
    assert target.read_bytes() == bytes(8192) + b"\xa5" * (WRITES * BLOCK)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_random_writes_at_depth(run_fio, disk, strategy):
    need_strategy(strategy, disk)
    result = run_fio(
        ENGINE,
        strategy=strategy,
        submit="io_uring",
        iodepth=16,
        filename=disk / "f",
        **workload(rw="randwrite", bs="4k", size="8M"),
    )
    check(result)
    assert result.job["write"]["clat_ns"]["N"] == 2048
    assert_counters(result.counter, strategy, writes=2048, block=4096)
    if strategy != "buffered":
        assert settled(disk / "f", 64 << 10) <= 64 << 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_on_a_block_device(run_fio, loop_device, strategy):
    device = loop_device()
    need_strategy(strategy, device)
    jobs = [{"name": submit, "submit": submit} for submit in SUBMITS]
    result = run_fio(ENGINE, strategy=strategy, filename=device, jobs=jobs, stonewall=True, **workload())
    check(result)
    for submit in SUBMITS:
        assert_counters(result.of(submit).counter, strategy)


@pytest.mark.parametrize("submit", SUBMITS)
@pytest.mark.parametrize("strategy", ["buffered", "dontcache", "direct"])
def test_what_a_read_leaves_in_the_page_cache(run_fio, disk, strategy, submit):
    need_strategy(strategy, disk)
    target = uncached_file(disk / "f")
    run = functools.partial(run_fio, ENGINE, strategy=strategy, submit=submit, filename=target, **workload(rw="read"))
    result = keeps(run, target) if strategy == "buffered" else run()
    check(result)
    assert result.counter["read_bytes"] == WRITES * BLOCK
    assert resident(target) == (WRITES * BLOCK if strategy == "buffered" else 0)


@pytest.mark.parametrize("strategy", ["inline", "kick"])
@pytest.mark.parametrize("bs", [512, 1000, 5000])
def test_writes_that_are_no_pages(run_fio, disk, strategy, bs):
    """Pages are shared by writes then, and dropped in between."""
    target = disk / "f"
    result = run_fio(
        ENGINE, strategy=strategy, filename=target, verify="crc32c", rw="write", bs=bs, size=bs * 400, verify_fatal=1
    )
    check(result)
    assert result.counter["write_bytes"] == bs * 400
    assert result.counter["read_bytes"] == bs * 400


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_verify_round_trip(run_fio, disk, strategy):
    need_strategy(strategy, disk)
    jobs = [
        {"name": f"{rw}-{submit}", "rw": rw, "submit": submit, "iodepth": 16 if submit == "io_uring" else 1, "filename": disk / f"{rw}-{submit}"}
        for rw in ("write", "randrw")
        for submit in SUBMITS
    ]
    result = run_fio(ENGINE, strategy=strategy, verify="crc32c", verify_fatal=1, bs="4k", size="4M", jobs=jobs, stonewall=True)
    check(result)
    for job in jobs:
        done = result.of(job["name"])
        assert done.job["error"] == 0
        assert done.counter["reads"] >= done.counter["writes"] > 0


@pytest.mark.parametrize("strategy", ["inline", "kick"])
def test_overwrites_reach_the_file(run_fio, disk, strategy):
    """The same few pages again and again, while they are in writeback."""
    target = disk / "f"
    result = run_fio(
        ENGINE,
        strategy=strategy,
        filename=target,
        rw="randwrite",
        norandommap=True,
        bs="4k",
        size="64k",
        io_size="16M",
        kick_backlog="32k",
        verify="crc32c",
        verify_fatal=1,
    )
    check(result)
    assert result.counter["writes"] == 4096
    assert 0 < result.counter["writeback_bytes"] <= result.counter["write_bytes"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_jobs_by_fork_and_by_thread(run_fio, disk, strategy):
    need_strategy(strategy, disk)
    ways = {"processes": 0, "threads": 1}
    jobs = [{"name": name, "thread": thread} for name, thread in ways.items()]
    result = run_fio(ENGINE, strategy=strategy, directory=disk, numjobs=4, jobs=jobs, stonewall=True, group_reporting=1, **workload())
    check(result)
    for name in ways:
        done = result.of(name)
        assert done.job["write"]["total_ios"] == 4 * WRITES
        assert sorted(line["subjob"] for line in done.counters) == [0, 1, 2, 3]
        for line in done.counters:
            assert_counters(line, strategy)


def test_strategies_side_by_side_in_one_process(run_fio, disk):
    """thread=1: jobs of all strategies share the engine's static data."""
    need_strategy("dontcache", disk)
    jobs = [
        {"name": f"{strategy}-{submit}", "strategy": strategy, "submit": submit, "filename": disk / f"{strategy}-{submit}"}
        for strategy in STRATEGIES
        for submit in SUBMITS
    ]
    result = run_fio(ENGINE, thread=1, jobs=jobs, **workload(size=32 * BLOCK))
    check(result)
    assert len(result.counters) == len(jobs)
    for line in result.counters:
        assert line["job"].startswith(line["strategy"])
        assert_counters(line, line["strategy"], writes=32)


@pytest.mark.parametrize("strategy", ["dontcache", "kick"])
def test_time_based_and_rate(run_fio, disk, strategy):
    need_strategy(strategy, disk)
    result = run_fio(
        ENGINE, strategy=strategy, filename=disk / "f", time_based=True, runtime="1s", rate_iops=50, **workload()
    )
    check(result)
    assert 0 < result.counter["writes"] <= 60


@pytest.mark.parametrize("strategy", ["inline", "kick"])
def test_files_closed_and_opened_again(run_fio, disk, strategy):
    """A closed file's ranges are still queued when its descriptor is reused."""
    result = run_fio(
        ENGINE,
        strategy=strategy,
        directory=disk,
        nrfiles=16,
        openfiles=1,
        file_service_type="sequential",
        loops=4,
        **workload(size=1 << 20, bs="4k"),
    )
    check(result)
    assert_counters(result.counter, strategy, writes=1024, block=4096)
    assert sum(resident(path) for path in disk.iterdir()) == 0


# ---- which thread calls what -----------------------------------------------


Threads = dict[str, list[tuple[str, str, str]]]


def traced(run_fio, tmp_path, calls: str, **options) -> tuple[Threads, list[str]]:
    """Run under strace: {thread: [(call, path, arguments)]} of what is done to
    files on the test's file systems, and the threads that write. fio's own
    advice about the file is left out."""
    log = tmp_path / "strace.log"
    command = ["strace", "-f", "-y", "-qq", "-e", "signal=none", "-e", f"trace={calls}", "-o", log]
    result = run_fio(ENGINE, under=command, invalidate=0, fadvise_hint=0, **options)
    assert result.exit_status == 0, result.stderr
    threads = defaultdict(list)
    for thread, call, path, arguments in re.findall(r"^(\d+) +(\w+)\(\d+<([^>]*)>(.*)", log.read_text(), re.MULTILINE):
        if path.startswith(str(tmp_path)) and "mnt-" in path:
            threads[thread].append((call, path, arguments))
    writers = [thread for thread, seen in threads.items() if any(call.startswith("pwrite") for call, _, _ in seen)]
    return threads, writers


ALL_CALLS = "pwrite64,pwritev2,sync_file_range,fadvise64,fsync,fdatasync"


def names(seen: list[tuple[str, str, str]]) -> dict[str, int]:
    count: dict[str, int] = defaultdict(int)
    for call, _, _ in seen:
        count[call] += 1
    return dict(count)


@pytest.mark.parametrize(
    "strategy, expected",
    [
        ("buffered", {"pwrite64": WRITES}),
        ("dontcache", {"pwritev2": WRITES}),
        ("direct", {"pwrite64": WRITES}),
        ("kick", {"pwrite64": WRITES}),
    ],
)
def test_a_writer_only_writes(run_fio, disk, tmp_path, strategy, expected):
    need_strategy(strategy, disk)
    threads, writers = traced(
        run_fio, tmp_path, ALL_CALLS, strategy=strategy, filename=uncached_file(disk / "f"), **workload()
    )
    assert len(writers) == 1
    assert names(threads[writers[0]]) == expected
    if strategy == "dontcache":
        assert all(re.search(r"RWF_DONTCACHE|0x80\b", arguments) for _, _, arguments in threads[writers[0]])
    assert len(threads) == (2 if strategy == "kick" else 1)


def test_inline_starts_writeback_once_a_write(run_fio, disk, tmp_path):
    threads, writers = traced(
        run_fio, tmp_path, ALL_CALLS, strategy="inline", filename=uncached_file(disk / "f"), **workload()
    )
    (seen,) = threads.values()
    flags = [arguments for call, _, arguments in seen if call == "sync_file_range"]
    # The one that waits is for the whole file, when it is closed.
    assert ["WAIT" in each for each in flags] == [False] * WRITES + [True]
    calls = [call for call, _, _ in seen]
    for number, call in enumerate(calls):
        if call == "pwrite64":
            assert calls[number + 1] == "sync_file_range"


def test_kick_writes_back_in_another_thread(run_fio, disk, tmp_path):
    threads, writers = traced(
        run_fio, tmp_path, ALL_CALLS, strategy="kick", filename=uncached_file(disk / "f"), **workload()
    )
    (flusher,) = set(threads) - set(writers)
    count = names(threads[flusher])
    assert set(count) == {"sync_file_range", "fadvise64"}
    # One to start, one to wait, one to drop, for what is merged of the writes.
    assert count["sync_file_range"] == 2 * count["fadvise64"]
    assert 1 <= count["fadvise64"] <= WRITES


@pytest.mark.parametrize("thread", [0, 1])
def test_a_flusher_for_each_file_system(run_fio, mount, tmp_path, thread):
    first, second = mount("xfs", "512M"), mount("ext4", "64M")
    files = [uncached_file(path) for path in (first / "a", second / "b", first / "c")]
    threads, writers = traced(
        run_fio,
        tmp_path,
        ALL_CALLS,
        strategy="kick",
        thread=thread,
        filename=":".join(map(str, files)),
        **workload(size=3 * 32 * BLOCK),
    )
    flushers = set(threads) - set(writers)
    seen = sorted(sorted({path for _, path, _ in threads[flusher]}) for flusher in flushers)
    assert seen == sorted([[str(files[0]), str(files[2])], [str(files[1])]])


# ---- the backlog -------------------------------------------------------------


@pytest.mark.parametrize("submit", SUBMITS)
def test_a_writer_waits_at_the_backlog(run_fio, disk, submit):
    """Each write is more than the backlog, so it waits to be written back."""
    result = run_fio(
        ENGINE, strategy="kick", submit=submit, filename=disk / "f", kick_backlog="4k", **workload()
    )
    check(result)
    assert_counters(result.counter, "kick")
    assert WRITES // 2 <= result.counter["throttled"] <= WRITES
    assert result.counter["throttled_ns"] > 0


def test_a_slow_writer_never_waits(run_fio, disk):
    result = run_fio(ENGINE, strategy="kick", filename=disk / "f", rate_iops=200, **workload(size=32 * BLOCK))
    check(result)
    assert_counters(result.counter, "kick", writes=32)
    assert result.counter["throttled"] == 0


# ---- syncs -------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sync_goes_to_the_file_just_written(run_fio, disk, tmp_path, strategy, sync):
    need_strategy(strategy, disk)
    threads, writers = traced(
        run_fio,
        tmp_path,
        f"pwrite64,pwritev2,{sync}",
        strategy=strategy,
        directory=disk,
        nrfiles=3,
        file_service_type="roundrobin",
        **{sync: 1},
        **workload(size=12 * BLOCK),
    )
    (seen,) = (threads[writer] for writer in writers)
    syncs = [number for number, (call, _, _) in enumerate(seen) if call == sync]
    # A sync comes before the next write, so there is none after the last.
    assert len(syncs) == 11
    for number in syncs:
        call, path, _ = seen[number - 1]
        assert call.startswith("pwrite") and path == seen[number][1]
    assert len({path for _, path, _ in seen}) == 3


@pytest.mark.parametrize("submit", SUBMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_syncs_are_counted_and_make_durable(run_fio, loop_device, executed, strategy, submit):
    device = loop_device()
    need_strategy(strategy, device)
    results = []
    done = executed(
        device,
        lambda: results.append(
            run_fio(ENGINE, strategy=strategy, submit=submit, filename=device, fdatasync=8, end_fsync=1, **workload())
        ),
    )
    (result,) = results
    check(result)
    # fio does not count end_fsync.
    assert result.counter["syncs"] == result.job["sync"]["lat_ns"]["N"] + 1 >= WRITES // 8
    assert result.counter["flush_calls"] == result.counter["syncs"]
    assert done["flushes"] >= 1
    assert done["write_sectors"] == WRITES * BLOCK // 512


# ---- refusals and errors -----------------------------------------------------


@pytest.mark.parametrize("strategy", DROPPING)
def test_what_tmpfs_can_not_do(run_fio, mount, strategy):
    target = mount("tmpfs", "64M") / "f"
    result = run_fio(ENGINE, strategy=strategy, filename=target, nrfiles=1, **workload())
    assert result.exit_status == 1
    assert result.job["error"] == 95
    assert result.stderr.count("fio-dontcache-kick:") == 1
    assert f"{target}: strategy={strategy}" in result.stderr
    assert "tmpfs" in result.stderr
    if strategy == "dontcache":
        assert os.uname().release in result.stderr and "another file system" in result.stderr
    else:
        assert "strategy=buffered" in result.stderr
    assert result.counter["writes"] == 0


@pytest.mark.parametrize("submit", SUBMITS)
def test_what_tmpfs_can_do(run_fio, mount, submit):
    target = mount("tmpfs", "64M") / "f"
    result = run_fio(ENGINE, strategy="buffered", submit=submit, filename=target, verify="crc32c", **workload())
    check(result)
    assert_counters(result.counter, "buffered")


@pytest.mark.parametrize("strategy", ["inline", "kick"])
def test_overlayfs_has_no_writeback_of_its_own(run_fio, disk, tmp_path, strategy):
    lower, upper, work, point = (disk / name for name in ("lower", "upper", "work", "merged"))
    for folder in (lower, upper, work, point):
        folder.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    done = subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", point], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"overlayfs can't be mounted here: {done.stderr.strip()}")
    try:
        result = run_fio(ENGINE, strategy=strategy, filename=point / "f", **workload())
    finally:
        subprocess.run(["umount", point], check=True)
    assert result.exit_status == 1
    assert "starts no writeback on overlayfs" in result.stderr


def test_a_device_without_dontcache(run_fio, loop_device):
    device = loop_device()
    if takes_dontcache(device):
        pytest.skip("this kernel has RWF_DONTCACHE for block devices")
    result = run_fio(ENGINE, filename=device, **workload())
    assert result.exit_status == 1
    assert result.job["error"] == 95
    assert f"{device}: strategy=dontcache: Linux {os.uname().release} has no RWF_DONTCACHE for block devices; take strategy=kick" in result.stderr
    assert result.stderr.count("fio-dontcache-kick:") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rw": "randtrim"}, "trims are not supported"),
        ({"io_submit_mode": "offload"}, "io_submit_mode=offload is not supported"),
        ({"sync": "dsync"}, "remove sync="),
        ({"sync_file_range": "write:8"}, "take fdatasync= or fsync="),
        ({"iodepth": 4}, "iodepth=4 needs submit=io_uring"),
        ({"direct": 1}, "remove direct=1, or take strategy=direct"),
        ({"direct": 1, "strategy": "buffered"}, "remove direct=1, or take strategy=direct"),
        ({"counters": "/nonexistent/counters"}, "counters=/nonexistent/counters: No such file"),
    ],
)
def test_refused_before_any_io(run_fio, tmp_path, options, message):
    target = tmp_path / "f"
    target.write_bytes(b"x" * (WRITES * BLOCK))
    result = run_fio(ENGINE, **{**workload(), "strategy": "kick", "filename": target, **options})
    assert result.exit_status == 1
    assert message in result.stderr
    assert result.stderr.count("fio-dontcache-kick:") == 1
    assert target.read_bytes() == b"x" * (WRITES * BLOCK)
    assert result.counters == []


@pytest.mark.parametrize("option", [{"strategy": "hope"}, {"submit": "mmap"}, {"kick_backlog": "1k"}])
def test_options_that_fio_refuses(run_fio, tmp_path, option):
    result = run_fio(ENGINE, filename=tmp_path / "f", **{**workload(), "strategy": "kick", **option})
    assert result.exit_status == 1
    assert not (tmp_path / "f").exists()


def test_direct_takes_direct(run_fio, disk):
    result = run_fio(ENGINE, strategy="direct", direct=1, filename=disk / "f", **workload())
    check(result)
    assert_counters(result.counter, "direct")


@pytest.mark.parametrize("submit", SUBMITS)
def test_misaligned_direct(run_fio, loop_device, submit):
    device = loop_device(sector_size=4096)
    result = run_fio(ENGINE, strategy="direct", submit=submit, filename=device, rw="write", bs=512, size="64k")
    assert result.exit_status == 1
    assert result.job["error"] == 22
    assert "must be multiples of its logical block size of 4096" in result.stderr
    assert result.stderr.count("fio-dontcache-kick:") == 1


@pytest.mark.parametrize("submit", SUBMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_space(run_fio, mount, strategy, submit):
    point = mount("ext4", "16M")
    need_strategy(strategy, point)
    result = run_fio(
        ENGINE, strategy=strategy, submit=submit, filename=point / "f", fallocate="none", **workload(size="64M")
    )
    assert result.exit_status == 1
    assert result.job["error"] == 28
    assert result.counter["error"] == 28
    assert result.counter["write_bytes"] < 16 << 20


@pytest.mark.parametrize("submit", SUBMITS)
@pytest.mark.parametrize("thread", [0, 1])
@pytest.mark.parametrize("strategy", ["inline", "kick"])
def test_an_error_in_writeback_fails_the_job(run_fio, broken_device, strategy, submit, thread):
    """The device fails what the page cache has long taken."""
    result = run_fio(
        ENGINE, strategy=strategy, submit=submit, thread=thread, filename=broken_device, **workload()
    )
    assert result.exit_status == 1
    assert result.job["error"] in (5, 28)
    assert result.counter["error"] == result.job["error"]
    assert result.stderr.count("fio-dontcache-kick:") == 1
    assert f"{broken_device}: writeback: " in result.stderr


def test_an_error_in_writeback_stops_a_running_job(run_fio, broken_device):
    """Not only at its end: the time limit is the job's, not the test's."""
    result = run_fio(
        ENGINE, strategy="kick", filename=broken_device, time_based=True, runtime="30s", rate_iops=100, **workload()
    )
    assert result.exit_status == 1
    assert result.job["error"] in (5, 28)
    assert result.counter["writes"] < 3000
    assert f"{broken_device}: writeback: " in result.stderr


@pytest.mark.parametrize("strategy", ["buffered", "kick"])
def test_an_error_in_writeback_fails_a_sync(run_fio, broken_device, strategy):
    result = run_fio(ENGINE, strategy=strategy, filename=broken_device, end_fsync=1, **workload())
    assert result.exit_status == 1
    assert result.job["error"] in (5, 28)


def test_readonly_run_refuses_to_write(run_fio, tmp_path):
    target = tmp_path / "f"
    target.write_bytes(bytes(WRITES * BLOCK))
    result = run_fio(ENGINE, strategy="kick", filename=target, args=["--readonly"], **workload(buffer_pattern="0xff"))
    assert result.exit_status != 0
    assert target.read_bytes() == bytes(WRITES * BLOCK)


def test_missing_target(run_fio, tmp_path):
    result = run_fio(ENGINE, strategy="kick", filename=tmp_path / "f", allow_file_create=0, **workload())
    assert result.exit_status == 1
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_job_that_only_reads(run_fio, disk, strategy):
    need_strategy(strategy, disk)
    target = uncached_file(disk / "f")
    result = run_fio(ENGINE, strategy=strategy, filename=target, args=["--readonly"], **workload(rw="randread"))
    check(result)
    assert result.counter["reads"] == WRITES
    assert result.counter["kicks"] == result.counter["writeback_bytes"] == 0


def test_every_option_explains_itself(fio):
    library = ENGINES / f"fio-{ENGINE}.so"

    def enghelp(option: str = "") -> str:
        done = subprocess.run(
            ["timeout", "20", fio, f"--enghelp={library}{option}"],
            capture_output=True,
            text=True,
            env={**os.environ, **sanitizer_environment(library)},
        )
        return done.stdout

    options = dict(re.findall(r"^(\w+) *: (.+)$", enghelp(), re.MULTILINE))
    assert set(options) == {"strategy", "submit", "kick_backlog", "destroy", "counters"}
    for option, default in {"strategy": "dontcache", "submit": "pwritev2", "kick_backlog": "64m"}.items():
        assert re.search(rf"default: {default}$", enghelp(f",{option}"), re.MULTILINE)
    assert "bytes" in options["kick_backlog"]
    for strategy in STRATEGIES:
        assert re.search(rf"\b{strategy} .*\S", enghelp(",strategy"))

# SPDX-License-Identifier: GPL-2.0-only
"""fua-dsync inside fio: what each strategy submits, what the device executes,
and what an error looks like."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess

import pytest

SYNCHRONOUS = ["dsync", "rwf-dsync", "write-flush"]
ASYNCHRONOUS = ["fua", "fua-flush", "none"]
STRATEGIES = SYNCHRONOUS + ASYNCHRONOUS

WRITES = 64


def running_kernel() -> tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()
    return int(major), int(minor)


def workload(**more):
    return {"rw": "write", "bs": "4k", "size": WRITES * 4096, **more}


def expected_counters(strategy: str, writes: int = WRITES) -> dict[str, int]:
    return {
        "writes": writes,
        "write_bytes": writes * 4096,
        "durable_writes": 0 if strategy == "none" else writes,
        "flush_calls": writes if strategy in ("fua-flush", "write-flush") else 0,
        "reads": 0,
        "syncs": 0,
        "error": 0,
    }


def one_by_one(strategies: list[str]) -> list[dict[str, object]]:
    """A job of each, which has its name."""
    return [{"name": strategy, "strategy": strategy} for strategy in strategies]


def assert_counters(result, expected: dict[str, int]) -> None:
    assert {key: result.counter[key] for key in expected} == expected


@pytest.mark.parametrize("kind", ["file", "tmpfs", "xfs", "block"])
def test_every_strategy_on_every_target(run_fio, loop_device, mount, tmp_path, kind):
    if kind == "block":
        target = loop_device()
    elif kind == "file":
        target = tmp_path / "file"
    else:
        target = mount(kind, "512M") / "file"
    result = run_fio("fua-dsync", filename=target, jobs=one_by_one(STRATEGIES), stonewall=True, **workload())
    assert result.exit_status == 0, result.stderr
    assert result.stderr == ""
    for strategy in STRATEGIES:
        done = result.of(strategy)
        assert done.job["write"]["total_ios"] == WRITES
        assert done.job["write"]["short_ios"] == 0
        assert_counters(done, expected_counters(strategy))
        assert done.counter["strategy"] == strategy


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_flushes_the_device_executes(run_fio, loop_device, executed, strategy):
    """A loop device has a volatile cache and no FUA: a durable write costs one
    flush, and a second one where the kernel or the strategy adds it."""
    device = loop_device()
    done = executed(
        device,
        lambda: run_fio("fua-dsync", strategy=strategy, filename=device, **workload()),
    )
    redundant = 2 if running_kernel() < (7, 4) else 1
    per_write = {
        "dsync": redundant,
        "rwf-dsync": redundant,
        "fua": 1,
        "fua-flush": 2,
        "write-flush": 1,
        "none": 0,
    }
    assert done["flushes"] == per_write[strategy] * WRITES
    assert done["write_sectors"] == WRITES * 8


def test_dsync_costs_what_fio_s_own_engine_costs(run_fio, loop_device, executed):
    device = loop_device()
    ours = executed(device, lambda: run_fio("fua-dsync", strategy="dsync", filename=device, **workload()))
    fios = executed(device, lambda: run_fio("psync", direct=1, sync="dsync", filename=device, **workload()))
    assert ours == fios


@pytest.mark.parametrize("depth", [1, 2, 7, 32, 256])
def test_depth(run_fio, loop_device, depth):
    result = run_fio(
        "fua-dsync", filename=loop_device(), iodepth=depth, jobs=one_by_one(ASYNCHRONOUS), stonewall=True,
        **workload(rw="randwrite", io_size="2M"),
    )  # fmt: skip
    assert result.exit_status == 0, result.stderr
    for strategy in ASYNCHRONOUS:
        done = result.of(strategy)
        assert done.job["write"]["total_ios"] == 512
        assert done.job["write"]["clat_ns"]["N"] == 512
        assert_counters(done, expected_counters(strategy, 512))


@pytest.mark.parametrize("batch", [{"iodepth_batch": 4}, {"iodepth_batch_complete_min": 1, "iodepth_batch_complete_max": 8}])
def test_batches(run_fio, tmp_path, batch):
    result = run_fio("fua-dsync", strategy="fua", filename=tmp_path / "f", iodepth=8, **batch, **workload())
    assert result.exit_status == 0, result.stderr
    assert_counters(result, expected_counters("fua"))
    assert sum(result.job["iodepth_submit"].values()) == pytest.approx(100, abs=1)


BATCHES = [
    {"iodepth": 1},
    {"iodepth": 7, "iodepth_batch": 4, "iodepth_batch_complete_min": 2, "iodepth_batch_complete_max": 3},
    {"iodepth": 64, "iodepth_batch": 64, "iodepth_batch_complete_min": 0},
    {"iodepth": 64, "iodepth_low": 1},
    {"iodepth": 1024, "iodepth_batch": 100},
]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: ",".join(map(str, batch.values())))
@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
def test_every_write_completes_once(shimmed, mount, strategy, batch):
    """In a ring that completes late and in any order, takes a part of what is
    submitted, or nothing before completions are taken, and is interrupted."""
    target = mount("tmpfs", "4M") / "f"
    for seed in (1, 2):
        result, seen = shimmed(
            "fua-dsync", ring=seed, strategy=strategy, filename=target, rw="randwrite", bs=512, size="256k",
            verify="pattern", verify_pattern="%o", do_verify=0, fsync=100, **batch,
        )  # fmt: skip
        assert result.exit_status == 0, result.stderr
        assert result.job["write"]["total_ios"] == 512
        assert result.counter["writes"] == 512
        assert result.counter["durable_writes"] == (0 if strategy == "none" else 512)
        assert result.counter["flush_calls"] - result.counter["syncs"] == (512 if strategy == "fua-flush" else 0)
        assert seen.ring["submitted"] == seen.ring["reaped"]
        assert seen.ring["reordered"] or batch["iodepth"] in (1, batch.get("iodepth_batch"))
        content = target.read_bytes()
        assert all(int.from_bytes(content[at : at + 8], "little") == at for at in range(0, 256 << 10, 512))


@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
def test_depth_ends_with_the_time(run_fio, loop_device, strategy):
    """What is on its way then is waited for."""
    result = run_fio(
        "fua-dsync", strategy=strategy, filename=loop_device(), rw="randrw", bs="4k", iodepth=64,
        time_based=True, ramp_time="200ms", runtime="300ms", thread=1,
    )  # fmt: skip
    assert result.exit_status == 0, result.stderr
    counter = result.counter
    assert counter["writes"] >= result.job["write"]["total_ios"] > 0
    assert counter["reads"] >= result.job["read"]["total_ios"] > 0
    assert counter["durable_writes"] == (0 if strategy == "none" else counter["writes"])


def test_a_ring_has_a_limit(run_fio, tmp_path):
    for strategy, limit in (("fua", 32768), ("fua-flush", 16384)):
        result = run_fio("fua-dsync", strategy=strategy, filename=tmp_path / "f", iodepth=limit + 1, **workload())
        assert result.exit_status == 1
        assert f"iodepth={limit + 1} is too deep for io_uring, {limit} is the limit" in result.stderr


@pytest.mark.parametrize("error", ["EAGAIN", "EINVAL"])
def test_a_kernel_that_takes_nothing(run_fio, shim, tmp_path, error):
    """The I/O fails, with the error, and nothing waits for it."""
    preload = shim(f"#include <errno.h>\nint io_uring_submit_and_wait(void *ring, unsigned n) {{ return -{error}; }}\n")
    result = run_fio("fua-dsync", strategy="fua", filename=tmp_path / "f", iodepth=2, preload=preload, **workload())
    assert result.exit_status == 1
    assert result.job["error"] == result.counter["error"] == getattr(errno, error)
    assert result.counter["writes"] == 0


@pytest.mark.parametrize("rw", ["write", "randwrite", "randrw"])
def test_verify_round_trip(run_fio, tmp_path, rw):
    jobs = [{**job, "filename": tmp_path / job["name"]} for job in one_by_one(STRATEGIES)]
    result = run_fio("fua-dsync", verify="crc32c", verify_fatal=1, jobs=jobs, stonewall=True, **workload(rw=rw, size="1M"))
    assert result.exit_status == 0, result.stderr
    for strategy in STRATEGIES:
        done = result.of(strategy)
        assert done.job["error"] == 0
        assert done.counter["reads"] >= done.counter["writes"] > 0


def test_written_data_is_where_it_belongs(run_fio, tmp_path):
    jobs = [{**job, "filename": tmp_path / job["name"]} for job in one_by_one(STRATEGIES)]
    run_fio("fua-dsync", buffer_pattern="0xa5", offset="8k", jobs=jobs, stonewall=True, **workload())
    for strategy in STRATEGIES:
        assert (tmp_path / strategy).read_bytes() == bytes(8192) + b"\xa5" * (WRITES * 4096)


@pytest.mark.parametrize("thread", [0, 1])
def test_jobs_by_fork_and_by_thread(run_fio, tmp_path, thread):
    result = run_fio(
        "fua-dsync", directory=tmp_path, numjobs=4, thread=thread, jobs=one_by_one(STRATEGIES), stonewall=True, group_reporting=1, **workload()
    )
    assert result.exit_status == 0, result.stderr
    for strategy in STRATEGIES:
        done = result.of(strategy)
        assert done.job["write"]["total_ios"] == 4 * WRITES
        assert sorted(line["subjob"] for line in done.counters) == [0, 1, 2, 3]
        assert {line["writes"] for line in done.counters} == {WRITES}


def test_strategies_side_by_side_in_one_process(run_fio, tmp_path):
    """thread=1: jobs of all strategies share the engine's static data."""
    result = run_fio(
        "fua-dsync",
        thread=1,
        **workload(),
        jobs=[{"name": s, "strategy": s, "filename": tmp_path / s, "iodepth": 4 if s in ASYNCHRONOUS else 1} for s in STRATEGIES],
    )
    assert result.exit_status == 0, result.stderr
    assert {line["strategy"]: line["durable_writes"] for line in result.counters} == {
        s: 0 if s == "none" else WRITES for s in STRATEGIES
    }


@pytest.mark.parametrize("strategy", ["dsync", "fua"])
def test_time_based_and_rate(run_fio, tmp_path, strategy):
    result = run_fio(
        "fua-dsync", strategy=strategy, filename=tmp_path / "f", time_based=True, runtime="1s", rate_iops=50, **workload()
    )
    assert result.exit_status == 0, result.stderr
    assert 0 < result.counter["writes"] <= 60


# ---- syncs ---------------------------------------------------------------


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
@pytest.mark.parametrize("nrfiles", [1, 3])
def test_a_sync_goes_to_the_file_just_written(strace_fio, tmp_path, sync, nrfiles):
    calls = strace_fio(
        "pwrite64,fsync,fdatasync",
        "fua-dsync",
        strategy="dsync",
        directory=tmp_path,
        nrfiles=nrfiles,
        file_service_type="roundrobin",
        **{sync: 1},
        **workload(size=12 * 4096),
    )
    io = [(name, path) for name, path in calls if path.startswith(str(tmp_path))]
    syncs = [number for number, (name, _) in enumerate(io) if name == sync]
    # A sync comes before the next write, so there is none after the last.
    assert len(syncs) == 11
    for number in syncs:
        assert io[number - 1] == ("pwrite64", io[number][1])
    assert len({path for name, path in io if name == "pwrite64"}) == nrfiles


def test_end_fsync_reaches_every_file(strace_fio, tmp_path):
    calls = strace_fio(
        "fsync", "fua-dsync", strategy="fua", directory=tmp_path, nrfiles=3, end_fsync=1, **workload(size=12 * 4096)
    )
    assert len({path for name, path in calls if name == "fsync" and path.startswith(str(tmp_path))}) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_syncs_are_counted_and_timed(run_fio, tmp_path, strategy):
    result = run_fio("fua-dsync", strategy=strategy, filename=tmp_path / "f", fdatasync=1, end_fsync=1, **workload())
    assert result.exit_status == 0, result.stderr
    assert result.job["sync"]["lat_ns"]["N"] >= WRITES - 1
    # fio does not count end_fsync.
    assert result.counter["syncs"] == result.job["sync"]["lat_ns"]["N"] + 1


def test_counters_of_a_job_with_any_name(run_fio, tmp_path):
    name = 'quote " backslash \\ tab \t umlaut ü'
    result = run_fio("fua-dsync", strategy="dsync", filename=tmp_path / "f", jobs=[{"name": name}], **workload())
    assert result.exit_status == 0, result.stderr
    assert result.counter["job"] == name


# ---- refusals and errors -------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rw": "randtrim"}, "trims are not supported"),
        ({"io_submit_mode": "offload"}, "io_submit_mode=offload is not supported"),
        ({"sync": "dsync"}, "remove sync="),
        ({"sync_file_range": "write:8"}, "take fdatasync= or fsync="),
        ({"iodepth": 4}, "submits one I/O at a time"),
        ({"counters": "/nonexistent/counters"}, "counters=/nonexistent/counters: No such file"),
    ],
)
def test_refused_before_any_io(run_fio, tmp_path, options, message):
    target = tmp_path / "f"
    target.write_bytes(b"x" * (WRITES * 4096))
    result = run_fio("fua-dsync", **{**workload(), "strategy": "dsync", "filename": target, **options})
    assert result.exit_status == 1
    assert message in result.stderr
    assert result.stderr.count("fio-fua-dsync:") == 1
    assert target.read_bytes() == b"x" * (WRITES * 4096)
    assert result.counters == []


def test_unknown_strategy(run_fio, tmp_path):
    result = run_fio("fua-dsync", strategy="hope", filename=tmp_path / "f", **workload())
    assert result.exit_status == 1
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_misaligned_block_size(run_fio, loop_device, strategy):
    device = loop_device(sector_size=4096)
    result = run_fio("fua-dsync", strategy=strategy, filename=device, rw="write", bs=512, size="64k")
    assert result.exit_status == 1
    assert result.job["error"] == 22
    assert "must be multiples of its logical block size of 4096" in result.stderr
    assert result.stderr.count("fio-fua-dsync:") == 1
    assert result.counter["error"] == 22
    assert result.counter["writes"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_space(run_fio, mount, strategy):
    point = mount("tmpfs", "1M")
    result = run_fio("fua-dsync", strategy=strategy, filename=point / "f", rw="write", bs="64k", size="4M", fallocate="none")
    assert result.exit_status == 1
    assert result.job["error"] == 28
    assert result.counter["error"] == 28
    assert result.counter["write_bytes"] <= 1 << 20


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_io_error(run_fio, broken_device, strategy):
    """The write, or the flush that makes it durable, fails in the device."""
    result = run_fio("fua-dsync", strategy=strategy, filename=broken_device, rw="write", bs="64k", size="4M")
    assert result.exit_status == 1
    assert result.job["error"] in (5, 28)
    assert result.counter["error"] == result.job["error"]
    assert result.counter["durable_writes"] * 65536 <= 1 << 20


def test_missing_target(run_fio, tmp_path):
    result = run_fio("fua-dsync", strategy="fua", filename=tmp_path / "f", allow_file_create=0, **workload())
    assert result.exit_status == 1
    assert not (tmp_path / "f").exists()


def test_readonly_run_refuses_to_write(run_fio, tmp_path):
    target = tmp_path / "f"
    target.write_bytes(bytes(WRITES * 4096))
    result = run_fio("fua-dsync", strategy="dsync", filename=target, args=["--readonly"], **workload(buffer_pattern="0xff"))
    assert result.exit_status != 0
    assert target.read_bytes() == bytes(WRITES * 4096)


def test_io_uring_not_allowed(run_fio, shim, tmp_path):
    """A container's seccomp profile often forbids io_uring; a shim stands for it."""
    preload = shim(
        "#include <errno.h>\n"
        "int io_uring_queue_init_params(unsigned n, void *ring, void *p) { return -EPERM; }\n"
    )
    result = run_fio("fua-dsync", strategy="fua", filename=tmp_path / "f", preload=preload, **workload())
    assert result.exit_status == 1
    assert "needs io_uring, which is not allowed here" in result.stderr


def test_counters_do_not_wait_for_a_reader(run_fio, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    target = tmp_path / "f"
    result = run_fio("fua-dsync", **workload(), strategy="dsync", filename=target, counters=tmp_path / "fifo", timeout=20)
    assert result.exit_status == 1
    assert f"counters={tmp_path}/fifo: No such device or address" in result.stderr


@pytest.mark.parametrize("strategy", ["dsync", "fua"])
def test_a_file_that_can_not_be_opened_is_named(run_fio, tmp_path, strategy):
    # A program that runs can't be written to, by root either.
    program = shutil.copy("/bin/sleep", tmp_path / "program")
    with subprocess.Popen([program, "60"]) as running:
        result = run_fio("fua-dsync", rw="write", bs="4k", size="8k", strategy=strategy, filename=program)
        running.kill()
    assert result.exit_status == 1
    assert f"open({program}): Text file busy" in result.stderr
    assert result.stderr.count("fio-fua-dsync:") == 1

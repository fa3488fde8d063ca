# SPDX-License-Identifier: GPL-2.0-only
"""Bad days: every call of every strategy fails once, at the first, a middle and
the last I/O. fio reports that once and fails the job, or carries on where that
is right; what was done before is counted; nothing hangs and nothing is left."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import ENGINES as BUILT
from conftest import ROOT, FioResult, sanitizer_environment
from strategies import ENGINES, Strategy, of_engine

N = 12
BLOCK = 4096
PLACES = {"first": 1, "middle": 6, "last": N}
ERRORS = ["EIO", "ENOSPC", "EAGAIN"]


@dataclass(frozen=True)
class Case:
    """A job in which one call fails, and what has to come of it."""

    what: str
    fault: str  # without its file, which has the name of the job
    error: int = 0  # of the job; 0: it carries on
    total_errors: int = 0  # with continue_on_error=
    writes: int | None = N  # completed, without the rest of a short one; None: as fio has it
    reads: int = 0
    short: bool = False
    syncs: int = 0
    flush_calls: int | None = None
    lost: int = 0  # bytes that fio does not ask for again
    options: dict[str, Any] = field(default_factory=dict)


def transfer_cases(strategy: Strategy, call: str) -> Iterator[Case]:
    """Of writes or reads."""
    reading = {"options": {"rw": "read"}, "writes": 0}
    for place, nth in PLACES.items():
        done = {**reading, "reads": nth - 1} if call == "read" else {"writes": nth - 1}
        all_done = {**reading, "reads": N} if call == "read" else {}
        for error in ERRORS:
            yield Case(f"{call}-{error}-{place}", f"call={call},nth={nth},error={error}", getattr(errno, error), **done)
        # The kernel repeats what a signal interrupts, but not in a ring.
        if strategy.ring:
            yield Case(f"{call}-EINTR-{place}", f"call={call},nth={nth},error=EINTR", errno.EINTR, **done)
        else:
            yield Case(f"{call}-EINTR-{place}", f"call={call},nth={nth},error=EINTR,times=3", **all_done)
        # fio has issued all by then, and leaves it at that.
        lost = BLOCK - 1024 if place == "last" else 0
        yield Case(f"{call}-short-{place}", f"call={call},nth={nth},short=1024", short=True, lost=lost, **all_done)
        yield Case(f"{call}-nothing-{place}", f"call={call},nth={nth},short=0", errno.EIO, **done)


def flush_cases(strategy: Strategy) -> Iterator[Case]:
    """Of the flush that belongs to a write, or of fio's fdatasync=1."""
    own = bool(strategy.flush)
    # There is no sync after the last write.
    for place, nth in {**PLACES, "last": N if own else N - 1}.items():
        for error in ["EIO", "ENOSPC"]:
            yield Case(
                f"flush-{error}-{place}",
                # Of the concurrent flushes of a sync the last one.
                f"call=flush,nth={nth * strategy.flushes},error={error}",
                getattr(errno, error),
                writes=nth - 1 if own else nth,
                syncs=0 if own else nth - 1,
                flush_calls=nth * strategy.flushes,
                options={} if own else {"fdatasync": 1},
            )
        if strategy.flush != "IORING_OP_FSYNC":
            yield Case(
                f"flush-EINTR-{place}",
                f"call=flush,nth={nth},error=EINTR",
                syncs=0 if own else N - 1,
                flush_calls=N if own else (N - 1) * strategy.flushes,
                options={} if own else {"fdatasync": 1},
            )


def writeback_cases(strategy: Strategy) -> Iterator[Case]:
    fault = "call=sync_file_range,error=EIO"
    for place, nth in PLACES.items():
        if strategy.name == "inline":
            yield Case(f"writeback-EIO-{place}", f"{fault},nth={nth}", errno.EIO, writes=nth - 1)
    if strategy.name == "inline":
        # The one that waits, when the file is closed.
        yield Case("writeback-EIO-close", f"{fault},nth={N + 1}", errno.EIO)
    if strategy.name == "kick":
        # In the flusher, while the job writes or when it ends.
        yield Case("writeback-EIO", fault, errno.EIO, writes=None)
        yield Case("writeback-ENOSPC", "call=sync_file_range,error=ENOSPC,nth=2", errno.ENOSPC, writes=None)
        yield Case("drop-EIO", "call=fadvise,error=EIO", errno.EIO, writes=None)
    if strategy.lines and not strategy.options:
        # Two of them begin a sync.
        for place, nth in {"first": 1, "middle": 6, "last": N - 1}.items():
            yield Case(
                f"writeback-EIO-{place}",
                f"{fault},nth={2 * nth - 1}",
                errno.EIO,
                writes=nth,
                syncs=nth - 1,
                flush_calls=(nth - 1) * strategy.flushes,
                options={"fdatasync": 1},
            )


def cases(strategy: Strategy) -> Iterator[Case]:
    yield from transfer_cases(strategy, "write")
    yield from transfer_cases(strategy, "read")
    yield from flush_cases(strategy)
    yield Case(
        "continue",
        "call=write,nth=6,error=EIO",
        errno.EIO,
        writes=N - 1,
        total_errors=1,
        options={"continue_on_error": "all"},
    )
    yield from writeback_cases(strategy)
    if not strategy.lines:
        yield Case("open-EMFILE", "call=open,error=EMFILE", errno.EMFILE, writes=0)
        yield Case("close-EIO", "call=close,error=EIO", errno.EIO)


def check(case: Case, strategy: Strategy, job: dict[str, Any], counter: dict[str, Any]) -> None:
    assert job["error"] == counter["error"] == case.error
    assert (case.total_errors or None) == job.get("total_err")
    if case.writes is None:
        assert counter["write_bytes"] == job["write"]["io_bytes"] == counter["writes"] * BLOCK
        return
    # The rest of a short one is one more.
    more = case.short and not case.lost
    writes = case.writes + (more and case.writes > 0)
    expected = {
        "writes": writes,
        "write_bytes": case.writes * BLOCK - (case.lost if case.writes else 0),
        "reads": case.reads + (more and case.reads > 0),
        "read_bytes": case.reads * BLOCK - (case.lost if case.reads else 0),
        "syncs": case.syncs,
    }
    assert {key: counter[key] for key in expected} == expected
    if not case.short:
        # Of those it does not count the first part.
        assert (counter["write_bytes"], counter["read_bytes"]) == (job["write"]["io_bytes"], job["read"]["io_bytes"])
    if case.flush_calls is not None:
        assert counter["flush_calls"] == case.flush_calls
    durable = 0
    if strategy.engine == "fua-dsync" and strategy.name != "none":
        # The flush that is linked to a short write is not carried out.
        durable = case.writes - (case.lost > 0 and case.writes > 0) if strategy.flush == "IORING_OP_FSYNC" else writes
    assert counter["durable_writes"] == durable




@pytest.mark.parametrize("engine", ENGINES)
def test_every_call_fails_once(shimmed, disk_for, engine):
    folder = disk_for(engine)
    every = {f"{strategy}.{case.what}": (strategy, case) for strategy in of_engine(engine) for case in cases(strategy)}
    result, seen = shimmed(
        engine,
        faults=[f"{case.fault},file={name}" for name, (_, case) in every.items()],
        ring=0,
        timeout=300,
        rw="write",
        bs=BLOCK,
        jobs=[
            {"name": name, **strategy.job(folder / name, N * BLOCK), **case.options}
            for name, (strategy, case) in every.items()
        ],
    )
    # fio's is how many jobs failed, and the shell's has a byte for it.
    assert result.exit_status == sum(bool(case.error and not case.total_errors) for _, case in every.values()) % 256
    assert {file for _, _, file in seen.faults} == every.keys()
    written_by = {(file.split(".")[0], function) for call, function, file in seen.faults if call == "write"}
    assert written_by == {(str(strategy), strategy.write) for strategy in of_engine(engine)}
    counters = {counter["job"]: counter for counter in result.counters}
    jobs = {job["jobname"]: job for job in result.json["jobs"]}
    assert counters.keys() == jobs.keys() == every.keys()
    wrong = {}
    for name, (strategy, case) in every.items():
        try:
            check(case, strategy, jobs[name], counters[name])
        except AssertionError as error:
            wrong[name] = str(error)
        told = [line for line in result.stderr.splitlines() if re.search(rf"(/|mapped-){re.escape(name)}(?![\w-])", line)]
        # One I/O failed: a line that names the file and the error. Of a ring fio tells, unless it goes on (continue_on_error=).
        silent = case.total_errors and strategy.ring
        if len(told) != bool(case.error and not silent) or any(os.strerror(case.error) not in line for line in told):
            wrong[f"{name} told"] = "\n".join(told)
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


# ---- init that fails half-way ------------------------------------------------


def init_faults(strategy: Strategy) -> list[tuple[str, str]]:
    """(fault, what fio or the engine says of it), for a job each."""
    faults = [(f"call=alloc,nth={nth},error=ENOMEM", "") for nth in range(1, 9)]
    if strategy.ring:
        faults += [
            ("call=ring,error=EPERM", "needs io_uring, which is not allowed here (Operation not permitted)"),
            ("call=ring,error=ENOSYS", "needs io_uring, which is not allowed here (Function not implemented)"),
            ("call=ring,error=ENOMEM", "io_uring with iodepth=1: Cannot allocate memory"),
        ]
    if strategy.name == "kick":
        faults += [("call=thread,error=EAGAIN", "")]
    if strategy.name == "per-target":
        text = "the threads for concurrent flushes can't be made: Resource temporarily unavailable"
        faults += [(f"call=thread,nth={nth},error=EAGAIN", text) for nth in range(1, strategy.flushes)]
    return faults


@pytest.mark.parametrize("engine", ENGINES)
def test_init_fails_half_way(shimmed, disk_for, engine):
    """The job of each fault fails and says so once; one without runs."""
    folder = disk_for(engine)
    every = [(strategy, *fault) for strategy in of_engine(engine) for fault in [*init_faults(strategy), ("", "")]]
    names = [f"job-{number}" for number in range(1, len(every) + 1)]
    result, seen = shimmed(
        engine,
        faults=[f"{fault},file={name}" for (_, fault, _), name in zip(every, names) if fault],
        ring=0,
        timeout=300,
        rw="write",
        bs=BLOCK,
        jobs=[{"name": name, **strategy.job(folder / name, N * BLOCK)} for (strategy, _, _), name in zip(every, names)],
    )
    hit = {file for _, _, file in seen.faults}
    failed = {job["jobname"] for job in result.json["jobs"] if job["error"]}
    assert result.exit_status == len(failed) % 256
    counters = {counter["job"]: counter for counter in result.counters}
    wrong = []
    for (strategy, fault, text), name in zip(every, names):
        told = [line for line in result.stderr.splitlines() if f"job {name}:" in line]
        if text and (name not in failed or text not in told[0]) or len(told) > 1:
            wrong.append((strategy, fault, told))
        # The C library can do without a buffer for a file.
        may_do_without = strategy.lines and fault.startswith("call=alloc")
        if name in failed and name not in hit or name in hit - failed and not may_do_without:
            wrong.append((strategy, fault, name in hit, name in failed))
        if name in failed:
            assert counters.get(name, {"writes": 0})["writes"] == 0
        else:
            assert counters[name]["writes"] == N
    assert wrong == []
    # The first two of every strategy at least.
    assert sum(name in hit for (_, fault, _), name in zip(every, names) if "alloc" in fault) >= 2 * len(of_engine(engine))


# ---- of the machine ----------------------------------------------------------

FEW = 4 << 20


def jobs_of(engine: str, folder: Path, **options: Any) -> list[dict[str, Any]]:
    return [{"name": str(each), **each.job(folder / str(each), FEW), **options} for each in of_engine(engine)]


def all_end_with(result: FioResult, jobs: list[dict[str, Any]], error: int) -> None:
    """Each job has the error, and says so once."""
    assert {job["jobname"]: job["error"] for job in result.json["jobs"]} == {job["name"]: error for job in jobs}, result.stderr
    assert {counter["job"]: counter["error"] for counter in result.counters} == {job["name"]: error for job in jobs}
    assert result.exit_status == len(jobs)
    told = [line for line in result.stderr.splitlines() if os.strerror(error) in line]
    assert len(told) == len(jobs), result.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_file_system(run_fio, disk_for, engine):
    folder = disk_for(engine)
    jobs = jobs_of(engine, folder)
    free = os.statvfs(folder)
    subprocess.run(["fallocate", f"--length={free.f_bavail * free.f_bsize - FEW // 4}", folder / "filler"], check=True)
    all_end_with(run_fio(engine, rw="write", bs=BLOCK, fallocate="none", timeout=300, jobs=jobs), jobs, errno.ENOSPC)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_of_file_sizes(run_fio, disk_for, engine):
    """ulimit -f, where the signal that comes with it is ignored."""
    jobs = jobs_of(engine, disk_for(engine), number_ios=1, bs=FEW // 2, offset=FEW // 2)
    under = ["env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={FEW // 2}"]
    all_end_with(run_fio(engine, under=under, rw="write", fallocate="none", timeout=300, jobs=jobs), jobs, errno.EFBIG)


UNTIL_BEGUN = """
"$@" & fio=$!
for file in $FILES; do until head -c 512 "$file" | tr -d '\\0' | grep -aq .; do sleep 0.1; done; done
kill -$SIGNAL $fio
wait $fio
"""


@pytest.mark.parametrize("number", ["INT", "TERM"])
@pytest.mark.parametrize("engine", ENGINES)
def test_stopped_while_it_runs(run_fio, disk_for, engine, number):
    """fio ends in order: the engine counts what was done, and nothing of it fails."""
    folder = disk_for(engine)
    jobs = jobs_of(engine, folder, time_based=True, runtime=600, fdatasync=4)
    files = " ".join(str(folder / job["name"]) for job in jobs)
    result = run_fio(
        engine,
        under=["sh", "-c", UNTIL_BEGUN, "sh"],
        variables={"FILES": files, "SIGNAL": number},
        timeout=300,
        rw="write",
        bs=BLOCK,
        rate_iops=100,
        jobs=jobs,
    )
    assert {counter["job"]: counter["error"] for counter in result.counters} == {job["name"]: 0 for job in jobs}
    assert {job["jobname"]: job["error"] for job in result.json["jobs"]} == {job["name"]: 0 for job in jobs}
    done = {counter["job"]: counter["write_bytes"] for counter in result.counters}
    assert done == {job["jobname"]: job["write"]["io_bytes"] for job in result.json["jobs"]}


# ---- io_uring under load -----------------------------------------------------

WRITES = 256
UNDER_LOAD = [
    {"name": "one"},
    {"name": "seven", "iodepth": 7},
    {"name": "deep", "iodepth": 128},
    {"name": "batch", "iodepth": 32, "iodepth_batch": 8, "iodepth_low": 4},
    {"name": "reap", "iodepth": 32, "iodepth_batch_complete_min": 1, "iodepth_batch_complete_max": 32},
    {"name": "poll", "iodepth": 32, "iodepth_batch_complete_min": 0},
    {"name": "mixed", "iodepth": 16, "rw": "randrw"},
    {"name": "synced", "iodepth": 16, "fdatasync": 8},
]
VERIFIED = {"verify": "crc32c", "verify_fatal": 1}
SHORT = {"name": "short", "iodepth": 16, "buffer_pattern": "0xa5"}
TIMED = {"name": "timed", "iodepth": 32, "time_based": True, "runtime": "1s"}
FAILS = {"name": "fails", "iodepth": 32}


@pytest.mark.parametrize("engine", ["dontcache-kick", "fua-dsync"])
def test_completions_in_any_order(shimmed, disk_for, engine):
    """Late, refused, interrupted, short: each I/O completes once, with its data."""
    folder = disk_for(engine)
    strategies = [strategy for strategy in of_engine(engine) if strategy.ring]
    jobs = [
        {**strategy.job(folder / f"{strategy}.{job['name']}", WRITES * BLOCK), **job, "name": f"{strategy}.{job['name']}"}
        for strategy in strategies
        for job in [*({**job, **VERIFIED} for job in UNDER_LOAD), SHORT, TIMED, FAILS]
    ]
    faults = {"fails": "call=write,nth=100,error=EIO", "short": "call=write,nth=9,times=40,short=1024"}
    result, seen = shimmed(
        engine,
        # Of a job that fails, an I/O that fio has put back holds its file.
        may_stay_open=True,
        ring=3,
        faults=[f"{fault},file={strategy}.{name}" for strategy in strategies for name, fault in faults.items()],
        rw="randwrite",
        bs=BLOCK,
        jobs=jobs,
    )
    errors = {job["jobname"]: job["error"] for job in result.json["jobs"] if job["error"]}
    assert errors == {f"{strategy}.fails": errno.EIO for strategy in strategies}
    assert result.exit_status == len(strategies)
    counters = {counter["job"]: counter for counter in result.counters}
    assert counters.keys() == {job["name"] for job in jobs}
    for strategy in strategies:
        for job in UNDER_LOAD:
            counter = counters[f"{strategy}.{job['name']}"]
            assert counter["read_bytes"] == WRITES * BLOCK
            assert counter["write_bytes"] == WRITES * BLOCK or job["name"] == "mixed"
        # When fio has issued all it does not ask for the rest of a short one.
        name = f"{strategy}.short"
        written = (folder / name).read_bytes().count(b"\xa5")
        assert WRITES * BLOCK * 3 // 4 < written == counters[name]["write_bytes"]
        assert counters[f"{strategy}.fails"]["write_bytes"] < WRITES * BLOCK
        assert counters[f"{strategy}.timed"]["write_bytes"] > 0
    assert seen.ring["submitted"] == seen.ring["reaped"] > 2 * WRITES * len(UNDER_LOAD) * len(strategies)
    # The ring did what it is for.
    assert min(seen.ring[what] for what in ("refused", "reordered")) > 100
    assert result.stderr.count("io_u error") == len(strategies)


# ---- memory, as valgrind sees it ---------------------------------------------


@pytest.mark.skipif(bool(sanitizer_environment(BUILT / "fio-fua-dsync.so")), reason="valgrind and ASan exclude each other")
@pytest.mark.parametrize("engine", ENGINES)
def test_valgrind_finds_nothing_of_ours(run_fio, disk_for, tmp_path, engine):
    """fio has leaks and errors of its own: only those with an engine's frame count."""
    folder = disk_for(engine)
    jobs = [
        {"name": str(strategy), **strategy.job(folder / str(strategy), N * BLOCK), "fdatasync": 4}
        for strategy in of_engine(engine)
    ]
    log = tmp_path / "valgrind.log"
    result = run_fio(
        engine,
        under=["valgrind", "--leak-check=full", "--show-leak-kinds=definite,indirect", f"--log-file={log}"],
        timeout=180,
        thread=1,
        rw="write",
        bs=BLOCK,
        jobs=jobs,
    )
    assert result.exit_status == 0, result.stderr
    text = log.read_text()
    assert "LEAK SUMMARY" in text or "no leaks are possible" in text
    blocks = text.replace(text.split(" ", 1)[0], "").split("\n \n")
    # It names a frame by its source file.
    sources = [f"({path.name}:" for path in (ROOT / "engines").rglob("*.c")]
    assert [block for block in blocks if any(source in block for source in sources)] == []

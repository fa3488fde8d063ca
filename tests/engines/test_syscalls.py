# SPDX-License-Identifier: GPL-2.0-only
"""What a write costs in system calls, exactly, and that it costs neither
memory nor a lock. Start-up and end cancel out of the difference of two runs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from strategies import ENGINES, Strategy, of_engine

N = 64
BLOCK = 4096
SYNCED = ["kernel", "per-target", "per-device"]

# System calls a write; those of dm-linear-flush with fdatasync=1. What a write
# may cost besides, since threads find each other awake or not, is below.
CALLS: dict[str, dict[str, int]] = {
    "fua-dsync-dsync": {"pwrite64": 1},
    "fua-dsync-rwf-dsync": {"pwritev2": 1},
    "fua-dsync-write-flush": {"pwrite64": 1, "fdatasync": 1},
    "fua-dsync-fua": {"io_uring_enter": 1},
    "fua-dsync-fua-flush": {"io_uring_enter": 1},
    "fua-dsync-none": {"io_uring_enter": 1},
    "dontcache-kick-buffered-pwritev2": {"pwrite64": 1},
    "dontcache-kick-buffered-io_uring": {"io_uring_enter": 1},
    "dontcache-kick-dontcache-pwritev2": {"pwritev2": 1},
    "dontcache-kick-dontcache-io_uring": {"io_uring_enter": 1},
    "dontcache-kick-inline-pwritev2": {"pwrite64": 1, "sync_file_range": 1, "fadvise64": 1},
    "dontcache-kick-inline-io_uring": {"io_uring_enter": 1, "sync_file_range": 1, "fadvise64": 1},
    "dontcache-kick-kick-pwritev2": {"pwrite64": 1},
    "dontcache-kick-kick-io_uring": {"io_uring_enter": 1},
    "dontcache-kick-direct-pwritev2": {"pwrite64": 1},
    "dontcache-kick-direct-io_uring": {"io_uring_enter": 1},
    "dm-linear-flush-kernel": {"pwrite64": 1, "fdatasync": 1},
    "dm-linear-flush-per-target": {"pwrite64": 1, "sync_file_range": 2, "fdatasync": 4},
    "dm-linear-flush-per-device": {"pwrite64": 1, "sync_file_range": 2, "fdatasync": 1},
    # With coalesce=1 a job alone flushes for itself; that writes back, too.
    "dm-linear-flush-per-device-1": {"pwrite64": 1, "fdatasync": 1},
}
AT_MOST: dict[str, dict[str, int]] = {
    # Waking the flusher, its sleep, and what it does for one write or many.
    "kick": {"futex": 4, "sync_file_range": 2, "fadvise64": 1},
    # A post and a wait of each of the three threads and of the job.
    "per-target": {"futex": 8},
    # The wake of those that share a flush.
    "dm-linear-flush-per-device-1": {"futex": 1},
}
CHANCE = N // 8
# fio's own, by the clock and not by the I/O.
FIOS = {"getrusage", "clock_nanosleep", "restart_syscall", "gettimeofday", "clock_gettime"}


def jobs(strategies: list[Strategy], folder: Path, writes: int) -> list[dict]:
    return [
        {
            "name": str(strategy),
            **strategy.job(folder / f"{strategy}-{writes}", writes * BLOCK),
            **({"fdatasync": 1} if strategy.name in SYNCED else {}),
        }
        for strategy in strategies
    ]


def traced(run_fio, folder: Path, strategies: list[Strategy], writes: int) -> dict[str, Counter[str]]:
    """The system calls of each strategy's job and of the threads it made."""
    log = folder / f"strace-{writes}.log"
    result = run_fio(
        strategies[0].engine,
        under=["strace", "-f", "-qq", "-e", "signal=none", "-o", log],
        rw="write",
        bs=BLOCK,
        jobs=jobs(strategies, folder, writes),
    )
    assert result.exit_status == 0, result.stderr
    owner = {str(counter["pid"]): counter["job"] for counter in result.counters}
    assert len(owner) == len(strategies)
    calls: dict[str, Counter[str]] = {str(strategy): Counter() for strategy in strategies}
    lines = log.read_text().splitlines()
    for line in lines:
        made = re.match(r"(\d+) +(?:clone3?\(|<\.\.\. clone3? resumed).* = (\d+)$", line)
        if made and made[1] in owner:
            owner[made[2]] = owner[made[1]]
    for line in lines:
        call = re.match(r"(\d+) +(\w+)\(", line)
        if call and call[1] in owner and call[2] not in FIOS:
            calls[owner[call[1]]][call[2]] += 1
    return calls


@pytest.mark.parametrize("engine", ENGINES)
def test_system_calls_a_write(run_fio, disk_for, engine):
    folder = disk_for(engine)
    once = traced(run_fio, folder, of_engine(engine), N)
    twice = traced(run_fio, folder, of_engine(engine), 2 * N)
    wrong = {}
    for strategy in of_engine(engine):
        expected = {call: count * N for call, count in CALLS[str(strategy)].items()}
        limits = {call: count * N for call, count in (AT_MOST.get(strategy.name) or AT_MOST.get(str(strategy), {})).items()}
        limits.setdefault("futex", 0)
        more = {call: count - once[str(strategy)][call] for call, count in twice[str(strategy)].items()}
        # Of the start of a job there is one more or less by chance.
        exact = {call: count for call, count in more.items() if abs(count) > CHANCE and call not in limits}
        if exact != expected or any(more.get(call, 0) > limit + CHANCE for call, limit in limits.items()):
            wrong[str(strategy)] = ({call: count for call, count in more.items() if count}, expected, limits)
    assert wrong == {}


MEMORY_AND_LOCKS = ["malloc", "calloc", "realloc", "aligned_alloc", "pthread_mutex_lock"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_write_takes_no_memory_and_no_lock(shimmed, disk_for, engine):
    folder = disk_for(engine)
    counts = []
    for writes in (N, 2 * N):
        result, seen = shimmed(engine, rw="write", bs=BLOCK, jobs=jobs(of_engine(engine), folder, writes))
        assert result.exit_status == 0, result.stderr
        counts.append({name: seen.counts[name] for name in MEMORY_AND_LOCKS})
        assert counts[-1]["calloc"] > 0
    assert counts[0] == counts[1]

# SPDX-License-Identifier: GPL-2.0-only
"""Bad days: every call of every strategy fails once, at the first, a middle and
the last I/O. fio reports that once and fails the job, or carries on where that
is right; what was done before is counted; nothing hangs and nothing is left."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strategies import STRATEGIES, Strategy

N = 12
BLOCK = 4096
PLACES = {"first": 1, "middle": 6, "last": N}
ERRORS = ["EIO", "ENOSPC", "EAGAIN"]


@dataclass(frozen=True)
class Case:
    """A job in which one call fails, and what has to come of it."""

    name: str
    fault: str  # without its file, which has the name of the case
    error: int = 0  # of the job; 0: it carries on
    writes: int = N  # completed, without the rest of a short one
    reads: int = 0
    short: bool = False
    syncs: int = 0
    flush_calls: int | None = None
    lost: int = 0  # bytes that fio does not ask for again
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> str:
        return f"{self.fault},file={self.name}"


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


def cases(strategy: Strategy) -> Iterator[Case]:
    yield from transfer_cases(strategy, "write")
    yield from transfer_cases(strategy, "read")
    if strategy.flush != "IORING_OP_FSYNC":
        yield from flush_cases(strategy)
    if not strategy.lines:
        yield Case("open-EMFILE", "call=open,error=EMFILE", errno.EMFILE, writes=0)
        yield Case("close-EIO", "call=close,error=EIO", errno.EIO)


def check(case: Case, strategy: Strategy, job: dict[str, Any], counter: dict[str, Any]) -> None:
    assert job["error"] == counter["error"] == case.error
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




@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_every_call_fails_once(shimmed, mount, strategy):
    folder = mount("xfs", "512M")
    every = list(cases(strategy))
    result, seen = shimmed(
        strategy.engine,
        faults=[case.rule for case in every],
        ring=0,
        rw="write",
        bs=BLOCK,
        jobs=[{"name": case.name, **strategy.job(folder / case.name, N * BLOCK), **case.options} for case in every],
    )
    # fio counts the jobs that failed.
    assert result.exit_status == sum(job["error"] != 0 for job in result.json["jobs"]) > 0
    assert {file for _, _, file in seen.faults} == {case.name for case in every}
    functions = {function for call, function, _ in seen.faults if call == "write"}
    assert functions == {strategy.write}
    counters = {counter["job"]: counter for counter in result.counters}
    jobs = {job["jobname"]: job for job in result.json["jobs"]}
    wrong = {}
    for case in every:
        try:
            check(case, strategy, jobs[case.name], counters[case.name])
        except AssertionError as error:
            wrong[case.name] = str(error)
        assert jobs.keys() == counters.keys()
        told = [line for line in result.stderr.splitlines() if f"/{case.name}:" in line]
        if len(told) > 1:
            wrong[f"{case.name} storm"] = "\n".join(told)
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())

# SPDX-License-Identifier: GPL-2.0-only
"""256 jobs on one device for a long time: `make soak`, and ARGS='--seconds=3600 --seed=7' for another.

Case after case is drawn from all strategies, places, depths, orders of I/O,
ways to sync and to verify; each must be as crowd.check() wants it. And one run
of each engine goes on for long: it must not grow.
"""

from __future__ import annotations

import random
import time
from dataclasses import astuple, replace

import pytest
from crowd import CROWDED, JOBS, KIB, MIB, Case, Sample, draw, total

# The share of the time that the runs which may not grow have.
STEADY_SHARE = 0.25
STEADY = {
    "fua-dsync-fua-flush": {},
    # A larger ring of ranges takes its memory by and by, once around.
    "dontcache-kick-kick-io_uring": {"kick_backlog": "1m"},
    "dm-linear-flush-per-device-1": {},
}
STEADY_CASES = [
    Case(
        strategy,
        thread=1,
        depth=32 if strategy.ring else 1,
        part=MIB,
        jobs=32,
        options={"rw": "randwrite", "fdatasync": 32, "verify_backlog": 64, **STEADY[str(strategy)]},
    )
    for strategy in CROWDED
    if str(strategy) in STEADY
]
# Of a job; what fio keeps of each block that it has to verify comes and goes.
MAY_GROW = 32 * KIB


def test_all_kinds_of_crowds(crowd, request, said):
    until = time.monotonic() + request.config.getoption("seconds") * (1 - STEADY_SHARE)
    chance = random.Random(request.config.getoption("seed"))
    cases = transfers = moved = syncs = shared = most = 0
    while time.monotonic() < until:
        case = draw(chance)
        print(time.strftime("%T"), case, flush=True)
        try:
            result, seen = crowd(case)
        except pytest.skip.Exception as skipped:
            print(f"skipped: {skipped}", flush=True)
            continue
        cases += 1
        transfers += total(result.counters, "writes") + total(result.counters, "reads")
        moved += total(result.counters, "write_bytes") + total(result.counters, "read_bytes")
        syncs += total(result.counters, "syncs")
        shared += sum(line.get("flushes_shared", 0) for line in result.counters)
        most = max(most, seen.memory)
    assert cases
    said.append(
        f"soak: {cases} runs of {JOBS} jobs: {transfers} reads and writes, {moved / MIB / KIB:.1f} GiB, {syncs} syncs,"
        f" {shared} flushes shared, no mismatch, at most {most // JOBS // KIB} KiB a job"
    )


@pytest.mark.parametrize("case", STEADY_CASES, ids=str)
def test_a_long_run_does_not_grow(crowd, request, said, case):
    runtime = request.config.getoption("seconds") * STEADY_SHARE / len(STEADY_CASES)
    result, seen = crowd(replace(case, options={**case.options, "time_based": 1, "runtime": int(runtime)}))
    # What fio makes its report in is not the jobs', which have ended then.
    samples = [sample for sample in seen.samples if sample.threads > case.jobs]
    # Fewer than half of the samples are of its beginning.
    half = len(samples) // 2
    middle, end = (Sample(*map(max, zip(*map(astuple, part), strict=True))) for part in (samples[half // 2 : half], samples[half:]))
    said.append(
        f"soak: {case} for {runtime:.0f} s: {total(result.counters, 'writes')} writes; {middle.memory // KIB} KiB, {middle.descriptors} descriptors,"
        f" {middle.threads} threads, in the end {end.memory // KIB}, {end.descriptors}, {end.threads}"
    )
    # A flusher may have as many descriptors still to close, and a ring workers at work.
    assert end.descriptors <= middle.descriptors + case.jobs and end.threads <= middle.threads + case.jobs
    assert end.memory <= middle.memory + MAY_GROW * case.jobs

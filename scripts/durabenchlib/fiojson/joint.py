# SPDX-License-Identifier: GPL-2.0-only
"""What several jobs did together: their rates are what they did in all, over the time they took jointly, and no sum of
rates over times of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from .document import Direction, Job, is_on


def seconds(jobs: Iterable[Job], direction: str) -> float | None:
    """Time in s in which the jobs together did what they did in one direction: from the first start to the last end, of
    the host that took longest (the clocks of hosts differ, and fio's client starts them together).

    fio tells when a job started from 3.36 on. Before that, the jobs of one group are taken to have started together,
    groups behind a stonewall to have followed each other, and new groups beside each other not; None where options say
    that it was otherwise, or don't say.
    """
    hosts: dict[str | None, list[tuple[Job, int]]] = {}
    for job in jobs:
        if direction in job.directions and (runtime_ms := job.directions[direction].runtime_ms):
            hosts.setdefault(job.host, []).append((job, runtime_ms))
    of_host = [_of_host(active) for active in hosts.values()]
    return None if None in of_host else max((each for each in of_host if each is not None), default=None)


def _of_host(active: Sequence[tuple[Job, int]]) -> float | None:
    if all(job.start_ms is not None for job, _ in active):
        starts = [job.start_ms or 0 for job, _ in active]
        ends = [start + runtime_ms for start, (_, runtime_ms) in zip(starts, active, strict=True)]
        return (max(ends) - min(starts)) / 1000
    if len(active) > 1 and any(is_on(job.options, name) for job, _ in active for name in ("startdelay", "wait_for")):
        return None
    phases = [0]
    group = active[0][0].group
    for job, runtime_ms in active:
        if job.group != group:
            group = job.group
            if "stonewall" in job.options or "wait_for_previous" in job.options:
                phases.append(0)
            elif "new_group" not in job.options:
                return None
        phases[-1] = max(phases[-1], runtime_ms)
    return sum(phases) / 1000


def total(jobs: Iterable[Job], direction: str, what: Literal["io_bytes", "total_ios"]) -> int | None:
    """Bytes or I/Os of all jobs in one direction; None where one of them does not tell."""
    amounts = [getattr(job.directions[direction], what) for job in jobs if direction in job.directions]
    return None if None in amounts else sum(amounts)


def rate(jobs: Sequence[Job], direction: str, what: Literal["io_bytes", "total_ios"]) -> float | None:
    """Bytes or I/Os a second of all jobs in one direction. Of one job that lacks what it is computed from, fio's own."""
    amount, time = total(jobs, direction, what), seconds(jobs, direction)
    if amount is not None and time:
        return amount / time
    only = jobs[0].directions.get(direction, Direction()) if len(jobs) == 1 else Direction()
    if amount is not None and only.runtime_ms is not None:
        return None
    return only.bw_bytes if what == "io_bytes" else only.iops

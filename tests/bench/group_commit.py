# SPDX-License-Identifier: GPL-2.0-only
"""dm-linear-flush: what a sync costs by each strategy, and where jobs gain by
sharing flushes (coalesce=1).

Random 4 KiB writes to a loop device, each followed by fdatasync, through the
table of 1024 lines of jobs/dm-linear; the sides of a ratio in turn, round by
round. The block layer merges flushes too, of those that wait in it: how many
the device executed is beside how many were asked of it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import Context, Figure, Unmeasured, engine
from durabenchlib import layout

RUNTIME_S = 1.5
ROUNDS = 3
MAKE_TABLE = Path(__file__).resolve().parents[2] / "jobs/dm-linear/make-table"


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    with image.open("wb") as file:
        file.truncate(8200 << 20)
    try:
        done = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
        if done.returncode:
            raise Unmeasured(f"no loop device can be made here: {done.stderr.strip()}")
        device = done.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    finally:
        image.unlink()


def executed_flushes(device: str) -> int:
    return int(Path(f"/sys/block/{Path(device).name}/stat").read_text().split()[15])


@dataclass(frozen=True)
class Run:
    iops: float
    calls: float  # flush calls a sync
    executed: float  # flushes of the device a sync


@dataclass(frozen=True)
class Bench:
    context: Context
    device: str
    table: Path

    def run(self, jobs: int, *options: str) -> Run:
        counters = self.context.out / "counters.jsonl"
        counters.unlink(missing_ok=True)
        before = executed_flushes(self.device)
        document = self.context.fio(
            *("--name=bench", "--group_reporting", f"--numjobs={jobs}", "--rw=randwrite", "--bs=4k", "--size=2g"),
            *("--fdatasync=1", "--time_based", f"--runtime={RUNTIME_S * 1000:.0f}ms", "--filename=mapped"),
            *(*engine("dm-linear-flush"), f"--table={self.table}", f"--counters={counters}", *options),
        )
        executed = executed_flushes(self.device) - before
        lines = [json.loads(line) for line in counters.read_text().splitlines()]
        syncs = sum(line["syncs"] for line in lines)
        write = document.jobs[0].directions["write"]
        return Run(
            iops=write.total_ios / write.runtime_ms * 1000,
            calls=sum(line["flush_calls"] for line in lines) / syncs,
            executed=executed / syncs,
        )

    def pair(self, jobs: int, ours: list[str], theirs: list[str]) -> tuple[Run, Run]:
        """The medians of both, of each value by itself; IOPS of ours are in theirs of the same round."""
        rounds = []
        for number in range(ROUNDS):
            sides = [ours, theirs] if number % 2 else [theirs, ours]
            runs = {id(side): self.run(jobs, *side) for side in sides}
            rounds.append((runs[id(ours)], runs[id(theirs)]))
        ratio = statistics.median(our.iops / their.iops for our, their in rounds)

        def median(side: int, iops: float) -> Run:
            return Run(
                iops,
                statistics.median(runs[side].calls for runs in rounds),
                statistics.median(runs[side].executed for runs in rounds),
            )

        return median(0, ratio), median(1, 1)


def figures(context: Context) -> Iterator[Figure]:
    per_target, per_device = ["--strategy=per-target"], ["--strategy=per-device"]
    coalesced = [*per_device, "--coalesce=1"]
    with loop_device(context.out / "dm-linear.img") as device:
        table = context.out / "table"
        table.write_bytes(subprocess.run([MAKE_TABLE, device], stdout=subprocess.PIPE, check=True).stdout)
        bench = Bench(context, device, table)

        ours, _ = bench.pair(16, per_device, per_target)
        yield Figure.at_least("per-device / per-target, 16 jobs, IOPS", ours.iops, 20)
        for jobs in (1, 2, 16, 64):
            ours, theirs = bench.pair(jobs, coalesced, per_device)
            of = f"coalesce=1 / per-device, {jobs} job{'s' * (jobs > 1)}"
            yield Figure.at_least(f"{of}, IOPS", ours.iops, 1.0)
            yield Figure.at_most(f"{of}, flush calls", ours.calls / theirs.calls, 0.5 if jobs >= 16 else 1.0)
            yield Figure.at_most(f"{of}, flushes executed", ours.executed / theirs.executed, 1.0)
        ours, _ = bench.pair(16, [*per_target, "--coalesce=1"], per_target)
        yield Figure.at_least("per-target, coalesce=1 / without, 16 jobs, IOPS", ours.iops, 1.0)

# SPDX-License-Identifier: GPL-2.0-only
"""dontcache-kick: strategy kick beside buffered and dontcache, on XFS over a
loop device that passes its file's page cache by.

What is written is half as much again as the kernel lets be dirty, so that the
buffered writer has to wait for the device as well. Strategies take turns, with
the order reversed every other round; a figure is the median of the rounds'
ratios. Two competing writers are watched once the buffered one has reached
that limit; what two buffered writers do is beside it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import Context, Figure, Unmeasured, engine
from durabenchlib import layout, scratch
from durabenchlib.errors import Failure

MIB = 1 << 20
GIB = 1 << 30
ROUNDS = 3
STRATEGIES = ["buffered", "dontcache", "kick"]

# Jobs, and fio's options of each: those of jobs/xfs-dontcache, and depth 16.
CASES = {
    "one writer of 1 MiB": (1, ["--bs=1M"]),
    "4 writers of 1 MiB": (4, ["--bs=1M"]),
    "32 writers of 64 KiB": (32, ["--bs=64k"]),
    "one of 256 KiB, io_uring iodepth=16": (1, ["--bs=256k", "--submit=io_uring", "--iodepth=16"]),
}


@dataclass(frozen=True)
class Run:
    """MiB/s, MiB of Dirty and Writeback at their peak, p99.9 of clat in ns."""

    bandwidth: float
    dirty: float
    p999: float


def dirty_limit() -> int:
    """Bytes that the kernel lets be dirty, of all memory, or somewhat less."""
    vm = Path("/proc/sys/vm")
    limit = int((vm / "dirty_bytes").read_text())
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    return limit or memory * int((vm / "dirty_ratio").read_text()) // 100


@contextmanager
def file_system(folder: Path, size: int) -> Iterator[Path]:
    """XFS, gone afterwards. The file below it is written before, so that the
    first strategy need not."""
    needed = size + GIB
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Unmeasured(f"{folder}: {needed / GIB:.0f} GiB are needed there, {free / GIB:.0f} are free")
    point = folder / "kick"
    point.mkdir(exist_ok=True)
    try:
        scratch.private_mounts()
        with scratch.loop_device(folder, size, size, direct=True) as device:
            if not scratch.is_direct(device):
                raise Unmeasured(f"{folder}: a loop device over a file there can't pass its page cache by")
            with scratch.mounted(device, point, "xfs"):
                yield point
    except OSError as error:
        raise Unmeasured(f"XFS on a loop device can't be made here: {error}") from None


def job(name: str, point: Path, strategy: str, *options: str) -> list[str]:
    """fio's options of one job; an engine's own come after it."""
    same = ["--rw=write", f"--directory={point}", "--filename_format=$jobname.$jobnum"]
    return [f"--name={name}", *engine("dontcache-kick"), f"--strategy={strategy}", *same, *options]


def run(context: Context, point: Path, strategy: str, size: int, case: tuple[int, list[str]]) -> Run:
    """One strategy on new files."""
    jobs, options = case
    summary = context.out / "observe.json"
    observer: list[str | Path] = [layout.observer(), "-i", "20ms", "-j", summary, "--"]
    more = [f"--numjobs={jobs}", "--group_reporting", "--end_fsync=1", "--unlink=1", f"--size={size // jobs // MIB}m"]
    done = context.fio(*job("kick", point, strategy, *options, *more), under=observer)
    write = done.jobs[0].directions["write"]
    system = json.loads(summary.read_text())["system"]
    p999 = write.clat.percentile(99.9)
    if not p999:
        raise Unmeasured("fio has no percentiles")
    dirty = system["dirty_writeback_peak_bytes"] / MIB
    return Run(write.io_bytes / MIB / write.runtime_ms * 1000, dirty, p999)


def share(context: Context, point: Path, strategy: str, size: int) -> float:
    """Rate of a writer by a strategy over that of a buffered one beside it."""
    # Their files stay, and in the page cache: memory that a virtual machine has
    # given back to its host is slow to come by, and would hold the buffered
    # writer up instead of the device.
    options = ["--bs=1M", f"--size={size // 2 // MIB}m", "--invalidate=0"]
    options += ["--time_based", "--ramp_time=5s", "--runtime=10s"]
    done = context.fio(*job("writer_a", point, strategy, *options), *job("writer_b", point, "buffered", *options))
    one, other = (each.directions["write"] for each in done.jobs)
    return (one.io_bytes / one.runtime_ms) / (other.io_bytes / other.runtime_ms)


def middle(values: list[float]) -> tuple[float, tuple[float, float]]:
    """Median, and where all of them lie: they are few."""
    return statistics.median(values), (min(values), max(values))


def figures(context: Context) -> Iterator[Figure]:
    size = max(3 * dirty_limit() // 2, 2 * GIB) // MIB * MIB
    try:
        with file_system(context.out, size + size // 8) as point:
            for name, case in CASES.items():
                rounds: list[dict[str, Run]] = []
                for number in range(ROUNDS):
                    order = STRATEGIES if number % 2 == 0 else STRATEGIES[::-1]
                    rounds.append({strategy: run(context, point, strategy, size, case) for strategy in order})
                rates = [
                    each["kick"].bandwidth / max(each["buffered"].bandwidth, each["dontcache"].bandwidth)
                    for each in rounds
                ]
                dirty = [each["kick"].dirty / each["buffered"].dirty for each in rounds]
                tails = [each["kick"].p999 / each["dontcache"].p999 for each in rounds]
                yield Figure.at_least(f"kick: {name}: rate / the better one's", middle(rates)[0], 0.95, middle(rates)[1])
                yield Figure.at_most(f"kick: {name}: dirty / buffered", middle(dirty)[0], 0.1, middle(dirty)[1])
                yield Figure.at_most(f"kick: {name}: p99.9 / dontcache", middle(tails)[0], 1.0, middle(tails)[1])

            # The buffered one first: it leaves both files in the page cache.
            for strategy in ("buffered", "kick"):
                ratios = [share(context, point, strategy, size) for _ in range(ROUNDS)]
                shares = [min(ratio, 1 / ratio) for ratio in ratios]
                name = f"{strategy} and buffered compete: the lesser / the greater rate"
                yield Figure.at_least(name, middle(shares)[0], 0.9, middle(shares)[1])
    except Failure as failure:
        raise Unmeasured(str(failure)) from None

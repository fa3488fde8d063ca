# SPDX-License-Identifier: GPL-2.0-only
"""User-space instructions per 4 KiB write, above those of fio's null engine.

Counted by callgrind, in the job's thread alone: fio's others work by the clock.
The difference of two sizes leaves out what a job does once. Without latencies,
which fio files by their size; with bandwidth, so that an I/O has its time of
issue. Then a count is the same in each run, whatever the machine does
meanwhile. On a tmpfs, but for what does not work there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from common import Context, Figure, Unmeasured, engine

SIZES_MIB = (32, 96)
SAME = [
    *("--name=bench", "--thread", "--rw=write", "--bs=4k", "--disk_util=0"),
    *("--disable_lat=1", "--disable_clat=1", "--disable_slat=1"),
]


def count(context: Context, path: Path, size_mib: int, options: list[str]) -> int:
    """Instructions of the job's thread for one run."""
    profile = context.out / "callgrind"
    for old in context.out.glob("callgrind-*"):
        old.unlink()
    callgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={profile}"]
    context.fio(*SAME, f"--filename={path}", f"--size={size_mib}m", *options, under=callgrind)
    for thread in context.out.glob("callgrind-*"):
        text = thread.read_text()
        if "td_io_queue" in text:
            return int(re.findall(r"^totals: (\d+)", text, re.MULTILINE)[0])
    raise Unmeasured("callgrind has seen no thread that called td_io_queue()")


def per_write(context: Context, path: Path, options: list[str]) -> float:
    counts = [count(context, path, size, options) for size in SIZES_MIB]
    path.unlink(missing_ok=True)
    return (counts[1] - counts[0]) / ((SIZES_MIB[1] - SIZES_MIB[0]) * 256)


def figures(context: Context) -> Iterator[Figure]:
    if not which("valgrind"):
        raise Unmeasured("valgrind is missing")
    memory = context.directory / "durabench-bench"
    null = per_write(context, memory, ["--ioengine=null"])

    def above_null(path: Path, *options: str) -> float:
        return per_write(context, path, list(options)) - null

    def figure(name: str, value: float, theirs: str, goal: float) -> Figure:
        return Figure.at_most(f"{name} against {theirs}, instructions", value, goal)

    def ours(path: Path, name: str, strategy: str, *options: str) -> float:
        return above_null(path, *engine(name), f"--strategy={strategy}", *options)

    psync = above_null(memory, "--ioengine=psync")
    pvsync2 = above_null(memory, "--ioengine=pvsync2")
    yield figure("dsync", ours(memory, "fua-dsync", "dsync"), "psync", psync)
    yield figure("kernel", ours(memory, "dm-linear-flush", "kernel"), "psync", psync)
    yield figure("rwf-dsync", ours(memory, "fua-dsync", "rwf-dsync"), "pvsync2", pvsync2)
    yield figure("buffered", ours(memory, "dontcache-kick", "buffered"), "pvsync2", pvsync2)

    for depth in (1, 32, 128):
        iodepth = f"--iodepth={depth}"
        registered = ("--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1")
        theirs = above_null(memory, *registered, iodepth)
        fua = ours(memory, "fua-dsync", "fua", iodepth)
        yield figure(f"fua iodepth={depth}", fua, "io_uring fixedbufs registerfiles", theirs)

    with context.mounted("xfs") as point:
        path = point / "bench"
        goal = above_null(path, "--ioengine=pvsync2") + 30
        for strategy in ("dontcache", "kick"):
            value = ours(path, "dontcache-kick", strategy)
            yield figure(f"{strategy} on XFS", value, "pvsync2 + 30", goal)

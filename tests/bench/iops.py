# SPDX-License-Identifier: GPL-2.0-only
"""IOPS of each strategy over those of the engine of fio that submits alike.

The two run in turn, round by round, and the order is reversed every other
round. On a tmpfs, where a write costs no more than its system calls, that is
the worst case. A figure is the median over the rounds of ours/theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles

from common import Context, Figure, engine

GOAL = 0.95

DIRECT = ["--direct=1"]
DSYNC = ["--direct=1", "--sync=dsync"]
# Our engine, its strategy, options of both; fio's engine, its options.
PAIRS: list[tuple[str, str, list[str], str, list[str]]] = [
    ("fua-dsync", "dsync", [], "psync", DSYNC),
    ("fua-dsync", "rwf-dsync", [], "pvsync2", DSYNC),
    ("fua-dsync", "write-flush", [], "psync", ["--direct=1", "--fdatasync=1"]),
    ("fua-dsync", "none", [], "io_uring", DIRECT),
    ("fua-dsync", "fua", [], "io_uring", DSYNC),
    ("fua-dsync", "fua", ["--iodepth=32"], "io_uring", DSYNC),
    ("fua-dsync", "fua", ["--iodepth=128"], "io_uring", DSYNC),
    ("dontcache-kick", "buffered", [], "psync", []),
    ("dontcache-kick", "direct", [], "psync", DIRECT),
    ("dontcache-kick", "buffered", ["--fdatasync=1"], "psync", []),
    ("dm-linear-flush", "kernel", ["--fdatasync=1"], "psync", []),
]


def iops(context: Context, options: list[str]) -> float:
    """Writes per second of one job, 4 KiB at random places of a 64 MiB file."""
    done = context.fio(
        "--name=bench",
        *("--rw=randwrite", "--bs=4k", "--size=64m", "--overwrite=1", "--time_based"),
        f"--runtime={context.runtime * 1000:.0f}ms",
        f"--filename={context.directory / 'durabench-bench'}",
        *options,
    )
    write = done.jobs[0].directions["write"]
    return write.total_ios / write.runtime_ms * 1000


def figures(context: Context) -> Iterator[Figure]:
    for name, strategy, common, theirs, options in PAIRS:
        sides = [
            [*engine(name), f"--strategy={strategy}", *common],
            [f"--ioengine={theirs}", *options, *common],
        ]
        ratios = []
        for number in range(context.rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            measured = {side: iops(context, sides[side]) for side in order}
            ratios.append(measured[0] / measured[1])
        deciles = quantiles(ratios, n=10, method="inclusive")
        ours = " ".join([name, strategy, *common])
        yield Figure.at_least(
            f"{ours} / {' '.join([theirs, *options])}, IOPS".replace("--", ""), median(ratios), GOAL, (deciles[0], deciles[-1])
        )

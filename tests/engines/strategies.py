# SPDX-License-Identifier: GPL-2.0-only
"""Every way in which an engine submits, for the tests that take all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RWF_DONTCACHE = 0x80


def takes_dontcache(path: Path | str) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.preadv(fd, [bytearray(1)], 1 << 62, RWF_DONTCACHE)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@dataclass(frozen=True)
class Strategy:
    """A strategy, and what a write and a flush of it are made by."""

    engine: str
    name: str
    write: str  # the function, or the request of io_uring
    flush: str = ""  # of each write: likewise
    flushes: int = 1  # of a sync
    lines: int = 0  # of its table
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.engine, self.name, *(value for _, value in self.options)])

    @property
    def ring(self) -> bool:
        return self.write.startswith("IORING_OP")

    @property
    def writes_back(self) -> bool:
        """Does it call sync_file_range(2)?"""
        return self.name in ("inline", "kick") or self.lines > 0

    def job(self, path: Path, size: int) -> dict[str, Any]:
        """The options of a job of it on a file; tables lie beside that."""
        job = {"strategy": self.name, **dict(self.options), "size": size}
        if not self.lines:
            return {**job, "filename": path}
        path.touch()
        if path.stat().st_size < size:
            with path.open("r+b") as file:
                file.truncate(size)
        table = path.with_name(f"table-of-{path.name}")
        length = size // 512 // self.lines
        table.write_text("".join(f"{i * length} {length} linear {path} {i * length}\n" for i in range(self.lines)))
        return {**job, "filename": f"mapped-{path.name}", "table": table}


STRATEGIES = [
    Strategy("fua-dsync", "dsync", "pwrite64"),
    Strategy("fua-dsync", "rwf-dsync", "pwritev64v2"),
    Strategy("fua-dsync", "write-flush", "pwrite64", "fdatasync"),
    Strategy("fua-dsync", "fua", "IORING_OP_WRITE"),
    Strategy("fua-dsync", "fua-flush", "IORING_OP_WRITE", "IORING_OP_FSYNC"),
    Strategy("fua-dsync", "none", "IORING_OP_WRITE"),
    *(
        Strategy(
            "dontcache-kick",
            name,
            "IORING_OP_WRITE" if submit == "io_uring" else "pwritev64v2" if name == "dontcache" else "pwrite64",
            options=(("submit", submit),),
        )
        for name in ("buffered", "dontcache", "inline", "kick", "direct")
        for submit in ("pwritev2", "io_uring")
    ),
    Strategy("dm-linear-flush", "kernel", "pwrite64"),
    Strategy("dm-linear-flush", "per-target", "pwrite64", flushes=4, lines=4),
    Strategy("dm-linear-flush", "per-device", "pwrite64", lines=4),
    Strategy("dm-linear-flush", "per-device", "pwrite64", lines=4, options=(("coalesce", "1"),)),
]

ENGINES = sorted({strategy.engine for strategy in STRATEGIES})


def of_engine(engine: str) -> list[Strategy]:
    return [strategy for strategy in STRATEGIES if strategy.engine == engine]

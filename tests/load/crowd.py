# SPDX-License-Identifier: GPL-2.0-only
"""Many jobs on one device, each with a part of its own, and what has to be true of them.

Each writes its part, syncs now and then, and verifies what it wrote, in the
order and at the depth that a case says. What fio and the engine count must
agree, over all jobs; nothing may be left of them, and none may take much.
"""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from command import processes
from conftest import FioResult
from strategies import STRATEGIES, Strategy

JOBS = 256
KIB = 1024
MIB = 1024 * KIB
BLOCK = 4 * KIB
SECTOR = 512
# Lines of a table; they take turns between its devices.
LINES = 16
MAX_FLUSHES = 64  # in flight, of a job
DEVICES = 2
# Of a job, beside its buffers; most of it is fio's own, and the ring of a flusher.
MEMORY_LIMIT = 4 * MIB
BIGGEST_BLOCK = 64 * KIB

# Every strategy, and of those which can share flushes both ways.
CROWDED = [
    replace(s, lines=LINES if s.lines else 0, options=options)
    for s in STRATEGIES
    if s.engine != "dm-linear-flush" or not s.options
    for options in ([s.options] if s.engine != "dm-linear-flush" else [(), (("coalesce", "1"),)])
]


@dataclass(frozen=True)
class Case:
    """What each of the jobs does."""

    strategy: Strategy
    where: str = "device"  # one for all; "file": one for all on a file system; "files": a file for each
    thread: int = 0
    depth: int = 1
    part: int = 64 * KIB  # bytes of a job
    options: dict[str, Any] = field(default_factory=dict)
    jobs: int = JOBS
    memory: int = MEMORY_LIMIT

    def __str__(self) -> str:
        words = [self.strategy, self.where, "threads" if self.thread else "processes", f"depth={self.depth}", f"part={self.part // KIB}k"]
        return " ".join([*map(str, words), *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def flushes_of_a_sync(self) -> int:
        return {"per-target": LINES, "per-device": DEVICES}.get(self.strategy.name, 1)

    def job(self, devices: list[str], folder: Path, scratch: Path) -> dict[str, Any]:
        """The options of fio, for a case on devices or in a folder of a file system."""
        job = {
            "strategy": self.strategy.name,
            **dict(self.strategy.options),
            "thread": self.thread,
            "iodepth": self.depth,
            "numjobs": self.jobs,
            "size": self.part,
            "bs": BLOCK,
            "verify": "crc32c",
            "verify_fatal": 1,
            **self.options,
        }
        if self.where == "files":
            return {**job, "directory": folder}
        job["offset_increment"] = self.part
        files = [str(folder / f"file-{i}") for i in range(DEVICES)]
        if self.where == "file":
            for file in files:
                with open(file, "ab") as made:
                    made.truncate(self.part * self.jobs)
        below = files if self.where == "file" else devices
        if not self.strategy.lines:
            return {**job, "filename": below[0]}
        length = self.part * self.jobs // SECTOR // LINES
        table = scratch / "table"
        table.write_text("".join(f"{i * length} {length} linear {below[i % DEVICES]} {i // DEVICES * length}\n" for i in range(LINES)))
        return {**job, "filename": "mapped", "table": table}

    @property
    def reads_back(self) -> bool:
        """Can another run find out what this one wrote? Of mixed jobs fio can't."""
        return self.options.get("rw", "write") in ("write", "randwrite") and "verify_backlog" not in self.options and not self.strategy.lines


def draw(chance: random.Random) -> Case:
    """One of all the cases that there are, which take about as long as each other."""
    strategy = chance.choice(CROWDED)
    deep = strategy.ring and chance.random() < 0.7
    flushed = strategy.flush or strategy.name.endswith("dsync") or strategy.name == "fua"
    options: dict[str, Any] = {
        "rw": chance.choice(["write", "randwrite", "randwrite", "randrw", "rw"]),
        "verify": chance.choice(["crc32c", "xxhash", "sha1"]),
        "randseed": chance.randrange(1 << 30),
    }
    sync = chance.choice([0, 0, 1, 4, 32]) if not flushed else 0
    if strategy.engine == "dm-linear-flush":
        sync = chance.choice([1, 4, 32])
    if sync:
        options[chance.choice(["fsync", "fdatasync"])] = sync
    if chance.random() < 0.3:
        options["verify_backlog"] = chance.choice([8, 64])
    if chance.random() < 0.3:
        options["verify_async"] = 1
    if chance.random() < 0.3:
        options["bssplit"] = "4k/60:16k/30:64k/10"
    if strategy.name == "kick" and chance.random() < 0.5:
        options["kick_backlog"] = chance.choice(["4k", "1m", "16m"])
    # The kernel has RWF_DONTCACHE for file systems.
    places = ["device", "file"] if strategy.lines else ["file", "files"] if strategy.name == "dontcache" else ["device", "file", "files"]
    where = chance.choice(places)
    part = chance.choice([64, 128]) * KIB if flushed or sync in (1, 4) else chance.choice([256, 512, 1024]) * KIB
    return Case(strategy, where, chance.randrange(2), 128 if deep else 1, part, options)


@dataclass(frozen=True)
class Sample:
    """What the processes of a run have at a time."""

    memory: int = 0  # bytes in all, but of files; shared ones once
    descriptors: int = 0
    threads: int = 0


@dataclass
class Seen:
    samples: list[Sample] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)

    @property
    def memory(self) -> int:
        """At the most."""
        return max((sample.memory for sample in self.samples), default=0)

    def look(self, pids: Iterable[int]) -> None:
        memory = descriptors = threads = 0
        for pid in pids:
            self.pids.add(pid)
            try:
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                memory += sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem): +(\d+)", rollup, re.MULTILINE))) * KIB
                descriptors += len(os.listdir(f"/proc/{pid}/fd"))
                threads += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:  # it has ended
                continue
        self.samples.append(Sample(memory, descriptors, threads))


@contextmanager
def watched(name: Path, every_s: float = 0.5) -> Iterator[Seen]:
    """Look at all processes with a name in their command line until the end."""
    seen, ended = Seen(), threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            seen.look(processes(name))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


def total(lines: list[dict[str, Any]], key: str) -> int:
    return sum(line[key] for line in lines)


def check(case: Case, result: FioResult, seen: Seen, scratch: Path) -> None:
    """That all went well, is counted alike by fio and the engine, and is over."""
    assert result.exit_status == 0, result.stderr
    assert "verify" not in result.stderr, result.stderr
    assert result.json, result.stderr
    check_counts(case, result.json["jobs"], result.counters)

    left = processes(scratch)
    assert not left
    assert not segments_of(seen.pids)
    buffers = case.depth * (BIGGEST_BLOCK if "bssplit" in case.options else BLOCK)
    assert seen.memory <= (case.memory + buffers) * case.jobs, f"{seen.memory // case.jobs} bytes a job"


def check_counts(case: Case, jobs: list[dict[str, Any]], counters: list[dict[str, Any]]) -> None:
    """That fio's jobs and the engine's counters say the same, and nothing else than the case."""
    assert len(jobs) == len(counters) == case.jobs
    assert {job["error"] for job in jobs} == {line["error"] for line in counters} == {0}

    done = [job["write"] for job in jobs]
    assert total(counters, "writes") == total(done, "total_ios")
    assert total(counters, "write_bytes") == total(done, "io_bytes")
    assert total(done, "short_ios") == total(done, "drop_ios") == 0
    written, syncs = total(counters, "writes"), total(counters, "syncs")
    assert written > 0
    if "runtime" not in case.options:
        # Each byte that was written was read again.
        assert total(counters, "read_bytes") >= total(counters, "write_bytes")
    assert syncs == sum(job["sync"]["lat_ns"]["N"] for job in jobs if "sync" in job)

    strategy = case.strategy
    flushes = total(counters, "flush_calls")
    if strategy.engine == "dm-linear-flush":
        assert flushes + total(counters, "flushes_shared") == syncs * case.flushes_of_a_sync
    else:
        assert flushes == syncs + (written if strategy.flush else 0)
    if strategy.engine == "fua-dsync":
        assert total(counters, "durable_writes") == (0 if strategy.name == "none" else written)
    if strategy.name == "kick":
        assert total(counters, "kicks") + total(counters, "kicks_coalesced") == written
        assert total(counters, "throttled") <= written
        assert total(counters, "dropped_bytes") == total(counters, "writeback_bytes")


def segments_of(pids: set[int]) -> list[str]:
    """Shared memory that these processes made and that is still there."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    made_by = lines[0].split().index("cpid")
    return [line for line in lines[1:] if int(line.split()[made_by]) in pids]

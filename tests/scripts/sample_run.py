# SPDX-License-Identifier: GPL-2.0-only
"""Makes run folders for the tests of what reads them: numbers are chosen, the shapes are those of docs/formats.md and
of fio 3.33."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import layout

MEASUREMENT = """
schema = "durabench-measurement/1"
name = "sample"
title = "a sample"
engine = "fua-dsync"
targets = ["block"]
before = "dsync"
after = "fua"
strategies = ["dsync", "fua", "none", "buffered", "direct"]
published = "sample.toml"
[variables]
RUNTIME = "60"
[[case]]
name = "seq"
job = "seq.fio"
headline = true
metrics = [
  { name = "write.iops", better = "higher" },
  { name = "write.clat.p99", better = "lower" },
  { name = "dirty_peak", better = "lower" },
]
[[case]]
name = "sync"
job = "seq.fio"
variant = "as-published"
published = "other"
metrics = [{ name = "sync.lat.p50", better = "lower" }, { name = "write.bw", better = "higher" }]
"""

PUBLISHED = """
schema = "durabench-published/1"
name = "sample"
[[table]]
case = "seq"
rows = [
  { metric = "write.iops", unit = "IOPS", before = 100.0, after = 5000.0 },
  { metric = "write.clat.p99", unit = "us", before = 8000.0, after = 400.0 },
]
[[table]]
case = "other"
rows = [{ metric = "write.bw", unit = "MiB/s", before = 1.0, after = 3.0 }]
"""


def only_measurement(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make this measurement the only one there is, in a folder of its own; its folder."""
    (folder / "jobs/sample").mkdir(parents=True)
    (folder / "jobs/sample/measurement.toml").write_text(MEASUREMENT)
    (folder / "jobs/sample/seq.fio").write_text("[seq]\n")
    (folder / "published").mkdir()
    (folder / "published/sample.toml").write_text(PUBLISHED)
    monkeypatch.setattr(layout, "jobs", lambda: folder / "jobs")
    monkeypatch.setattr(layout, "published", lambda: folder / "published")
    return folder / "jobs/sample"


def bucket(ns: int) -> int:
    """Midpoint of the bucket of fio's histogram that a latency falls in (fio stat.h: 64 for each power of two)."""
    if ns < 128:
        return ns
    width = 1 << (ns.bit_length() - 7)
    return ns // width * width + width // 2


def latency(samples: Sequence[int]) -> dict[str, Any]:
    """fio's JSON object for these latencies in ns."""
    if not samples:
        return {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    counts = Counter(bucket(each) for each in samples)
    return {
        "min": min(samples),
        "max": max(samples),
        "mean": statistics.mean(samples),
        "stddev": statistics.stdev(samples) if len(samples) > 1 else 0.0,
        "N": len(samples),
        "bins": {str(key): counts[key] for key in sorted(counts)},
    }


def job(
    name: str = "seq",
    *,
    writes: Sequence[int] = (),
    reads: Sequence[int] = (),
    syncs: Sequence[int] = (),
    runtime_ms: int = 1000,
    block: int = 4096,
    error: int = 0,
    start_ms: int | None = None,
    group: int = 0,
    **options: str,
) -> dict[str, Any]:
    """fio's JSON object for a job: the latencies in ns of its writes, reads and syncs."""

    def direction(samples: Sequence[int]) -> dict[str, Any]:
        return {
            "io_bytes": block * len(samples),
            "total_ios": len(samples),
            "runtime": runtime_ms if samples else 0,
            "clat_ns": latency(samples),
        }

    return {
        "jobname": name,
        "groupid": group,
        **({} if start_ms is None else {"job_start": start_ms}),
        "error": error,
        "job options": options,
        "read": direction(reads),
        "write": direction(writes),
        "trim": direction([]),
        "sync": {"total_ios": 0, "lat_ns": latency(syncs)},
    }


def document(*jobs: dict[str, Any], version: str = "fio-3.33") -> str:
    """fio's output for these jobs."""
    return json.dumps({"fio version": version, "jobs": list(jobs)}, indent=2) + "\n"


def device(name: str = "loop0", role: str = "target", **counts: Any) -> dict[str, Any]:
    """A device as the observer saw it."""
    return {
        "name": name,
        "role": role,
        "of": [],
        "writes": 0,
        "write_sectors": 0,
        "flushes": 0,
        "flush_ms": 0,
        **counts,
    }


def observed(*devices: dict[str, Any], dirty_mib: float = 1.0, elapsed_s: float = 1.0) -> dict[str, Any]:
    """The observer's summary."""
    return {
        "schema": "durabench-observe/1",
        "elapsed_s": elapsed_s,
        "devices": list(devices),
        "system": {"dirty_writeback_peak_bytes": int(dirty_mib * 2**20), "cpu_user_s": 0.25, "cpu_system_s": 0.5},
    }


class SampleRun:
    """A run folder to be: add repetitions, then write."""

    def __init__(self, folder: Path, label: str = "one", **manifest: Any) -> None:
        self.folder = folder
        folder.mkdir()
        self.manifest: dict[str, Any] = {
            "schema": "durabench-run/1",
            "durabench": "0.1.0",
            "measurement": "sample",
            "label": label,
            "created": "2026-11-30T10:00:00Z",
            "status": "complete",
            "target": {
                "kind": "block",
                "path": "/dev/loop0",
                "resolved": "/dev/loop0",
                "device": "/dev/loop0",
                "write_cache": "write back",
                "fua": True,
                "scheduler": "none",
            },
            "environment": {
                "kernel": "6.18.0",
                "cmdline": "",
                "fio": "fio-3.33",
                "fio_path": "/usr/bin/fio",
                "engines": "build/engines",
                "machine": "x86_64",
                "cpus": 2,
                "memory_bytes": 2**33,
                "virtualization": "none",
                "date": "2026-11-30",
            },
            "cases": [],
            "strategies": [],
            "variables": {"RUNTIME": "1"},
            "repeat": 1,
            "repetitions": [],
            **manifest,
        }

    def add(
        self,
        case: str,
        strategy: str,
        fio: str,
        observe: dict[str, Any] | None = None,
        counters: Sequence[dict[str, Any]] = (),
        status: str = "ok",
        **entry: Any,
    ) -> Path:
        """Add a repetition; its folder."""
        entries = self.manifest["repetitions"]
        turn = 1 + sum((each["case"], each["strategy"]) == (case, strategy) for each in entries)
        name = f"{len(entries) + 1:03d}-{case}-{strategy}-{turn}"
        folder = self.folder / name
        folder.mkdir()
        (folder / "fio.json").write_text(fio)
        if observe is not None:
            (folder / "observe.json").write_text(json.dumps(observe))
        if counters:
            lines = [{"schema": "durabench-counters/1", "job": case, **each} for each in counters]
            (folder / "counters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        entries.append(
            {
                "order": len(entries) + 1,
                "case": case,
                "strategy": strategy,
                "round": turn,
                "dir": name,
                "status": status,
                **entry,
            }
        )
        return folder

    def write(self) -> Path:
        """Write the manifest; the run's folder."""
        for key in ("case", "strategy"):
            names = dict.fromkeys(each[key] for each in self.manifest["repetitions"])
            self.manifest["cases" if key == "case" else "strategies"] = list(names)
        (self.folder / "run.json").write_text(json.dumps(self.manifest))
        return self.folder

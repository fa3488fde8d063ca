# SPDX-License-Identifier: GPL-2.0-only
"""A run that has something to show in every figure, and its figures."""

from __future__ import annotations

import json
from pathlib import Path

from durabenchlib import compare, figures, report, results
from sample_run import SampleRun, device, document, job, observed

HOSTILE = "</script><script>alert(1)</script>\"'&%s$x_{1}$\x1b[2J{{7*7}}"


def run_of(
    folder: Path, name: str = "run", strategies: tuple[str, ...] = ("dsync", "fua", "none"), **manifest: object
) -> Path:
    """A run with everything a figure can show."""
    run = SampleRun(folder / name, **manifest)
    for turn in (1, 2):
        for factor, strategy in enumerate(strategies, start=1):
            writes = [1_000_000 // factor + 1000 * i for i in range(1200 * factor + 10 * turn)]
            path = run.add(
                "seq",
                strategy,
                document(job("seq", writes=writes, log_avg_msec="500", log_hist_msec="500")),
                observed(device(writes=2 * len(writes), flushes=(3 - factor) * len(writes)), dirty_mib=factor),
                [{"writes": len(writes), "durable_writes": len(writes)}],
            )
            (path / "seq_bw.1.log").write_text("500, 1024, 1, 0\n1000, 3072, 1, 0\n")
            # Of log_hist_coarseness=6: a bucket for each power of two.
            counts = [[0] * 14 + [99, 0, 0, 1] + [0] * 11, [0] * 29, [0] * 14 + [9] + [0] * 14]
            lines = [", ".join(map(str, (500 * i, 1, 4096, *row))) for i, row in enumerate(counts, start=1) if any(row)]
            (path / "seq_clat_hist.1.log").write_text("".join(line + "\n" for line in lines))
            lines = [{"schema": "durabench-samples/1", "interval_ms": 100, "start": "", "devices": ["loop0"]}]
            lines += [
                {
                    "t": t / 10,
                    "dirty": 2**20,
                    "writeback": t * 2**20,
                    "cached": 0,
                    "cpu": {},
                    "dev": {"loop0": [0, 0, 0, 0, t, 0]},
                }
                for t in range(1, 11)
            ]
            (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (path / "job.fio").write_text("[seq]\nrw=write\n")
            (path / "command.json").write_text(
                json.dumps({"command": ["fio", "a b.fio"], "environment": {"LC_ALL": "C"}})
            )
    return run.write()


def contexts(path: Path) -> list[figures.Context]:
    run = results.load_run(path)
    (measurement,) = compare.compare_runs(run, run).measurements
    return [context for context, _ in report._contexts("1-sample", run, run, measurement)]


def drawn(path: Path) -> dict[str, figures.Figure]:
    """Figures of the run's case by the name of their declaration."""
    (context,) = contexts(path)
    return {name: figure for name, make in figures.FIGURES.items() if (figure := make(context))}

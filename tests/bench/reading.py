# SPDX-License-Identifier: GPL-2.0-only
"""How fast `durabench show` reads results and logs, and in how much memory, beside fio-plot and fio's own tools on the same files.

All run in turn, round by round, and the order is reversed every other round. A figure is the median over the rounds of
theirs/ours: CPU time (user and system) and elapsed time of the whole command, and its peak memory. Each of the others does the
least that it does with such files: fiologparser.py one interval, fio2gnuplot what it writes for gnuplot, fio-plot one picture of
all. The log has the four columns of older fios, since fiologparser.py of fio 3.33 reads no other. All run by the same Python.

The logs are synthetic, the results copies of one run of fio. Peak memory of show must be that of a log of a quarter of the size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import numpy as np
from common import Context, Figure, Unmeasured

ROOT = Path(__file__).resolve().parents[2]
SHOW: list[str | Path] = ["sh", ROOT / "scripts/durabench", "show"]
TOOLS = ROOT / "build/fio/source/tools"
FIO_PLOT = "https://github.com/louwrentius/fio-plot"
FIO_PLOT_TAG = "v1.1.21"

FASTER_GOAL = 10.0
MEMORY_GOAL = 1.0
GROWTH_GOAL = 1.1
MOST_ROUNDS = 3
RESULTS = 1000
DEPTHS, JOBS = 20, 50  # of the results, all different: fio-plot tells them apart by these
BUCKETS = 29 * 64
LINES = 1 << 20  # made at once

# Of a process of its own, which is small: what forks leaves its size to the child's peak.
MEASURE = """
import resource, subprocess, sys, time
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
began = time.monotonic()
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss / 1024)
sys.stderr.write(done.stderr.decode(errors="replace")[-1000:])
sys.exit(done.returncode != 0)
"""

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Usage:
    """Of a command: CPU time, elapsed time, and the most memory of one of its processes."""

    cpu_s: float
    elapsed_s: float
    peak_mib: float


def usage(command: Command) -> Usage:
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    most = 1024 * int(memory["MemAvailable"].split()[0])
    # So that show finds this Python too.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["timeout", "7200", sys.executable, "-c", MEASURE, str(most), *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    if done.returncode:
        raise Unmeasured((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return Usage(*map(float, done.stdout.split()))


def compared(what: str, sides: dict[str, Command], rounds: int, failed: list[str], logs: bool = True) -> Iterator[Figure]:
    """The figures of each of the others over those of show; `failed` grows by what can't be measured. Memory is told of logs
    alone: other tools read results one by one."""
    found: dict[str, list[Usage]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(found)[:: 1 if number % 2 == 0 else -1]:
            try:
                found[name].append(usage(sides[name]))
            except Unmeasured as reason:
                failed.append(f"{name} over {what}: {reason}")
                del found[name]
    ours = found.pop("show", [])
    for name, theirs in found.items():
        if ours:
            pairs = list(zip(theirs, ours, strict=True))
            yield ratio(f"{what}: {name}'s CPU / show's", [(t.cpu_s, o.cpu_s) for t, o in pairs], FASTER_GOAL)
            yield ratio(f"{what}: {name}'s time / show's", [(t.elapsed_s, o.elapsed_s) for t, o in pairs], FASTER_GOAL)
            if logs:
                yield ratio(f"{what}: {name}'s memory / show's", [(t.peak_mib, o.peak_mib) for t, o in pairs], MEMORY_GOAL)


def ratio(name: str, pairs: list[tuple[float, float]], goal: float) -> Figure:
    ratios = [theirs / ours for theirs, ours in pairs]
    deciles = quantiles(ratios, n=10, method="inclusive")
    return Figure.at_least(name, median(ratios), goal, (deciles[0], deciles[-1]))


def growth(what: str, whole: Path, quarter: Path) -> Figure:
    grown = usage([*SHOW, whole]).peak_mib / usage([*SHOW, quarter]).peak_mib
    return Figure.at_most(f"{what}: show's memory / that of a quarter", grown, GROWTH_GOAL)


def latency_log(path: Path, size: int) -> Path:
    """Writes at 70,000 a second whose latencies are log-normal."""
    random = np.random.default_rng(1)
    done = 0
    with path.open("w") as file:
        while size > 0:
            msec = (done + np.arange(LINES)) // 70
            done += LINES
            nsec = np.exp(random.normal(11.5, 0.6, LINES)).astype(int)
            text = "".join(map("%d, %d, 1, 4096\n".__mod__, zip(msec.tolist(), nsec.tolist(), strict=True)))
            file.write(text[: text.rfind("\n", 0, size) + 1])
            size -= len(text)
    return path


def histogram_log(path: Path, size: int) -> Path:
    """A line a second of 5,000 writes."""
    random = np.random.default_rng(1)
    second = 0
    with path.open("w") as file:
        while file.tell() < size:
            second += 1
            counts = np.bincount(random.normal(600, 40, 5000).astype(int).clip(0, BUCKETS - 1), minlength=BUCKETS)
            file.write(f"{1000 * second}, 1, 4096, {', '.join(map(str, counts.tolist()))}\n")
    return path


def results(context: Context, folder: Path) -> list[Path]:
    """JSON+ of one run, as of runs with different depths and numbers of jobs."""
    file = context.directory / "durabench-bench"
    context.fio(
        *("--output-format=json+", "--name=bench", "--ioengine=psync", "--rw=randwrite", "--bs=4k", "--size=64m"),
        *("--fdatasync=1", "--slat_percentiles=1", "--clat_percentiles=1", "--lat_percentiles=1", "--time_based"),
        *(f"--runtime={context.runtime * 1000:.0f}ms", f"--filename={file}"),
    )
    document = json.loads((context.out / "fio.json").read_text())
    options = document["jobs"][0]["job options"]
    made = []
    for number in range(RESULTS):
        options["iodepth"], options["numjobs"] = str(number % DEPTHS + 1), str(number // DEPTHS + 1)
        made.append(folder / f"{number}.json")
        made[-1].write_text(json.dumps(document, indent=2))
    return made


def fio_plot(context: Context, failed: list[str]) -> list[str | Path] | None:
    """Its command, from a checkout of it, which is fetched if there is none; None if it can't be had."""
    tree = context.fio_plot or context.out / "fio-plot"
    if not (tree / "bin/fio-plot").exists():
        clone: list[str | Path] = ["timeout", "120", "git", "clone", "-q", "--depth=1", "--branch", FIO_PLOT_TAG, FIO_PLOT, tree]
        done = subprocess.run(clone, capture_output=True, text=True)
        if done.returncode:
            failed.append(f"fio-plot can't be had from {FIO_PLOT} ({done.stderr.strip()}); give it with --fio-plot DIR")
            return None
    return ["env", "MPLBACKEND=agg", f"PYTHONPATH={tree}", sys.executable, tree / "bin/fio-plot", "-r", "randwrite"]


def figures(context: Context) -> Iterator[Figure]:
    failed: list[str] = []
    plot = fio_plot(context, failed)
    rounds = min(context.rounds, MOST_ROUNDS)
    size = context.log_mb * 10**6
    with TemporaryDirectory(dir=context.directory) as name:
        folder = Path(name)
        picture: list[str | Path] = ["-T", "bench", "-o", folder / "picture.png"]

        what = f"{context.log_mb} MB lat log"
        (folder / "log").mkdir()
        log = latency_log(folder / "log" / "randwrite-iodepth-1-numjobs-1_lat.1.log", size)
        sides: dict[str, Command] = {
            "show": [*SHOW, log],
            "fiologparser.py": [sys.executable, TOOLS / "fiologparser.py", "-i", str(2**40), log],
        }
        (folder / "gnuplot").mkdir()
        gnuplot = [sys.executable, TOOLS / "plot/fio2gnuplot", "-p", log.name, "-d", folder / "gnuplot", "-o", "out"]
        sides["fio2gnuplot"] = ["env", "-C", log.parent, *gnuplot]
        if plot:
            sides["fio-plot"] = [*plot, "-i", log.parent, *picture, "-g", "-t", "lat", "-d", "1", "-n", "1", "-f", "write"]
        yield from compared(what, sides, rounds, failed)
        yield growth(what, log, latency_log(folder / "quarter_lat.1.log", size // 4))
        log.unlink()

        what = f"{context.log_mb} MB hist log"
        log = histogram_log(folder / "bench_clat_hist.1.log", size)
        tool = TOOLS / "hist/fio-histo-log-pctiles.py"
        sides = {
            "show": [*SHOW, log],
            tool.name: [sys.executable, tool, "--time-quantum", str(2**30), log],
        }
        yield from compared(what, sides, rounds, failed)
        yield growth(what, log, histogram_log(folder / "quarter_clat_hist.1.log", size // 4))
        log.unlink()

        what = f"{RESULTS} results"
        made = results(context, folder)
        each = 'for file; do "$0" "$tool" "$file" "${file%.json}" || exit; done'
        tool = TOOLS / "fio_jsonplus_clat2csv"
        sides = {
            "show": [*SHOW, *made],
            tool.name: ["env", f"tool={tool}", "sh", "-c", each, sys.executable, *made],
        }
        if plot:
            depths, jobs = ([str(number + 1) for number in range(most)] for most in (DEPTHS, JOBS))
            chart = ["-L", "-t", "iops", "-M", str(DEPTHS), "-J", str(JOBS), "-d", *depths, "-n", *jobs]
            sides["fio-plot"] = [*plot, "-i", folder, *picture, *chart]
        yield from compared(what, sides, rounds, failed, logs=False)
    if failed:
        raise Unmeasured("; ".join(failed))

# SPDX-License-Identifier: GPL-2.0-only
"""Takes fio's own JSON files, by anyone, for a run: each file is a repetition, each job name a case."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from . import __version__, fiojson, formats
from .errors import Exit, Failure
from .formats import Better, Metric
from .results import Repetition, Run

# What such a run has for a measurement, and its cases for a strategy.
NAME = STRATEGY = "fio"

# Options in which the repetitions of one job can't differ, by the names that fio also takes for them.
_DEFINING = {
    "ioengine": (),
    "rw": ("readwrite",),
    "bs": ("blocksize",),
    "iodepth": (),
    "numjobs": (),
    "size": (),
    "direct": (),
    "sync": (),
    "fsync": (),
    "fdatasync": (),
    "rwmixread": (),
    "rwmixwrite": (),
    "runtime": (),
    "rate": (),
    "rate_iops": (),
}


def is_fio(path: Path) -> bool:
    """Whether a path is taken for fio's own files: a file that is no manifest of a run, or a folder without one."""
    # Unlike pathlib's, none of these fails where a folder may not be looked into.
    return os.path.isfile(path) and path.name != "run.json" or os.path.isdir(path) and not os.path.exists(path / "run.json")


def load(paths: Sequence[Path], label: str) -> Run:
    """Read fio's files, and those in folders in the order of their names, as the repetitions of one run."""
    refuse_twice(paths)
    found = [file for path in paths for file in files(path)]
    repetitions: list[Repetition] = []
    unusable: list[str] = []
    versions: dict[str, None] = {}
    for order, path in enumerate(found, 1):
        fio = fiojson.read(path)
        if fio.errors():
            unusable.append(f"Repetition {path} is left out: {fio.errors()[0]}.")
            continue
        versions[fio.version] = None
        for name in dict.fromkeys(job.name for job in fio.jobs):
            entry = formats.Repetition(order, name, STRATEGY, order, str(path), status="ok")
            jobs = [job for job in fio.jobs if job.name == name]
            repetitions.append(Repetition(entry, path.parent, dataclasses.replace(fio, jobs=jobs), None, []))
    if not repetitions:
        raise Failure(Exit.INPUT, f"{label}: has no usable file. {unusable[0]}")
    _check_alike(repetitions)
    cases = [
        formats.Case(name, job="", metrics=_metrics([each for each in repetitions if each.entry.case == name]))
        for name in dict.fromkeys(each.entry.case for each in repetitions)
    ]
    measurement = formats.Measurement(
        name=NAME,
        title=", ".join(case.name for case in cases),
        engine="",
        targets=[],
        before=STRATEGY,
        after=STRATEGY,
        strategies=[STRATEGY],
        case=cases,
    )
    folder = str(found[0].parent) if len(found) > 1 else str(found[0])
    manifest = formats.Run(
        durabench=__version__,
        measurement=measurement.name,
        label=label,
        created="",
        status="complete",
        target=formats.Target("file", path=folder, resolved=folder),
        environment=formats.Environment(
            kernel="unknown",
            cmdline="",
            fio=", ".join(versions),
            fio_path="",
            engines="",
            machine="",
            cpus=0,
            memory_bytes=0,
            virtualization="",
            date="",
        ),
        cases=[case.name for case in cases],
        strategies=[STRATEGY],
        variables={},
        repeat=len(found),
        repetitions=[each.entry for each in repetitions],
    )
    return Run(Path(folder), manifest, measurement, None, repetitions, unusable)


def better(name: str) -> Better:
    """Which way a metric of this name is better."""
    return "higher" if name.rpartition("/")[2].endswith((".iops", ".bw", "sync.count")) else "lower"


def differences(before: Run, after: Run) -> list[str]:
    """What is asked of fio otherwise on one side than on the other, for each job."""
    found = []
    for case in before.measurement.case:
        old, new = (run.of(case.name, STRATEGY) for run in (before, after))
        if old and new:
            asked, now = _defined(old[0]), _defined(new[0])
            changed = [f"{name} ({asked[name]} before, {now[name]} after)" for name in asked if asked[name] != now[name]]
            if changed:
                found.append(f"{case.name} was not asked for the same: {', '.join(changed)}.")
    return found


def files(path: Path) -> list[Path]:
    """fio's files of a folder, in the order of their names, or the file itself."""
    if not os.path.isdir(path):
        return [path]
    try:
        found = sorted(each for each in path.iterdir() if each.suffix in (".json", ".json+") and each.is_file())
    except OSError as error:
        raise Failure(Exit.INPUT, f"{path}: can't be read: {error.strerror}") from None
    if not found:
        raise Failure(Exit.INPUT, f"{path}: has neither a run.json nor any file *.json of fio's")
    return found


def refuse_twice(paths: Iterable[Path]) -> None:
    """Refuse a result that is named twice, by whatever names: it would count as two that agree."""
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        for key, file in identities(path):
            if key in seen:
                again = "is named twice" if file == seen[key] else f"is the same file as {seen[key]}"
                raise Failure(Exit.USAGE, f"{file}: {again}; name each result once")
            seen[key] = file


def identities(path: Path) -> Iterator[tuple[tuple[int, int], Path]]:
    """The files that a path stands for, fio's own or the manifest of a run, each with what all its names have in common."""
    for file in files(path) if is_fio(path) else [path / "run.json" if os.path.isdir(path) else path]:
        # What can't be read is named where that is tried.
        with contextlib.suppress(OSError):
            status = file.stat()
            yield (status.st_dev, status.st_ino), file


def _metrics(repetitions: Sequence[Repetition]) -> list[Metric]:
    """The metrics that these have: rate and latency of what they read and wrote, and of their syncs."""

    def known(name: str) -> bool:
        return all(each.metric(name) is not None for each in repetitions)

    names: list[str] = []
    for direction in ("read", "write"):
        done = (job.directions.get(direction) for each in repetitions for job in each.fio.jobs)
        if any(each is not None and each.total_ios for each in done):
            names += [f"{direction}.iops", *_latencies(f"{direction}.clat", known)]
    names += _latencies("sync.lat", known)
    return [Metric(name, better(name)) for name in names if known(name)]


def _latencies(of: str, known: Callable[[str], bool]) -> list[str]:
    """The mean stands in for percentiles that were not kept, or can't be merged."""
    return [f"{of}.p50", f"{of}.p99"] if known(f"{of}.p50") else [f"{of}.mean"]


def _check_alike(repetitions: Iterable[Repetition]) -> None:
    first: dict[str, Repetition] = {}
    for each in repetitions:
        other = first.setdefault(each.entry.case, each)
        asked, now = _defined(other), _defined(each)
        for name in asked:
            if asked[name] != now[name]:
                raise Failure(
                    Exit.INPUT,
                    f"{each.entry.dir}: is no repetition of {other.entry.dir}: job {each.entry.case!r} has {name}={now[name]} "
                    f"and there {name}={asked[name]}",
                )


def _defined(repetition: Repetition) -> dict[str, str]:
    """The defining options of the jobs; `-` where one is not given."""
    options = repetition.fio.jobs[0].options
    return {
        name: next((options[key] for key in (name, *others) if key in options), "-") for name, others in _DEFINING.items()
    }

# SPDX-License-Identifier: GPL-2.0-only
"""What is suspicious in a fio document: numbers that are there and do not mean what they seem to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .document import DIRECTIONS, Direction, Document, Job, is_on
from .latency import SATURATED_NS, Latency

# A percentile is told by the samples beyond it; with fewer than these it is a matter of chance.
ENOUGH_BEYOND = 10
PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)

_ERROR = re.compile(r"\berr=\s*[1-9]|\bio_u error\b|^fio: verif")
# By what fio's own figures may differ, which it rounds.
_ROUNDING = 0.02


@dataclass(frozen=True)
class Suspicion:
    """A name for programs, and three sentences: what there is, why it matters, what to do."""

    code: str
    what: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.why} {self.remedy}"


def suspicions(document: Document, percents: Sequence[float] = PERCENTS) -> list[Suspicion]:
    """All that is suspicious in a document, and in these percentiles of its distributions; the gravest first."""
    return [
        *_contradictions(document.jobs),
        *_hidden_errors(document),
        *_documents(document),
        *_nothing_done(document),
        *_patched(document.jobs),
        *_saturated(document.jobs, percents),
        *few_samples(_all(document.jobs), percents),
        *_sync_counts(document.jobs),
        *_mixed(document.jobs),
        *_grouped(document.jobs),
        *_without_bins(document.jobs),
        *_fsync_on_close(document.jobs),
        *_clock(document.jobs),
        *_old(document.jobs),
        *_repeated(document),
    ]


def mixed_versions(versions: Sequence[str]) -> Iterator[Suspicion]:
    """Of several documents that stand beside each other."""
    found = sorted(set(versions))
    if len(found) > 1:
        yield Suspicion(
            "mixed-versions",
            f"The files are of several versions of fio: {', '.join(each or 'unknown' for each in found)}.",
            "Releases differ in what they measure and how they count it.",
            "Compare what one fio has measured.",
        )


def distributions(job: Job) -> Iterator[tuple[str, Latency]]:
    """A job's distributions that have samples, by their names (`write.clat`, `sync.lat`). Of the two latencies of a
    direction, the total one is only told where it alone has percentiles."""
    for name, each in job.directions.items():
        total = not (each.clat.percentiles or each.clat.bins) and (each.lat.percentiles or each.lat.bins)
        kind, latency = ("lat", each.lat) if total else ("clat", each.clat)
        if latency.n != 0:
            yield f"{name}.{kind}", latency
    if job.sync.n != 0:
        yield "sync.lat", job.sync


def _all(jobs: Iterable[Job]) -> Iterator[tuple[str, Latency]]:
    """All distributions, each called by its job and name."""
    return ((f"{job.name!r} {name}", latency) for job in jobs for name, latency in distributions(job))


def _some(names: Sequence[str]) -> str:
    """The first of several names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _contradictions(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    found = [f"{job.name!r} {each}" for job in jobs for each in _contradict(job)]
    if found:
        yield Suspicion(
            "contradiction",
            f"Numbers contradict each other: {_some(found)}.",
            "fio prints none that do, so the file was edited, abridged or damaged.",
            "Rely on none of them; take the file that fio wrote.",
        )


def _contradict(job: Job) -> Iterator[str]:
    for name, each in job.directions.items():
        yield from _rates_contradict(name, each)
        for kind in ("clat", "lat"):
            yield from _latency_contradicts(f"{name}.{kind}", getattr(each, kind))
    yield from _latency_contradicts("sync.lat", job.sync)


def _rates_contradict(name: str, each: Direction) -> Iterator[str]:
    if each.io_bytes is not None and each.io_kbytes is not None and each.io_bytes // 1024 != each.io_kbytes:
        yield f"{name} has {each.io_bytes} bytes and {each.io_kbytes} KiB"
    # In less time than that, rounding is seen.
    if each.runtime_ms is None or 0 < each.runtime_ms < 100:
        return
    for amount, rate, unit, least in ((each.io_bytes, each.bw_bytes, "bytes", 1024), (each.total_ios, each.iops, "I/Os", 1)):
        if amount is None or rate is None:
            continue
        computed = 1000 * amount / each.runtime_ms if each.runtime_ms else 0
        if abs(computed - rate) > max(_ROUNDING * max(computed, rate), least):
            yield f"{name} did {amount} {unit} in {each.runtime_ms} ms, and {rate:.0f} {unit} a second"


def _latency_contradicts(name: str, latency: Latency) -> Iterator[str]:
    least, most, mean = latency.min, latency.max, latency.mean
    if latency.bins and latency.n != latency.binned:
        yield f"{name} has {latency.n} samples, and {latency.binned} in its bins"
    if least is not None and most is not None and (
        least > most or (mean is not None and not 0.99 * least - 1000 <= mean <= 1.01 * most + 1000)
    ):
        yield f"{name} is {least:.0f} to {most:.0f} ns, {mean or 0:.0f} in the mean"
    values = [latency.percentiles[percent] for percent in sorted(latency.percentiles)]
    if values != sorted(values):
        yield f"{name} has percentiles that fall"
    # A bucket's midpoint lies beyond the largest sample by less than a 128th, or by less than 1 in fio's unit.
    elif values and most is not None and most < latency.limit and values[-1] > 1.01 * most + 1000:
        yield f"{name} is at most {most:.0f} ns, and has a percentile of {values[-1]:.0f} ns"


def _hidden_errors(document: Document) -> Iterator[Suspicion]:
    for job in document.jobs:
        if job.errors and not job.error:
            yield Suspicion(
                "hidden-error",
                f"Job {job.name!r} went on after {job.errors} errors and reports none.",
                "With continue_on_error, an I/O that failed counts as done.",
                "Find what failed, and measure without continue_on_error.",
            )
    lines = [line for line in document.messages if _ERROR.search(line)]
    if lines and not document.errors():
        yield Suspicion(
            "hidden-error",
            f"The text around the JSON tells of an error that no job reports: {lines[0][:200]!r}.",
            "A part of the work may be missing from the numbers.",
            "Find what failed, and measure again.",
        )


def _documents(document: Document) -> Iterator[Suspicion]:
    if document.damaged:
        yield Suspicion(
            "damaged",
            f"The {document.damaged[0]}.",
            "What it said is lost; the last document of the file is whole, and is the one told.",
            "Check whether the one you mean is there.",
        )
    if document.others:
        yield Suspicion(
            "several-runs",
            f"Earlier documents of the file are of other runs, or not in the order of time: {document.others}.",
            "Only the last is told.",
            "Give each run a file of its own (--output).",
        )
    if document.interim:
        yield Suspicion(
            "status-interval",
            f"Earlier documents of the file show the same run: {document.interim}.",
            "With status-interval fio prints all since the start each time, not what was done in between.",
            "The last one, told here, is the result; for a course over time use logs (write_bw_log).",
        )


def _nothing_done(document: Document) -> Iterator[Suspicion]:
    done = [each.total_ios or each.io_bytes for job in document.jobs for each in job.directions.values()]
    if not any(done) and not document.errors():
        yield Suspicion(
            "nothing-done",
            "No I/O was done, and no error is reported.",
            "There is nothing to be told.",
            "See whether the job had anything to do (size, runtime, filename).",
        )


def _patched(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    odd = sorted({name for job in jobs for name in job.directions if name not in DIRECTIONS})
    if odd:
        yield Suspicion(
            "patched-fio",
            f"There are directions that fio does not have: {', '.join(map(repr, odd))}.",
            "A patched fio wrote this; what it counts under such a name, and under fio's own, is its own matter.",
            "Ask who patched it before comparing.",
        )


def _saturated(jobs: Sequence[Job], percents: Sequence[float]) -> Iterator[Suspicion]:
    found = [
        f"{name} from p{next(percent for percent in percents if latency.saturated(percent)):g} on"
        for name, latency in _all(jobs)
        if any(latency.saturated(percent) for percent in percents)
    ]
    if found:
        yield Suspicion(
            "saturated",
            f"Percentiles lie beyond the end of fio's histogram: {_some(found)}.",
            "All that takes 17.1 s or more (16.7 s before fio 2.99) is counted as the same; maximum and mean are exact.",
            "Read them as 'that much or more'.",
        )


def few_samples(latencies: Iterable[tuple[str, Latency]], percents: Sequence[float]) -> Iterator[Suspicion]:
    """Of distributions by their names."""
    found = []
    for name, latency in latencies:
        told = [percent for percent in percents if latency.tells(percent)]
        few = [percent for percent in told if latency.n is not None and latency.n * (100 - percent) < 100 * ENOUGH_BEYOND]
        if few:
            found.append(f"{name} from p{few[0]:g} on ({latency.n} samples)")
    if found:
        yield Suspicion(
            "few-samples",
            f"Percentiles rest on fewer than {ENOUGH_BEYOND} samples beyond them: {_some(found)}.",
            "They are a matter of chance: the next run gives others.",
            "Run longer (p99 takes 1,000 samples, p99.9 10,000), or merge repetitions.",
        )


def _sync_counts(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    found = [repr(job.name) for job in jobs if job.syncs_printed == 0 and job.sync.n != 0]
    if found:
        yield Suspicion(
            "sync-count",
            f"sync.total_ios is 0 where syncs were timed: {_some(found)}.",
            "fio up to 3.42 counts fdatasync and sync_file_range as short reads and writes.",
            "The number told here is that of the latencies; that in short_ios tells of no short I/O.",
        )


def _mixed(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    found = [repr(job.name) for job in jobs if "mixed" in job.directions]
    if found:
        yield Suspicion(
            "mixed",
            f"Reads, writes and trims are reported as one, 'mixed': {_some(found)}.",
            "unified_rw_reporting adds them up; where fio also reports them apart, mixed is their sum.",
            "Measure without it to tell them apart.",
        )


def _grouped(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    entries = Counter((job.name, job.host) for job in jobs)
    asked = {(job.name, job.host): job.options.get("numjobs", "") for job in jobs}
    found = [
        f"{name!r} stands for {number}"
        for (name, host), number in asked.items()
        if number.isdecimal() and len(number) < 9 and int(number) > entries[name, host]
    ]
    if found:
        yield Suspicion(
            "grouped",
            f"group_reporting hides jobs: {_some(found)}.",
            "Its entry is their sum over the time of the longest; whether one of them starved can't be told.",
            "Measure without group_reporting; what is told of all jobs is the same.",
        )


def _without_bins(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    all_of: dict[str, list[Latency]] = {}
    for job in jobs:
        for name, latency in distributions(job):
            all_of.setdefault(name, []).append(latency)
    found = [name for name, each in all_of.items() if len(each) > 1 and not all(latency.bins for latency in each)]
    if found:
        yield Suspicion(
            "no-bins",
            f"Percentiles of all jobs together can't be told: {_some(found)}.",
            "Percentiles can't be averaged; they take the histograms, which plain JSON has not.",
            "Run fio with --output-format=json+.",
        )


def _fsync_on_close(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    found = [repr(job.name) for job in jobs if is_on(job.options, "fsync_on_close")]
    if found:
        yield Suspicion(
            "fsync-on-close",
            f"The sync at the end is not in the time: {_some(found)}.",
            "fio takes the time before the fsync of fsync_on_close, so that rates are too high.",
            "Use end_fsync=1.",
        )


def _clock(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    all_of = [latency for _, latency in _all(jobs) if latency.limit == SATURATED_NS and latency.max]
    whole = all_of and all((each.max or 0) % 1000 == 0 and (each.min or 0) % 1000 == 0 for each in all_of)
    if whole and any((each.mean or 0) < 100_000 for each in all_of):
        yield Suspicion(
            "coarse-clock",
            "All latencies are whole microseconds.",
            "The clock of that machine ticks no faster, so that latencies of a few us are rounded.",
            "Take differences of 1 us for none.",
        )


def _old(jobs: Sequence[Job]) -> Iterator[Suspicion]:
    if any(latency.limit != SATURATED_NS for _, latency in _all(jobs)):
        yield Suspicion(
            "old-fio",
            "The fio is older than 2.99.",
            "It measured whole microseconds, printed whole KiB (before 2.21), and did not time syncs.",
            "Compare with a newer one only as far as that matters.",
        )


def _repeated(document: Document) -> Iterator[Suspicion]:
    if document.repeated:
        yield Suspicion(
            "repeated-option",
            f"Options were given more than once: {_some(document.repeated)}.",
            "The last one counts for most, and is the one told.",
            "Give each once.",
        )

# SPDX-License-Identifier: GPL-2.0-only
"""Warnings that stand beside a comparison: each says what is wrong with the numbers, why, and what to do about it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from . import fiojson, foreign, formats, order, results, strategies
from .results import Pair, Repetition, Run


def _queue(run: Run) -> formats.Target:
    """The target, without what a dm device does not queue by, which some kernels show all the same."""
    target = run.manifest.target
    return replace(target, scheduler=None, nr_requests=None) if target.kind == "dm" else target


# What must be alike for a difference to be of one cause.
_COMPARED = (
    ("kernel", lambda run: run.manifest.environment.kernel),
    ("fio", lambda run: run.manifest.environment.fio),
    ("hosts", lambda run: ", ".join(each.address for each in run.manifest.environment.hosts)),
    ("kernel's command line", lambda run: run.manifest.environment.cmdline),
    ("CPUs", lambda run: run.manifest.environment.cpus),
    ("CPU", lambda run: run.manifest.environment.cpu_model),
    ("memory", lambda run: f"{run.manifest.environment.memory_bytes / 2**30:.1f} GiB"),
    ("virtualization", lambda run: run.manifest.environment.virtualization),
    ("clock", lambda run: run.manifest.environment.lab and run.manifest.environment.lab.clock),
    ("accelerator", lambda run: run.manifest.environment.lab and run.manifest.environment.lab.accelerator),
    ("QEMU", lambda run: run.manifest.environment.lab and run.manifest.environment.lab.qemu),
    ("devices of the lab", lambda run: run.manifest.environment.lab and "; ".join(run.manifest.environment.lab.devices)),
    ("kind of target", lambda run: run.manifest.target.kind),
    ("device", lambda run: " ".join(filter(None, (run.manifest.target.model, run.manifest.target.serial)))),
    ("scheduler", lambda run: _queue(run).scheduler),
    ("write cache", lambda run: run.manifest.target.write_cache),
    ("FUA", lambda run: run.manifest.target.fua),
    ("writeback throttling", lambda run: run.manifest.target.wbt_lat_usec),
    ("requests in flight", lambda run: _queue(run).nr_requests),
    ("block size", lambda run: run.manifest.target.logical_block_size),
    ("file system", lambda run: run.manifest.target.filesystem),
    ("mount options", lambda run: run.manifest.target.mount_options),
    ("variables", lambda run: run.manifest.variables),
)

# What two runs are made to be compared for.
_EXPECTED = {"kernel"}


@dataclass(frozen=True)
class Difference:
    """What is not alike of two runs, as text; `expected` if runs are compared for that."""

    name: str
    before: str
    after: str
    expected: bool


def differences(before: Run, after: Run) -> list[Difference]:
    """All that was recorded of two runs, should be alike for a difference to be of one cause, and is not."""
    return [
        Difference(name, _shown(read(before)), _shown(read(after)), name in _EXPECTED)
        for name, read in _COMPARED
        if read(before) != read(after)
    ]


def warnings(before: Run, after: Run, pairs: Sequence[Pair]) -> list[str]:
    """All warnings for a comparison, the gravest first."""
    runs = [before] if before.path == after.path else [before, after]
    found: list[str] = []
    for run in runs:
        found += _incomplete(run)
        found += _not_compared(run, pairs)
        found += contradictions(run)
    if len(runs) == 2:
        found += of_differences(differences(before, after))
    found += _durability(pairs)
    found += _flushes(runs, pairs)
    found += _repetitions(pairs)
    found += order.warnings(pairs)
    found += _percentiles(pairs)
    found += _page_allocation(runs, pairs)
    found += _sync_counts(pairs)
    # Of other hosts a note says so.
    if not all(run.manifest.environment.hosts for run in runs):
        found += _mechanism(pairs)
    found += _as_published(pairs)
    for run in runs:
        found += [f"{run.manifest.label}: {note}" if len(runs) == 2 else note for note in run.manifest.notes]
    return list(dict.fromkeys(found))


def _incomplete(run: Run) -> Iterator[str]:
    manifest = run.manifest
    if missing := manifest.missing():
        yield f"The run {run.path.name} {missing} What is missing may not be missing by chance."
    yield from run.unusable
    if manifest.demo:
        yield (
            "This is the shortened demonstration: the mechanism is real, the numbers are too short for a claim. "
            "Run `durabench run` without --demo for those."
        )


def _not_compared(run: Run, pairs: Sequence[Pair]) -> Iterator[str]:
    compared = {pair.case.name for pair in pairs}
    known = {case.name for case in run.measurement.case}
    for name in dict.fromkeys(each.entry.case for each in run.repetitions):
        ways = dict.fromkeys(each.entry.strategy for each in run.repetitions if each.entry.case == name)
        if name not in known:
            yield f"{name} of {run.path.name} is not compared: the measurement has no such case any more."
        elif name not in compared:
            yield f"{name} of {run.path.name} is not compared: it was measured with {', '.join(ways)} only."


def of_differences(found: Sequence[Difference]) -> list[str]:
    """The warning of what is not alike of two runs, if anything."""
    listed = "; ".join(f"{each.name} ({each.before} before, {each.after} after)" for each in found)
    if len(found) == 1:
        return [f"Between the runs differs: {listed}. All else that was recorded is equal."]
    return [
        f"Between the runs differ: {listed}. The ratios are the sum of all of that; to see what one of it does, "
        "keep the rest equal."
    ][: len(found)]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value not in (None, "") else "unknown"


def contradictions(run: Run) -> Iterator[str]:
    """What fio's files of a run say that can't be."""
    found: dict[str, str] = {}
    for each in run.repetitions:
        for suspicion in fiojson.suspicions(each.fio, ()):
            if suspicion.code == "contradiction":
                found.setdefault(each.entry.dir, str(suspicion))
    for name, text in itertools.islice(found.items(), 3):
        yield f"{name}: {text}"
    if len(found) > 3:
        yield f"{run.path}: {len(found)} files in all contradict themselves (durabench show)."


def _durability(pairs: Sequence[Pair]) -> Iterator[str]:
    names = list(dict.fromkeys(name for pair in pairs for name, _ in pair.sides() if not strategies.is_durable(name)))
    if names:
        yield (
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not durable: a power cut may lose writes that "
            "were reported complete, until a sync."
        )


def _flushes(runs: Sequence[Run], pairs: Sequence[Pair]) -> Iterator[str]:
    """What a device without FUA, or without a volatile cache, can't show of the redundant flush."""
    if not any({"dsync", "rwf-dsync"} & {strategy for strategy, _ in pair.sides()} for pair in pairs):
        return
    for target in {run.manifest.target.path: run.manifest.target for run in runs}.values():
        if target.filesystem in ("tmpfs", "ramfs"):
            yield (
                f"{target.path} is on {target.filesystem}, in memory: nothing is durable there, whatever it is called, and no flush is needed "
                "or counted. Measure on a disk."
            )
        elif target.write_cache == "write through":
            yield (
                f"{target.path} has no volatile write cache (write through), so the kernel sends it no flush and all "
                "durable ways cost the same: use a device whose write cache is on."
            )
        elif target.fua is False:
            yield (
                f"{target.path} has no FUA, so each durable write needs one flush at least: what is shown is two "
                "flushes a write against one. On a device with FUA it would be one against none."
            )


def _repetitions(pairs: Sequence[Pair]) -> Iterator[str]:
    single = dict.fromkeys(
        f"{pair.case.name} {strategy}"
        for pair in pairs
        for strategy, repetitions in pair.sides()
        if len(repetitions) == 1
    )
    if single:
        yield f"One repetition only of {', '.join(single)}: a difference of times can't be told from chance."


def _percentiles(pairs: Sequence[Pair]) -> Iterator[str]:
    few: dict[str, None] = {}
    saturated: dict[str, None] = {}
    for pair in pairs:
        for metric in pair.case.metrics:
            percent, distribution = results.percent(metric.name), results.distribution(metric.name)
            if percent is None or distribution is None:
                continue
            name = f"{pair.case.name} {metric.name}"
            latencies = [each.latency(distribution) for _, repetitions in pair.sides() for each in repetitions]
            least = min((each.n for each in latencies if each.n), default=None)
            needed = round(10 / (1 - percent / 100)) if percent < 100 else 0
            if least is not None and least < needed:
                few[f"{name} ({least} of {needed})"] = None
            if any(each.saturated(percent) for each in latencies):
                saturated[name] = None
    if few:
        yield (
            f"Too few samples for {', '.join(few)}: ten should lie beyond a percentile. "
            "Run longer, or read a lower percentile."
        )
    if saturated:
        yield (
            f"{', '.join(saturated)} is 17.1 s or more: fio's histogram ends there, so only the maximum and the mean "
            "are exact."
        )


def _page_allocation(runs: Sequence[Run], pairs: Sequence[Pair]) -> Iterator[str]:
    """Buffered writes that are slower than the same device takes with O_DIRECT are bound by something before the
    device."""
    for run in runs:
        for case in {pair.case.name: pair.case for pair in pairs}.values():
            buffered = _bandwidth(run.of(case.name, "buffered"))
            direct = _bandwidth(run.of(case.name, "direct"))
            compared = any(
                "buffered" in (pair.before_strategy, pair.after_strategy) for pair in pairs if pair.case is case
            )
            if buffered and direct and direct > 1.25 * buffered:
                yield (
                    f"{case.name}: buffered wrote {buffered:.0f} MiB/s where O_DIRECT reached {direct:.0f} on the same "
                    "target, so not the device bounds it but the page cache: on a virtual machine mostly the first "
                    "touch of memory that the host must hand out. Judge other ways against the better of buffered and "
                    "dontcache."
                )
            elif buffered and not direct and compared and run.manifest.environment.virtualization not in ("", "none"):
                yield (
                    f"{case.name}: on a virtual machine, buffered may be bound by the first touch of free memory "
                    "rather than by the device. Add --strategy direct to see what the device takes."
                )


def _bandwidth(repetitions: Sequence[Repetition]) -> float | None:
    values = [value for value in (each.metric("write.bw") for each in repetitions) if value is not None]
    return statistics.median(values) if values else None


def _sync_counts(pairs: Sequence[Pair]) -> Iterator[str]:
    for pair in pairs:
        for strategy, repetitions in pair.sides():
            for each in repetitions:
                writes, syncs = each.mechanism["writes"], each.mechanism["syncs"]
                if writes and syncs and syncs > writes + len(each.fio.jobs):
                    yield (
                        f"{pair.case.name} {strategy}: {syncs:.0f} syncs for {writes:.0f} writes. fio before 3.38 adds "
                        "syncs at a queue depth above 1 and after reads; use a newer fio or a depth of 1."
                    )
                    break


def _mechanism(pairs: Sequence[Pair]) -> Iterator[str]:
    blind = dict.fromkeys(
        f"{pair.case.name} {strategy}"
        for pair in pairs
        for strategy, repetitions in pair.sides()
        if strategy != foreign.STRATEGY and all(each.observed is None for each in repetitions)
    )
    if blind:
        yield (
            f"Nobody watched the device during {', '.join(blind)}, so why the numbers are as they are is not shown: "
            "durabench run does so by durabench-observe."
        )


def _as_published(pairs: Sequence[Pair]) -> Iterator[str]:
    names = dict.fromkeys(pair.case.name for pair in pairs if pair.case.variant == "as-published")
    if names:
        yield (
            f"{', '.join(names)} repeats the published benchmark with its defects; the measurement's README tells "
            "which, and the cases as described mend them."
        )

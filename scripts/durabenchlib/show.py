# SPDX-License-Identifier: GPL-2.0-only
"""`durabench show`: what a file of fio says, whoever made it, and what is suspicious in it."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import fiojson, logs, tables
from .errors import Exit, Failure
from .fiojson import Document, Job, Latency, Suspicion
from .units import MIB

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "durabench-show/1"
FORMATS = ("text", "md", "csv", "json")
# So few that with them a line of text has 80 characters.
TEXT_PERCENTS = (50.0, 99.0, 99.9)
# What a log's values are divided by for people, and what they then are.
_SCALES = {"ns": (1000, "us"), "KiB/s": (1024, "MiB/s"), "IOPS": (1, "IOPS"), None: (1, "?")}


@dataclass(frozen=True)
class Row:
    """One distribution of one job, or of all jobs together (`job` null), and what was done in its direction. Percentiles
    by their percent; one at or beyond `limit_ns` lies in the last bucket of fio's histogram."""

    host: str | None
    job: str | None
    distribution: str
    ios: int | None
    bytes: int | None
    runtime_s: float | None
    iops: float | None
    bw_bytes: float | None
    samples: int | None
    min_ns: float | None
    mean_ns: float | None
    stddev_ns: float | None
    max_ns: float | None
    percentiles_ns: dict[str, float]
    limit_ns: int


@dataclass(frozen=True)
class ShownJob:
    """A job, a clone of it, or a group; `error` is an errno."""

    host: str | None
    name: str
    group: int
    error: int
    options: dict[str, str]


@dataclass(frozen=True)
class LogSeries:
    """What a log has of one direction: values in the log's unit, times in s."""

    direction: str
    samples: int
    start_s: float
    end_s: float
    min: float | None
    mean: float | None
    stddev: float | None
    max: float | None
    percentiles: dict[str, float]


@dataclass(frozen=True)
class ShownLog:
    """What a log says; its kind and its unit are null where its name does not tell."""

    kind: str | None
    unit: str | None
    lines: int
    averaged: bool
    resets: int
    series: list[LogSeries] = field(default_factory=list)


@dataclass(frozen=True)
class Shown:
    """What a file says; of one that was `refused`, only why. `failures` says what went wrong in the run."""

    path: str
    kind: str
    refused: str | None = None
    fio: str | None = None
    time: str | None = None
    failures: list[str] = field(default_factory=list)
    warnings: list[Suspicion] = field(default_factory=list)
    jobs: list[ShownJob] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    log: ShownLog | None = None


@dataclass(frozen=True)
class Show:
    """What several files say; `warnings` are of the files together."""

    files: list[Shown]
    warnings: list[Suspicion]
    schema: str = SCHEMA


def look(
    path: Path,
    percents: Sequence[float] = fiojson.PERCENTS,
    summaries: dict[Path, logs.Summary] | None = None,
    printed: bool = True,
) -> Shown:
    """What a file says, by what it is, with these percentiles and warnings of them, and with those that fio printed. What a log
    says is put into `summaries` too."""
    try:
        if os.path.isdir(path):
            os.listdir(path)
            raise Failure(Exit.INPUT, f"{path}: is a folder without any file *.json of fio's; name the files in it")
        return _fio_log(path, percents, {} if summaries is None else summaries) if logs.is_log(path) else _fio_json(path, percents, printed)
    except Failure as failure:
        return Shown(str(path), "unknown", refused=str(failure))
    except OSError as error:
        return Shown(str(path), "unknown", refused=f"{path}: can't be read: {error.strerror}")


def _fio_json(path: Path, percents: Sequence[float], printed: bool) -> Shown:
    document = fiojson.read(path)
    return Shown(
        path=str(path),
        kind="fio-json",
        fio=document.version or None,
        time=_time(document.time_s),
        failures=document.errors(),
        warnings=fiojson.suspicions(document, percents),
        jobs=[ShownJob(job.host, job.name, job.group, job.error, dict(job.options)) for job in document.jobs],
        rows=list(_rows(document, percents, printed)),
        messages=document.messages,
    )


def _fio_log(path: Path, percents: Sequence[float], summaries: dict[Path, logs.Summary]) -> Shown:
    summaries[path] = logs.summarize(path)
    kind = "clat_hist" if summaries[path].histograms else logs.kind(path)
    return _log(str(path), kind, summaries[path], percents)


def _log(path: str, kind: str | None, summary: logs.Summary, percents: Sequence[float]) -> Shown:
    unit = None if kind is None else {"bw": "KiB/s", "iops": "IOPS"}.get(kind, "ns")
    series = []
    for direction, each in summary.series.items():
        values = {percent: each.values.percentile(percent) for percent in fiojson.PERCENTS}
        series.append(
            LogSeries(
                direction=direction,
                samples=each.values.n or 0,
                start_s=each.start_s,
                end_s=each.end_s,
                min=each.values.min,
                mean=each.values.mean,
                stddev=each.values.stddev,
                max=each.values.max,
                percentiles={f"{percent:g}": value for percent, value in values.items() if value is not None},
            )
        )
    log = ShownLog(kind, unit, summary.lines, summary.averaged, summary.resets, series)
    return Shown(path, "fio-log", warnings=list(_log_suspicions(log, summary, percents)), log=log)


def _log_suspicions(log: ShownLog, summary: logs.Summary, percents: Sequence[float]) -> Iterator[Suspicion]:
    if not log.lines:
        yield Suspicion("nothing-done", "It is empty.", "The job did no I/O, or was killed.", "Look at what fio printed.")
    if log.resets:
        yield Suspicion(
            "several-runs",
            f"Its time goes back {log.resets} times.",
            "So several runs, or several jobs, stand in it one after another, and are taken together here.",
            "Remove logs before a run, and give each job its own (per_job_logs=1).",
        )
    if log.kind in ("clat", "slat", "lat") and any(each.percentiles.get("50", 1000) < 1000 for each in log.series):
        yield Suspicion(
            "log-unit",
            "Half of its latencies are less than 1000.",
            "They are read as ns; fio before 3.0 wrote us, and a log does not say which.",
            "See which fio it is of: of such a one, all are a thousand times as long.",
        )
    if log.averaged:
        yield Suspicion(
            "averaged",
            "Its lines have no block size, as those of log_avg_msec, each an average over some time.",
            "Percentiles and maximum are those of the averages, and hide what single I/Os took.",
            "Take them from JSON+ or a log of histograms, or log without log_avg_msec.",
        )
    elif log.unit == "ns":
        yield from fiojson.few_samples([(direction, each.values) for direction, each in summary.series.items()], percents)


def joint_logs(summaries: dict[Path, logs.Summary], percents: Sequence[float]) -> Iterator[Shown]:
    """What the latency logs of several jobs of one run, by their names, say together. (Rates are not added: their lines stand for
    other times.)"""
    groups: dict[Path, list[Path]] = {}
    for path in summaries:
        if logs.kind(path) not in (None, "bw", "iops"):
            groups.setdefault(logs.of_all_jobs(path), []).append(path)
    for name, paths in groups.items():
        if len(paths) > 1:
            yield _log(str(name), logs.kind(paths[0]), logs.merge([summaries[path] for path in paths]), percents)


def _time(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def _rows(document: Document, percents: Sequence[float], printed: bool) -> Iterator[Row]:
    for job in document.jobs:
        yield from _of_jobs([job], job.host, job.name, percents, printed)
    hosts: dict[str | None, list[Job]] = {}
    for job in document.jobs:
        hosts.setdefault(job.host, []).append(job)
    if len(hosts) > 1:
        for host, jobs in hosts.items():
            if len(jobs) > 1:
                yield from _of_jobs(jobs, host, None, percents, printed)
    if len(document.jobs) > 1:
        yield from _of_jobs(document.jobs, None, None, percents, printed)


def _of_jobs(
    jobs: Sequence[Job], host: str | None, name: str | None, percents: Sequence[float], printed: bool
) -> Iterator[Row]:
    found: dict[str, list[Latency]] = {}
    for job in jobs:
        for each, latency in fiojson.distributions(job):
            found.setdefault(each, []).append(latency)
    # What was done and not timed (gtod_reduce) is told too.
    for direction in dict.fromkeys(each for job in jobs for each in job.directions):
        done = any(job.directions[direction].total_ios for job in jobs if direction in job.directions)
        if done and not any(each.startswith(f"{direction}.") for each in found):
            found[f"{direction}.clat"] = []
    syncs = [job.syncs for job in jobs]
    if any(syncs):
        found.setdefault("sync.lat", [])
    for each in sorted(found, key=_order):
        latency = fiojson.merge(found[each])
        direction = each.rpartition(".")[0]
        ios = fiojson.total(jobs, direction, "total_ios")
        if direction == "sync":
            ios = None if None in syncs else sum(count or 0 for count in syncs)
        told = sorted({*percents, *latency.percentiles}) if printed else percents
        # fio prints them with 6 decimals.
        values = {f"{percent:.9g}": latency.percentile(percent) for percent in told}
        yield Row(
            host=host,
            job=name,
            distribution=each,
            ios=ios,
            bytes=None if direction == "sync" else fiojson.total(jobs, direction, "io_bytes"),
            runtime_s=fiojson.joint_seconds(jobs, direction),
            iops=fiojson.rate(jobs, direction, "total_ios"),
            bw_bytes=fiojson.rate(jobs, direction, "io_bytes"),
            samples=latency.n,
            min_ns=latency.min,
            mean_ns=latency.mean,
            stddev_ns=latency.stddev,
            max_ns=latency.max,
            percentiles_ns={percent: value for percent, value in values.items() if value is not None},
            limit_ns=latency.limit,
        )


def _order(distribution: str) -> tuple[int, str]:
    """fio's directions as fio has them, others behind, syncs last."""
    direction = distribution.rpartition(".")[0]
    known = {name: at for at, name in enumerate(fiojson.DIRECTIONS)}
    return known.get(direction, len(known) + (direction == "sync")), distribution


def _title(row: Row) -> str:
    return " ".join(filter(None, (row.host, "all jobs" if row.job is None else row.job)))


def _cells(row: Row, percents: Sequence[float]) -> list[str]:
    bandwidth = None if row.bw_bytes is None else row.bw_bytes / MIB
    return [
        row.distribution,
        "-" if row.ios is None else str(row.ios),
        tables.number(row.iops),
        tables.number(bandwidth),
        _us(row.mean_ns),
        *(_us(row.percentiles_ns.get(f"{percent:g}"), row.limit_ns) for percent in percents),
        _us(row.max_ns),
    ]


def _head(first: str, percents: Sequence[float]) -> list[str]:
    return [first, "I/Os", "IOPS", "MiB/s", "mean us", *(f"p{percent:g}" for percent in percents), "max us"]


def _log_cells(log: ShownLog, series: LogSeries, percents: Sequence[float]) -> list[str]:
    scale, _ = _SCALES[log.unit]
    values = (series.mean, *(series.percentiles.get(f"{percent:g}") for percent in percents), series.max)
    return [
        series.direction,
        str(series.samples),
        f"{series.start_s:.3f}",
        f"{series.end_s:.3f}",
        *(tables.number(None if value is None else value / scale) for value in values),
    ]


def _log_head(log: ShownLog, first: str, percents: Sequence[float]) -> list[str]:
    unit = _SCALES[log.unit][1]
    samples = "I/Os" if log.kind == "clat_hist" else "lines"
    return [first, samples, "from s", "to s", f"mean {unit}", *(f"p{percent:g}" for percent in percents), f"max {unit}"]


def _us(ns: float | None, limit_ns: float | None = None) -> str:
    beyond = ns is not None and limit_ns is not None and ns >= limit_ns
    return (">=" if beyond else "") + tables.number(None if ns is None else ns / 1000)


def _about(shown: Shown) -> str:
    """One line on a file."""
    if shown.log is not None:
        return f"{shown.log.kind or 'bw, iops or lat'} log, {shown.log.lines} line{'s' * (shown.log.lines != 1)}"
    jobs = "one job" if len(shown.jobs) == 1 else f"{len(shown.jobs)} jobs"
    return ", ".join(filter(None, (shown.fio or "fio of unknown version", jobs, shown.time)))


def print_text(show: Show, console: Console) -> None:
    """Print it for people, a file at once: the console takes its time over each call."""
    from rich.text import Text

    for lines in _texts(show):
        console.print(Text.assemble(*((f"{line}\n", style) for line, style in lines)), soft_wrap=True, end="")


def text(show: Show) -> str:
    """The same without colours."""
    return "".join(f"{line}\n" for lines in _texts(show) for line, _ in lines)


def _texts(show: Show) -> Iterator[list[tuple[str, str]]]:
    """Of each file, and of all together, the lines with their style."""
    first = True
    for shown in show.files:
        if shown.refused is not None:
            continue
        lines = [] if first else [("", "")]
        first = False
        lines.append((tables.printable(f"{shown.path}: {_about(shown)}"), "bold"))
        for failure in shown.failures:
            lines += _wrapped(f"failed: {failure}", "red")
        lines += [(line, "") for line in _table(shown.rows)]
        if shown.log is not None and shown.log.series:
            cells = [_log_cells(shown.log, each, TEXT_PERCENTS) for each in shown.log.series]
            lines += [(line, "") for line in _aligned([_log_head(shown.log, "", TEXT_PERCENTS), *cells])]
        for warning in shown.warnings:
            lines += _wrapped(f"warning: {warning}", "yellow")
        yield lines
    yield [line for warning in show.warnings for line in _wrapped(f"warning: {warning}", "yellow")]


@lru_cache  # many files have the same to be said of them
def _wrapped(line: str, style: str) -> list[tuple[str, str]]:
    parts = textwrap.wrap(tables.printable(line), tables.WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return [(part, style) for part in parts]


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """The rows below their job, in columns that fit into 80 characters where the numbers do."""
    if not rows:
        return
    cells = [_head("", TEXT_PERCENTS), *(_cells(row, TEXT_PERCENTS) for row in rows)]
    told: set[tuple[str, str]] = set()
    for title, (name, *_), line in zip(["", *map(_title, rows)], cells, _aligned(cells), strict=True):
        # Clones have the same name.
        if title not in {each for each, _ in told} or (title, name) in told:
            told = {(title, name)}
            if title:
                yield tables.printable(title)
        told.add((title, name))
        yield line


def _aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines of a table, the first column to the left and all others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    for row in cells:
        name, *numbers = (tables.printable(cell) for cell in row)
        yield "  ".join([f"  {name:{first}}", *(f"{cell:>{width}}" for cell, width in zip(numbers, others))])


def markdown(show: Show) -> str:
    """GitHub-flavoured Markdown."""
    out: list[str] = []
    cell = tables.markdown_cell
    for shown in show.files:
        if shown.refused is not None:
            out += [f"## {cell(shown.path)}", "", f"Refused: {cell(shown.refused)}", ""]
            continue
        out += [f"## {cell(shown.path)}", "", cell(_about(shown)), ""]
        out += [f"- failed: {cell(failure)}" for failure in shown.failures]
        out += [""] if shown.failures else []
        if shown.rows:
            head = ["job", *_head("distribution", fiojson.PERCENTS)]
            out += [tables.markdown_row(head), "|---|---|" + "--:|" * (len(head) - 2)]
            out += [tables.markdown_row([_title(row), *_cells(row, fiojson.PERCENTS)]) for row in shown.rows]
            out.append("")
        if shown.log is not None and shown.log.series:
            head = _log_head(shown.log, "direction", fiojson.PERCENTS)
            out += [tables.markdown_row(head), "|---|" + "--:|" * (len(head) - 1)]
            out += [tables.markdown_row(_log_cells(shown.log, each, fiojson.PERCENTS)) for each in shown.log.series]
            out.append("")
        out += [f"- warning: {cell(str(warning))}" for warning in shown.warnings]
        out += [""] if shown.warnings else []
    out += [f"- warning: {cell(str(warning))}" for warning in show.warnings]
    return "\n".join(out).rstrip() + "\n"


def comma_separated(show: Show) -> str:
    """CSV, a line for each distribution of each job, and of all jobs (of a host, of all) where there are several (no name)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    percents = [f"{each:g}" for each in fiojson.PERCENTS]
    writer.writerow(
        ("file", "fio", "host", "job", "distribution", "ios", "bytes", "runtime_s", "iops", "bw_bytes", "samples")
        + ("min_ns", "mean_ns", "stddev_ns", *(f"p{percent}_ns" for percent in percents), "max_ns")
    )
    for shown in show.files:
        for row in shown.rows:
            texts = (shown.path, shown.fio, row.host, row.job, row.distribution)
            writer.writerow(
                (*(text and tables.csv_text(text) for text in texts), row.ios, row.bytes, row.runtime_s, row.iops)
                + (row.bw_bytes, row.samples, row.min_ns, row.mean_ns, row.stddev_ns)
                + (*(row.percentiles_ns.get(percent) for percent in percents), row.max_ns)
            )
        if shown.log is not None:
            writer.writerows(_log_line(shown, shown.log, each, percents) for each in shown.log.series)
    return out.getvalue()


def _log_line(shown: Shown, log: ShownLog, series: LogSeries, percents: Sequence[str]) -> tuple[Any, ...]:
    """A line of CSV: of rates the mean alone, which has a column."""
    name = f"{series.direction}.{log.kind or 'log'}"
    latencies = log.unit == "ns"
    return (
        *(tables.csv_text(shown.path), None, None, None, name, None, None, None),
        series.mean if log.unit == "IOPS" else None,
        series.mean * 1024 if log.unit == "KiB/s" and series.mean is not None else None,
        series.samples,
        *((series.min, series.mean, series.stddev) if latencies else (None,) * 3),
        *(series.percentiles.get(percent) if latencies else None for percent in percents),
        series.max if latencies else None,
    )


def add_parser(subparsers: Any) -> None:
    """Add `show` to the command's parsers."""
    parser = subparsers.add_parser(
        "show",
        help="show what fio's output says, and what is suspicious in it",
        description="Show what the output of any fio says (JSON or JSON+, of 2.1 and newer; bw, iops, lat and histogram logs): "
        "rates, latencies and syncs of each job and of all together, and what does not mean what it seems to. FILE may be a "
        "run's folder, or one of fio's JSON files. Ends with 1 if a run itself had failed, with 3 if a file can't be read.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench show`."""
    percents = TEXT_PERCENTS if args.format == "text" else fiojson.PERCENTS
    summaries: dict[Path, logs.Summary] = {}
    files = [look(path, percents, summaries, args.format == "json") for given in args.files for path in _expand(given)]
    files += joint_logs(summaries, percents)
    incomplete = [each for given in args.files for each in _incomplete(given)]
    show = Show(files, [*incomplete, *fiojson.mixed_versions([each.fio or "" for each in files if each.refused is None])])
    if args.format == "json":
        from . import formats

        sys.stdout.write(formats.to_json(show))
    elif args.format == "text" and (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        from rich.console import Console

        print_text(show, Console())
    else:
        write = {"text": text, "md": markdown, "csv": comma_separated}[args.format]
        sys.stdout.write(write(show))
    for each in files:
        if each.refused is not None:
            print(tables.complaint(each.refused), file=sys.stderr)
    if any(each.refused is not None for each in files):
        return Exit.INPUT
    return Exit.FAILED if any(each.failures for each in files) else Exit.OK


def _incomplete(path: Path) -> Iterator[Suspicion]:
    """What is missing of a run, if the path is its folder."""
    if not os.path.isfile(path / "run.json"):
        return
    from . import formats

    why = "The files of a run do not tell what is not among them, and that may not be missing by chance."
    try:
        missing = formats.read_run(path).missing()
        remedy = "Wait for its end, or measure again."
    except Failure as failure:
        missing, remedy = f"can't tell whether it is complete: {failure}.", "Look whether the folder is all of it."
    if missing:
        yield Suspicion("incomplete-run", f"The run {path} {missing}", why, remedy)


def _expand(path: Path) -> list[Path]:
    """The results in a run's folder, or fio's JSON in any other; any other path is itself."""
    if not os.path.isdir(path):
        return [path]
    # It loads what takes longer than most shows.
    from . import foreign

    if os.path.isfile(path / "run.json"):
        return sorted(path.glob("*/fio.json")) or [path]
    try:
        return foreign.files(path)
    except Failure:  # one refused file hides no other
        return [path]

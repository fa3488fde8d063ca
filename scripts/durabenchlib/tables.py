# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as text for a mail, as Markdown and as CSV, and the sentence that says what came out."""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import strategies
from .units import MIB

if TYPE_CHECKING:
    from .formats import CaseComparison, Check, Comparison, MeasurementComparison, MetricComparison

# Of text: that of a patch's cover letter, so that a mail program neither wraps it nor, quoted a few times, its answers.
WIDTH = 72

# Of a name in the head of a column of text: with all columns as wide as they get, a row still has WIDTH.
_HEAD = 12
_INDENT = 2

# Keys of the mechanism with their names for people, in the order of what they explain; bytes are shown in MiB.
MECHANISM = {
    "flushes_per_write": "flushes per write",
    "flush_calls_per_sync": "flush calls per sync",
    "requests_per_write": "device requests per write",
    "dirty_writeback_peak_bytes": "peak Dirty+Writeback MiB",
    "kicks": "kicks",
    "kicks_coalesced": "kicks coalesced",
    "writeback_bytes": "written back by engine MiB",
    "writes": "writes",
    "durable_writes": "durable writes",
    "syncs": "syncs",
    "flush_calls": "flush calls",
    "flushes": "flushes of the device",
}

# What is only checked, and only had by its checks.
_CHECKED = {"requests_per_sync": "device requests per sync", "durable_writes_per_write": "durable writes per write"}

# What of it explains a result, the most telling first: what one side did, and what it did it for.
_EXPLAINS = {
    "flush_calls_per_sync": ("made", "flush calls per sync"),
    "flushes_per_write": ("issued", "flushes per write"),
    "requests_per_write": ("took", "device requests per write"),
    "dirty_writeback_peak_bytes": ("had up to", "MiB dirty or in writeback"),
    "kicks": ("woke the flusher", "times"),
}

# Of a verdict, for who can't tell colours apart.
SYMBOLS = {
    "improved": "\N{CHECK MARK}",
    "no change": "=",
    "regressed": "\N{MULTIPLICATION X}",
    "inconclusive": "?",
    "invalid": "!",
}


@dataclass(frozen=True)
class Row:
    """One line of a comparison, ready for showing. `interval` is that of the ratio, `spread` the least and the most of the
    repetitions on each side."""

    name: str
    before: str
    after: str
    ratio: str = ""
    interval: str = ""
    spread: str = ""
    verdict: str = ""
    published: tuple[str, str, str] = ("", "", "")

    @property
    def note(self) -> str:
        """What stands below it in a text."""
        judged = ", ".join(filter(None, (self.verdict, self.interval)))
        return "; ".join(filter(None, (judged, self.spread)))


def number(value: float | None) -> str:
    """Four significant digits, without exponent below 1e9."""
    return "-" if value is None else _significant(value, 4, 4)


def ratio(value: float | None) -> str:
    """A ratio with three significant digits."""
    return "-" if value is None else _significant(value, 3, 6) + "x"


def _significant(value: float, digits: int, decimals: int) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    if abs(value) >= 1e9:
        return f"{value:.2e}"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{min(max(digits - 1 - magnitude, 0), decimals)}f}"


def metric_rows(case: CaseComparison) -> list[Row]:
    """The metrics of a case."""
    rows = []
    for metric in case.metrics:
        before, after = (metric.values.get(side, []) for side in ("before", "after"))
        published = metric.published
        rows.append(
            Row(
                name=f"{metric.name} {metric.unit}",
                before=number(metric.before),
                after=number(metric.after),
                ratio=ratio(metric.ratio),
                interval="..".join(map(ratio, metric.interval or ())),
                spread=f"{_range(before)} -> {_range(after)}" if max(len(before), len(after)) > 1 else "",
                verdict=metric.verdict or "",
                published=(number(published.before), number(published.after), ratio(published.ratio))
                if published
                else ("", "", ""),
            )
        )
    return rows


def reasons(cases: Sequence[CaseComparison]) -> dict[str, str]:
    """Each reason for a verdict, with the names of what it is of."""
    known = {**MECHANISM, **_CHECKED}
    found: dict[str, dict[str, list[str]]] = {}
    for case in cases:
        judged: list[MetricComparison | Check] = [*case.metrics, *case.checks]
        for each in judged:
            if each.reason:
                found.setdefault(each.reason, {}).setdefault(case.name, []).append(known.get(each.name, each.name))
    return {
        reason: "; ".join(f"{case} {', '.join(dict.fromkeys(names))}" for case, names in of.items())
        for reason, of in found.items()
    }


def mechanism_rows(case: CaseComparison) -> list[Row]:
    """What the mechanism says on either side, without what neither has; and the verdict on what is checked."""
    rows = []
    checks = {check.name: check for check in case.checks}
    for key, name in MECHANISM.items():
        old, new = case.mechanism["before"][key], case.mechanism["after"][key]
        if old or new or ("_per_" in key and old is not None):
            judged = checks[key].verdict if key in checks else ""
            rows.append(Row(name, mechanism(key, old), mechanism(key, new), verdict=judged))
    for key, name in _CHECKED.items():
        if key in checks:
            before, after = (
                "..".join(dict.fromkeys(mechanism(key, end) for end in ends)) for ends in (checks[key].before, checks[key].after)
            )
            rows.append(Row(name, before, after, verdict=checks[key].verdict))
    return rows


def scale(key: str) -> int:
    """What a value of the mechanism is divided by to be shown: bytes are shown in MiB."""
    return MIB if key.endswith("_bytes") else 1


def mechanism(key: str, value: float | None) -> str:
    """A value of the mechanism: bytes in MiB, counts whole, what is per something with two decimals."""
    if value is None:
        return "-"
    if key.endswith("_bytes"):
        return number(value / scale(key))
    return f"{value:.2f}" if "_per_" in key and value < 100 else f"{value:.0f}"


def sides(case: CaseComparison) -> tuple[str, str]:
    """Heads of the two columns: the strategies, or where they are the same, before and after."""
    if case.before == case.after:
        return "before", "after"
    return strategies.label(case.before), strategies.label(case.after)


def verdict(case: CaseComparison) -> str:
    """The verdict on the case's headline metric, and what it is of. Where repetitions are too few for that, counts may tell
    all the same."""
    word = case.metrics[0].verdict
    counts = {check.verdict for check in case.checks} & {"improved", "regressed"}
    if word == "inconclusive" and counts:
        word = f"{word} (mechanism {' and '.join(sorted(counts))})"
    return f"{word}: {finding(case)}" if word else finding(case)


def finding(case: CaseComparison) -> str:
    """What came out for the case's headline metric, and the mechanism behind it, in one sentence."""
    metric = case.metrics[0]
    before, after = sides(case)
    name = case.name if case.before != case.after else f"{case.name} with {strategies.label(case.before)}"
    if metric.before is None or metric.after is None:
        return f"{name}: {metric.name} was not measured on both sides."
    published = f", published {ratio(metric.published.ratio)}" if metric.published else ""
    text = f"{name}: {before} {number(metric.before)} {metric.unit}, {after} {number(metric.after)} {metric.unit}"
    text += f" ({ratio(metric.ratio)}{published})"
    changed = metric.verdict in ("improved", "regressed")
    if changed and metric.ratio and metric.published and metric.published.ratio:
        if (metric.ratio > 1) != (metric.published.ratio > 1):
            text += ", the other way than what was published"
    because = _because(case)
    return f"{text}; {because}." if because else f"{text}."


def _because(case: CaseComparison) -> str:
    """The most telling part of the mechanism that changed; if none did, the flushes that stayed."""
    before_side, after_side = sides(case)
    for key, (did, what) in _EXPLAINS.items():
        before, after = case.mechanism["before"][key], case.mechanism["after"][key]
        if before is None or after is None or max(before, after) < 0.5:
            continue
        # The whole machine's dirty pages are noise where the case is not about them.
        if key == "dirty_writeback_peak_bytes" and all(metric.name != "dirty_peak" for metric in case.metrics):
            continue
        if max(before, after) > 1.25 * min(before, after):
            return f"{before_side} {did} {mechanism(key, before)} {what}, {after_side} {mechanism(key, after)}"
    flushes = case.mechanism["after"]["flushes_per_write"]
    return (
        f"both issued {mechanism('flushes_per_write', flushes)} flushes per write" if flushes and flushes >= 0.5 else ""
    )


def text(comparison: Comparison) -> str:
    """Text for people and mails: ASCII, at most WIDTH columns."""
    return "".join(line + "\n" for _, line in lines(comparison))


def lines(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """The lines of `text`, each with what it is: heading, text, table or warning."""
    for position, measurement in enumerate(comparison.measurements):
        if position:
            yield "text", ""
        yield from _lines(measurement)
    for missing in comparison.missing:
        yield "text", ""
        yield from _wrap("warning", f"missing: {missing}", "  ")


def cover(comparison: Comparison) -> str:
    """The text without its warnings, for where they stand already."""
    return "".join(line + "\n" for kind, line in lines(comparison) if kind != "warning")


def _lines(measurement: MeasurementComparison) -> Iterator[tuple[str, str]]:
    yield from _wrap("heading", f"{measurement.name}: {measurement.title}", "  ")
    for line in environment_lines(measurement):
        yield from _wrap("text", line, "  ")
    for case in measurement.cases:
        yield "text", ""
        yield from _wrap("heading", case_title(case), "  ")
        yield from (("table", line) for line in _metric_table(case))
        explained = "; ".join(_explanation(case))
        if explained:
            yield from _wrap("text", f"  mechanism: {explained}", "    ")
        yield "text", ""
        yield from _wrap("text", verdict(case), "  ")
    notes = [*footnotes(measurement)]
    if notes:
        yield "text", ""
    for note in notes:
        yield from _wrap("text", note, "  ")
    for warning in measurement.warnings:
        yield "warning", ""
        yield from _wrap("warning", f"warning: {warning}", "  ")


def footnotes(measurement: MeasurementComparison) -> Iterator[str]:
    """What the marks in the tables mean, where there are any."""
    if any(not strategies.is_durable(name) for case in measurement.cases for name in (case.before, case.after)):
        yield strategies.NOT_DURABLE_NOTE
    rows = [row for case in measurement.cases for row in metric_rows(case)]
    if measurement.statistics and any(row.note for row in rows):
        confidence = 100 - 100 * measurement.statistics.alpha
        yield f"below a metric: verdict, {confidence:g}% interval of the ratio; least..most of the repetitions"
    for reason, names in reasons(measurement.cases).items():
        yield f"{names}: {reason}"


def _explanation(case: CaseComparison) -> Iterator[str]:
    """What explains the numbers, before and after, without the counts that these are made of."""
    counts = {MECHANISM[key] for key in ("writes", "durable_writes", "syncs", "flush_calls", "flushes")}
    for row in mechanism_rows(case):
        if row.name not in counts:
            yield f"{row.name} {row.before}" + (f" -> {row.after}" if row.after != row.before else "")


def _metric_table(case: CaseComparison) -> Iterator[str]:
    rows = metric_rows(case)
    published = any(any(row.published) for row in rows)
    head = ["metric", *(_short(plain(name), _HEAD) for name in sides(case)), "ratio"]
    table = [[*head, "before", "after", "ratio"] if published else head]
    table += [[plain(row.name), row.before, row.after, row.ratio, *(row.published if published else ())] for row in rows]
    names, *columns = ([len(cell) for cell in column] for column in zip(*table, strict=True))
    widths = [max(column) for column in columns]
    gap = 2 if _INDENT + max(names) + sum(widths) + 2 * len(widths) <= WIDTH else 1
    # A name that leaves no room for the numbers has a line of its own.
    room = WIDTH - _INDENT - sum(widths) - gap * len(widths)
    first = max((name for name in names if name <= room), default=0)
    if published:
        yield "published".rjust(_INDENT + first + sum(widths) + gap * len(widths))
    for (name, *cells), note in zip(table, ["", *(row.note for row in rows)], strict=True):
        if len(name) > first:
            yield " " * _INDENT + _short(name, WIDTH - _INDENT)
            name = ""
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        yield (" " * _INDENT + (" " * gap).join([name.ljust(first), *numbers])).rstrip()
        yield from (line for _, line in _wrap("table", " " * 6 + note, " " * 8))


def _short(value: str, width: int) -> str:
    """The text, its end cut off where it is too long."""
    return value if len(value) <= width else value[: width - 2] + ".."


def _wrap(kind: str, line: str, following: str) -> Iterator[tuple[str, str]]:
    for part in textwrap.wrap(plain(line), WIDTH, subsequent_indent=following, break_on_hyphens=False):
        yield kind, part


def case_title(case: CaseComparison) -> str:
    """Name of a case, what stands against what, and how often."""
    before, after = strategies.label(case.before), strategies.label(case.after)
    sides = f"{before} -> {after}" if case.before != case.after else before
    times = case.repetitions
    count = f"{times['before']} + {times['after']} repetitions" if max(times.values()) > 1 else "one repetition each"
    return f"{case.name}: {sides} ({count}, {case.variant.replace('-', ' ')})"


def environment_lines(measurement: MeasurementComparison) -> list[str]:
    """Where it was measured, in two lines: machine and target. What the two sides do not share is told of both."""
    before, after = (measurement.environment[side] for side in ("before", "after"))
    found = []
    for parts in (_machine, _target):
        pairs = zip(parts(before), parts(after), strict=True)
        shown = [old if old == new else f"{old or '-'} -> {new or '-'}" for old, new in pairs]
        found.append(", ".join(filter(None, shown)))
    return found


def _machine(environment: dict[str, Any]) -> list[str]:
    """Kernel, fio, CPUs, memory, what it runs on, date; empty where that is not known."""
    lab = environment.get("lab")
    hosts = ", ".join(each["address"] for each in environment.get("hosts", []))
    cpus = environment.get("cpus")
    virtualization = environment.get("virtualization", "").replace("none", "")
    return [
        f"Linux {environment['kernel']}",
        environment["fio"],
        f"{cpus} CPU{'s' if cpus != 1 else ''}" if cpus else "",
        f"{environment['memory_bytes'] / 2**30:.1f} GiB" if environment.get("memory_bytes") else "",
        f"lab guest by the {lab['clock']} clock" if lab else f"on {hosts}" if hosts else virtualization,
        str(environment["created"])[:10],
        "demo" if environment.get("demo") else "",
    ]


def _target(environment: dict[str, Any]) -> list[str]:
    """Path, file system, model, write cache, FUA, scheduler; empty where it has none."""
    target = environment["target"]
    fua = {True: "FUA", False: "no FUA"}.get(target.get("fua"), "FUA unknown")
    return [
        target["path"],
        target.get("filesystem") or "",
        target.get("model") or "",
        target.get("write_cache") or "",
        fua if target.get("write_cache") else "",
        f"scheduler {target['scheduler']}" if target.get("scheduler") and target.get("kind") != "dm" else "",
    ]


def printable(value: str) -> str:
    """Text without control characters, which a terminal would obey."""
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value)


def complaint(message: str) -> str:
    """An error for standard error. Each line of it says whose it is, so that what a file or job is called is no command to CI."""
    return "\n".join(f"durabench: {printable(line.expandtabs())}" for line in message.split("\n"))


def plain(value: str) -> str:
    """Printable text in ASCII, which every mail program and terminal shows alike: letters without their accents, a question
    mark for what has no like."""
    return "".join(map(_ascii, printable(value)))


def _ascii(char: str) -> str:
    if char.isascii():
        return char
    return unicodedata.normalize("NFKD", _LIKE.get(char, char)).encode("ascii", "ignore").decode() or "?"


_LIKE = {"\N{RIGHTWARDS ARROW}": "->", "\N{MULTIPLICATION SIGN}": "x", "\N{EN DASH}": "-", "\N{EM DASH}": "-"}
_LIKE |= {"\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u"}


def markdown(comparison: Comparison) -> str:
    """GitHub-flavoured Markdown."""
    out: list[str] = []
    for measurement in comparison.measurements:
        out += [f"## {markdown_cell(measurement.name)}: {markdown_cell(measurement.title)}", ""]
        out += [f"{markdown_cell(line)}  " for line in environment_lines(measurement)]
        for case in measurement.cases:
            out += ["", f"### {markdown_cell(case_title(case))}", "", markdown_cell(verdict(case)), ""]
            heads = ("metric", *sides(case), "ratio", "interval", "verdict", "published before", "after", "ratio")
            out += [markdown_row(heads), "|---|--:|--:|--:|--:|---|--:|--:|--:|"]
            for row in metric_rows(case):
                spread = f" ({row.spread})" if row.spread else ""
                judged = f"{SYMBOLS[row.verdict]} {row.verdict}" if row.verdict else ""
                cells = (row.name + spread, row.before, row.after, row.ratio, row.interval, judged, *row.published)
                out.append(markdown_row(cells))
            out += ["", markdown_row(("mechanism", *sides(case), "verdict")), "|---|--:|--:|---|"]
            for row in mechanism_rows(case):
                judged = f"{SYMBOLS[row.verdict]} {row.verdict}" if row.verdict else ""
                out.append(markdown_row((row.name, row.before, row.after, judged)))
        notes = [*footnotes(measurement), *(f"Warning: {warning}" for warning in measurement.warnings)]
        out += ["", *(f"- {markdown_cell(note)}" for note in notes)]
        out.append("")
    out += [f"- Missing: {markdown_cell(missing)}" for missing in comparison.missing]
    return "\n".join(out).rstrip() + "\n"


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_cell, cells))} |"


def markdown_cell(value: str) -> str:
    """Text that Markdown shows as it is; as code where a forge would make a link, a mention or another character of it."""
    escaped = printable(value)
    if _LINKED.search(escaped):
        return markdown_code(escaped)
    for char in "\\`*_[]<>|~":
        escaped = escaped.replace(char, "\\" + char)
    # What makes a heading, a list or a rule of a line.
    return _BLOCK.sub(r"\1\\\2", escaped)


_LINKED = re.compile(r"@\w|#\d|\bGH-\d|://|\bwww\.|&#?\w+;", re.IGNORECASE)
_BLOCK = re.compile(r"^(\s*\d*)([#+=.)-])(?=[\s#=-])")


def markdown_code(value: str) -> str:
    """Text as code, in which nothing is markup, a link or a mention."""
    return "`" + printable(value).replace("`", "'").replace("|", "\\|") + "`"


def csv_text(value: str) -> str:
    """A text for a cell of CSV: what a spreadsheet would take for a formula has an apostrophe before it, as one has there for text."""
    shown = printable(value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def comma_separated(comparison: Comparison) -> str:
    """CSV, a line for each metric and each key of the mechanism."""
    out = io.StringIO()
    head = ("measurement", "case", "variant", "strategy_before", "strategy_after")
    writer = csv.DictWriter(out, (*head, *_COLUMNS), lineterminator="\n")
    writer.writeheader()
    for measurement in comparison.measurements:
        for case in measurement.cases:
            common = dict(zip(head, map(csv_text, (measurement.name, case.name, case.variant, case.before, case.after)), strict=True))
            writer.writerows({**common, **_metric_cells(metric)} for metric in case.metrics)
            checks = {check.name: check for check in case.checks}
            for key in case.mechanism["before"]:
                cells = {side: case.mechanism[side][key] for side in ("before", "after")}
                unit = "bytes" if key.endswith("_bytes") else "ratio" if "_per_" in key else "count"
                check = {"verdict": checks[key].verdict} if key in checks else {}
                writer.writerow({**common, "metric": f"mechanism.{key}", "unit": unit, **cells, **check})
    return out.getvalue()


_COLUMNS = (
    *("metric", "unit", "better", "before", "after", "ratio"),
    *("before_min", "before_max", "after_min", "after_max", "n_before", "n_after"),
    *("published_before", "published_after", "published_ratio"),
    *("ratio_low", "ratio_high", "margin", "p", "p_adjusted", "verdict"),
)


def _metric_cells(metric: MetricComparison) -> dict[str, Any]:
    before, after = (metric.values.get(side, []) for side in ("before", "after"))
    cell = metric.published
    low, high = metric.interval or (None, None)
    return {
        "metric": csv_text(metric.name),
        "unit": metric.unit,
        "better": metric.better,
        "before": metric.before,
        "after": metric.after,
        "ratio": metric.ratio,
        "before_min": min(before, default=None),
        "before_max": max(before, default=None),
        "after_min": min(after, default=None),
        "after_max": max(after, default=None),
        "n_before": len(before),
        "n_after": len(after),
        "published_before": cell.before if cell else None,
        "published_after": cell.after if cell else None,
        "published_ratio": cell.ratio if cell else None,
        "ratio_low": low,
        "ratio_high": high,
        "margin": metric.margin,
        "p": metric.p,
        "p_adjusted": metric.p_adjusted,
        "verdict": metric.verdict,
    }


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))}..{number(max(values))}" if values else "-"

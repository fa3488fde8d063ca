# SPDX-License-Identifier: GPL-2.0-only
"""What the figures show, as data: FIGURES declares each of them once, and plots.py and gnuplot.py draw the same
declaration.

A strategy has one colour in all of them. What is measured in intervals or counted in bins is drawn in steps and never
smoothed, and where nothing was measured nothing is drawn.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from . import formats, logs, results, strategies, tables, units
from .canvas import (
    CHAR,
    INK,
    PANEL_TOP,
    WIDTH,
    Axis,
    Figure,
    Label,
    Mark,
    Panel,
    duration,
    fitting,
    label_height,
    labels_at_ends,
    labels_beside,
    latency_axis,
    linear_axis,
    nines_axis,
    ratio_axis,
    rows_axis,
    share_axis,
    shortened,
)
from .fiojson import SATURATED_NS, Latency, merge
from .results import Repetition


@dataclass(frozen=True)
class Subject:
    """What is drawn in one colour: the repetitions of a strategy, of one of two runs where `side` is not empty."""

    strategy: str
    repetitions: list[Repetition]
    side: Literal["", "before", "after"] = ""

    @property
    def name(self) -> str:
        return self.side or strategies.label(self.strategy)

    @property
    def dashed(self) -> bool:
        return self.side == "before"

    def values(self, metric: str) -> list[float]:
        """Each repetition's own value of a metric."""
        return [value for value in (each.metric(metric) for each in self.repetitions) if value is not None]

    def took(self, key: str) -> list[float]:
        """Each repetition's own value of the mechanism, bytes in MiB."""
        known = (each.mechanism[key] for each in self.repetitions)
        return [value / tables.scale(key) for value in known if value is not None]

    def typical(self, metric: str) -> Repetition:
        """The repetition with the median of a metric: one that was measured, to be shown over time."""
        known = sorted(
            (value, position)
            for position, value in enumerate(each.metric(metric) for each in self.repetitions)
            if value is not None
        )
        return self.repetitions[known[(len(known) - 1) // 2][1] if known else 0]


@dataclass(frozen=True)
class Context:
    """What a figure is made of: one case, its subjects, how it compares, and the published series that belong to it."""

    case: formats.Case
    comparison: formats.CaseComparison
    subjects: list[Subject]
    series: list[formats.PublishedSeries]
    prefix: str
    footer: list[str]

    @property
    def name(self) -> str:
        """What is compared, for titles."""
        first = self.subjects[0]
        return f"{self.case.name} with {strategies.label(first.strategy)}" if first.side else self.case.name

    @cached_property
    def colours(self) -> dict[str, str]:
        """Colour of each strategy, and of each published series that is of none."""
        published = (each.strategy or each.name for each in self.series)
        shown = (self.comparison.before, self.comparison.after, *(subject.strategy for subject in self.subjects))
        return strategies.colours([*shown, *published])

    def line(self, subject: Subject, x: list[float], y: list[float]) -> Mark:
        """A line of a subject."""
        return Mark("line", subject.name, self.colours[subject.strategy], x, y, subject.dashed)

    def distributions(self) -> list[tuple[str, list[tuple[Subject, Latency]]]]:
        """Each latency that the case has a metric of, with those subjects that have a histogram of it; of all their
        repetitions together."""
        names = dict.fromkeys(results.distribution(metric.name) for metric in self.case.metrics)
        found = [
            (name, [(subject, merge(each.latency(name) for each in subject.repetitions)) for subject in self.subjects])
            for name in names
            if name is not None
        ]
        known = [(name, [each for each in merged if each[1].bins]) for name, merged in found]
        return [(name, merged) for name, merged in known if merged]

    def figure(
        self,
        name: str,
        title: str,
        panels: list[Panel],
        columns: int,
        head: list[str],
        rows: list[list[str]],
        *notes: str,
    ) -> Figure:
        """A figure of this case, with the footer that all of its figures have."""
        title = fitting(title, WIDTH - 0.2)
        footer = list(notes)
        texts = [title, *(panel.title for panel in panels), *(label.text for panel in panels for label in panel.labels)]
        texts += [text for panel in panels for _, text in panel.y.ticks]
        if any("*" in text for text in texts):
            footer.append(strategies.NOT_DURABLE_NOTE)
        footer = [part for line in (*footer, *self.footer) for part in textwrap.wrap(line, int(1.3 * WIDTH / CHAR))]
        return Figure(f"{self.prefix}-{name}", title, panels, columns, footer, head, rows)


def figures(context: Context, names: Collection[str] = ()) -> list[Figure]:
    """All figures that a case has data for; only those of these names if there are any."""
    made = (make(context) for name, make in FIGURES.items() if not names or name in names)
    return [figure for figure in made if figure is not None]


# Figures


def ladder(context: Context) -> Figure | None:
    """Latency against the share of samples that it holds for, from the merged bins of all repetitions."""
    panels: list[Panel] = []
    for name, merged in context.distributions():
        lines = [context.line(subject, *_ladder_steps(latency)) for subject, latency in merged]
        x = nines_axis(max(1.0, *(line.x[-1] for line in lines)))
        y = latency_axis([value for line in lines for value in line.y])
        height = _distribution_height(lines)
        panels.append(Panel(name, x, y, lines, labels_at_ends(x, y, lines, height), height=height + 0.8))
    return _distribution(context, "ladder", "percentiles", panels)


def ecdf(context: Context) -> Figure | None:
    """The share of samples that a latency holds for, from the merged bins of all repetitions: where most of them lie,
    which the ladder shows narrow."""
    panels: list[Panel] = []
    for name, merged in context.distributions():
        ordered = sorted(merged, key=lambda each: each[1].percentile(50) or 0.0)
        lines = [context.line(subject, *_ecdf_steps(latency)) for subject, latency in ordered]
        x = replace(latency_axis([value for line in lines for value in line.x]), label="latency")
        height = _distribution_height(lines)
        panels.append(Panel(name, x, share_axis(), lines, labels_beside(lines, height), height=height + 0.8))
    return _distribution(context, "ecdf", "share of samples by latency", panels)


def _distribution_height(lines: Sequence[Mark]) -> float:
    """Inches, of the axes."""
    return max(2.3, label_height(len(lines)))


_PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)


def _distribution(context: Context, name: str, title: str, panels: list[Panel]) -> Figure | None:
    if not panels:
        return None
    rows: list[list[str]] = []
    saturated = False
    for distribution, merged in context.distributions():
        for subject, latency in merged:
            values = [*(latency.percentile(percent) for percent in _PERCENTS), latency.max]
            cells = [tables.number(None if value is None else value / 1000) for value in values]
            rows.append([distribution, subject.name, str(latency.n), *cells])
            saturated |= max(latency.bins) >= SATURATED_NS
    head = ["us", "", "samples", *(f"p{percent:g}" for percent in _PERCENTS), "max"]
    notes = ["fio counts every latency from 17.1 s on as 17.1 s"] if saturated else []
    title = f"{context.name}: {title}, all repetitions merged"
    return context.figure(name, title, panels, min(len(panels), 2), head, rows, *notes)


def _steps_of(latency: Latency) -> tuple[np.ndarray, np.ndarray]:
    """Latencies in us, none less than 1 ns, and the share of the samples that each holds for."""
    ns = np.array(sorted(latency.bins), dtype=float)
    share = np.cumsum([latency.bins[int(each)] for each in ns])
    # A bin's midpoint may lie beyond what was measured.
    ns = np.where(ns < SATURATED_NS, np.minimum(ns, latency.max or np.inf), ns)
    return np.maximum(np.maximum(ns, latency.min or 0.0), 1.0) / 1000, share / share[-1]


def _ladder_steps(latency: Latency) -> tuple[list[float], list[float]]:
    """A bin's latency holds from the share of the bins below it to its own. The last ends where one sample is left."""
    ends = math.log10(sum(latency.bins.values()))
    x, y = [0.0], []
    for us, share in zip(*_steps_of(latency), strict=True):
        at = max(ends, x[-1]) if share >= 1 else -math.log10(1 - share)
        # Steps that no eye tells apart are taken together.
        if at - x[-1] < 0.01 and share < 1:
            continue
        y += [us, us]
        x += [at, at]
    return x[:-1], y


def _ecdf_steps(latency: Latency) -> tuple[list[float], list[float]]:
    """At a bin's latency the share rises by that of its samples."""
    x, y = [], [0.0]
    for us, share in zip(*_steps_of(latency), strict=True):
        if share - y[-1] < 0.002 and share < 1:
            continue
        x += [us, us]
        y += [share, share]
    return x, y[:-1]


def rates(context: Context) -> Figure | None:
    """Every repetition's throughput and the median, before and after."""
    compared = (context.comparison.before, context.comparison.after)
    panels = _rates(context, [subject for subject in context.subjects if subject.strategy in compared])
    if not panels:
        return None
    repeated = any(mark.draw == "ticks" for panel in panels for mark in panel.marks)
    title = f"{context.name}: each repetition, and the median" if repeated else f"{context.name}: one repetition each"
    return context.figure("rates", title, panels, min(len(panels), 2), *_table_of_rows(panels))


def _rates(context: Context, subjects: Sequence[Subject]) -> list[Panel]:
    panels = [
        _rows(
            context,
            subjects,
            f"{metric.name}, {results.unit(metric.name)}",
            [each.values(metric.name) for each in subjects],
        )
        for metric in context.case.metrics
        if results.unit(metric.name) in ("IOPS", "MiB/s")
    ]
    return [panel for panel in panels if panel.marks]


def _table_of_rows(panels: Sequence[Panel]) -> tuple[list[str], list[list[str]]]:
    """Each repetition's value, in the order in which they were measured."""
    rows = [
        [panel.title, mark.name, *map(tables.number, mark.x)]
        for panel in panels
        for mark in panel.marks
        if mark.draw != "ticks"
    ]
    width = max(len(row) for row in rows)
    return ["", "", *(str(number) for number in range(1, width - 1))], [row + [""] * (width - len(row)) for row in rows]


def _rows(
    context: Context,
    subjects: Sequence[Subject],
    title: str,
    shown: Sequence[list[float]],
    latency: bool = False,
    key: str = "",
) -> Panel:
    """A row of dots for each subject with its values, their median as an upright tick and as a number to the right.
    `key` is that of the mechanism, if the values are of it."""
    if latency:
        shown = [[max(value, 0.001) for value in found] for found in shown]
    every = [value for each in shown for value in each]
    marks: list[Mark] = []
    y = rows_axis([subject.name for subject in subjects], columns=2)
    labels = []
    for row, (subject, found) in enumerate(zip(subjects, shown, strict=True)):
        if not found:
            labels.append(Label("no data", y.fraction(row)))
            continue
        draw: Literal["hollow", "dots"] = "hollow" if subject.dashed else "dots"
        colour = context.colours[subject.strategy]
        many = len(found) > 10
        marks.append(Mark(draw, subject.name, colour, found, [float(row)] * len(found), opacity=0.4 if many else 1.0))
        middle = statistics.median(found)
        if len(found) > 1:
            marks.append(Mark("ticks", f"{subject.name} median", colour, [middle], [float(row)]))
        text = tables.mechanism(key, middle * tables.scale(key)) if key else tables.number(middle)
        labels.append(Label(duration(middle) if latency else text, y.fraction(row)))
    x = latency_axis(every or [1.0], most=4) if latency else linear_axis("", every)
    height = _row_height(len(subjects)) * len(subjects) + 0.25 + PANEL_TOP + 0.28
    return Panel(title, replace(x, label=""), y, marks, labels, height=height)


def _row_height(count: int) -> float:
    """Inches."""
    return 0.26 if count <= 8 else 0.19


def matrix(context: Context) -> Figure | None:
    """All ways beside each other where more than two were measured: throughput, latency and what it took."""
    if len(context.subjects) < 3:
        return None
    names = [metric.name for metric in context.case.metrics]
    latencies = [name for name in names if results.percent(name) is not None]
    chosen = list(dict.fromkeys([latencies[0], latencies[-1]])) if latencies else []
    panels = _rates(context, context.subjects)[:1]
    subjects = context.subjects
    panels += [_rows(context, subjects, name, [each.values(name) for each in subjects], latency=True) for name in chosen]
    for key, name in tables.MECHANISM.items():
        if "_per_" in key or (key == "dirty_writeback_peak_bytes" and "dirty_peak" in names):
            taken = [each.took(key) for each in subjects]
            panel = _rows(context, subjects, name, taken, key=key)
            # What is alike for all of them explains nothing.
            medians = [statistics.median(each) for each in taken if each]
            if medians and max(medians) > 0.5 and max(medians) > 1.01 * min(medians):
                panels.append(panel)
    panels = [panel for panel in panels if panel.marks]
    if not panels:
        return None
    title = f"{context.name}: every way, and what it took"
    return context.figure("matrix", title, panels, 2, *_table_of_rows(panels))


def ratios(context: Context) -> Figure | None:
    """Each metric's ratio with its interval and verdict, beside the published one."""
    shown = [metric for metric in context.comparison.metrics if metric.ratio is not None]
    if not shown:
        return None
    y = rows_axis([f"{metric.name} {_BETTER[metric.better]}" for metric in shown])
    marks: list[Mark] = []
    labels: list[Label] = []
    rows: list[list[str]] = []
    colour = context.colours[context.comparison.after]
    for row, metric in enumerate(shown):
        places = [float(row)] * 2
        if metric.margin is not None:
            matters = [1 / (1 + metric.margin), 1 + metric.margin]
            corners = [row - 0.35, row + 0.35]
            marks.append(Mark("cells", f"{metric.name} margin", INK, matters, corners, opacity=0.12))
        interval = ""
        if metric.interval is not None:
            marks.append(Mark("whiskers", f"{metric.name} interval", colour, metric.interval, places))
            interval = " .. ".join(map(tables.ratio, metric.interval))
        # A ratio of 0 has no place on the axis; its number says it.
        if metric.ratio:
            marks.append(Mark("dots", metric.name, colour, [metric.ratio], places[:1]))
        text = ", ".join(filter(None, (tables.ratio(metric.ratio), metric.verdict)))
        published = ""
        if metric.published and metric.published.ratio:
            published = tables.ratio(metric.published.ratio)
            marks.append(Mark("hollow", f"{metric.name} published", INK, [metric.published.ratio], places[:1]))
            text += f"; published {published}"
        labels.append(Label(text, y.fraction(row)))
        rows.append([metric.name, tables.ratio(metric.ratio), interval, metric.verdict or "", published])
    height = _row_height(len(shown)) * len(shown) + 0.6
    x = ratio_axis([1.0, *(value for mark in marks if mark.draw != "cells" for value in mark.x)])
    panel = Panel("", x, y, _within(marks, x), labels, guide=1.0, height=height)
    before_name, after_name = tables.sides(context.comparison)
    drawn = {mark.draw for mark in marks}
    explained = {"dots": "dot: ratio of the medians", "whiskers": "line: its confidence interval"}
    explained |= {"cells": "grey: too near to 1 to matter", "hollow": "ring: published"}
    note = "; ".join(["arrow: the better side", *(text for draw, text in explained.items() if draw in drawn)])
    title = f"{context.name}: {after_name} against {before_name}"
    return context.figure("ratios", title, [panel], 1, ["", "ratio", "interval", "verdict", "published"], rows, note)


def _within(marks: Sequence[Mark], x: Axis) -> list[Mark]:
    """Cells cut off at the axis' ends."""
    return [
        replace(mark, x=[min(max(each, x.low), x.high) for each in mark.x]) if mark.draw == "cells" else mark
        for mark in marks
    ]


_BETTER = {"higher": "\N{RIGHTWARDS ARROW}", "lower": "\N{LEFTWARDS ARROW}"}


def series(context: Context) -> Figure | None:
    """Over time, of the repetition with the median result: bandwidth from fio's logs; dirty pages and flushes as
    sampled."""
    headline = context.case.metrics[0].name
    chosen = [(subject, subject.typical(headline)) for subject in context.subjects]
    panels: list[Panel] = []
    for direction in ("write", "read"):
        lines = [
            context.line(subject, *_steps(*_thinned(*each.bandwidth(direction), np.mean))) for subject, each in chosen
        ]
        panels += _over_time(f"{direction} bandwidth, MiB/s", lines)
    sampled = [
        (subject, each.samples) for subject, each in chosen if each.samples is not None and len(each.samples.time)
    ]
    dirty = [
        context.line(subject, *_steps(*_thinned(found.time, found.dirty_writeback / units.MIB, np.max)))
        for subject, found in sampled
    ]
    panels += _over_time("Dirty + Writeback, MiB", dirty)
    flushes = []
    for subject, found in sampled:
        if found.flushes:
            total = np.sum(list(found.flushes.values()), axis=0)
            rate = np.diff(total, prepend=0.0) / np.maximum(np.diff(found.time, prepend=0.0), 1e-3)
            flushes.append(context.line(subject, *_steps(*_thinned(found.time, rate, np.mean))))
    panels += _over_time("flushes of the device, 1/s", flushes)
    # fio's time begins with its jobs and the observer's with fio; one length for all of them lets the eye go down.
    end = max((panel.x.high for panel in panels), default=0.0)
    panels = [
        replace(panel, x=_time_axis(end), labels=_line_labels(_time_axis(end), panel.y, panel.marks))
        for panel in panels
    ]
    for unit in dict.fromkeys(published.unit for published in context.series):
        lines = []
        for published in context.series:
            if published.unit == unit:
                time = np.arange(1, len(published.values) + 1) * published.interval_s
                name = strategies.label(published.strategy) if published.strategy else published.name
                colour = context.colours[published.strategy or published.name]
                lines.append(Mark("line", name, colour, *_steps(time, np.array(published.values))))
        panels += _over_time(f"published, {unit}", lines)
    if not panels:
        return None
    last = panels[-1]
    panels[-1] = replace(last, x=replace(last.x, label="time, s"), height=last.height + 0.22)
    title = f"{context.name}: over time, of the repetition with the median {headline}"
    rows = [
        [
            panel.title,
            mark.name,
            *(tables.number(value) for value in (min(mark.y), statistics.median(mark.y), max(mark.y))),
        ]
        for panel in panels
        for mark in panel.marks
    ]
    return context.figure("series", title, panels, 1, ["", "", "least", "median", "most"], rows)


def _steps(time: np.ndarray, values: np.ndarray) -> tuple[list[float], list[float]]:
    """A value stands for the time since the one before it."""
    begin = np.insert(time[:-1], 0, 0.0) if len(time) else time
    return np.column_stack((begin, time)).ravel().tolist(), np.repeat(values, 2).tolist()


def _thinned(
    time: np.ndarray, values: np.ndarray, combine: Callable[..., np.ndarray], most: int = 300
) -> tuple[np.ndarray, np.ndarray]:
    """At most this many points: neighbours combined, by the mean of a rate or the peak of a level."""
    group = -(-len(time) // most)
    if group < 2:
        return time, values
    whole = len(time) // group * group
    return time[:whole].reshape(-1, group)[:, -1], combine(values[:whole].reshape(-1, group), axis=1)


def _over_time(title: str, lines: list[Mark]) -> list[Panel]:
    """A panel, if any line has a value other than 0."""
    lines = [line for line in lines if line.x]
    if not any(any(line.y) for line in lines):
        return []
    x = _time_axis(max(line.x[-1] for line in lines))
    y = linear_axis("", [value for line in lines for value in line.y])
    height = _series_height(lines) + PANEL_TOP + 0.28
    return [Panel(title, x, y, lines, _line_labels(x, y, lines), height=height)]


def _series_height(lines: Sequence[Mark]) -> float:
    """Inches, of the axes."""
    return max(1.0, label_height(len(lines)))


def _time_axis(end: float) -> Axis:
    return replace(linear_axis("", [end]), high=end or 1.0)


def _line_labels(x: Axis, y: Axis, lines: Sequence[Mark]) -> list[Label]:
    return labels_at_ends(x, y, lines, _series_height(lines))


def latency(context: Context) -> Figure | None:
    """Percentiles of each interval over time, of the repetition with the median result: a panel for each subject, all on the
    same axes."""
    measured = _over_intervals(context)
    if not measured:
        return None
    columns = 2 if len(measured) <= 8 else 4
    names = ("p50", "p99", "max")
    marks: list[list[Mark]] = []
    rows: list[list[str]] = []
    for subject, title, found in measured:
        grouped = _grouped(found, 300 // columns)
        p50, p99, most = values = [_percentiles(grouped, percent) for percent in (50, 99, 100)]
        known = ~np.isnan(p50)
        times = np.column_stack((np.insert(grouped.ends[:-1], 0, 0.0), grouped.ends))[known].ravel()
        band = np.column_stack((p50, p99))[known].ravel()
        colour = context.colours[subject.strategy]
        marks.append(
            [
                Mark("cells", f"{subject.name} p50 to p99", colour, times.tolist(), band.tolist(), opacity=0.3),
                Mark("line", "p50", colour, *_steps(grouped.ends, p50)),
                Mark("line", "max", colour, *_steps(grouped.ends, most)),
            ]
        )
        for name, each in zip(names, values, strict=True):
            cells = (float(of(each[known])) for of in (np.min, np.median, np.max))
            rows.append([title, name, *map(tables.number, cells)])
    every = [value for each in marks for mark in each for value in mark.y if not math.isnan(value)]
    y = replace(latency_axis(every, most=5), label="")
    x = _time_axis(max(found.ends[-1] for _, _, found in measured))
    titles = shortened([title for _, title, _ in measured], WIDTH / columns - 0.8)
    height = 1.3 + PANEL_TOP + 0.28
    panels = [Panel(title, x, y, each, height=height) for title, each in zip(titles, marks, strict=True)]
    title = f"{context.name}: latency over time, of the repetition with the median {context.case.metrics[0].name}"
    note = "of each interval, band: from p50 to p99; upper line: the longest; none where no I/O completed"
    head = ["us, of an interval", "", "least", "median", "most"]
    return context.figure("latency", title, _time_below(panels, columns), columns, head, rows, note)


def heat(context: Context) -> Figure | None:
    """How many I/Os took how long, over time, of the repetition with the median result: a panel for each subject, all on the same
    axes and with the same shades."""
    measured = _over_intervals(context)
    if not measured:
        return None
    columns = 2 if len(measured) <= 8 else 4
    grids = [_grid(found, 150 // columns, 24 // columns) for _, _, found in measured]
    most = int(max(counts.max() for _, _, counts in grids))
    panels = []
    rows = []
    taken = [bound for _, bounds, counts in grids for bound in _span(bounds, counts)]
    y = replace(latency_axis(taken, most=5), label="")
    x = _time_axis(max(found.ends[-1] for _, _, found in measured))
    titles = shortened([title for _, title, _ in measured], WIDTH / columns - 0.8)
    for short, (subject, title, _), (times, bounds, counts) in zip(titles, measured, grids, strict=True):
        marks = []
        # Shades for equal factors of the count: a rare slow I/O is seen beside a thousand fast ones.
        shades = np.ceil(_SHADES * np.log(counts + 1) / np.log(most + 1)).astype(int)
        for shade in range(1, _SHADES + 1):
            corners = [
                (times[i], times[i + 1], bounds[first], bounds[last])
                for i in range(len(counts))
                for first, last in _runs(shades[i] == shade)
            ]
            if corners:
                left, right, lower, upper = (list(map(float, each)) for each in zip(*corners, strict=True))
                marks.append(
                    Mark(
                        "cells",
                        f"{subject.name} shade {shade} of {_SHADES}",
                        context.colours[subject.strategy],
                        [value for pair in zip(left, right, strict=True) for value in pair],
                        [value for pair in zip(lower, upper, strict=True) for value in pair],
                        opacity=0.2 + 0.8 * shade / _SHADES,
                    )
                )
        panels.append(Panel(short, x, y, marks, height=1.5 + PANEL_TOP + 0.28))
        low, high = _span(bounds, counts)
        rows.append([title, str(counts.sum()), str(counts.max()), tables.number(low), tables.number(high)])
    title = f"{context.name}: how many took how long, of the repetition with the median {context.case.metrics[0].name}"
    note = f"shade: I/Os of a cell, the lightest 1, the darkest {most}, in equal factors between; none where none completed"
    head = ["", "I/Os", "most of a cell", "shortest, us", "longest, us"]
    return context.figure("heat", title, _time_below(panels, columns), columns, head, rows, note)


_SHADES = 5


def _over_intervals(context: Context) -> list[tuple[Subject, str, logs.Histograms]]:
    """Subject, title and histograms over time of those that have some, for writes and for reads."""
    headline = context.case.metrics[0].name
    directions = ("write", "read")
    found = [
        (direction, subject, subject.typical(headline).histograms(direction))
        for direction in directions
        for subject in context.subjects
    ]
    known = [(direction, subject, each) for direction, subject, each in found if each is not None and each.counts.any()]
    one = len({direction for direction, _, _ in known}) == 1
    return [
        (subject, subject.name if one else f"{subject.name}, {direction}", each) for direction, subject, each in known
    ]


def _percentiles(found: logs.Histograms, percent: float) -> np.ndarray:
    """Of each interval, in us: the middle of the bucket, as fio tells them. NaN where no I/O completed."""
    reached = np.cumsum(found.counts, axis=1)
    total = reached[:, -1]
    bucket = np.argmax(reached >= np.maximum(np.ceil(total * percent / 100), 1)[:, None], axis=1)
    return np.where(total > 0, (found.bounds[bucket] + found.bounds[bucket + 1]) / 2000, np.nan)


def _grouped(found: logs.Histograms, most: int) -> logs.Histograms:
    """Of at most so many intervals, of which each is several of the log's."""
    group = -(-len(found.ends) // most)
    lasts = np.minimum(np.arange(group - 1, len(found.ends) + group - 1, group), len(found.ends) - 1)
    counts = np.add.reduceat(found.counts, np.arange(0, len(found.ends), group), axis=0)
    return replace(found, ends=found.ends[lasts], counts=counts)


def _grid(found: logs.Histograms, columns: int, per_decade: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coarser histograms: bounds of time in s, bounds of latency in us, and counts."""
    grouped = _grouped(found, columns)
    # Buckets of less than a row's width can't be divided, so a row is of whole buckets; one row holds all below 1 us.
    row = np.floor(per_decade * np.log10(np.maximum(found.bounds[:-1], 1000.0))).astype(int)
    firsts = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
    bounds = np.append(found.bounds[firsts], found.bounds[-1]) / 1000
    bounds[0] = min(0.5, bounds[1] / 2)
    return np.insert(grouped.ends, 0, 0.0), bounds, np.add.reduceat(grouped.counts, firsts, axis=1)


def _span(bounds: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Bounds of the latencies that occurred."""
    used = np.flatnonzero(counts.sum(axis=0))
    return float(bounds[used[0]]), float(bounds[used[-1] + 1])


def _runs(where: np.ndarray) -> list[tuple[int, int]]:
    """First and behind the last of each run of true ones."""
    edges = np.flatnonzero(np.diff(np.pad(where.astype(int), 1)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _time_below(panels: list[Panel], columns: int) -> list[Panel]:
    """The lowest panel of each column says what runs along it."""
    last = len(panels) - columns
    return [
        replace(panel, x=replace(panel.x, label="time, s"), height=panel.height + 0.22) if i >= last else panel
        for i, panel in enumerate(panels)
    ]


FIGURES: dict[str, Callable[[Context], Figure | None]] = {
    "ratios": ratios,
    "rates": rates,
    "ladder": ladder,
    "ecdf": ecdf,
    "matrix": matrix,
    "series": series,
    "latency": latency,
    "heat": heat,
}

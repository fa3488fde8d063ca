# SPDX-License-Identifier: GPL-2.0-only
"""What the figures show, as data: FIGURES declares each of them once, and plots.py and gnuplot.py draw the same
declaration.

Positions are in the units of the axes, sizes in inches. A figure has no decoration of its own beyond what is declared
here: limits, ticks and labels are chosen once, so that both drawings show the same. Axes of rates begin at 0, axes of
latency are logarithmic, and what is measured in intervals is drawn in steps and never smoothed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from . import formats, results, strategies, tables
from .fiojson import Latency, merge
from .results import Repetition

WIDTH = 7.6  # inches, of every figure
FONT_POINTS = 8.5
LINE = 0.155  # inches, height of a line of text
CHAR = 0.077  # inches, width of a character, a little generous

INK = "ink"  # stands for the colour of text, whatever the ground

Scale = Literal["linear", "log"]


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high` (which may be the other way round) with its ticks and their labels."""

    label: str
    low: float
    high: float
    ticks: list[tuple[float, str]]
    scale: Scale = "linear"

    def fraction(self, value: float) -> float:
        """Where a value lies between the axis' ends, from 0 to 1."""
        low, high = self.low, self.high
        if self.scale == "log":
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True)
class Mark:
    """Data drawn in one way: a line, dots (hollow ones for what is not ours, or before), upright ticks, or whiskers,
    which take pairs of points. `name` tells what it is in the tables and data files."""

    draw: Literal["line", "dots", "hollow", "ticks", "whiskers"]
    name: str
    colour: str
    x: list[float]
    y: list[float]
    dashed: bool = False


@dataclass(frozen=True)
class Label:
    """Text to the right of a panel, at a fraction of its height; `anchor` is the end of the line that it names, in
    fractions of the panel, and `colour` that of the line."""

    text: str
    height: float
    colour: str | None = None
    anchor: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """Two axes and what is drawn between them. `guide` is a position on x of a line to compare with."""

    title: str
    x: Axis
    y: Axis
    marks: list[Mark]
    labels: list[Label] = field(default_factory=list)
    guide: float | None = None
    height: float = 2.6


@dataclass(frozen=True)
class Box:
    """Place of a panel in its figure, in fractions from the lower left."""

    left: float
    bottom: float
    width: float
    height: float


@dataclass(frozen=True)
class Figure:
    """Panels in a grid of `columns`; `name` is the stem of its files, `footer` one line for each entry. `head` and
    `rows` are a table of the numbers behind it."""

    name: str
    title: str
    panels: list[Panel]
    columns: int
    footer: list[str]
    head: list[str]
    rows: list[list[str]]

    @property
    def height(self) -> float:
        """Inches."""
        rows = [self.panels[i : i + self.columns] for i in range(0, len(self.panels), self.columns)]
        return _TOP + sum(max(panel.height for panel in row) for row in rows) + LINE * len(self.footer) + 0.1

    def boxes(self) -> list[Box]:
        """Where each panel's axes are, with room for the texts around them; those of one column stand in line."""
        found = []
        cell = WIDTH / self.columns
        top = self.height - _TOP
        for start in range(0, len(self.panels), self.columns):
            row = self.panels[start : start + self.columns]
            height = max(panel.height for panel in row)
            for column, panel in enumerate(row):
                above = self.panels[column :: self.columns]
                left = 0.18 + _widest(text for each in above for _, text in each.y.ticks)
                left += LINE if any(each.y.label for each in above) else 0
                right = 0.12 + _widest(label.text for each in above for label in each.labels)
                bottom = top - height + (0.5 if panel.x.label else 0.28)
                title = _PANEL_TOP if panel.title else 0.04
                found.append(
                    Box(
                        (column * cell + left) / WIDTH,
                        bottom / self.height,
                        max(cell - left - right, cell / 4) / WIDTH,
                        (top - title - bottom) / self.height,
                    )
                )
            top -= height
        return found


_TOP = 0.32  # inches, for the figure's title
_PANEL_TOP = 0.26  # inches, for a panel's


def _widest(texts: Iterable[str]) -> float:
    return CHAR * max((len(text) for text in texts), default=0)


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
    def colour(self) -> str:
        return strategies.colour(self.strategy)

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

    def figure(
        self,
        name: str,
        title: str,
        panels: list[Panel],
        columns: int,
        head: list[str],
        rows: list[list[str]],
        note: str = "",
    ) -> Figure:
        """A figure of this case, with the footer that all of its figures have."""
        footer = [note] if note else []
        texts = [title, *(label.text for panel in panels for label in panel.labels)]
        texts += [text for panel in panels for _, text in panel.y.ticks]
        if any("*" in text for text in texts):
            footer.append(strategies.NOT_DURABLE_NOTE)
        return Figure(f"{self.prefix}-{name}", title, panels, columns, [*footer, *self.footer], head, rows)


def figures(context: Context) -> list[Figure]:
    """All figures that a case has data for."""
    made = (make(context) for make in FIGURES.values())
    return [figure for figure in made if figure is not None]


# Axes


def linear_axis(label: str, values: Sequence[float]) -> Axis:
    """From 0 to a little more than the largest value."""
    highest = max(values, default=0.0) or 1.0
    step = 10 ** math.floor(math.log10(highest / 2))
    step *= next(factor for factor in (1, 2, 5, 10) if highest / (factor * step) <= 5)
    ticks = [(i * step, _short(i * step)) for i in range(int(highest / step) + 1)]
    return Axis(label, 0.0, highest * 1.06, ticks)


def latency_axis(values: Sequence[float], most: int = 8) -> Axis:
    """Logarithmic, in us, with at most so many ticks, in the unit that is read easily."""
    low, high = min(values) / 1.25, max(values) * 1.25
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        places = [step * 10.0**decade for decade in decades for step in steps]
        places = [place for place in places if low <= place <= high]
        if len(places) <= most:
            break
    every = -(-len(places) // most)
    return Axis("latency", low, high, [(place, _duration(place)) for place in places[::every]], "log")


def nines_axis(highest: float) -> Axis:
    """The share of samples, each nine of it as wide as the one before."""
    names = [(0.0, "0")] + [(math.log10(2), "p50"), (1.0, "p90")]
    names += [(float(n), f"p99{'.' if n > 2 else ''}{'9' * (n - 2)}") for n in range(2, math.floor(highest) + 1)]
    return Axis("share of samples", 0.0, highest, [tick for tick in names if tick[0] <= highest])


def ratio_axis(values: Sequence[float]) -> Axis:
    """Logarithmic, with ticks at powers of two, or of four, sixteen … where that would be many."""
    low, high = (math.log2(limit) for limit in (min(*values, 1.0), max(*values, 1.0)))
    margin = max(0.04 * (high - low), 0.3)
    low, high = low - margin, high + margin
    step = next(step for step in (1, 2, 4, 8, 16, 32) if (high - low) / step < 8 or step == 32)
    powers = [power for power in range(-32 * step, 32 * step + 1, step) if low <= power <= high]
    ticks = [(2.0**power, f"{2**power}x" if power >= 0 else f"1/{2**-power}x") for power in powers]
    return Axis("after / before", 2**low, 2**high, ticks, "log")


def rows_axis(names: Sequence[str]) -> Axis:
    """One row for each name, the first at the top."""
    return Axis("", len(names) - 0.5, -0.5, [(float(row), _fitting(name)) for row, name in enumerate(names)])


def _fitting(name: str) -> str:
    """A name that leaves room for the figure: jobs may be called anything."""
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"


_LONGEST = 32


def _short(value: float) -> str:
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * factor or (abs(value) >= factor and suffix != "k"):
            return f"{value / factor:g}{suffix}"
    return f"{value:g}"


def _duration(us: float) -> str:
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{us / factor:g} {unit}"
    return f"{us:g} us" if us >= 1 else f"{us * 1000:g} ns"


def labels_at_ends(x: Axis, y: Axis, marks: Sequence[Mark], height: float) -> list[Label]:
    """A label for each line, where it ends, moved as far as needed for none to cover another. `height` is that of the
    axes in inches."""
    ends = [(mark, x.fraction(mark.x[-1]), y.fraction(mark.y[-1])) for mark in marks if mark.draw == "line" and mark.x]
    ends.sort(key=lambda end: end[2])
    gap = LINE / height
    heights: list[float] = []
    for _, _, wanted in ends:
        heights.append(max(wanted, heights[-1] + gap) if heights else wanted)
    # What was pushed beyond the top is pushed back, from the top down.
    limit = 1.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], limit)
        limit = heights[i] - gap
    return [
        Label(_fitting(mark.name), placed, mark.colour, (across, wanted))
        for (mark, across, wanted), placed in zip(ends, heights, strict=True)
    ]


# Figures


def ladder(context: Context) -> Figure | None:
    """Latency against the share of samples that it holds for, from the merged bins of all repetitions."""
    panels: list[Panel] = []
    rows: list[list[str]] = []
    for name in dict.fromkeys(results.distribution(metric.name) for metric in context.case.metrics):
        if name is None:
            continue
        merged = [(subject, merge(each.latency(name) for each in subject.repetitions)) for subject in context.subjects]
        merged = [(subject, latency) for subject, latency in merged if latency.bins]
        if not merged:
            continue
        lines = [_ladder_line(subject, latency) for subject, latency in merged]
        x = nines_axis(max(1.0, *(line.x[-1] for line in lines)))
        y = latency_axis([value for line in lines for value in line.y])
        panel = Panel(name, x, y, lines, height=3.1)
        panels.append(replace(panel, labels=labels_at_ends(x, y, lines, 2.3)))
        for subject, latency in merged:
            values = [*(latency.percentile(percent) for percent in _PERCENTS), latency.max]
            cells = [tables.number(None if value is None else value / 1000) for value in values]
            rows.append([name, subject.name, str(latency.n), *cells])
    if not panels:
        return None
    head = ["us", "", "samples", *(f"p{percent:g}" for percent in _PERCENTS), "max"]
    title = f"{context.name}: percentiles, all repetitions merged"
    return context.figure("ladder", title, panels, min(len(panels), 2), head, rows)


_PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)


def _ladder_line(subject: Subject, latency: Latency) -> Mark:
    """Steps: a bin's latency holds from the share of the bins below it to its own. The last ends where one sample is
    left."""
    values = np.array(sorted(latency.bins))
    share = np.cumsum([latency.bins[value] for value in values]) / sum(latency.bins.values())
    ends = math.log10(sum(latency.bins.values()))
    x, y = [0.0], []
    for value, end in zip(values, share, strict=True):
        at = max(ends, x[-1]) if end >= 1 else -math.log10(1 - end)
        # Steps that no eye tells apart are taken together.
        if at - x[-1] < 0.01 and end < 1:
            continue
        held = max(min(max(float(value), latency.min or 0.0), latency.max or float(value)), 1.0) / 1000
        y += [held, held]
        x += [at, at]
    return Mark("line", subject.name, subject.colour, x[:-1], y, subject.dashed)


def rates(context: Context) -> Figure | None:
    """Every repetition's throughput and the median, before and after."""
    compared = (context.comparison.before, context.comparison.after)
    panels = _rates(context, [subject for subject in context.subjects if subject.strategy in compared])
    if not panels:
        return None
    title = f"{context.name}: each repetition, and the median"
    return context.figure("rates", title, panels, min(len(panels), 2), *_table_of_rows(panels))


def _rates(context: Context, subjects: Sequence[Subject]) -> list[Panel]:
    panels = [
        _rows(subjects, f"{metric.name}, {results.unit(metric.name)}", [each.values(metric.name) for each in subjects])
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
    subjects: Sequence[Subject], title: str, shown: Sequence[list[float]], latency: bool = False, key: str = ""
) -> Panel:
    """A row of dots for each subject with its values, their median as an upright tick and as a number to the right.
    `key` is that of the mechanism, if the values are of it."""
    every = [value for each in shown for value in each]
    marks: list[Mark] = []
    y = rows_axis([subject.name for subject in subjects])
    labels = []
    for row, (subject, found) in enumerate(zip(subjects, shown, strict=True)):
        if not found:
            continue
        draw: Literal["hollow", "dots"] = "hollow" if subject.dashed else "dots"
        marks.append(Mark(draw, subject.name, subject.colour, found, [float(row)] * len(found)))
        middle = statistics.median(found)
        marks.append(Mark("ticks", f"{subject.name} median", subject.colour, [middle], [float(row)]))
        text = tables.mechanism(key, middle * tables.scale(key)) if key else tables.number(middle)
        labels.append(Label(text, y.fraction(row)))
    x = latency_axis([value for value in every if value > 0] or [1.0], most=4) if latency else linear_axis("", every)
    height = 0.26 * len(subjects) + 0.25 + _PANEL_TOP + 0.28
    return Panel(title, replace(x, label=""), y, marks, labels, height=height)


def matrix(context: Context) -> Figure | None:
    """All ways beside each other where more than two were measured: throughput, latency and what it took."""
    if len(context.subjects) < 3:
        return None
    names = [metric.name for metric in context.case.metrics]
    latencies = [name for name in names if results.percent(name) is not None]
    chosen = list(dict.fromkeys([latencies[0], latencies[-1]])) if latencies else []
    panels = _rates(context, context.subjects)[:1]
    subjects = context.subjects
    panels += [
        _rows(subjects, f"{name}, us", [each.values(name) for each in subjects], latency=True) for name in chosen
    ]
    for key, name in tables.MECHANISM.items():
        if "_per_" in key or (key == "dirty_writeback_peak_bytes" and "dirty_peak" in names):
            panel = _rows(subjects, name, [each.took(key) for each in subjects], key=key)
            # What is alike for all of them explains nothing.
            medians = [value for mark in panel.marks if mark.draw == "ticks" for value in mark.x]
            if medians and max(medians) > 0.5 and max(medians) > 1.01 * min(medians):
                panels.append(panel)
    panels = [panel for panel in panels if panel.marks]
    if not panels:
        return None
    title = f"{context.name}: every way, and what it took"
    return context.figure("matrix", title, panels, 2, *_table_of_rows(panels))


def ratios(context: Context) -> Figure | None:
    """Each metric's ratio with the range that its repetitions allow, beside the published one."""
    shown = [metric for metric in context.comparison.metrics if metric.ratio]
    if not shown:
        return None
    y = rows_axis([metric.name for metric in shown])
    marks: list[Mark] = []
    labels: list[Label] = []
    rows: list[list[str]] = []
    values = [1.0]
    colour = strategies.colour(context.comparison.after)
    for row, metric in enumerate(shown):
        before, after = (metric.values.get(side, []) for side in ("before", "after"))
        text, span = tables.ratio(metric.ratio), ""
        if min(before, default=0) > 0 and min(after, default=0) > 0:
            reach = [min(after) / max(before), max(after) / min(before)]
            marks.append(Mark("whiskers", f"{metric.name} range", colour, reach, [float(row)] * 2))
            values += reach
            span = " .. ".join(map(tables.ratio, reach))
        marks.append(Mark("dots", metric.name, colour, [metric.ratio or 1.0], [float(row)]))
        values.append(metric.ratio or 1.0)
        if metric.published and metric.published.ratio:
            marks.append(Mark("hollow", f"{metric.name} published", INK, [metric.published.ratio], [float(row)]))
            values.append(metric.published.ratio)
            text += f", published {tables.ratio(metric.published.ratio)}"
        labels.append(Label(text, y.fraction(row)))
        published = tables.ratio(metric.published.ratio) if metric.published else ""
        rows.append([metric.name, tables.ratio(metric.ratio), span, published])
    height = 0.28 * len(shown) + 0.54
    panel = Panel("", ratio_axis(values), y, marks, labels, guide=1.0, height=height)
    before_name, after_name = tables.sides(context.comparison)
    note = "dot: ratio of the medians; line: the range that single repetitions allow"
    if any(mark.draw == "hollow" for mark in marks):
        note += "; ring: published"
    title = f"{context.name}: {after_name} against {before_name}"
    return context.figure("ratios", title, [panel], 1, ["", "ratio", "range", "published"], rows, note)


def series(context: Context) -> Figure | None:
    """Over time, of the repetition with the median result: bandwidth from fio's logs; dirty pages and flushes as
    sampled."""
    headline = context.case.metrics[0].name
    chosen = [(subject, subject.typical(headline)) for subject in context.subjects]
    panels: list[Panel] = []
    for direction in ("write", "read"):
        lines = [_stepped(subject, *_thinned(*each.bandwidth(direction), np.mean)) for subject, each in chosen]
        panels += _over_time(f"{direction} bandwidth, MiB/s", lines)
    sampled = [
        (subject, each.samples) for subject, each in chosen if each.samples is not None and len(each.samples.time)
    ]
    dirty = [
        _stepped(subject, *_thinned(found.time, found.dirty_writeback / results.MIB, np.max))
        for subject, found in sampled
    ]
    panels += _over_time("Dirty + Writeback, MiB", dirty)
    flushes = []
    for subject, found in sampled:
        if found.flushes:
            total = np.sum(list(found.flushes.values()), axis=0)
            rate = np.diff(total, prepend=0.0) / np.maximum(np.diff(found.time, prepend=0.0), 1e-3)
            flushes.append(_stepped(subject, *_thinned(found.time, rate, np.mean)))
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
                lines.append(
                    _steps(name, strategies.colour(published.strategy), False, time, np.array(published.values))
                )
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


def _stepped(subject: Subject, time: np.ndarray, values: np.ndarray) -> Mark:
    return _steps(subject.name, subject.colour, subject.dashed, time, values)


def _steps(name: str, colour: str, dashed: bool, time: np.ndarray, values: np.ndarray) -> Mark:
    """A value stands for the time since the one before it."""
    begin = np.insert(time[:-1], 0, 0.0) if len(time) else time
    x = np.column_stack((begin, time)).ravel()
    return Mark("line", name, colour, x.tolist(), np.repeat(values, 2).tolist(), dashed)


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
    return [Panel(title, x, y, lines, _line_labels(x, y, lines), height=_SERIES_HEIGHT + _PANEL_TOP + 0.28)]


_SERIES_HEIGHT = 1.0


def _time_axis(end: float) -> Axis:
    return replace(linear_axis("", [end]), high=end or 1.0)


def _line_labels(x: Axis, y: Axis, lines: Sequence[Mark]) -> list[Label]:
    return labels_at_ends(x, y, lines, _SERIES_HEIGHT)


FIGURES: dict[str, Callable[[Context], Figure | None]] = {
    "ratios": ratios,
    "rates": rates,
    "ladder": ladder,
    "matrix": matrix,
    "series": series,
}

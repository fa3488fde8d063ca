# SPDX-License-Identifier: GPL-2.0-only
"""What a figure is made of, before anything draws it: axes with their ticks, marks, labels, panels and where they stand.

Limits, ticks and labels are chosen here once, so that matplotlib, gnuplot and the terminal show the same. Positions are
in the units of the axes, sizes in inches. Axes of rates begin at 0, axes of latency and of ratios are logarithmic.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from . import tables

WIDTH = 7.6  # inches, of every figure
FONT_POINTS = 8.5
LINE = 0.155  # inches, height of a line of text
CHAR = 0.077  # inches, width of a character, a little generous
SWATCH = 0.3  # inches, of a label's own piece of line and the gaps around it

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

    def at(self, fraction: float) -> float:
        """The value at a fraction of the axis."""
        if self.scale == "log":
            return self.low * (self.high / self.low) ** fraction
        return self.low + (self.high - self.low) * fraction

    def fitting(self, length: float, char: float = CHAR) -> list[tuple[float, str]]:
        """The ticks whose texts stand beside each other on an axis of this length; `char` is a character's width in
        the same unit."""
        kept: list[tuple[float, str]] = []
        end = -math.inf
        for place, text in self.ticks:
            middle, half = length * self.fraction(place), char * len(text) / 2
            if middle - half >= end:
                kept.append((place, text))
                end = middle + half + char
        return kept


@dataclass(frozen=True)
class Mark:
    """Data drawn in one way: a line (broken where y is NaN), dots (hollow ones for what is not ours, or before), upright
    ticks; or what takes pairs of points: whiskers from one to the other, and cells, of which they are opposite corners.
    `name` tells what it is in the tables and data files."""

    draw: Literal["line", "dots", "hollow", "ticks", "whiskers", "cells"]
    name: str
    colour: str
    x: list[float]
    y: list[float]
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Label:
    """Text to the right of a panel, at a fraction of its height. A piece of the line that it names is drawn beside it;
    `anchor` is that line's end, in fractions of the panel."""

    text: str
    height: float
    line: Mark | None = None
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

    def line_width(self, box: Box) -> float:
        """Points; thinner where there are many lines or little room."""
        lines = sum(mark.draw == "line" for mark in self.marks)
        return 1.4 if lines <= 8 and box.width * WIDTH > 1.5 else 0.8


@dataclass(frozen=True)
class Box:
    """Place of a panel's axes in its figure, in fractions from the lower left; `room` for a title above them, in inches."""

    left: float
    bottom: float
    width: float
    height: float
    room: float


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
            bottom = top - height + (0.5 if any(panel.x.label for panel in row) else 0.28)
            title = PANEL_TOP if any(panel.title for panel in row) else 0.04
            for column in range(len(row)):
                above = self.panels[column :: self.columns]
                left = 0.18 + _widest(text for each in above for _, text in each.y.ticks)
                left += LINE if any(each.y.label for each in above) else 0
                labels = [label for each in above for label in each.labels]
                right = 0.12 + _widest(label.text for label in labels)
                right += SWATCH if any(label.line for label in labels) else 0
                found.append(
                    Box(
                        (column * cell + left) / WIDTH,
                        bottom / self.height,
                        max(cell - left - right, cell / 4) / WIDTH,
                        (top - title - bottom) / self.height,
                        cell - left,
                    )
                )
            top -= height
        return found


_TOP = 0.32  # inches, for the figure's title
PANEL_TOP = 0.26  # inches, for a panel's


def _widest(texts: Iterable[str]) -> float:
    return CHAR * max((len(text) for text in texts), default=0)


def fitting(text: str, inches: float) -> str:
    """A text that takes no more room than this: jobs and devices may be called anything."""
    most = max(int(inches / CHAR), 2)
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def shortened(names: Sequence[str], inches: float) -> list[str]:
    """Names that take no more room than this. If one has to be cut, all lose first what they begin with alike, which tells
    none from another."""
    alike = 0
    if len(set(names)) > 1 and any(fitting(name, inches) != name for name in names):
        alike = len(os.path.commonprefix(list(names)))
    start = "\N{HORIZONTAL ELLIPSIS}" if alike > 1 else ""
    return [fitting(start + name[alike:] if start else name, inches) for name in names]


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
    low, high = min(values) / 1.3, max(values) * 1.3
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        places = [step * 10.0**decade for decade in decades for step in steps]
        places = [place for place in places if low <= place <= high]
        if len(places) <= most:
            break
    every = -(-len(places) // most)
    return Axis("latency", low, high, [(place, duration(place, "g")) for place in places[::every]], "log")


def nines_axis(highest: float) -> Axis:
    """The share of samples, each nine of it as wide as the one before."""
    names = [(0.0, "0"), (math.log10(2), "p50"), (1.0, "p90")]
    names += [(float(n), f"p99{'.' if n > 2 else ''}{'9' * (n - 2)}") for n in range(2, math.floor(highest) + 1)]
    return Axis("share of samples", 0.0, highest, [tick for tick in names if tick[0] <= highest])


def share_axis() -> Axis:
    """From none of the samples to all."""
    return Axis("share of samples", 0.0, 1.0, [(percent / 100, f"{percent}%") for percent in (0, 25, 50, 75, 100)])


def ratio_axis(values: Sequence[float]) -> Axis:
    """Logarithmic, with ticks at powers of two, or of four, sixteen … where that would be many; in small steps where all
    ratios are near to 1."""
    low, high = (math.log2(limit) for limit in (min(*values, 1.0), max(*values, 1.0)))
    margin = max(0.04 * (high - low), 0.15)
    low, high = low - margin, high + margin
    if high - low < 2:
        for step in (0.05, 0.1, 0.2, 0.25, 0.5):
            places = [step * i for i in range(1, 100) if low <= math.log2(step * i) <= high]
            if len(places) <= 7:
                break
        ticks = [(place, f"{place:g}x") for place in places]
    else:
        power = next(power for power in (1, 2, 4, 8, 16, 32) if (high - low) / power < 8 or power == 32)
        powers = [each for each in range(-32 * power, 32 * power + 1, power) if low <= each <= high]
        ticks = [(2.0**each, f"{2**each}x" if each >= 0 else f"1/{2**-each}x") for each in powers]
    return Axis("after / before", 2**low, 2**high, ticks, "log")


def rows_axis(names: Sequence[str], columns: int = 1) -> Axis:
    """One row for each name, the first at the top, in a figure of so many columns."""
    ticks = [(float(row), name) for row, name in enumerate(shortened(names, 0.36 * WIDTH / columns))]
    return Axis("", len(names) - 0.5, -0.5, ticks)


def _short(value: float) -> str:
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * factor or (abs(value) >= factor and suffix != "k"):
            return f"{value / factor:g}{suffix}"
    return f"{value:g}"


def duration(us: float, form: Literal["g", "4"] = "4") -> str:
    """A time in the unit that is read easily: as it is, or with four significant digits."""
    factor, unit = next((each for each in ((1e6, "s"), (1e3, "ms"), (1.0, "us")) if us >= each[0]), (1e-3, "ns"))
    return f"{us / factor:g} {unit}" if form == "g" else f"{tables.number(us / factor)} {unit}"


# Labels


def label_height(count: int) -> float:
    """Inches that the labels of so many lines take."""
    return LINE * min(count, _MOST_LABELS)


_MOST_LABELS = 16


_LONGEST = 28 * CHAR


def labels_at_ends(x: Axis, y: Axis, marks: Sequence[Mark], height: float) -> list[Label]:
    """A label for each line, where it ends, moved as far as needed for none to cover another. `height` is that of the
    axes in inches. Of more lines than have room, the outermost are named and some between them."""
    ends = [(mark, x.fraction(mark.x[-1]), y.fraction(mark.y[-1])) for mark in marks if mark.draw == "line" and mark.x]
    ends.sort(key=lambda end: end[2])
    gap = LINE / height
    most = int(1 / gap + 1e-9) + 1
    more = len(ends) - most + 1 if len(ends) > most else 0
    if more:
        ends = [ends[round(i * (len(ends) - 1) / (most - 2))] for i in range(most - 1)]
    heights: list[float] = [0.0] if more else []
    for _, _, wanted in ends:
        heights.append(max(wanted, heights[-1] + gap) if heights else wanted)
    # What was pushed beyond the top is pushed back, from the top down.
    limit = 1.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], limit)
        limit = heights[i] - gap
    rest = [Label(f"and {more} more", heights.pop(0))] if more else []
    names = shortened([mark.name for mark, _, _ in ends], _LONGEST)
    return rest + [
        Label(name, placed, mark, (across, wanted))
        for name, (mark, across, wanted), placed in zip(names, ends, heights, strict=True)
    ]


def labels_beside(marks: Sequence[Mark], height: float) -> list[Label]:
    """A label for each line where their ends are all alike: from the top in the order given, as far as they have
    room."""
    gap = LINE / height
    most = int(1 / gap + 1e-9) + 1
    shown = marks if len(marks) <= most else marks[: most - 1]
    names = shortened([mark.name for mark in shown], _LONGEST)
    labels = [Label(name, 1 - gap * row, mark) for row, (name, mark) in enumerate(zip(names, shown, strict=True))]
    if len(shown) < len(marks):
        labels.append(Label(f"and {len(marks) - len(shown)} more", 1 - gap * len(shown)))
    return labels

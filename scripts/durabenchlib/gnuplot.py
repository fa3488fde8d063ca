# SPDX-License-Identifier: GPL-2.0-only
"""Draws the figures with gnuplot 5: as scripts with their data beside, to be redrawn or changed without anything of this
project (`gnuplot NAME.gp` in their folder makes NAME.svg), and in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import formats
from .canvas import FONT_POINTS, INK, LINE, SWATCH, WIDTH, Axis, Box, Figure, Label, Mark, Panel
from .tables import printable

_POINTS = 72  # an inch, in the units of gnuplot's svg terminal
_TEXT = "#222222"


def write(figure: Figure, folder: Path) -> None:
    """Write NAME.gp and NAME.dat into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    formats.write_text(folder / f"{figure.name}.dat", "".join(line + "\n" for line in _data(figure)))
    formats.write_text(folder / f"{figure.name}.gp", "".join(line + "\n" for line in _script(figure)))


def _data(figure: Figure) -> Iterator[str]:
    """Blocks of x and y, parted by two empty lines, in the order in which the script draws them."""
    for panel in figure.panels:
        for mark in panel.marks:
            yield f"# {printable(panel.title or figure.title)}: {printable(mark.name)}"
            yield from _points(mark)
            yield from ("", "")


def _points(mark: Mark) -> Iterator[str]:
    """Pairs are parted by an empty line; each cell is a line: its left, right, lower and upper end."""
    if mark.draw == "cells":
        for i in range(0, len(mark.x), 2):
            yield f"{mark.x[i]:.9g} {mark.x[i + 1]:.9g} {mark.y[i]:.9g} {mark.y[i + 1]:.9g}"
        return
    for i, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
        yield f"{x:.9g} {y:.9g}"
        if mark.draw == "whiskers" and i % 2:
            yield ""


def _script(figure: Figure) -> Iterator[str]:
    yield f"# {printable(figure.title)}"
    yield f"# Draws {figure.name}.svg from {figure.name}.dat: run gnuplot 5 on this file in its folder."
    size = f"{WIDTH * _POINTS:.0f},{figure.height * _POINTS:.0f}"
    yield f"set terminal svg noenhanced size {size} font 'DejaVu Sans,{FONT_POINTS}' background rgb 'white'"
    yield f"set output '{figure.name}.svg'"
    yield f"data = '{figure.name}.dat'"
    yield "unset key"
    yield "set multiplot"
    yield "set border 3"
    yield "set xtics nomirror out scale 0.6 offset 0,0.4"
    yield "set ytics nomirror out scale 0.6 offset 0.6,0"
    yield f"set grid linecolor rgb '{_TEXT}' linewidth 0.15"
    block = 0
    for number, (panel, box) in enumerate(zip(figure.panels, figure.boxes(), strict=True)):
        yield ""
        yield "unset label; unset arrow"
        if number == 0:
            yield from _texts(figure)
        yield from _panel(panel, box, figure.height, block)
        block += len(panel.marks)
    yield ""
    yield "unset multiplot"


def _texts(figure: Figure) -> Iterator[str]:
    """Title and footer, drawn once."""
    left, top = 0.12 / WIDTH, 1 - 0.16 / figure.height
    yield f"set label {_quoted(figure.title)} at screen {left:.4f},{top:.4f} left font 'DejaVu Sans Bold,{FONT_POINTS}'"
    for number, line in enumerate(reversed(figure.footer)):
        at = f"screen {left:.4f},{(0.12 + LINE * number) / figure.height:.4f}"
        yield f"set label {_quoted(line)} at {at} left font ',{FONT_POINTS - 1}'"


def _panel(panel: Panel, box: Box, height: float, block: int) -> Iterator[str]:
    yield f"set lmargin at screen {box.left:.5f}"
    yield f"set rmargin at screen {box.left + box.width:.5f}"
    yield f"set bmargin at screen {box.bottom:.5f}"
    yield f"set tmargin at screen {box.bottom + box.height:.5f}"
    yield from _axis("x", panel.x, panel.x.fitting(box.width * WIDTH))
    yield f"set xlabel {_quoted(panel.x.label)} offset 0,0.7"
    yield from _axis("y", panel.y, panel.y.ticks)
    yield f"set ylabel {_quoted(panel.y.label)} offset 2,0"
    title = 1 + 0.1 / (box.height * height)
    yield f"set label {_quoted(panel.title)} at graph 0,{title:.4f} left"
    for label in panel.labels:
        yield from _label(label, 1 / (box.width * WIDTH))
    if panel.guide is not None:
        yield (
            f"set arrow from first {panel.guide:.6g},graph 0 to first {panel.guide:.6g},graph 1 nohead "
            f"linecolor rgb '{_TEXT}' linewidth 0.8"
        )
    drawn = [f"data index {block + i} {_style(mark, panel)}" for i, mark in enumerate(panel.marks)]
    yield f"plot {_ALSO.join(drawn)}"


_ALSO = ", \\\n  "


def _label(label: Label, inch: float) -> Iterator[str]:
    """`inch` is one in widths of the panel."""
    if label.anchor is not None:
        points = [label.anchor, (1.0, label.anchor[1]), (1 + 0.14 * inch, label.height)]
        for start, end in zip(points, points[1:]):
            yield _line(label, start, end, "linewidth 0.8 dashtype 3")
    if label.colour is not None:
        start, end = (1 + 0.14 * inch, label.height), (1 + (SWATCH + 0.02) * inch, label.height)
        yield _line(label, start, end, f"linewidth 1.6 dashtype {2 if label.dashed else 1}")
    place = 1 + (0.06 + (SWATCH if label.colour else 0)) * inch
    yield f"set label {_quoted(label.text)} at graph {place:.4f},{label.height:.4f} left"


def _line(label: Label, start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    places = f"from graph {start[0]:.4f},{start[1]:.4f} to graph {end[0]:.4f},{end[1]:.4f}"
    return f"set arrow {places} nohead linecolor rgb '{label.colour}' {style}"


def _axis(which: str, axis: Axis, ticks: list[tuple[float, str]]) -> Iterator[str]:
    yield f"set logscale {which}" if axis.scale == "log" else f"unset logscale {which}"
    yield f"set {which}range [{axis.low:.9g}:{axis.high:.9g}]"
    # A tick's text is a format.
    texts = (f"{_quoted(text.replace('%', '%%'))} {place:.9g}" for place, text in ticks)
    yield f"set {which}tics ({', '.join(texts)})"


def _style(mark: Mark, panel: Panel) -> str:
    """What follows the data in `plot`."""
    colour = _TEXT if mark.colour == INK else mark.colour
    if mark.draw == "cells":
        fill = f"fillstyle transparent solid {mark.opacity:.2f} noborder fillcolor rgb '{colour}'"
        return f"using 1:3:1:2:3:4 with boxxyerror {fill}"
    if mark.opacity < 1:
        colour = f"#{round(255 * (1 - mark.opacity)):02x}{colour[1:]}"
    colour = f"linecolor rgb '{colour}'"
    if mark.draw == "line":
        return f"using 1:2 with lines linewidth {panel.line_width} dashtype {2 if mark.dashed else 1} {colour}"
    if mark.draw == "whiskers":
        return f"using 1:2 with lines linewidth 1.4 {colour}"
    if mark.draw == "ticks":
        return f"using 1:2 with points pointtype '|' {colour} font ',16'"
    shape = 6 if mark.draw == "hollow" else 7
    return f"using 1:2 with points pointtype {shape} pointsize 0.6 linewidth 1.4 {colour}"


def _quoted(text: str) -> str:
    """A string of gnuplot's, in which only the quote itself is special."""
    return "'" + printable(text).replace("'", "''") + "'"

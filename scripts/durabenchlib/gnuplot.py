# SPDX-License-Identifier: GPL-2.0-only
"""Writes the figures as gnuplot scripts with their data beside, to be redrawn or changed without anything of this
project: `gnuplot NAME.gp` in their folder makes NAME.svg (gnuplot 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import formats
from .figures import FONT_POINTS, INK, LINE, WIDTH, Axis, Box, Figure, Mark, Panel
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
            pairs = mark.draw == "whiskers"
            for i, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
                yield f"{x:.9g} {y:.9g}"
                if pairs and i % 2:
                    yield ""
            yield from ("", "")


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
    yield from _axis("x", panel.x)
    yield from _axis("y", panel.y)
    title = 1 + 0.1 / (box.height * height)
    yield f"set label {_quoted(panel.title)} at graph 0,{title:.4f} left"
    inch = 1 / (box.width * WIDTH)
    for label in panel.labels:
        if label.anchor is not None:
            points = [label.anchor, (1.0, label.anchor[1]), (1 + 0.14 * inch, label.height)]
            for (x0, y0), (x1, y1) in zip(points, points[1:]):
                yield (
                    f"set arrow from graph {x0:.4f},{y0:.4f} to graph {x1:.4f},{y1:.4f} nohead "
                    f"linecolor rgb '{label.colour}' linewidth 0.8 dashtype 3"
                )
        place = 1 + (0.16 if label.anchor else 0.04) * inch
        yield f"set label {_quoted(label.text)} at graph {place:.4f},{label.height:.4f} left"
    if panel.guide is not None:
        yield (
            f"set arrow from first {panel.guide:.6g},graph 0 to first {panel.guide:.6g},graph 1 nohead "
            f"linecolor rgb '{_TEXT}' linewidth 0.8"
        )
    yield "plot \\"
    drawn = [f"  data index {block + number} using 1:2 {_style(mark)}" for number, mark in enumerate(panel.marks)]
    yield ", \\\n".join(drawn)


def _axis(which: str, axis: Axis) -> Iterator[str]:
    yield f"set logscale {which}" if axis.scale == "log" else f"unset logscale {which}"
    yield f"set {which}range [{axis.low:.9g}:{axis.high:.9g}]"
    ticks = ", ".join(f"{_quoted(text)} {place:.9g}" for place, text in axis.ticks)
    yield f"set {which}tics ({ticks})"
    yield f"set {which}label {_quoted(axis.label)} offset {'0,0.7' if which == 'x' else '2,0'}"


def _style(mark: Mark) -> str:
    colour = f"linecolor rgb '{_TEXT if mark.colour == INK else mark.colour}'"
    if mark.draw == "line":
        return f"with lines linewidth 1.4 dashtype {2 if mark.dashed else 1} {colour}"
    if mark.draw == "whiskers":
        return f"with lines linewidth 1.4 {colour}"
    if mark.draw == "ticks":
        return f"with points pointtype '|' {colour} font ',16'"
    return f"with points pointtype {6 if mark.draw == 'hollow' else 7} pointsize 0.6 linewidth 1.4 {colour}"


def _quoted(text: str) -> str:
    """A string of gnuplot's, in which only the quote itself is special."""
    return "'" + printable(text).replace("'", "''") + "'"

# SPDX-License-Identifier: GPL-2.0-only
"""Draws the figures with gnuplot 5: as scripts with their data beside, to be redrawn or changed without anything of this
project (`gnuplot NAME.gp` in their folder makes NAME.svg), and in a terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

from . import formats
from .canvas import FONT_POINTS, INK, LINE, SWATCH, WIDTH, Axis, Box, Figure, Label, Mark, Panel, fitting
from .errors import Exit, Failure
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
    yield f"set label {_quoted(fitting(panel.title, box.room))} at graph 0,{title:.4f} left"
    indent = SWATCH if any(label.line for label in panel.labels) else 0
    for label in panel.labels:
        yield from _label(label, indent, 1 / (box.width * WIDTH))
    if panel.guide is not None:
        yield (
            f"set arrow from first {panel.guide:.6g},graph 0 to first {panel.guide:.6g},graph 1 nohead "
            f"linecolor rgb '{_TEXT}' linewidth 0.8"
        )
    drawn = [f"data index {block + i} {_style(mark, panel.line_width(box))}" for i, mark in enumerate(panel.marks)]
    yield f"plot {_ALSO.join(drawn)}"


_ALSO = ", \\\n  "


def _label(label: Label, indent: float, inch: float) -> Iterator[str]:
    """`inch` is one in widths of the panel."""
    if label.line is not None:
        colour = label.line.colour
        if label.anchor is not None:
            points = [label.anchor, (1.0, label.anchor[1]), (1 + 0.14 * inch, label.height)]
            for start, end in zip(points, points[1:]):
                yield _arrow(start, end, f"linecolor rgb '{colour}' linewidth 0.8 dashtype 3")
        start, end = (1 + 0.14 * inch, label.height), (1 + (SWATCH + 0.02) * inch, label.height)
        yield _arrow(start, end, f"linecolor rgb '{colour}' linewidth 1.6 dashtype {2 if label.line.dashed else 1}")
    yield f"set label {_quoted(label.text)} at graph {1 + (0.06 + indent) * inch:.4f},{label.height:.4f} left"


def _arrow(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    return f"set arrow from graph {start[0]:.4f},{start[1]:.4f} to graph {end[0]:.4f},{end[1]:.4f} nohead {style}"


def _axis(which: str, axis: Axis, ticks: list[tuple[float, str]]) -> Iterator[str]:
    yield f"set logscale {which}" if axis.scale == "log" else f"unset logscale {which}"
    yield f"set {which}range [{axis.low:.9g}:{axis.high:.9g}]"
    # A tick's text is a format.
    texts = (f"{_quoted(text.replace('%', '%%'))} {place:.9g}" for place, text in ticks)
    yield f"set {which}tics ({', '.join(texts)})"


def _style(mark: Mark, width: float) -> str:
    """What follows the data in `plot`."""
    colour = _TEXT if mark.colour == INK else mark.colour
    if mark.draw == "cells":
        fill = f"fillstyle transparent solid {mark.opacity:.2f} noborder fillcolor rgb '{colour}'"
        return f"using 1:3:1:2:3:4 with boxxyerror {fill}"
    if mark.opacity < 1:
        colour = f"#{round(255 * (1 - mark.opacity)):02x}{colour[1:]}"
    colour = f"linecolor rgb '{colour}'"
    if mark.draw == "line":
        return f"using 1:2 with lines linewidth {width} dashtype {2 if mark.dashed else 1} {colour}"
    if mark.draw == "whiskers":
        return f"using 1:2 with lines linewidth 1.4 {colour}"
    if mark.draw == "ticks":
        return f"using 1:2 with points pointtype '|' {colour} font ',16'"
    shape = 6 if mark.draw == "hollow" else 7
    return f"using 1:2 with points pointtype {shape} pointsize 0.8 linewidth 1.4 {colour}"


def _quoted(text: str) -> str:
    """A string of gnuplot's. What is special in one stands there by its number: within single quotes, gnuplot 5.4 ends a string at two
    quotes where the text begins with one or has two in a row; and of ]]> it makes an SVG that is no XML."""
    shown = printable(text).replace("]]>", "]] >")
    return '"' + _SPECIAL.sub(lambda char: f"\\{ord(char[0]):03o}", shown) + '"'


_SPECIAL = re.compile(r"[\"'`\\@$]")


# The terminal

# What gnuplot's dumb terminal draws lines with, by their type from 2 on, or in colour by their dash type (term/dumb.trm).
_PENS = "#$%@&=*"
_DOTS = {"dots": "\N{BLACK CIRCLE}", "hollow": "\N{WHITE CIRCLE}", "ticks": "|"}
_SHADES = "\N{LIGHT SHADE}\N{MEDIUM SHADE}\N{DARK SHADE}\N{FULL BLOCK}"


def terminal(figure: Figure, columns: int, colour: bool) -> str:
    """The figure in characters, so many to a line: its panels below each other, each as high as it is in lines of text.
    Lines are told apart by their characters, and with `colour` by ANSI sequences too."""
    program = shutil.which("gnuplot")
    if program is None:
        raise Failure(Exit.MISSING, "gnuplot, which draws in the terminal, is missing: install gnuplot-nox")
    script = "".join(line + "\n" for panel in figure.panels for line in _in_characters(panel, columns, colour))
    # Settings of the user's own would change the picture.
    done = subprocess.run([program, "-d", "-"], input=script.encode(), capture_output=True, check=False, timeout=60)
    # It warns, as of a locale whose characters it lacks, and draws all the same.
    if done.returncode or not done.stdout:
        raise Failure(Exit.FAILED, f"gnuplot can't draw {figure.name}: {done.stderr.decode(errors='replace').strip()}")
    drawn = done.stdout.decode().replace("\f", "").split("\n")
    drawn = [line.rstrip() + ("\x1b[0m" if colour else "") for line in drawn if _SEQUENCE.sub("", line).strip()]
    footer = [part for line in figure.footer for part in textwrap.wrap(printable(line), columns)]
    return "".join(line + "\n" for line in (printable(figure.title), *drawn, *footer))


_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


def _in_characters(panel: Panel, columns: int, colour: bool) -> Iterator[str]:
    lines = [mark for mark in panel.marks if mark.draw == "line"]
    named = [(label, _named(label, lines)) for label in panel.labels]
    left = 3 + max(len(text) for _, text in panel.y.ticks)
    right = 2 + max((len(text) for _, text in named), default=0)
    wide = max(columns - left - right, 10)
    high = round(panel.height / LINE) + 1
    yield "reset"
    yield "set encoding utf8"
    yield f"set terminal dumb noenhanced size {columns},{high} {'ansi256' if colour else 'mono'}"
    yield "unset key; set border 3; set xtics nomirror scale 0.5; set ytics nomirror scale 0.5"
    yield f"set lmargin {left}; set rmargin {right}; set tmargin 1; set bmargin {3 if panel.x.label else 2}"
    yield f"set label {_quoted(panel.title)} at graph 0,1 left offset 0,1"
    yield from _axis("x", panel.x, panel.x.fitting(wide, 1.0))
    yield f"set xlabel {_quoted(panel.x.label)}"
    yield from _axis("y", panel.y, panel.y.ticks)
    for label, text in named:
        ink = f"textcolor rgb '{label.line.colour}'" if label.line else ""
        yield f"set label {_quoted(text)} at graph 1,{label.height:.4f} left offset 1,0 {ink}"
    if panel.guide is not None:
        yield f"set arrow from first {panel.guide:.6g},graph 0 to first {panel.guide:.6g},graph 1 nohead"
    drawn = []
    for number, mark in enumerate(panel.marks):
        ink = "linetype -1" if mark.colour == INK else f"linecolor rgb '{mark.colour}'"
        if mark.draw == "cells":
            data, style = _filled(panel, mark, wide, high), f"points pointtype '{_SHADES[max(round(4 * mark.opacity) - 1, 0)]}'"
        elif mark.draw == "whiskers":
            data, style = _points(mark), "lines linetype -1"
        elif mark.draw != "line":
            data, style = _points(mark), f"points pointtype '{_DOTS[mark.draw]}'"
        else:
            pen = 2 + lines.index(mark) % len(_PENS)
            data, style = _points(mark), f"lines linetype {pen} dashtype {pen}"
        yield f"$data{number} << END"
        yield from data
        yield "END"
        drawn.append(f"$data{number} using 1:2 with {style} {ink}")
    yield f"plot {_ALSO.join(drawn)}"


def _named(label: Label, lines: list[Mark]) -> str:
    return label.text if label.line is None else f"{_PENS[lines.index(label.line) % len(_PENS)]} {label.text}"


def _filled(panel: Panel, mark: Mark, wide: int, high: int) -> Iterator[str]:
    """A point in each character that a cell covers, and at least one."""
    for i in range(0, len(mark.x), 2):
        columns = _covered([panel.x.fraction(x) for x in mark.x[i : i + 2]], wide)
        rows = _covered([panel.y.fraction(y) for y in mark.y[i : i + 2]], high)
        for row in rows:
            yield from (f"{panel.x.at(column):.9g} {panel.y.at(row):.9g}" for column in columns)


def _covered(ends: list[float], count: int) -> list[float]:
    """Middles of those of so many parts of 0 to 1 that lie between two ends."""
    first = min(int(min(ends) * count), count - 1)
    return [(i + 0.5) / count for i in range(first, max(first + 1, min(round(max(ends) * count), count)))]

# SPDX-License-Identifier: GPL-2.0-only
"""Draws the figures with matplotlib: as SVG that takes its ink from the page it stands in, and as SVG and PNG files on
white ground. The same data gives the same bytes.

Texts of an SVG stay texts, for readers' eyes, fonts and searches; the fonts that stand in for DejaVu Sans where it is
missing are as wide as it or narrower, so that no text grows into another.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import NullLocator

from . import formats
from .canvas import FONT_POINTS, INK, LINE, SWATCH, WIDTH, Box, Figure, Label, Mark, Panel, fitting
from .tables import printable

# What matplotlib writes for the colour of the page's text; no mark has this black of its own.
_INK = "#010203"

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial", "sans-serif"],
    "font.size": FONT_POINTS,
    "axes.titlesize": FONT_POINTS,
    "axes.labelsize": FONT_POINTS,
    "xtick.labelsize": FONT_POINTS,
    "ytick.labelsize": FONT_POINTS,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "durabench",
}

_TOO_EXACT = re.compile(r"(\.\d\d)\d+")


def svg(figure: Figure) -> str:
    """The figure as an SVG element to stand in HTML: without XML header, its ids begin with the figure's name."""
    text = _drawn(figure, "svg", transparent=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{figure.name}-", text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    label = html.escape(printable(figure.title))
    return f'{head} role="img" aria-label="{label}">{rest}'.replace(_INK, "currentColor")


def write(figure: Figure, folder: Path, pixels: int = 1200) -> None:
    """Write NAME.svg and NAME.png, so many pixels wide, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    formats.write_bytes(folder / f"{figure.name}.svg", _drawn(figure, "svg"))
    formats.write_bytes(folder / f"{figure.name}.png", _drawn(figure, "png", dpi=pixels / WIDTH))


def _drawn(figure: Figure, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    # The user's own settings are put aside, so that they don't change the picture.
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # Of a character that the font lacks, and of the fonts that only the reader may have.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        drawing = _drawing(figure)
        metadata = {"Software": None} if form == "png" else None
        drawing.savefig(out, format=form, metadata=metadata, **options)
    if form == "png":
        return out.getvalue()
    # When and by which release of matplotlib it was drawn would be all that differs.
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue().decode(), flags=re.DOTALL)
    return re.sub(r' d="[^"]*"', lambda path: _TOO_EXACT.sub(r"\1", path[0]), text).encode()


def _drawing(figure: Figure) -> Drawing:
    drawing = Drawing(figsize=(WIDTH, figure.height))
    _text(drawing, figure.height - 0.2, figure.title, weight="bold")
    for number, line in enumerate(reversed(figure.footer)):
        _text(drawing, 0.08 + LINE * number, line, alpha=0.75, size=FONT_POINTS - 1)
    for panel, box in zip(figure.panels, figure.boxes(), strict=True):
        _panel(drawing, panel, box)
    return drawing


def _text(drawing: Drawing, height: float, text: str, **style: object) -> None:
    """Text at the left, so many inches above the lower edge."""
    drawing.text(0.12 / WIDTH, height / drawing.get_figheight(), printable(text), va="baseline", **style)


def _panel(drawing: Drawing, panel: Panel, box: Box) -> None:
    axes = drawing.add_axes((box.left, box.bottom, box.width, box.height))
    axes.set_title(printable(fitting(panel.title, box.room)), loc="left", pad=5)
    axes.set(xscale=panel.x.scale, xlim=(panel.x.low, panel.x.high), xlabel=printable(panel.x.label))
    axes.set(yscale=panel.y.scale, ylim=(panel.y.low, panel.y.high), ylabel=printable(panel.y.label))
    for ruler, ticks in ((axes.xaxis, panel.x.fitting(box.width * WIDTH)), (axes.yaxis, panel.y.ticks)):
        ruler.set_ticks([place for place, _ in ticks], [printable(text) for _, text in ticks])
        ruler.set_minor_locator(NullLocator())
    axes.grid(True, color=_INK, alpha=0.14, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.guide is not None:
        axes.axvline(panel.guide, color=_INK, linewidth=0.8, alpha=0.6)
    for mark in panel.marks:
        _mark(axes, mark, panel.line_width(box))
    indent = SWATCH if any(label.line for label in panel.labels) else 0
    for label in panel.labels:
        _label(axes, label, indent, 1 / (box.width * WIDTH))


def _label(axes: Axes, label: Label, indent: float, inch: float) -> None:
    """`inch` is one in widths of the panel."""
    if label.line is not None:
        style = {"color": label.line.colour, "transform": axes.transAxes, "clip_on": False}
        if label.anchor is not None:
            ends = (label.anchor[1], label.anchor[1], label.height)
            axes.plot((label.anchor[0], 1.0, 1 + 0.14 * inch), ends, linewidth=0.8, linestyle=":", alpha=0.6, **style)
        piece = (1 + 0.14 * inch, 1 + (SWATCH + 0.02) * inch)
        axes.plot(piece, [label.height] * 2, linewidth=1.6, linestyle="--" if label.line.dashed else "-", **style)
    axes.text(1 + (0.06 + indent) * inch, label.height, printable(label.text), va="center_baseline", transform=axes.transAxes)


def _mark(axes: Axes, mark: Mark, width: float) -> None:
    colour = _INK if mark.colour == INK else mark.colour
    if mark.draw == "line":
        axes.plot(mark.x, mark.y, color=colour, linewidth=width, linestyle="--" if mark.dashed else "-")
        axes.plot(mark.x[-1:], mark.y[-1:], color=colour, linestyle="", marker="o", markersize=2 * width)
    elif mark.draw == "cells":
        outlines = [
            Outline([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], closed=True)
            for x0, y0, x1, y1 in zip(mark.x[::2], mark.y[::2], mark.x[1::2], mark.y[1::2], strict=True)
        ]
        # Without antialiasing there are no seams between neighbours.
        style = {"facecolor": colour, "alpha": mark.opacity, "linewidth": 0, "antialiased": False}
        axes.add_patch(PathPatch(Outline.make_compound_path(*outlines), **style))
    elif mark.draw == "whiskers":
        for i in range(0, len(mark.x), 2):
            axes.plot(mark.x[i : i + 2], mark.y[i : i + 2], color=colour, linewidth=1.4)
    elif mark.draw == "ticks":
        axes.plot(mark.x, mark.y, color=colour, linestyle="", marker="|", markersize=13, markeredgewidth=2)
    else:
        face, size = ("none", 6) if mark.draw == "hollow" else (colour, 5)
        style = {"marker": "o", "markersize": size, "markerfacecolor": face, "alpha": mark.opacity}
        axes.plot(mark.x, mark.y, color=colour, linestyle="", **style)

# SPDX-License-Identifier: GPL-2.0-only
"""Draws the figures with matplotlib, as SVG that takes its ink from the page it stands in. The same data gives the same
bytes."""

from __future__ import annotations

import html
import io
import re
import warnings

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import NullLocator

from .figures import FONT_POINTS, INK, LINE, WIDTH, Box, Figure, Mark, Panel
from .tables import printable

# What matplotlib writes for the colour of the page's text; no mark has this black of its own.
_INK = "#010203"

_STYLE = {
    "font.family": "DejaVu Sans",
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
    # The user's own settings are put aside, so that they don't change the picture.
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # A character that the font lacks is drawn by the reader's own font.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        drawing = Drawing(figsize=(WIDTH, figure.height))
        _text(drawing, figure.height - 0.2, figure.title, weight="bold")
        for number, line in enumerate(reversed(figure.footer)):
            _text(drawing, 0.08 + LINE * number, line, alpha=0.75, size=FONT_POINTS - 1)
        for panel, box in zip(figure.panels, figure.boxes(), strict=True):
            _panel(drawing, panel, box)
        out = io.StringIO()
        drawing.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue(), figure)


def _text(drawing: Drawing, height: float, text: str, **style: object) -> None:
    """Text at the left, so many inches above the lower edge."""
    drawing.text(0.12 / WIDTH, height / drawing.get_figheight(), printable(text), va="baseline", **style)


def _panel(drawing: Drawing, panel: Panel, box: Box) -> None:
    axes = drawing.add_axes((box.left, box.bottom, box.width, box.height))
    axes.set_title(printable(panel.title), loc="left", pad=5)
    axes.set(xscale=panel.x.scale, xlim=(panel.x.low, panel.x.high), xlabel=printable(panel.x.label))
    axes.set(yscale=panel.y.scale, ylim=(panel.y.low, panel.y.high), ylabel=printable(panel.y.label))
    for ruler, axis in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        ruler.set_ticks([place for place, _ in axis.ticks], [printable(text) for _, text in axis.ticks])
        ruler.set_minor_locator(NullLocator())
    axes.grid(True, color=_INK, alpha=0.14, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.guide is not None:
        axes.axvline(panel.guide, color=_INK, linewidth=0.8, alpha=0.6)
    for mark in panel.marks:
        _mark(axes, mark)
    inch = 1 / (box.width * WIDTH)
    for label in panel.labels:
        if label.anchor is not None:
            axes.plot(
                (label.anchor[0], 1.0, 1 + 0.14 * inch),
                (label.anchor[1], label.anchor[1], label.height),
                color=label.colour,
                linewidth=0.8,
                linestyle=":",
                transform=axes.transAxes,
                clip_on=False,
            )
        place = 1 + (0.16 if label.anchor else 0.04) * inch
        axes.text(place, label.height, printable(label.text), va="center_baseline", transform=axes.transAxes)


def _mark(axes: Axes, mark: Mark) -> None:
    colour = _INK if mark.colour == INK else mark.colour
    if mark.draw == "line":
        axes.plot(mark.x, mark.y, color=colour, linewidth=1.4, linestyle="--" if mark.dashed else "-")
        axes.plot(mark.x[-1:], mark.y[-1:], color=colour, linestyle="", marker="o", markersize=3)
    elif mark.draw == "whiskers":
        for i in range(0, len(mark.x), 2):
            axes.plot(mark.x[i : i + 2], mark.y[i : i + 2], color=colour, linewidth=1.4)
    elif mark.draw == "ticks":
        axes.plot(mark.x, mark.y, color=colour, linestyle="", marker="|", markersize=13, markeredgewidth=2)
    else:
        face, size = ("none", 6) if mark.draw == "hollow" else (colour, 5)
        axes.plot(mark.x, mark.y, color=colour, linestyle="", marker="o", markersize=size, markerfacecolor=face)


def _inline(text: str, figure: Figure) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{figure.name}-", text)
    text = re.sub(r' d="[^"]*"', lambda path: _TOO_EXACT.sub(r"\1", path[0]), text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    label = html.escape(printable(figure.title))
    return f'{head} role="img" aria-label="{label}">{rest}'.replace(_INK, "currentColor")

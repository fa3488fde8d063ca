# SPDX-License-Identifier: GPL-2.0-only
"""What every output must say alike of a strategy: its colour, and whether its writes are durable when reported
complete."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

# Okabe and Ito, "Color Universal Design" (2008), told apart with any kind of colour vision. Of their eight, black and
# yellow are left out, since figures are shown on light and dark ground, and a grey stands in their place that is dark
# enough not to be taken for the purple or the green without red or green cones.
_ORANGE, _SKY, _GREEN, _BLUE, _VERMILION, _PURPLE, _GREY = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#666666",
)

PALETTE = (_SKY, _ORANGE, _GREEN, _PURPLE, _VERMILION, _BLUE, _GREY)

# The old kernel's way is vermilion and the new one's blue in every measurement.
_COLOURS = {
    "dsync": _VERMILION,
    "fua": _BLUE,
    "rwf-dsync": _ORANGE,
    "fua-flush": _PURPLE,
    "write-flush": _GREEN,
    "none": _GREY,
    # A target takes one of these two.
    "nvme-fua": _SKY,
    "scsi-fua": _SKY,
    "buffered": _GREY,
    "dontcache": _ORANGE,
    "inline": _VERMILION,
    "kick": _BLUE,
    "direct": _GREEN,
    "kernel": _ORANGE,
    "per-target": _VERMILION,
    "per-device": _BLUE,
}

_NOT_DURABLE = {"none", "buffered", "dontcache", "inline", "kick", "direct"}

_KERNELS = {"dsync", "dontcache", "kernel"}

NOT_DURABLE_NOTE = "* not durable: a power cut may lose writes that were reported complete, until a sync"


def colours(names: Iterable[str]) -> dict[str, str]:
    """Colours of strategies that are shown together: its own of each that the engines have, in every figure, and for
    other names those that are left, in their order; of more names than colours, some have the same."""
    found = {name: _COLOURS.get(name, "") for name in names}
    left = [each for each in PALETTE if each not in found.values()]
    others = itertools.chain(left, itertools.cycle(PALETTE))
    return {name: known or next(others) for name, known in found.items()}


def label(strategy: str) -> str:
    """Name of a strategy as shown to people: marked by a star if it is not durable."""
    return strategy if is_durable(strategy) else strategy + "*"


def is_durable(strategy: str) -> bool:
    """Whether a strategy is meant to make each write durable, or to have it made so by a sync."""
    return strategy not in _NOT_DURABLE


def is_kernels(strategy: str) -> bool:
    """Whether a strategy leaves the way to the kernel, so that two kernels can be compared by it."""
    return strategy in _KERNELS

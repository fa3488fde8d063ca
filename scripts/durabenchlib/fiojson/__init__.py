# SPDX-License-Identifier: GPL-2.0-only
"""Reads the JSON and JSON+ output of every fio from 2.1 on, as it is found in files rather than as it should be.

`cut` takes the histograms out of a file that is as fio prints it, `text` finds the documents in any other, `document` makes
typed values of the last, `latency` and `joint` put together what several jobs did, `suspicions` says what does not mean what
it seems to.
"""

from .document import DIRECTIONS, Direction, Document, Job, is_on, parse, read
from .joint import rate, total
from .joint import seconds as joint_seconds
from .latency import SATURATED_NS, Latency, merge
from .suspicions import PERCENTS, Suspicion, distributions, few_samples, mixed_versions, suspicions

__all__ = [
    "DIRECTIONS",
    "PERCENTS",
    "SATURATED_NS",
    "Direction",
    "Document",
    "Job",
    "Latency",
    "Suspicion",
    "distributions",
    "few_samples",
    "is_on",
    "joint_seconds",
    "merge",
    "mixed_versions",
    "parse",
    "rate",
    "read",
    "suspicions",
    "total",
]

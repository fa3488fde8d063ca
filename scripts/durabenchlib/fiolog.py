# SPDX-License-Identifier: GPL-2.0-only
"""What util/fiolog.h declares, for Python: reads logs of any size in blocks, and says what is wrong in them and where."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_ubyte, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from errno import EBADMSG
from functools import cache
from pathlib import Path
from typing import Any

from . import layout
from .errors import Exit, Failure

DIRECTIONS = ("read", "write", "trim")
# The greatest value, and how many buckets there are.
MAX = 2**53
BUCKETS = 49 * 64
HISTOGRAM = 1856


class Columns(IntEnum):
    """Whether a maximum stands behind each value; ANY if that is to be found out."""

    VALUE = 0
    BOTH = 1
    ANY = 2


class Fault(ctypes.Structure):
    """What is wrong, and how the line begins."""

    NO_LINE, MANY_COLUMNS, ENDLESS_LINE, OTHER_BUCKETS = range(1, 5)
    _fields_ = [
        ("what", c_int32),
        ("columns", c_int32),
        ("buckets", c_int32 * 2),
        ("line", c_uint64),
        ("length", c_uint32),
        ("text", c_ubyte * 500),
    ]


class Series(ctypes.Structure):
    """The lines of one direction; `counts` by fio's buckets."""

    _fields_ = [
        *((name, c_uint64) for name in ("lines",)),
        *((name, c_int64) for name in ("min", "max", "start_msec", "end_msec")),
        *((name, c_double) for name in ("mean", "stddev")),
        ("counts", c_uint64 * BUCKETS),
    ]


class Summary(ctypes.Structure):
    """All lines, by direction."""

    _fields_ = [("lines", c_uint64), ("resets", c_uint64), ("sized", c_uint64), ("series", Series * len(DIRECTIONS))]


class Histogram(ctypes.Structure):
    """The I/Os of one direction, by the first `buckets` of `counts`."""

    _fields_ = [
        ("lines", c_uint64),
        ("start_msec", c_int64),
        ("end_msec", c_int64),
        ("buckets", c_uint64),
        ("counts", c_uint64 * HISTOGRAM),
    ]


class Histograms(ctypes.Structure):
    """All histograms, by direction."""

    _fields_ = [("lines", c_uint64), ("resets", c_uint64), ("of", Histogram * len(DIRECTIONS))]


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(layout.reader()))
    library.fiolog_open.argtypes = [c_char_p, c_size_t, ctypes.POINTER(c_void_p)]
    library.fiolog_close.argtypes = [c_void_p]
    library.fiolog_close.restype = None
    library.fiolog_fault.argtypes = [c_void_p]
    library.fiolog_fault.restype = ctypes.POINTER(Fault)
    library.fiolog_rows.argtypes = [c_void_p, c_int, c_void_p, c_int]
    library.fiolog_summarize.argtypes = [c_void_p, c_int, ctypes.POINTER(Summary)]
    library.fiolog_next_histogram.argtypes = [c_void_p, c_void_p]
    library.fiolog_sum_histograms.argtypes = [c_void_p, ctypes.POINTER(Histograms)]
    return library


class Log:
    """A log that is open; what is read of it begins where the last reading ended. What is wrong with it is a Failure."""

    def __init__(self, path: Path, handle: c_void_p) -> None:
        self._path = path
        self._handle = handle

    def rows(self, columns: Columns, rows: c_void_p, most: int) -> int:
        """Put the next lines into an array of int64 (ms, value, direction, block size) for `most`; their number, 0 at the end."""
        return self._checked(_library().fiolog_rows(self._handle, columns, rows, most), "a fio log")

    def summary(self) -> Summary:
        """What all lines say."""
        found = Summary()
        self._checked(_library().fiolog_summarize(self._handle, Columns.ANY, ctypes.byref(found)), "a fio log")
        return found

    def next_histogram(self, row: c_void_p) -> int:
        """Put the next line (ms, direction, block size, counts) into an array of 3 + HISTOGRAM int64; the number of counts, 0 at
        the end."""
        return self._checked(_library().fiolog_next_histogram(self._handle, row), "a histogram log")

    def histograms(self) -> Histograms:
        """What all histograms say."""
        found = Histograms()
        self._checked(_library().fiolog_sum_histograms(self._handle, ctypes.byref(found)), "a histogram log")
        return found

    def _checked(self, got: int, kind: str) -> int:
        if got >= 0:
            return got
        if got != -EBADMSG:
            raise _unreadable(self._path, got)
        raise Failure(Exit.INPUT, _said(self._path, _library().fiolog_fault(self._handle).contents, kind))


@contextmanager
def opened(path: Path, block: int) -> Iterator[Log]:
    """Open a log, to be read in blocks of that many bytes."""
    handle = c_void_p()
    got = _library().fiolog_open(os.fsencode(path), block, ctypes.byref(handle))
    if got:
        raise _unreadable(path, got)
    try:
        yield Log(path, handle)
    finally:
        _library().fiolog_close(handle)


def _unreadable(path: Path, error: int) -> Failure:
    return Failure(Exit.INPUT, f"{path}: can't be read: {os.strerror(-error)}")


def _said(path: Path, fault: Any, kind: str) -> str:
    match fault.what:
        case Fault.ENDLESS_LINE:
            return f"{path}: is no log of fio: a line of it has no end"
        case Fault.OTHER_BUCKETS:
            return f"{path}: has lines of {fault.buckets[0]} and of {fault.buckets[1]} buckets, so it is of several runs"
        case Fault.MANY_COLUMNS:
            return f"{path}:{fault.line}: has {fault.columns} columns, so it is no bw, iops or lat log but a histogram"
    text = bytes(fault.text[: fault.length]).decode("utf-8", "replace").strip()
    return f"{path}:{fault.line}: is not a line of {kind}: {text[:80]!r}"

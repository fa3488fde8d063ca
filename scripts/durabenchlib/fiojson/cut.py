# SPDX-License-Identifier: GPL-2.0-only
"""What util/fiojson.h declares, for Python: takes the histograms out of JSON+, of which they are most."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_size_t, c_uint32, c_uint64
from functools import cache

from .. import layout
from ..errors import Failure
from .latency import Bins


# Of a file; the arrays take seven times as much.
_MOST = 16 << 20


class _Arrays(ctypes.Structure):
    _fields_ = [("buckets", POINTER(c_uint64)), ("counts", POINTER(c_uint64)), ("reached", POINTER(c_uint64)), ("ends", POINTER(c_uint32))]


class _Cutter:
    """The library, and room for what it writes."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(layout.reader()))
        self._cut = library.fiojson_cut
        self._cut.argtypes = [c_char_p, c_size_t, c_char_p, POINTER(c_size_t), POINTER(_Arrays)]
        self._length = c_size_t()
        self._make_room(1 << 16)

    def _make_room(self, size: int) -> None:
        self._size = size
        most = size // 4 + 1
        self._rest = (ctypes.c_char * size)()
        self._parts = [(c_uint64 * most)() for _ in range(3)]
        self._ends = (c_uint32 * most)()
        self._arrays = _Arrays(*self._parts, self._ends)

    def cut(self, data: bytes) -> tuple[bytes, list[Bins]] | None:
        """As cut()."""
        if len(data) > _MOST:
            return None
        if len(data) > self._size:
            self._make_room(min(2 * len(data), _MOST))
        found = self._cut(data, len(data), self._rest, self._length, self._arrays)
        if found < 0:
            return None
        ends = self._ends[:found]
        used = 8 * ends[-1] if ends else 0
        buckets, counts, reached = (memoryview(memoryview(part).cast("B")[:used].tobytes()).cast("Q") for part in self._parts)
        starts = [0, *ends[:-1]]
        bins = [Bins(buckets[a:b], counts[a:b], reached[a:b]) for a, b in zip(starts, ends)]
        return self._rest[: self._length.value], bins


@cache
def _cutter() -> _Cutter | None:
    try:
        return _Cutter()
    except Failure:
        return None


def cut(data: bytes) -> tuple[bytes, list[Bins]] | None:
    """JSON with numbers in the places of its histograms, and these; None where it is not just one document as fio prints it, where
    it is very large, or where the library is missing: all can be read without."""
    cutter = _cutter()
    return cutter.cut(data) if cutter else None

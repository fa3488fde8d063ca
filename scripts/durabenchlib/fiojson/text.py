# SPDX-License-Identifier: GPL-2.0-only
"""Finds fio's JSON documents in a text, and says where one is damaged.

fio may print notes and errors before, between and after its documents, does not escape control characters, prints
floating point numbers by "%f" even where they are none, and repeats a key when an option is repeated. Others put
banners, logs and JSON of their own around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Where an object may begin: first in a line, or anywhere if it begins as fio's documents do.
_BEGIN = re.compile(r'^[ \t]*(\{)|(\{)(?=\s*"fio version")', re.MULTILINE)
_FIO = re.compile(r'\{\s*"(?:fio version|global options|client_stats)"')
_FIO_BEGINS = re.compile(r'\{\s*"fio version"')
_NOT_A_NUMBER = re.compile(
    r'("\s*:\s*)([-+]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#(?:IND|INF|QNAN)\d*))(?=\s*[,}\]])', re.IGNORECASE
)
_JOB = re.compile(r'"jobname"\s*:\s*"([^"\\]*)')


class Repeated(dict[str, Any]):
    """An object in which keys stand more than once with different values; the last is in the dict itself."""

    repeated: frozenset[str]


@dataclass(frozen=True)
class Found:
    """A fio document, and the line it begins at (from 1)."""

    raw: dict[str, Any]
    line: int


@dataclass(frozen=True)
class Damage:
    """A fio document that can't be read: where it begins, and what is wrong at which place."""

    line: int
    what: str


def decode(data: bytes) -> str:
    """The text of a file, in UTF-8 or, as a redirection in Windows makes it, in UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def scan(text: str) -> Iterator[Found | Damage | str]:
    """What is in a text, in its order: fio documents, whole or not, and the lines outside of all objects. Of objects that
    are not fio's, only the documents within them."""
    position = at = 0
    line = 1
    while begin := _BEGIN.search(text, position):
        start = begin.start(1) if begin[1] else begin.start(2)
        yield from _lines(text[position:start])
        line += text.count("\n", at, start)
        at = start
        value, position, error = _object(text, start)
        if error is None:
            if "fio version" in value or "jobname" in value:
                yield Found(value, line) if is_document(value) else Damage(line, _incomplete(value))
            else:
                yield from (Found(each, line) for each in _documents(value))
        elif _FIO.match(text, start):
            yield Damage(line, _place(text, start, line, error))
            following = _FIO_BEGINS.search(text, start + 1)
            position = following.start() if following else len(text)
        else:
            end = text.find("\n", start)
            position = len(text) if end < 0 else end
            yield from _lines(text[start:position])
    yield from _lines(text[position:])


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())


def is_document(value: dict[str, Any]) -> bool:
    """Whether an object is a document of fio's."""
    for name in ("jobs", "client_stats"):
        entries = value.get(name)
        if "fio version" in value and name in value:
            return True
        if isinstance(entries, list) and entries and all(isinstance(each, dict) and "jobname" in each for each in entries):
            return True
    return False


def _documents(value: Any) -> Iterator[dict[str, Any]]:
    """The documents that a value is or has within it."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict) and is_document(each):
            yield each
        elif isinstance(each, dict | list):
            rest += reversed(list(each.values()) if isinstance(each, dict) else each)


def _incomplete(value: dict[str, Any]) -> str:
    if "fio version" in value:
        return "has no list of jobs"
    return f"is a job ({str(value['jobname'])!r:.80}) without the document around it; its beginning is missing"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = Repeated(found)
    repeated.repeated = frozenset(key for key, value in pairs if value != found[key])
    return repeated


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs)


def _object(text: str, start: int) -> tuple[dict[str, Any], int, Exception | None]:
    """The JSON object at `start` and the position behind it, or what is wrong with it."""
    try:
        value, after = _DECODER.raw_decode(text, start)
        return value, after, None
    except (ValueError, RecursionError) as first:
        error: Exception = first
    if isinstance(error, json.JSONDecodeError) and _NOT_A_NUMBER.search(text, max(start, error.pos - 200), error.pos + 20):
        # As long as before, so that places stay what they are.
        mended = _NOT_A_NUMBER.sub(lambda match: match[1] + "NaN".rjust(len(match[2])), text[start:])
        try:
            value, after = _DECODER.raw_decode(mended)
            return value, start + after, None
        except json.JSONDecodeError as second:
            error = json.JSONDecodeError(second.msg, text, start + second.pos)
        except (ValueError, RecursionError) as second:
            error = second
    return {}, start, error


def _place(text: str, start: int, line: int, error: Exception) -> str:
    """What is wrong with the document at `start`, which is in `line`, and where in the file."""
    if isinstance(error, RecursionError):
        return "is damaged: it is nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return f"is damaged: {error}"
    rest = text[error.pos :].strip()
    cut_off = error.msg.startswith("Unterminated string") or (len(rest) < 16 and "\n" not in rest)
    at = len(text) if cut_off else error.pos
    jobs = _JOB.findall(text, start, at)
    line += text.count("\n", start, at)
    column = at - text.rfind("\n", 0, at)
    where = f"line {line}, column {column}" + (f", in job {jobs[-1]!r:.80}" if jobs else "")
    if cut_off:
        return f"is cut off at {where}: fio was killed while it wrote, or the copy is not complete"
    return f"is damaged at {where}: {error.msg}"

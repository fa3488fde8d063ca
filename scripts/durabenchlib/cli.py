# SPDX-License-Identifier: GPL-2.0-only
"""The durabench command: its arguments, and how its errors end."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TextIO

from . import __version__, leftovers, signals, tables
from .errors import Exit, Failure, os_message

# Modules, of which only that of the given command is loaded: with all of them a start takes half a second.
_COMMANDS = {
    **{name: name for name in ("run", "show", "compare", "report", "gate", "calibrate", "history", "doctor", "demo")},
    "lab": "lab.command",
}


class _Parser(argparse.ArgumentParser):
    """argparse ends with status 2 on wrong usage, which here means that a target was refused."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        # Of such a word argparse would make an empty list.
        for word in args or ():
            if re.fullmatch("--[a-z-]+=--", word):
                self.error(f"argument {word.partition('=')[0]}: -- is no value")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {tables.printable(message)}\n")


def _discard(stream: TextIO) -> None:
    """Let what a stream still holds, and all that is written to it, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class _Said:
    """Standard error, the end of which ends no measurement: a terminal that was closed, a pipe that nobody reads."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)

    def write(self, text: str) -> int:
        with self._lost():
            self._to.write(text)
        return len(text)

    def flush(self) -> None:
        with self._lost():
            self._to.flush()

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        """What can't be written is lost; it is not tried again when the interpreter ends, which would then fail."""
        try:
            yield
        except OSError:
            _discard(self._to)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the terminal has no character for, as in a name, is told by its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    with contextlib.redirect_stderr(_Said(sys.stderr)):
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    try:
        with signals.raised():
            try:
                words = sys.argv[1:] if arguments is None else arguments
                given = _parser(words[0] if words else None).parse_args(words)
                _clear(given)
                return int(given.func(given) or Exit.OK)
            finally:
                _flush()
    except Failure as failure:
        print(tables.complaint(str(failure)), file=sys.stderr)
        return failure.status
    except signals.Stopped as stopped:
        print(tables.complaint(str(stopped)), file=sys.stderr)
        return stopped.status
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        return Exit.OK
    except OSError as error:
        print(tables.complaint(os_message(error)), file=sys.stderr)
        return Exit.FAILED


def _parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or of all where it is none of them."""
    parser = _Parser(prog="durabench", description="Measures and compares what it costs to make data durable.")
    parser.add_argument("--version", action="version", version=f"durabench {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in [command] if command in _COMMANDS else _COMMANDS:
        importlib.import_module(f".{_COMMANDS[name]}", __package__).add_parser(subparsers)
    return parser


def _clear(given: argparse.Namespace) -> None:
    """Remove what killed commands left where this one makes the like."""
    gone = leftovers.clear(given.places(given)) if "places" in given else []
    if gone:
        text = f"removed what a killed durabench had left: {', '.join(map(str, gone))}"
        print(f"durabench: {tables.printable(text)}", file=sys.stderr)


def _flush() -> None:
    """Write what was printed. If that fails, nothing may be left for when the interpreter flushes at exit. That nobody reads it is no
    failure."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)
        if error.errno != errno.EPIPE:
            raise OSError(error.errno, error.strerror, "standard output") from None

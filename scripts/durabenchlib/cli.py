# SPDX-License-Identifier: GPL-2.0-only
"""The durabench command: its arguments, and how its errors end."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import __version__, tables
from .errors import Exit, Failure, os_message

# Modules, of which only that of the given command is loaded: with all of them a start takes half a second.
_COMMANDS = {
    **{name: name for name in ("run", "show", "compare", "report", "gate", "calibrate", "history", "doctor", "demo")},
    "lab": "lab.command",
}


class _Parser(argparse.ArgumentParser):
    """argparse ends with status 2 on wrong usage, which here means that a target was refused."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {tables.printable(message)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    try:
        try:
            words = sys.argv[1:] if arguments is None else arguments
            given = _parser(words[0] if words else None).parse_args(words)
            return int(given.func(given) or Exit.OK)
        finally:
            _flush()
    except Failure as failure:
        print(tables.complaint(str(failure)), file=sys.stderr)
        return failure.status
    except KeyboardInterrupt:
        return Exit.SIGINT
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


def _flush() -> None:
    """Write what was printed. If that fails, nothing may be left for when the interpreter flushes at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from None

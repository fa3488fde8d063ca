# SPDX-License-Identifier: GPL-2.0-only
"""The durabench command: its arguments, and how its errors end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import __version__, compare, demo, doctor, report, run
from .errors import Exit, Failure
from .lab import command as lab

class _Parser(argparse.ArgumentParser):
    """argparse ends with status 2 on wrong usage, which here means that a target was refused."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    parser = _Parser(prog="durabench", description="Measures and compares what it costs to make data durable.")
    parser.add_argument("--version", action="version", version=f"durabench {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (run, compare, report, doctor, demo, lab):
        module.add_parser(subparsers)
    given = parser.parse_args(arguments)
    try:
        return int(given.func(given) or Exit.OK)
    except Failure as failure:
        print(f"durabench: {failure}", file=sys.stderr)
        return failure.status
    except KeyboardInterrupt:
        return Exit.SIGINT
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written when the interpreter flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        print(f"durabench: {error}", file=sys.stderr)
        return Exit.FAILED

# SPDX-License-Identifier: GPL-2.0-only
"""The one exception that ends a command, and the exit codes it can carry (docs/formats.md, "Exit status")."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit status of the durabench command."""

    OK = 0
    FAILED = 1
    REFUSED = 2
    INPUT = 3
    USAGE = 64
    MISSING = 69
    SIGHUP = 129
    SIGINT = 130
    SIGQUIT = 131
    SIGTERM = 143


class Failure(Exception):
    """Ends the command: the message names the thing and the way out, the status says which kind of end it is."""

    def __init__(self, status: Exit, message: str) -> None:
        super().__init__(message)
        self.status = status


def os_message(error: OSError, name: object = "") -> str:
    """What the system refused, and of what: the error's own file, else `name`."""
    named = name if error.filename is None else error.filename
    return f"{named}: {error.strerror or error}" if named else str(error.strerror or error)

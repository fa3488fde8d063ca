# SPDX-License-Identifier: GPL-2.0-only
"""What a command is told to write: nothing that it was made from, and no file of a run, is lost by it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import tables
from .errors import Exit, Failure

# What `durabench run` and `durabench lab run` write into a run's folder itself.
_OWN = {"run.json", "measurement.toml", "console.log", "guest"}


def check(outputs: Sequence[Path], inputs: Iterable[Path] = ()) -> None:
    """Refuse outputs, files or folders, of which one is given twice, is one of the inputs, or is of a run."""
    read = {os.path.realpath(path) for path in inputs}
    seen: set[str] = set()
    for path in outputs:
        real = os.path.realpath(path)
        why = ""
        if os.path.exists(real) and not os.path.isfile(real) and not os.path.isdir(real):
            continue  # such as /dev/stdout
        if real in seen:
            why = "is given for two outputs, of which one would be lost"
        elif real in read:
            why = "is read, and would be written over"
        elif run := _run_of(Path(real)):
            why = f"is of the run {run}, and would be written over"
        if why:
            raise Failure(Exit.USAGE, tables.printable(f"{path} {why}; name another place. Nothing was written."))
        seen.add(real)


def _run_of(path: Path) -> Path | None:
    """The folder of the run one of whose own files a path is: the folder itself, what is in it as run.json is, or all below the folder of
    a repetition."""
    for folder in (path, *path.parents):
        if os.path.isfile(folder / "run.json"):
            below = path.relative_to(folder).parts
            own = not below or below[0] in _OWN or os.path.exists(folder / below[0] / "job.fio")
            return folder if own else None
    return None

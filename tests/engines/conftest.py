# SPDX-License-Identifier: GPL-2.0-only
"""The shim that stands between an engine and the system (shim/shim.h), and the
strategies of the engines, for the tests that take all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD, FioResult, RunFio

SHIM = BUILD / "tests/engines/shim/engine-shim.so"


@dataclass
class Seen:
    """What the shim tells of a run, of all its processes."""

    faults: list[tuple[str, str, str]] = field(default_factory=list)  # call, function, file
    counts: Counter[str] = field(default_factory=Counter)
    ring: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)


def seen(log: Path) -> Seen:
    found = Seen()
    for line in log.read_text().splitlines():
        kind, what, *rest = line.split(" ")
        if kind == "fault":
            found.faults.append((what, rest[0], rest[1]))
        elif kind == "leak":
            found.leaks.append(line)
        else:
            getattr(found, {"count": "counts", "ring": "ring"}[kind])[what] += int(rest[0])
    return found


Shimmed = Callable[..., tuple[FioResult, Seen]]


@pytest.fixture
def shimmed(run_fio: RunFio, tmp_path: Path) -> Shimmed:
    """shimmed(engine, faults=["call=write,error=EIO"], ring=SEED, …) -> what
    run_fio() has, and what the shim saw. Nothing may be left over in the end."""
    log = tmp_path / "shim.log"

    def run(engine: str, *, faults: Iterable[str] = (), ring: int | None = None, **options: Any) -> tuple[FioResult, Seen]:
        variables = {"DURABENCH_SHIM_LOG": str(log), "DURABENCH_SHIM_FAULTS": ";".join(faults)}
        if ring is not None:
            variables["DURABENCH_SHIM_RING"] = str(ring)
        log.unlink(missing_ok=True)
        log.touch()
        result = run_fio(engine, preload=SHIM, variables=variables, **options)
        found = seen(log)
        assert found.leaks == []
        assert found.counts, "the engine went past the shim"
        return result, found

    return run

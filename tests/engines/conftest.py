# SPDX-License-Identifier: GPL-2.0-only
"""The shim that stands between an engine and the system (shim/shim.h), and a
file system on which all strategies of an engine work."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD, FioResult, Mount, RunFio
from strategies import takes_dontcache

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

    def run(
        engine: str,
        *,
        faults: Iterable[str] = (),
        ring: int | None = None,
        may_stay_open: bool = False,
        **options: Any,
    ) -> tuple[FioResult, Seen]:
        variables = {"DURABENCH_SHIM_LOG": str(log), "DURABENCH_SHIM_FAULTS": ";".join(faults)}
        if ring is not None:
            variables["DURABENCH_SHIM_RING"] = str(ring)
        log.unlink(missing_ok=True)
        log.touch()
        result = run_fio(engine, preload=SHIM, variables=variables, **options)
        found = seen(log)
        assert [leak for leak in found.leaks if not (may_stay_open and "descriptor" in leak)] == []
        assert found.counts, f"the engine went past the shim\n{result.stderr}"
        return result, found

    return run


@pytest.fixture
def disk_for(mount: Mount) -> Callable[[str], Path]:
    """disk_for(engine) -> a folder on a file system that all its strategies can use."""

    def make(engine: str) -> Path:
        folder = mount("xfs", "512M")
        probe = folder / "probe"
        probe.touch()
        if engine == "dontcache-kick" and not takes_dontcache(probe):
            pytest.skip(f"Linux {os.uname().release} has no RWF_DONTCACHE")
        return folder

    return make

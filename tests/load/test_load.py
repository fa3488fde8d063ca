# SPDX-License-Identifier: GPL-2.0-only
"""256 jobs on one device, which write, sync and verify at once, as processes and as threads, alone and 128 deep.

`make soak` does so for long, with all strategies. With sanitized engines fewer do, and what threads have not freed in the end is told.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crowd import CROWDED, KIB, MIB, Case

from conftest import BUILD, ENGINES, ROOT, sanitizer_environment

SHIM = BUILD / "tests/engines/shim/engine-shim.so"
BY_NAME = {str(strategy): strategy for strategy in CROWDED}
DEEP = {"depth": 128, "options": {"rw": "randwrite"}}
SYNCED = {"options": {"rw": "randwrite", "fdatasync": 2}}

CASES = [
    Case(BY_NAME["fua-dsync-fua"], part=32 * KIB, **DEEP),
    Case(BY_NAME["fua-dsync-fua-flush"], thread=1, part=32 * KIB, **DEEP),
    Case(BY_NAME["dontcache-kick-kick-io_uring"], "file", part=32 * KIB, **DEEP),
    Case(BY_NAME["dontcache-kick-kick-pwritev2"], thread=1, part=32 * KIB, **SYNCED),
    Case(BY_NAME["dm-linear-flush-kernel-1"], part=32 * KIB, **SYNCED),
    Case(BY_NAME["dm-linear-flush-per-target-1"], thread=1, part=32 * KIB, **SYNCED),
    Case(BY_NAME["dm-linear-flush-per-device-1"], "file", part=32 * KIB, **SYNCED),
]
SANITIZER = sanitizer_environment(ENGINES / "fio-fua-dsync.so")
if SANITIZER:
    # Of each engine one.
    CASES = [replace(case, memory=64 * MIB) for case in (CASES[1], CASES[2], CASES[5])]


def leaks_that_the_shim_sees(crowd, case: Case, folder: Path) -> list[str]:
    log = folder / "shim.log"
    log.touch()
    crowd(case, preload=SHIM, variables={"DURABENCH_SHIM_LOG": str(log)})
    lines = log.read_text().splitlines()
    assert any(line.startswith("count ") for line in lines), "the engine went past the shim"
    return [line for line in lines if line.startswith("leak")]


def leaks_that_the_sanitizer_sees(crowd, case: Case, folder: Path) -> list[str]:
    """Without the shim, which knows where everything is. Fio's own have no frame of ours."""
    options = SANITIZER["ASAN_OPTIONS"].replace("detect_leaks=0", "detect_leaks=1")
    crowd(case, variables={"ASAN_OPTIONS": f"{options}:log_path={folder}/sanitizer", "LSAN_OPTIONS": "exitcode=0"})
    leaks = "\n".join(path.read_text() for path in folder.glob("sanitizer.*")).split("\n\n")
    return [leak for leak in leaks if any(f"{ROOT}/{room}/" in leak for room in ("engines", "guard", "util"))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_256_jobs(crowd, tmp_path: Path, case: Case) -> None:
    look = leaks_that_the_sanitizer_sees if SANITIZER else leaks_that_the_shim_sees
    assert look(crowd, case, tmp_path) == []

# SPDX-License-Identifier: GPL-2.0-only
"""256 jobs on one device, which write, sync and verify at once, as processes and as threads, alone and 128 deep.

`make soak` does so for long, with all strategies.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crowd import CROWDED, KIB, Case

from conftest import BUILD

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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_256_jobs(crowd, tmp_path: Path, case: Case) -> None:
    log = tmp_path / "shim.log"
    log.touch()
    crowd(case, preload=SHIM, variables={"DURABENCH_SHIM_LOG": str(log)})
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("leak")] == []
    assert any(line.startswith("count ") for line in lines), "the engine went past the shim"

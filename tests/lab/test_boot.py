# SPDX-License-Identifier: GPL-2.0-only
"""A guest for real, with a tiny plan: what comes out is a run, and in virtual time it comes out the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from durabenchlib import formats
from durabenchlib.lab.kernels import Kernel

from command import durabench

# Two boots under an emulated CPU, on a busy machine.
LIMIT_S = 900


def test_two_guests_in_virtual_time_agree(small: str, stock: Kernel, tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        done = durabench("lab", "run", small, "--kernel", stock.name, "-o", tmp_path / name, timeout=LIMIT_S)
        console = tmp_path / name / stock.name / "console.log"
        assert done.returncode == 0, (done.stderr, console.read_text() if console.exists() else "")
        runs.append(tmp_path / name / stock.name)
    rates: dict[str, list[float]] = {}
    for run in map(formats.read_run, runs):
        assert run.status == "complete"
        assert run.environment.kernel == stock.name
        assert run.environment.lab
        assert run.environment.lab.clock == "virtual"
        assert run.target.size_bytes == 32 << 20
        assert (run.target.write_cache, run.target.fua) == ("write back", True)
        abilities = run.environment.lab.abilities
        assert abilities["flushes_per_dsync_write"] in (0, 1)
        assert abilities["flushes_per_dm_sync"] in (1, 4)
    for folder in runs:
        for path in sorted(folder.glob("0*")):
            fio = json.loads((path / "fio.json").read_text())["jobs"][0]
            observed = json.loads((path / "observe.json").read_text())["devices"][0]
            # 100 us a request: io_uring asks for one, the old kernel's dsync for two.
            per_write = observed["flushes"] / fio["write"]["total_ios"]
            assert per_write == pytest.approx(abilities["flushes_per_dsync_write"] if "dsync" in path.name else 0, abs=0.01)
            assert 100e3 < fio["write"]["clat_ns"]["mean"] < 400e3
            rates.setdefault(path.name, []).append(fio["write"]["iops"])
    assert sorted(rates) == ["001-seq-dsync-1", "002-seq-fua-1"]
    for one, two in rates.values():
        assert one == pytest.approx(two, rel=0.001)


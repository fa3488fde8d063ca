# SPDX-License-Identifier: GPL-2.0-only
"""Every strategy on old and new kernels and on all kinds of devices, in guests: `make test-lab`, some twenty minutes.

What a strategy costs is told by the requests that reach the device; the times are looked at nowhere.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import formats, measurement
from durabenchlib.formats import Run
from durabenchlib.lab import kernels

from command import durabench

KERNELS = ("6.1", "6.18", "7.3")
DEVICES = {
    "nvme": ["--clock", "host", "--device", "nvme,size=64m"],
    "scsi": ["--clock", "host", "--device", "scsi,size=64m"],
    "nbd": ["--device", "nbdkit,plugin=devicemodel,size=64m,conf=/models/nvme.conf"],
}


@pytest.fixture(scope="session", autouse=True)
def fetched() -> None:
    """All kernels are there."""
    have = {kernels.series_of(kernel.version) for kernel in kernels.fetched()}
    kernels.fetch([series for series in KERNELS if series not in have])


def carry_out(name: str, series: str, output: Path, *arguments: str) -> tuple[Run, Path]:
    """The run in a guest; a repetition may fail, the guest not."""
    done = durabench("lab", "run", name, "--kernel", series, "-o", output, *arguments, timeout=1800)
    folder = output / kernels.find(series).name
    assert done.returncode in (0, 1), done.stderr
    run = formats.read_run(folder)
    assert all(repetition.status in ("ok", "failed") for repetition in run.repetitions), done.stderr
    return run, folder


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def per_write(folder: Path, device: str) -> dict[str, float]:
    """Flushes, and requests, that reached a device, for each write of fio's."""
    writes = sum(job["write"]["total_ios"] for job in read(folder, "fio.json")["jobs"])
    (seen,) = (each for each in read(folder, "observe.json")["devices"] if each["name"] == device)
    return {"flushes": seen["flushes"] / writes, "requests": seen["writes"] / writes}


close = functools.partial(pytest.approx, abs=0.05)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("series", KERNELS)
def test_durable_writes(series: str, device: str, tmp_path: Path) -> None:
    strategies = measurement.find("seagate-odsync")[0].strategies
    arguments = [*DEVICES[device], "--case", "seq", "--set", "RUNTIME=1"]
    run, folder = carry_out(
        "seagate-odsync", series, tmp_path, *arguments, *(word for each in strategies for word in ("--strategy", each))
    )
    by_strategy = {repetition.strategy: repetition for repetition in run.repetitions}
    assert run.status == "complete", run.reason
    assert run.environment.lab
    if device != "nbd":
        return
    flushes = {each: per_write(folder / by_strategy[each].dir, "nbd0")["flushes"] for each in strategies}
    assert flushes["none"] == close(0)
    assert flushes["fua"] == close(0)
    assert flushes["fua-flush"] == close(1)
    assert flushes["write-flush"] == close(1)
    assert flushes["dsync"] == flushes["rwf-dsync"] == close(run.environment.lab.abilities["flushes_per_dsync_write"])


@pytest.mark.parametrize("series", KERNELS)
def test_a_linear_table(series: str, tmp_path: Path) -> None:
    targets = 16
    strategies = ("kernel", "per-target", "per-device")
    arguments = ["--case", "dm", "--set", "RUNTIME=1", "--set", f"TARGETS={targets}"]
    run, folder = carry_out("dm-linear", series, tmp_path, *arguments, *(word for each in strategies for word in ("--strategy", each)))
    assert run.status == "complete", run.reason
    requests = {each.strategy: per_write(folder / each.dir, "nullb0")["requests"] for each in run.repetitions}
    assert run.environment.lab
    # 4 on the probe's table of 4 targets is one for each.
    kernels_way = targets if run.environment.lab.abilities["flushes_per_dm_sync"] == 4 else 1
    assert requests == {
        "kernel": pytest.approx(1 + kernels_way, rel=0.1),
        "per-target": pytest.approx(1 + targets, rel=0.1),
        "per-device": pytest.approx(2, rel=0.1),
    }


@pytest.mark.parametrize("series", KERNELS)
def test_uncached_writes(series: str, tmp_path: Path) -> None:
    strategies = measurement.find("xfs-dontcache")[0].strategies
    arguments = ["--set", "SIZE=64m", *(word for each in strategies for word in ("--strategy", each))]
    run, _ = carry_out("xfs-dontcache", series, tmp_path, *arguments)
    for repetition in run.repetitions:
        if repetition.strategy == "dontcache" and series == "6.1":
            assert "fio-dontcache-kick: " in (repetition.reason or "")
        else:
            assert repetition.status == "ok", repetition.reason

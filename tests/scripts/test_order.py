# SPDX-License-Identifier: GPL-2.0-only
"""Warnings of what the order of the repetitions shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib import compare, results
from sample_run import SampleRun, device, document, job, observed

pytestmark = pytest.mark.usefixtures("sample_measurement")


def warned(folder: Path, ms: Callable[[int, int, str], float], rounds: int = 7, alone: bool = False) -> list[str]:
    """The warnings of an interleaved run (ABBA) whose repetitions take as long as `ms(order, place in the round, strategy)` tells,
    beside noise of 0.5%; where `alone`, of one run for each side."""
    runs = {name: SampleRun(folder / name) for name in (("dsync", "fua") if alone else ("run",))}
    chance = random.Random(1)
    order = 0
    for turn in range(rounds):
        for place, strategy in enumerate(("dsync", "fua") if turn % 2 == 0 else ("fua", "dsync")):
            time = int(ms(order, place, strategy) * (1 + chance.gauss(0, 0.005)))
            run = runs[strategy] if alone else runs["run"]
            run.add("seq", "fua" if alone else strategy, document(job(writes=[9] * 1000, runtime_ms=time)), observed(device()))
            order += 1
    loaded = [results.load_run(run.write()) for run in runs.values()]
    (found,) = compare.compare_runs(loaded[0], loaded[-1]).measurements
    return [warning for warning in found.warnings if "write.iops" in warning]


def test_no_order(tmp_path: Path) -> None:
    assert warned(tmp_path, lambda order, place, strategy: 1000 if strategy == "fua" else 3000) == []


@pytest.mark.parametrize(("alone", "times"), [(False, 1), (True, 2)])
def test_drift(tmp_path: Path, alone: bool, times: int) -> None:
    found = warned(tmp_path, lambda order, place, strategy: (1000 if strategy == "fua" else 3000) * (1 + 0.01 * order), alone=alone)
    assert len(found) == times
    assert "seq write.iops falls by 1" in found[0] and "not in a steady state" in found[0]


def test_drift_within_the_margin(tmp_path: Path) -> None:
    assert warned(tmp_path, lambda order, place, strategy: 5000 * (1 + 0.0015 * order), rounds=6) == []


def test_what_comes_second(tmp_path: Path) -> None:
    (found,) = warned(tmp_path, lambda order, place, strategy: (1000 if strategy == "fua" else 3000) * (1 + 0.1 * place))
    assert "seq write.iops: what comes second in a round is 9% lower" in found or "is 10% lower" in found

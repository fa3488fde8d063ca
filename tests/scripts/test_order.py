# SPDX-License-Identifier: GPL-2.0-only
"""Warnings of what the order of the repetitions shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib import compare, foreign, order, results
from sample_run import SampleRun, device, document, job, observed

pytestmark = pytest.mark.usefixtures("sample_measurement")


def warned(folder: Path, ms: Callable[[int, int, str], float], rounds: int = 7, alone: bool = False) -> list[str]:
    """The warnings of an interleaved run (ABBA) whose repetitions take as long as `ms(order, place in the round, strategy)` tells,
    beside noise of 0.5%; where `alone`, of one run for each side."""
    runs = {name: SampleRun(folder / name) for name in (("dsync", "fua") if alone else ("run",))}
    chance = random.Random(1)
    made = 0
    for turn in range(rounds):
        for place, strategy in enumerate(("dsync", "fua") if turn % 2 == 0 else ("fua", "dsync")):
            time = int(ms(made, place, strategy) * (1 + chance.gauss(0, 0.005)))
            run = runs[strategy] if alone else runs["run"]
            run.add("seq", "fua" if alone else strategy, document(job(writes=[9] * 1000, runtime_ms=time)), observed(device()))
            made += 1
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
    assert warned(tmp_path, lambda order, place, strategy: 5000 * (1 + 0.001 * order), rounds=9) == []


def test_what_comes_second(tmp_path: Path) -> None:
    (found,) = warned(tmp_path, lambda order, place, strategy: (1000 if strategy == "fua" else 3000) * (1 + 0.1 * place))
    assert "seq write.iops: what comes second in a round is 9% lower" in found or "is 10% lower" in found


def started(folder: Path, *starts: str, lab: dict | None = None) -> results.Run:
    run = SampleRun(folder)
    run.manifest["environment"]["lab"] = lab
    for start in starts:
        run.add("seq", "fua", document(job(writes=[9] * 1000)), started=f"2026-11-30T{start}Z")
    return results.load_run(run.write())


def test_one_after_the_other(tmp_path: Path) -> None:
    old, new = started(tmp_path / "old", "10:00:00", "10:00:20"), started(tmp_path / "new", "10:01:00", "10:01:20")
    mixed = started(tmp_path / "mixed", "10:00:10", "10:01:10")
    for before, after in ((old, new), (new, old)):
        (warning,) = order.one_after_the_other(before, after)
        assert "Interleave them" in warning
    assert list(order.one_after_the_other(old, mixed)) == []
    guest = {"clock": "virtual", "accelerator": "", "qemu": "", "devices": [], "abilities": {}}
    assert list(order.one_after_the_other(old, started(tmp_path / "lab", "11:00:00", lab=guest))) == []


def test_fio_tells_when_it_began(tmp_path: Path) -> None:
    for name, start in (("a", 10**12), ("b", 10**12 + 10**5)):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.json").write_text(document(job(writes=[9] * 100, start_ms=start + number), version="fio-3.36"))
    sides = [foreign.load([tmp_path / name], name) for name in "ab"]
    assert len(list(order.one_after_the_other(*sides))) == 1

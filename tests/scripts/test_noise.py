# SPDX-License-Identifier: GPL-2.0-only
"""Proof that the gate neither cries wolf nor sleeps: on simulated noise, and on the recorded noise of a real machine
(data/noise-fio-3.33-tmpfs.json says how it was taken)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from durabenchlib import calibrate, judge, stats
from durabenchlib.formats import MetricComparison

PAIRS = 2000
RECORDED = {
    name: np.array(values)
    for name, values in json.loads((Path(__file__).parent / "data/noise-fio-3.33-tmpfs.json").read_text())["values"].items()
}


def verdicts(before: np.ndarray, after: np.ndarray, margin: float, tests: int = 1) -> np.ndarray:
    """Verdicts on arrays of pairs by fewer resamples than the command takes; `tests` share alpha by Bonferroni's rule, to which
    Holm's is equal for the first that is found."""
    low, high = stats.ratio_interval(before, after, resamples=1000)
    p = np.minimum(1, stats.rank_test(before, after) * tests)
    return stats.decide(low, high, p, margin, "lower")


@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_simulated_unchanged_pairs(sigma: float) -> None:
    """2,000 pairs of a run with four metrics, at most 1% of the pairs with any regression; noise that now and then is large."""
    random = np.random.default_rng(11)
    size = (2, PAIRS, 4, 7)
    noise = sigma * random.standard_normal(size) * np.where(random.random(size) < 0.1, 4, 1)
    before, after = np.exp(noise)
    alarms = (verdicts(before, after, 0.02, tests=4) == "regressed").any(axis=1)
    assert alarms.mean() <= 0.01


def recorded_pairs(values: np.ndarray, n: int, interleaved: bool) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of n and n repetitions that follow each other in the recording: ABBA, or one after the other."""
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * n)
    place = np.arange(2 * n)
    second = np.isin(place % 4, (1, 2)) if interleaved else place >= n
    return windows[:, ~second], windows[:, second]


def recorded_alarms(interleaved: bool, calibrated: bool) -> tuple[int, int]:
    """Alarms and judgements, each pair being judged in both directions."""
    alarms = judged = 0
    for name, values in RECORDED.items():
        floor = stats.spread(calibrate._split(values)).floor() if calibrated else 0.0
        for n in (5, 6, 7, 8, 10):
            before, after = recorded_pairs(values, n, interleaved)
            for sides in ((before, after), (after, before)):
                found = verdicts(*sides, max(judge.margin(name), floor))
                alarms += int((found == "regressed").sum())
                judged += len(found)
    return alarms, judged


@pytest.mark.parametrize(("interleaved", "calibrated"), [(True, False), (False, True)])
def test_recorded_unchanged_pairs(interleaved: bool, calibrated: bool) -> None:
    alarms, judged = recorded_alarms(interleaved, calibrated)
    assert judged > PAIRS
    assert alarms <= 0.01 * judged


def test_the_recording_would_show_a_gate_that_cries_wolf() -> None:
    """Neither interleaved nor calibrated, that machine's drift is too much."""
    alarms, judged = recorded_alarms(interleaved=False, calibrated=False)
    assert alarms > 0.01 * judged


def share_found(values: np.ndarray, n: int, effect: float, margin: float) -> float:
    """How often all being slower by `effect` is found in n and n of these values."""
    random = np.random.default_rng(12)
    size = (2, PAIRS, n)
    before, after = random.choice(values, size) * (1 + 1e-9 * random.standard_normal(size))
    return float((verdicts(before, after * (1 + effect), margin) == "regressed").mean())


@pytest.mark.parametrize(("metric", "effect"), [("sync.lat.p50", 0.05), ("write.clat.p50", 0.10)])
def test_the_repetitions_that_calibrate_asks_for_are_enough(metric: str, effect: float) -> None:
    values = RECORDED[metric]
    noise = stats.spread(calibrate._split(values))
    margin = max(judge.margin(metric), noise.floor())
    needed = calibrate._needed(noise, [effect], margin, 1, stats.ALPHA)[f"{effect:g}"]
    assert needed is not None
    assert share_found(values, needed, effect, margin) >= 0.95


def test_half_of_the_repetitions_are_not() -> None:
    assert share_found(RECORDED["sync.lat.p50"], 32, 0.05, judge.margin("sync.lat.p50")) < 0.95


def test_the_command_judges_as_the_arrays_are_judged() -> None:
    values = RECORDED["sync.lat.p50"]
    before, after = values[:10].tolist(), (values[10:20] * 1.2).tolist()
    metric = MetricComparison("sync.lat.p50", "us", "lower", 1.0, 1.2, 1.2, {"before": before, "after": after}, margin=0.02)
    measurement = judge.MeasurementComparison(
        "m", "", "", "", {}, [], [judge.CaseComparison("c", "as-described", "", "", {}, [metric], {})]
    )
    judge.judge(measurement)
    assert metric.verdict == str(verdicts(np.array(before), np.array(after), 0.02)) == "regressed"

# SPDX-License-Identifier: GPL-2.0-only
"""`durabench calibrate`: the noise it measures, and the repetitions it asks for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from durabenchlib import calibrate, cli, formats, stats
from sample_run import document, job

RANDOM = np.random.default_rng(5)


def blocks(count: int, size: int, within: float, between: float) -> list[np.ndarray]:
    return [np.exp(RANDOM.normal(0, between) + RANDOM.normal(0, within, size)) for _ in range(count)]


def test_components_of_variance() -> None:
    found = stats.spread(blocks(400, 5, 0.01, 0.03))
    assert (found.within, found.between) == (pytest.approx(0.01, rel=0.1), pytest.approx(0.03, rel=0.1))
    assert found.floor(0.01) == pytest.approx(np.expm1(2.576 * np.sqrt(2) * found.between), rel=0.001)


def test_no_difference_between_blocks() -> None:
    found = [stats.spread(blocks(4, 5, 0.01, 0.0)).floor() for _ in range(50)]
    assert np.median(found) < 0.01


def test_blocks_of_a_single_run_keep_their_order() -> None:
    assert [list(block) for block in calibrate._split(range(9))] == [list(range(9))]
    assert [list(block) for block in calibrate._split(range(12))] == [list(range(6)), list(range(6, 12))]


def write(folder: Path, us: list[float]) -> Path:
    folder.mkdir()
    for number, each in enumerate(us):
        writes = [int(1000 * each)] * 1000
        (folder / f"{number:02}.json").write_text(document(job(writes=writes, runtime_ms=int(10 * each))))
    return folder


def noise_of(folder: Path, *runs: Path) -> dict[str, formats.MetricNoise]:
    output = folder / "noise.json"
    assert cli.main(["calibrate", *map(str, runs), "--effect", "0.05", "--output", str(output)]) == 0
    found = formats.read_noise(output)
    assert found.environment["fio"] == "fio-3.33"
    return {each.metric: each for each in found.metrics}


def test_a_single_run_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Beside its noise the machine slows down by 10% while it runs.
    us = 1000 * np.exp(RANDOM.normal(0, 0.003, 20) + np.linspace(0, 0.1, 20))
    found = noise_of(tmp_path, write(tmp_path / "run", us.tolist()))["write.clat.p50"]
    assert (found.repetitions, found.blocks) == (20, 4)
    assert found.between > 0.02 and found.floor > 0.07
    assert found.needed == {"0.05": None}
    assert "seq fio write.clat.p50  20" in capsys.readouterr().out


def test_runs_are_blocks(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, (1000 * np.exp(RANDOM.normal(0, 0.003, 6))).tolist()) for name in "ab"]
    found = noise_of(tmp_path, *runs)["write.clat.p50"]
    assert (found.repetitions, found.blocks) == (12, 2)
    assert found.needed["0.05"] in range(6, 13)


def test_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [100.0] * 9)
    assert cli.main(["calibrate", str(run)]) == 3
    assert "seq fio write.iops has 9 values above 0" in capsys.readouterr().err


@pytest.mark.parametrize("effect", ["0", "x", "nan"])
def test_no_effect(effect: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["calibrate", "run", "--effect", effect])
    assert ended.value.code == 64
    assert "is no slowdown" in capsys.readouterr().err


def test_the_noise_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_text(json.dumps({"schema": "durabench-noise/9"}))
    assert cli.main(["gate", "--baseline", "a", "--candidate", "b", "--noise", str(tmp_path / "noise.json")]) == 3

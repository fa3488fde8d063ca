# SPDX-License-Identifier: GPL-2.0-only
"""`durabench history`: changes over many results."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from durabenchlib import cli
from sample_run import SampleRun, document, job


def fio_files(folder: Path, levels: list[float]) -> Path:
    folder.mkdir()
    chance = random.Random(2)
    for number, level in enumerate(levels):
        us = int(1000 * level * (1 + chance.gauss(0, 0.004)))
        (folder / f"{number:02}.json").write_text(document(job(writes=[1000 * us] * 1000, runtime_ms=us)))
    return folder


def found(capsys: pytest.CaptureFixture[str], *arguments: object, status: int) -> dict:
    assert cli.main(["history", "--format", "json", *map(str, arguments)]) == status
    return json.loads(capsys.readouterr().out)


def changes(history: dict) -> list[tuple[str, str, str, str | None]]:
    return [
        (series["metric"], each["at"], each["verdict"], each["acknowledged"])
        for series in history["series"]
        for each in series["changes"]
    ]


def test_a_regression_and_its_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = found(capsys, fio_files(tmp_path / "fio", [1.0] * 8 + [1.1] * 8 + [1.0] * 8), status=1)
    assert changes(history) == [
        (metric, at, verdict, None)
        for metric in ("write.iops", "write.clat.p50", "write.clat.p99")
        for at, verdict in (("08.json", "regressed"), ("16.json", "improved"))
    ]
    iops = history["series"][0]
    assert iops["changes"][0]["ratio"] == pytest.approx(1 / 1.1, abs=0.01)
    assert (iops["results"][8], len(iops["values"])) == ("08.json", 24)


def test_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert changes(found(capsys, fio_files(tmp_path / "fio", [1.0] * 20), status=0)) == []


def test_a_change_within_the_margin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert changes(found(capsys, fio_files(tmp_path / "fio", [1.0] * 12 + [1.015] * 12), status=0)) == []


def acknowledge(path: Path, *entries: str) -> Path:
    path.write_text('schema = "durabench-acknowledged/1"\n' + "".join(f"[[change]]\n{entry}\n" for entry in entries))
    return path


def test_acknowledged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fio_files(tmp_path / "fio", [1.0] * 8 + [1.1] * 8)
    one = 'at = "08.json"\nmetric = "write.iops"\nreason = "new disk"'
    known = acknowledge(tmp_path / "one.toml", one, 'at = "03.json"\nreason = "never"')
    history = found(capsys, folder, "--acknowledged", known, status=1)
    assert [each[3] for each in changes(history)] == ["new disk", None, None]
    assert history["unseen"] == ["03.json: never"]
    known = acknowledge(tmp_path / "all.toml", 'at = "08.json"\nreason = "new disk"')
    history = found(capsys, folder, "--acknowledged", known, status=0)
    assert {each[3] for each in changes(history)} == {"new disk"}


@pytest.mark.usefixtures("sample_measurement")
def test_runs_in_the_order_in_which_they_were_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for number in range(14):
        ms = 1000 + number % 3 if number < 7 else 1200 + number % 3
        run = SampleRun(tmp_path / f"night{number}", label=f"v{number}", created=f"2026-11-{number + 1:02}T00:00:00Z")
        for repetition in (0, 1, 500):
            run.add("seq", "fua", document(job(writes=[1000] * 1000, runtime_ms=ms + repetition)))
        runs.append(run.write())
    known = acknowledge(tmp_path / "known.toml", 'at = "v7"\nstrategy = "fua"\nreason = "by label"')
    history = found(capsys, *reversed(runs), "--acknowledged", known, status=0)
    assert changes(history) == [("write.iops", "night7", "regressed", "by label")]


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", str(fio_files(tmp_path / "fio", [1.0] * 8 + [1.1] * 8))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("regressed: seq write.iops at 08.json: 1001 -> 912.0 IOPS, 0.911x (p 0.002)")
    assert cli.main(["history", str(fio_files(tmp_path / "few", [1.0] * 4))]) == 0
    assert "4 results, too few: to find a change takes 10" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", 'schema = "durabench-acknowledged/2"', "schema = "])
def test_damaged_acknowledgements(tmp_path: Path, content: str) -> None:
    (tmp_path / "known.toml").write_text(content)
    assert cli.main(["history", "x", "--acknowledged", str(tmp_path / "known.toml")]) == 3

# SPDX-License-Identifier: GPL-2.0-only
"""An output never takes the place of what it is made of, of a file of a run, or of another output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib import cli
from durabenchlib.errors import Exit

from sample_run import SampleRun, device, document, job, observed, only_measurement

Command = Callable[[Path, Path], list[str]]
COMMANDS: dict[str, Command] = {
    "compare": lambda run, output: ["compare", str(run), "-o", str(output)],
    "calibrate": lambda run, output: ["calibrate", str(run), "-o", str(output)],
    "report": lambda run, output: ["report", str(run), "-o", str(output)],
    "report --gnuplot": lambda run, output: ["report", str(run), "-o", str(run.parent / "r.html"), "--gnuplot", str(output)],
    "report --pictures": lambda run, output: ["report", str(run), "-o", str(run.parent / "r.html"), "--pictures", str(output)],
    **{
        f"gate --{kind}": lambda run, output, kind=kind: [
            *("gate", "--baseline", f"{run}:dsync", "--candidate", f"{run}:fua", f"--{kind}", str(output))
        ]
        for kind in ("json", "junit", "markdown")
    },
}


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    only_measurement(tmp_path_factory.mktemp("library"), monkeypatch)
    made = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua") * 2:
        made.add("seq", strategy, document(job("seq", writes=[1000] * 20)), observed(device(writes=20, flushes=20)))
    for folder in made.folder.iterdir():
        (folder / "job.fio").touch()
    return made.write()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_of_a_run_is_not_written_over(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run.parent)
    repetition = next(path for path in run.iterdir() if path.is_dir())
    (run.parent / "link").symlink_to(repetition / "fio.json")
    outputs = [run / "run.json", repetition / "fio.json", repetition / "new", run.parent / "link"]
    for output in [*outputs, repetition] if name.startswith("report --") else outputs:
        assert cli.main(COMMANDS[name](run, output)) == Exit.USAGE, output
        assert f"{output} is of the run {run}, and would be written over; name another place" in capsys.readouterr().err
    (run.parent / "link").unlink()
    assert contents(run.parent) == before


def test_a_report_may_lie_beside_the_run_and_in_its_folder(run: Path) -> None:
    for output in (run.parent / "report.html", run / "report.html"):
        for _ in range(2):  # it may be made anew
            assert cli.main(["report", str(run), "-o", str(output)]) == Exit.OK
        assert output.is_file()


def test_two_outputs_are_two(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gate", "--baseline", f"{run}:dsync", "--candidate", f"{run}:fua", "--json", str(tmp_path / "x"), "--junit", f"{run}/../x"]
    assert cli.main(words) == Exit.USAGE
    assert f"{run}/../x is given for two outputs, of which one would be lost" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_is_read_is_not_written_over(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "old.json"
    file.write_bytes(next(run.glob("*/fio.json")).read_bytes())
    before = file.read_bytes()
    assert cli.main(["gate", "--baseline", str(file), "--candidate", f"{run}:fua", "--json", str(file)]) == Exit.USAGE
    assert f"{file} is read, and would be written over" in capsys.readouterr().err
    assert file.read_bytes() == before

# SPDX-License-Identifier: GPL-2.0-only
"""How the command ends: where its output can't be written, and what its errors look like."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from durabenchlib import cli, doctor
from durabenchlib.errors import Exit, Failure
from sample_run import document, job

from command import COMMAND, PATIENCE_S, environment


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"], ["doctor", "--format", "json"]])
def test_standard_output_is_full(full_device: Path, arguments: list[str], unbuffered: str) -> None:
    with open(full_device, "wb") as full:
        done = subprocess.run(
            [COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=environment(PYTHONUNBUFFERED=unbuffered),
        )
    name = "" if unbuffered else "standard output: "
    assert (done.returncode, done.stderr) == (1, f"durabench: {name}No space left on device\n")


@pytest.mark.parametrize("arguments", [["show"], ["compare"], ["history"], ["gate", "--candidate", "{fifo}", "--baseline"]])
def test_a_pipe_is_not_waited_for(tmp_path: Path, arguments: list[str]) -> None:
    fifo, other = tmp_path / "fifo", tmp_path / "other"
    os.mkfifo(fifo)
    os.mkfifo(other)
    words = [argument.format(fifo=other) for argument in arguments]
    done = subprocess.run([COMMAND, *words, fifo], capture_output=True, text=True, timeout=PATIENCE_S, env=environment())
    assert done.returncode == 3 and f"{fifo}: can't be read: it is a pipe" in done.stderr + done.stdout


def test_a_closed_standard_error_changes_no_status(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec 2>&-; "$@"', "sh", COMMAND, "show", tmp_path / "none"], capture_output=True, timeout=PATIENCE_S, env=environment()
    )
    assert done.returncode == Exit.INPUT


def test_a_verdict_that_nobody_reads(tmp_path: Path) -> None:
    """`durabench gate … | true` under pipefail is no pass."""
    reading, writing = os.pipe()
    os.close(reading)
    paths = []
    for name, error in (("one", 0), ("two", 5)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(document(job("w", writes=[100_000] * 100, error=error)))
    command = [COMMAND, "gate", "--baseline", paths[0], "--candidate", paths[1]]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, env=environment())
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, "")


HOSTILE = "x\n::error::pwned\r\x1b[31m\0"


@pytest.mark.parametrize("status", [0, 5])
@pytest.mark.parametrize(
    "arguments",
    [
        *(["compare", "{one}", "{two}", "--format", form] for form in ("text", "md", "csv", "json")),
        *(["show", "{one}", "--format", form] for form in ("text", "md", "csv", "json")),
        ["compare", "{one}", "{three}"],
        ["report", "{one}", "{two}", "-o", "{folder}/out.html"],
        ["report", "{one}", "{two}", "--terminal"],
        ["gate", "--baseline", "{one}", "--candidate", "{two}"],
        ["gate", "--baseline", "{one}", "--candidate", "{three}"],
        ["history", "{one}", "{two}"],
        ["calibrate", "{one}", "{two}"],
        ["show", "{folder}/::error::\n::error::"],
        ["compare", "{one}", "{folder}/\n::error::"],
        ["doctor", "\n::error::"],
    ],
)
def test_no_name_begins_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    """A line that begins so is a command to CI."""
    paths = {"folder": tmp_path}
    for number, name in enumerate(("one", "two", "three")):
        jobs = job(HOSTILE, writes=[100_000 + number] * 100, error=status, bs=HOSTILE + ("!" if number == 2 else ""))
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(document(jobs))
    try:
        cli.main([argument.format(**paths) for argument in arguments])
    except SystemExit:
        pass
    captured = capsys.readouterr()
    for text in captured:
        lines = text.splitlines()
        assert not [line for line in lines if line.lstrip().startswith("::")]
        assert not {"\x1b", "\0", "\r"} & set(text)
    assert captured.out or captured.err or arguments[0] == "report"


def test_errors_of_several_lines_stay_readable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> int:
        raise Failure(Exit.FAILED, "gnuplot can't draw it: plot x\n\tline 0: \x1b undefined")

    monkeypatch.setattr(doctor, "run", fail)
    assert cli.main(["doctor"]) == Exit.FAILED
    assert capsys.readouterr().err == (
        "durabench: gnuplot can't draw it: plot x\ndurabench:         line 0: \N{REPLACEMENT CHARACTER} undefined\n"
    )

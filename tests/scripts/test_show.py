# SPDX-License-Identifier: GPL-2.0-only
"""`durabench show` on what is found in files. data/shapes has them, each beside what it has to say: exit status, codes of
the warnings, and of each row host, job, distribution, I/Os, bytes, IOPS, p99 and maximum in ns."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sample_run
from durabenchlib import cli

SHAPES = Path(__file__).parent / "data/shapes"
NAMES = sorted(path.stem for path in SHAPES.glob("*.txt"))


def show(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of the command."""
    try:
        status = cli.main(["show", *map(str, arguments)])
    except SystemExit as end:
        status = int(end.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("name", NAMES)
def test_shapes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected: dict[str, Any] = json.loads((SHAPES / f"{name}.json").read_text())
    status, out, err = show(capsys, "--format", "json", SHAPES / f"{name}.txt")
    (found,) = json.loads(out)["files"]
    assert status == expected["exit"]
    if "refused" in expected:
        assert expected["refused"] in found["refused"] and expected["refused"] in err
        return
    assert err == ""
    assert [warning["code"] for warning in found["warnings"]] == expected["codes"]
    rows = [
        [row["host"], row["job"], row["distribution"], row["ios"], row["bytes"], row["iops"]]
        + [row["percentiles_ns"].get("99"), row["max_ns"]]
        for row in found["rows"]
    ]
    assert rows == expected["rows"]
    assert bool(found["failures"]) == (status == 1)


def test_text_has_80_columns_and_says_what_is_suspicious(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = show(capsys, SHAPES / "fio-3.42-banner.txt")
    lines = out.splitlines()
    assert status == 0
    assert "fio-3.42, one job, 2026-07-08T13:07:52Z" in lines[0]
    assert lines[1:5] == [
        "               I/Os  IOPS  MiB/s  mean us    p50    p99  p99.9  max us",
        "/dev/sdz",
        "  write.clat  20000  2000  7.812    200.0  100.9  897.0  897.0   900.0",
        "  sync.lat    19999     -      -    60.00  60.16  70.00  70.00   70.00",
    ]
    assert lines[5].startswith("warning: sync.total_ios is 0 where syncs were timed: '/dev/sdz'.")
    assert max(map(len, lines[1:])) <= 80


def test_a_row_for_each_distribution_in_csv_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["fio-3.43-client", "fio-3.42-banner"]
    files = [SHAPES / f"{name}.txt" for name in names]
    rows = list(csv.DictReader(io.StringIO(show(capsys, "--format", "csv", *files)[1])))
    expected = [row for name in names for row in json.loads((SHAPES / f"{name}.json").read_text())["rows"]]
    assert [(row["job"] or None, row["distribution"], int(row["ios"])) for row in rows] == [
        (job, distribution, ios) for _, job, distribution, ios, *_ in expected
    ]
    assert float(rows[2]["p99_ns"]) == 7968
    table = [line for line in show(capsys, "--format", "md", *files)[1].splitlines() if line.startswith("|")]
    assert len(table) == len(expected) + 2 * len(files)


def test_clones_stand_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    clone = sample_run.job("clone", reads=[1001], writes=[2001])
    (tmp_path / "f").write_text(sample_run.document(clone, clone))
    lines = show(capsys, tmp_path / "f")[1].splitlines()
    assert [line.split()[0] for line in lines[2:11]] == [
        *("clone", "read.clat", "write.clat") * 2,
        *("all", "read.clat", "write.clat"),
    ]


def test_percentiles_that_lie_close_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = sample_run.document(sample_run.job(writes=[1001] * 9)).replace('"bins"', '"unused"')
    printed = '"percentile": {"99.999999": 500, "100.000000": 1001},'
    (tmp_path / "f").write_text(text.replace('"N": 9,', f'"N": 9, {printed}').replace('"min": 1001', '"min": 1'))
    (row,) = json.loads(show(capsys, "--format", "json", tmp_path / "f")[1])["files"][0]["rows"]
    assert row["percentiles_ns"] == {"99.999999": 500, "100": 1001}


def test_names_that_no_encoding_has(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    (tmp_path / "f").write_text(sample_run.document(sample_run.job("a\ud800\x1b[2J\n", writes=[1001])))
    for form in ("text", "md", "csv", "json"):
        assert cli.main(["show", "--format", form, str(tmp_path / "f")]) == 0
        assert b"\x1b[2J" not in capfdbinary.readouterr().out


def test_files_of_several_versions(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(capsys, "--format", "json", SHAPES / "fio-3.43-client.txt", SHAPES / "fio-3.42-banner.txt")[1]
    (warning,) = json.loads(out)["warnings"]
    assert warning["code"] == "mixed-versions" and "fio-3.42, fio-3.43" in warning["what"]


def test_one_refused_file_hides_no_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = show(capsys, SHAPES / "fio-3.42-banner.txt", tmp_path / "none", SHAPES / "fio-3.3-failed.txt")
    assert status == 3
    assert "sync.lat" in out and "failed: job 'test' ended with error 12" in out
    assert f"durabench: {tmp_path / 'none'}: can't be read: No such file or directory" in err


def test_a_run_is_shown_by_its_repetitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    for order in ("001", "002"):
        (tmp_path / order).mkdir()
        shutil.copy(SHAPES / "fio-3.42-banner.txt", tmp_path / order / "fio.json")
    files = json.loads(show(capsys, "--format", "json", tmp_path)[1])["files"]
    assert [each["path"] for each in files] == [str(tmp_path / order / "fio.json") for order in ("001", "002")]


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys)[0] == 64
    assert show(capsys, "--format", "xml", "x")[0] == 64


# What is suspicious and in no shape above


def codes(capsys: pytest.CaptureFixture[str], path: Path, text: str) -> set[str]:
    path.write_text(text)
    (found,) = json.loads(show(capsys, "--format", "json", path)[1])["files"]
    return {warning["code"] for warning in found["warnings"]}


@pytest.mark.parametrize(
    ("raw", "around", "code"),
    [
        ({"total_err": 3, "first_error": 5}, "", "hidden-error"),
        ({}, "fio: io_u error on file /x: Input/output error: write offset=0, buflen=4096\n", "hidden-error"),
        ({"job options": {"fsync_on_close": "1"}}, "", "fsync-on-close"),
        ({}, '{"fio version" : "fio-3.33", "jobs" : [ { "jobname" ]\n', "damaged"),
        ({"write": {}}, "", "nothing-done"),
    ],
)
def test_suspicions(
    raw: dict[str, Any], around: str, code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plain = sample_run.job(writes=[123_457] * 1000 + [123_999] * 19_000)
    assert codes(capsys, tmp_path / "f", sample_run.document(plain)) == {"few-samples"}
    assert code in codes(capsys, tmp_path / "f", around + sample_run.document({**plain, **raw}))


def test_several_jobs_without_bins(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = sample_run.document(sample_run.job(writes=[1001]), sample_run.job(writes=[2001]))
    assert "no-bins" not in codes(capsys, tmp_path / "f", text)
    assert "no-bins" in codes(capsys, tmp_path / "f", text.replace('"bins"', '"unused"'))


def test_a_clock_of_microseconds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "coarse-clock" in codes(capsys, tmp_path / "f", sample_run.document(sample_run.job(writes=[1000, 2000])))
    assert "coarse-clock" not in codes(capsys, tmp_path / "f", sample_run.document(sample_run.job(writes=[1001, 2000])))

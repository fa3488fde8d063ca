# SPDX-License-Identifier: GPL-2.0-only
"""`durabench show` on what is found in files. data/shapes has them, each beside what it has to say: exit status, codes of
the warnings, and of each row host, job, distribution, I/Os, bytes, IOPS, p99 and maximum in ns."""

from __future__ import annotations

import csv
import io
import json
import re
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


def test_a_folder_of_fios_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("b.json", "a.json+", "c.log"):
        shutil.copy(SHAPES / "fio-3.42-banner.txt", tmp_path / name)
    status, out, err = show(capsys, "--format", "json", tmp_path / "logs", tmp_path)
    assert status == 3
    assert [each["path"] for each in json.loads(out)["files"]] == [str(tmp_path / name) for name in ("logs", "a.json+", "b.json")]
    assert err == f"durabench: {tmp_path / 'logs'}: is a folder without any file *.json of fio's; name the files in it\n"


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


# -- logs


@pytest.fixture
def two_jobs(tmp_path: Path) -> list[Path]:
    """Latency logs of two jobs, 20 ms and 4 s long, the second of two directions."""
    paths = [tmp_path / f"x_clat.{number}.log" for number in (1, 2)]
    paths[0].write_text("".join(f"{each}, 20000, 1, 4096, 0\n" for each in range(21)))
    paths[1].write_text("".join(f"{each * 1000}, 40000, {direction}, 4096, 0\n" for each in range(5) for direction in (0, 1)))
    return paths


def test_logs_are_shown_each_and_jointly(capsys: pytest.CaptureFixture[str], two_jobs: list[Path]) -> None:
    status, out, err = show(capsys, "--format", "json", *two_jobs)
    one, two, joint = (each["log"] for each in json.loads(out)["files"])
    assert (status, err) == (0, "")
    assert (one["kind"], one["unit"], one["lines"], one["averaged"], one["resets"]) == ("clat", "ns", 21, False, 0)
    (write,) = one["series"]
    assert (write["direction"], write["samples"], write["start_s"], write["end_s"]) == ("write", 21, 0, 0.02)
    assert (write["min"], write["mean"], write["max"], write["percentiles"]["99"]) == (20000, 20000, 20000, 20000)
    assert [(each["direction"], each["samples"]) for each in two["series"]] == [("read", 5), ("write", 5)]
    assert (joint["lines"], [each["samples"] for each in joint["series"]]) == (31, [5, 26])
    assert joint["series"][1]["mean"] == pytest.approx((21 * 20000 + 5 * 40000) / 26)
    assert json.loads(out)["files"][2]["path"].endswith("/x_clat.*.log")


def test_logs_in_every_format(capsys: pytest.CaptureFixture[str], two_jobs: list[Path], tmp_path: Path) -> None:
    rate = tmp_path / "x_bw.1.log"
    rate.write_text("500, 2048, 1, 0\n1000, 4096, 1, 0\n")
    text = show(capsys, two_jobs[0], rate)[1]
    assert all(len(line) <= 80 or str(tmp_path) in line for line in text.splitlines())
    assert re.search(r"^ +lines +from s +to s +mean us +p50 +p99 +p99\.9 +max us\n +write +21 +0\.000 +0\.020 +20\.00 ", text, re.MULTILINE)
    assert re.search(r"mean MiB/s.*\n +write +2 +0\.500 +1\.000 +3\.000 ", text)
    assert "| write | 2 | 0.500 | 1.000 | 3.000 |" in show(capsys, "--format", "md", rate)[1]
    histogram = tmp_path / "x_clat_hist.1.log"
    histogram.write_text("1000, 1, 4096" + ", 0" * 28 + ", 7\n")
    (log,) = json.loads(show(capsys, "--format", "json", histogram)[1])["files"]
    assert [(each["direction"], each["samples"]) for each in log["log"]["series"]] == [("write", 7)]
    rows = list(csv.DictReader(io.StringIO(show(capsys, "--format", "csv", two_jobs[0], rate)[1])))
    assert [(row["distribution"], row["samples"], row["p50_ns"], row["bw_bytes"]) for row in rows] == [
        ("write.clat", "21", "20000", ""),
        ("write.bw", "2", "", "3145728.0"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x_clat.1.log", "", {"nothing-done"}),
        ("x_clat.1.log", "900, 50000, 1, 4096\n1, 50000, 1, 4096\n", {"several-runs", "few-samples"}),
        ("x_clat.1.log", "900, 5000, 1, 0\n", {"averaged"}),
        ("x_lat.1.log", "900, 500, 1, 0\n", {"averaged", "log-unit"}),
        ("x_bw.1.log", "900, 500, 1, 4096\n", set()),
    ],
)
def test_suspicious_logs(
    name: str, text: str, expected: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert codes(capsys, tmp_path / name, text) == expected


def test_a_log_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], two_jobs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "x_bw.1.log").write_text("500, 2048, 1, 0\n1000, 40\n")
    status, out, err = show(capsys, two_jobs[0], tmp_path / "x_bw.1.log")
    assert status == 3 and "clat log, 21 lines" in out
    assert err == f"durabench: {tmp_path}/x_bw.1.log:2: is not a line of a fio log: '1000, 40'\n"


def test_a_run_that_was_killed_is_not_complete(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = sample_run.SampleRun(tmp_path / "run", status="running")
    fio = sample_run.document(sample_run.job(writes=[1000]))
    run.add("seq", "dsync", fio)
    for number in range(5):
        shutil.rmtree(run.add("seq", "fua", fio, status="pending"))
    folder = run.write()
    (warning,) = json.loads(show(capsys, "--format", "json", folder)[1])["warnings"]
    assert warning["code"] == "incomplete-run"
    assert warning["what"] == (
        f"The run {folder} is running: it goes on, or was killed. 1 of 6 repetitions ended well; missing: 002-seq-fua-1, 003-seq-fua-2, "
        "004-seq-fua-3, 2 more."
    )
    status, out, err = show(capsys, folder)
    assert (status, err) == (0, "") and "1 of 6 repetitions ended well" in " ".join(out.split())
    run.manifest.update(status="complete")
    run.write()
    assert "ended well" not in show(capsys, folder)[1]

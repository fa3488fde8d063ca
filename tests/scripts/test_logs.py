# SPDX-License-Identifier: GPL-2.0-only
"""fio's logs, whatever columns they have."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample_run
from durabenchlib import logs
from durabenchlib.errors import Exit, Failure


def written(folder: Path, text: str, name: str = "x_bw.1.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("more", ["", ", 8192", ", 8192, 0x1004", ", 8192, 0, 123456789"])
def test_columns_are_taken_from_the_left(tmp_path: Path, more: str) -> None:
    found = logs.read(written(tmp_path, f"500, 2048, 1, 0{more}\n1000, 4096, 0, 0{more}\n"))
    assert (found.time.tolist(), found.value.tolist(), found.direction.tolist()) == ([0.5, 1.0], [2048, 4096], [1, 0])


@pytest.mark.parametrize("more", ["", ", 0, 0, 0"])
def test_the_maximum_beside_the_mean_is_skipped(tmp_path: Path, more: str) -> None:
    found = logs.read(written(tmp_path, f"500, 2048, 9999, 1, 0{more}\n"), both=True)
    assert (found.value.tolist(), found.direction.tolist()) == ([2048], [1])


def test_empty_logs_are_empty(tmp_path: Path) -> None:
    found = logs.read(written(tmp_path, "\n"))
    assert len(found.time) == 0
    assert [len(each) for each in logs.joint_bandwidth([found])] == [0, 0]


@pytest.mark.parametrize(
    "line", ["0, 4w50605, 1, 4096, 0", "500, 20", "500, 2048, 7, 0", "500; 2048; 1; 0", "1.5, 3, 1, 0"]
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"0, 1, 1, 0\n{line}\n")
    with pytest.raises(Failure, match=r"x_bw.1.log:2: is not a line") as failure:
        logs.read(path)
    assert failure.value.status == Exit.INPUT


def test_a_line_without_maximum_is_no_line_of_both(tmp_path: Path) -> None:
    with pytest.raises(Failure):
        logs.read(written(tmp_path, "500, 2048, 1, 0\n"), both=True)


def test_a_histogram_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="histogram"):
        logs.read(written(tmp_path, "1006, 1, 16384" + ", 0" * 1216 + "\n"))


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file"):
        logs.read(tmp_path / "none_bw.log")


def test_kinds_by_name() -> None:
    names = ["a_bw.1.log", "a_b_clat.12.log", "x_lat.log", "a_clat_hist.3.log", "a.log", "a_bw.1.txt"]
    assert [logs.kind(Path(name)) for name in names] == ["bw", "clat", "lat", None, None, None]


def test_joint_bandwidth_is_bytes_of_all_in_each_interval(tmp_path: Path) -> None:
    """One job writes 1 MiB/s for 3 s; another 4 MiB/s, logged in halves of a second, and ends after 1 s."""
    one = logs.read(written(tmp_path, "1000, 1024, 1, 0\n2000, 1024, 1, 0\n3000, 1024, 1, 0\n"))
    two = logs.read(written(tmp_path, "500, 2048, 1, 0\n1000, 6144, 1, 0\n1000, 77, 0, 0\n"))
    time, rate = logs.joint_bandwidth([one, two.only("write")])
    assert time.tolist() == [1.0, 2.0, 3.0]
    assert rate.tolist() == pytest.approx([5.0, 1.0, 1.0])
    time, rate = logs.joint_bandwidth([two.only("write")], 0.5)
    assert (time.tolist(), rate.tolist()) == ([0.5, 1.0], [2.0, 6.0])


def test_a_late_line_is_spread_over_its_time(tmp_path: Path) -> None:
    """A stall: the line at 3 s has the mean of the two seconds before it."""
    log = logs.read(written(tmp_path, "1000, 2048, 1, 0\n3000, 1024, 1, 0\n"))
    assert logs.joint_bandwidth([log])[1].tolist() == pytest.approx([2.0, 1.0, 1.0])


def histogram_line(msec: int, direction: int, counts: dict[int, int], buckets: int = 464) -> str:
    return ", ".join(map(str, (msec, direction, 4096, *(counts.get(i, 0) for i in range(buckets))))) + "\n"


def test_histograms_of_jobs_are_added(tmp_path: Path) -> None:
    """Lines come when the first I/O after an interval completes, so never on the dot."""
    one, other = tmp_path / "a_clat_hist.1.log", tmp_path / "a_clat_hist.2.log"
    one.write_text(histogram_line(111, 1, {5: 2}) + histogram_line(207, 0, {7: 9}) + histogram_line(302, 1, {6: 1}))
    other.write_text(histogram_line(102, 1, {5: 3, 463: 1}))
    assert logs.is_histogram(one) and not logs.is_histogram(tmp_path / "a_clat.1.log") and logs.kind(one) is None
    found = logs.joint_histograms([one, other], "write", 0.1)
    assert found is not None
    assert found.ends == pytest.approx([0.1, 0.2, 0.3])
    assert [(int(i), int(j), int(found.counts[i, j])) for i, j in zip(*found.counts.nonzero(), strict=True)] == [
        (0, 5, 5),
        (0, 463, 1),
        (2, 6, 1),
    ]
    assert logs.joint_histograms([other], "read", 0.1) is None


@pytest.mark.parametrize("coarseness", range(7))
def test_bounds_are_those_of_fios_buckets(tmp_path: Path, coarseness: int) -> None:
    path = tmp_path / "a_clat_hist.log"
    path.write_text(histogram_line(100, 1, {0: 1}, 29 * 64 >> coarseness))
    found = logs.joint_histograms([path], "write", 0.1)
    assert found is not None
    bounds = found.bounds
    assert bounds[0] == 0 and bounds[-1] == 2**34 and all(low < high for low, high in zip(bounds, bounds[1:]))
    # bucket() is the middle of that of fio's which a latency falls in.
    for ns in (100, 1000, 123_456, 98_765_432):
        place = int((bounds <= ns).nonzero()[0][-1])
        assert bounds[place] <= sample_run.bucket(ns) < bounds[place + 1]


@pytest.mark.parametrize("line", ["1, 1, 4096\n", "1, 1, 4096, 1, 2\n", "x\n", histogram_line(1, 1, {3: -1})])
def test_what_is_no_histogram_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a_clat_hist.1.log"
    path.write_text(histogram_line(1, 1, {}) + line)
    with pytest.raises(Failure, match=r"a_clat_hist\.1\.log:2: is not a line of a histogram log"):
        logs.joint_histograms([path], "write", 0.1)


def test_histograms_of_other_coarseness_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "a_clat_hist.1.log", tmp_path / "a_clat_hist.2.log"
    one.write_text(histogram_line(1, 1, {}))
    other.write_text(histogram_line(1, 1, {}, 928))
    with pytest.raises(Failure, match="has 928 buckets and another log of the run has not"):
        logs.joint_histograms([one, other], "write", 0.1)

# SPDX-License-Identifier: GPL-2.0-only
"""fio's logs, whatever columns they have."""

from __future__ import annotations

import random
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import sample_run
from durabenchlib import logs
from durabenchlib.errors import Exit, Failure
from hypothesis import given, settings
from hypothesis import strategies as some


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
    assert [logs.kind(Path(name)) for name in names] == ["bw", "clat", "lat", "clat_hist", None, None]


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
    log = logs.read(written(tmp_path, "1000, 2048, 1, 0\n2800, 1024, 1, 0\n"))
    assert logs.joint_bandwidth([log])[1].tolist() == pytest.approx([2.0, 1.0, 0.8])


def test_what_has_no_line_had_no_bandwidth(tmp_path: Path) -> None:
    """A pause, of which fio writes nothing, and of what is done behind it one line."""
    log = logs.read(written(tmp_path, "1000, 2048, 1, 0\n4000, 1024, 1, 0\n5000, 512, 1, 0\n"))
    assert logs.joint_bandwidth([log])[1].tolist() == pytest.approx([2.0, 0.0, 0.0, 1.0, 0.5])
    late = logs.read(written(tmp_path, "3000, 1024, 1, 0\n"))
    assert logs.joint_bandwidth([late])[1].tolist() == pytest.approx([0.0, 0.0, 1.0])


def histogram_line(msec: int, direction: int, counts: dict[int, int], buckets: int = 464) -> str:
    return ", ".join(map(str, (msec, direction, 4096, *(counts.get(i, 0) for i in range(buckets))))) + "\n"


def test_histograms_of_jobs_are_added(tmp_path: Path) -> None:
    """Lines come when the first I/O after an interval completes, so never on the dot."""
    one, other = tmp_path / "a_clat_hist.1.log", tmp_path / "a_clat_hist.2.log"
    one.write_text(histogram_line(111, 1, {5: 2}) + histogram_line(207, 0, {7: 9}) + histogram_line(302, 1, {6: 1}))
    other.write_text(histogram_line(102, 1, {5: 3, 463: 1}))
    assert logs.kind(one) == "clat_hist"
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


def test_a_time_beyond_any_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a_clat_hist.1.log"
    path.write_text(histogram_line(1, 1, {}) + histogram_line(10**15, 1, {}))
    with pytest.raises(Failure, match=r"a_clat_hist\.1\.log: has a line at 1000000000000 s"):
        logs.joint_histograms([path], "write", 0.1)
    with pytest.raises(Failure, match="has a line at 1000000000000 s"):
        logs.joint_bandwidth([logs.read(written(tmp_path, "1000, 2048, 1, 0\n1000000000000000, 1024, 1, 0\n"))])


def test_histograms_of_other_coarseness_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "a_clat_hist.1.log", tmp_path / "a_clat_hist.2.log"
    one.write_text(histogram_line(1, 1, {}))
    other.write_text(histogram_line(1, 1, {}, 928))
    with pytest.raises(Failure, match="has 928 buckets and another log of the run has not"):
        logs.joint_histograms([one, other], "write", 0.1)


# -- logs of any size

NUMBER = r"(?:0x[0-9a-f]{1,16}|\d{1,20})"
LINE = re.compile(rf"\s*\d{{1,20}}(?:\s*,\s*{NUMBER}){{3,7}}\s*", re.ASCII)


def line_by_line(text: str, both: bool) -> list[list[int]] | int:
    """What fio's documentation says of these lines: time, value, direction and block size; or the number of the first that is
    none."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" \t\r\v\f"):
            continue
        if not LINE.fullmatch(line):
            return number
        row = [int(word, 0) if "x" in word else int(word) for word in line.split(",")]
        if both:
            if len(row) < 5 or row[1] > row[2]:
                return number
            del row[2]
        if row[2] > 2 or max(row[0], row[1], row[3]) > 2**53:
            return number
        found.append(row[:4])
    return found


@some.composite
def pieces(draw: some.DrawFn) -> tuple[bytes, bool]:
    """Lines as fio writes them, and as often as not something wrong in them."""
    both = draw(some.booleans())
    number = some.one_of(some.integers(0, 9), some.integers(0, 2**64 - 1), some.integers(0, 2**54))
    more = draw(some.lists(number, min_size=0, max_size=3))
    hexadecimal = draw(some.booleans())
    lines = []
    for _ in range(draw(some.integers(1, 4))):
        mean = draw(some.integers(0, 2**50))
        fields = [draw(some.integers(0, 10**13)), mean, *([mean + draw(some.integers(0, 9))] if both else [])]
        fields += [draw(some.integers(0, 2)), draw(some.integers(0, 2**31))]
        lines.append(", ".join([*map(str, fields), *(f"0x{each:04x}" if hexadecimal else str(each) for each in more)]))
    text = "\n".join(lines) + "\n" * draw(some.booleans())
    if draw(some.booleans()):
        at, with_ = draw(some.integers(0, len(text) - 1)), draw(some.text("0123456789,x -.a\r\n\0\u0663", max_size=3))
        text = text[:at] + with_ + text[at + draw(some.integers(0, 3)) :]
    return text.encode(), both


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "x_bw.log"


@settings(max_examples=200, deadline=None)
@given(pieces())
def test_any_lines_are_read_as_they_are_documented(log: Path, piece: tuple[bytes, bool]) -> None:
    data, both = piece
    log.write_bytes(data)
    expected = line_by_line(data.decode(), both)
    if isinstance(expected, int):
        with pytest.raises(Failure, match=f"x_bw.log:{expected}: (is not a line of a fio log|has .* columns)"):
            logs.read(log, both)
        return
    found = logs.read(log, both)
    assert (1000 * found.time).round().astype(int).tolist() == [row[0] for row in expected]
    assert (found.value.tolist(), found.direction.tolist()) == ([row[1] for row in expected], [row[2] for row in expected])


COUNTS = ["0", "0", "0", "7", "10", "1099511627776", "1099511627777", "12345678901234567", "00", "", " 1", "-1", "0x1", "1\n2"]


@given(some.lists(some.lists(some.sampled_from(COUNTS), min_size=29, max_size=30), min_size=1, max_size=3), some.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_any_histograms_are_read_as_they_are_documented(log: Path, rows: list[list[str]], direction: int) -> None:
    path = log.with_name("x_clat_hist.log")
    path.write_text("".join(f"{10 * at}, {direction}, 4096, {', '.join(row)}\n" for at, row in enumerate(rows)))
    valid = [direction < 3 and len(row) == 29 and all(n.strip().isdecimal() and int(n) <= 2**40 for n in row) for row in rows]
    if all(valid):
        assert logs.summarize(path).series[logs.DIRECTIONS[direction]].values.n == sum(int(n) for row in rows for n in row)
        return
    lines = "".join("\n" + ",".join(row) for row in rows[: valid.index(False)]).count("\n") + 1
    with pytest.raises(Failure, match=f"x_clat_hist.log:{lines}: is not a line of a histogram log"):
        logs.summarize(path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PIECE", 4096)


@pytest.mark.usefixtures("small_pieces")
def test_a_summary_is_that_of_all_lines(tmp_path: Path) -> None:
    chance = random.Random(1)
    rows = [(each // 9, int(chance.lognormvariate(11, 1)), chance.choice((0, 1)), 4096) for each in range(5000)]
    path = written(tmp_path, "".join(f"{', '.join(map(str, row))}\n" for row in rows), "x_clat.1.log")
    found = logs.summarize(path)
    assert (found.lines, found.resets, found.averaged, [*found.series]) == (5000, 0, False, ["read", "write"])
    for direction, series in found.series.items():
        values = np.array([row[1] for row in rows if row[2] == logs.DIRECTIONS.index(direction)])
        assert (series.values.n, series.values.min, series.values.max) == (len(values), values.min(), values.max())
        assert series.values.mean == pytest.approx(values.mean()) and series.values.stddev == pytest.approx(values.std())
        for percent in (50.0, 90.0, 99.0, 99.9):
            exact = np.percentile(values, percent, method="inverted_cdf")
            assert series.values.percentile(percent) == pytest.approx(exact, rel=1 / 64)
    assert (found.series["read"].start_s, found.series["read"].end_s) == (0.0, 0.555)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["x_clat.1.log", "x_clat_hist.1.log"])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, name: str) -> None:
    def peak(lines: int) -> int:
        line = "{}, 0, 4096" + ", 1" * 29 if "hist" in name else "{}, 123456, 1, 4096, 0"
        path = written(tmp_path, "".join(line.format(1000 + each) + "\n" for each in range(lines)), name)
        tracemalloc.start()
        try:
            assert logs.summarize(path).lines == lines
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)
    assert peak(5000) < 1.2 * peak(500)


@pytest.mark.usefixtures("small_pieces")
def test_a_broken_line_is_named_wherever_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, "1, 2, 1, 4096\n" * 3000 + "1, 2, 3\n" + "1, 2, 1, 4096\n" * 3000)
    with pytest.raises(Failure, match=r"x_bw.1.log:3001: is not a line of a fio log: '1, 2, 3'"):
        logs.summarize(path)


@pytest.mark.usefixtures("small_pieces")
def test_what_has_no_lines_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no log of fio: a line of it has no end"):
        logs.summarize(written(tmp_path, "7" * 100_000))


@pytest.mark.parametrize("line", [f"1, {2**64 - 1}, 1, 0", f"{2**60}, 1, 1, 0", "-1, 2, 1, 0", "1, 2, 1", "1, 2, 1, 0\0", f"1, {'9' * 5000}, 1, 0"])
def test_what_no_fio_measures_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(Failure, match=r"x_bw.1.log:1: is not a line"):
        logs.summarize(written(tmp_path, line + "\n"))


def test_the_maximum_beside_the_mean_is_noticed(tmp_path: Path) -> None:
    found = logs.summarize(written(tmp_path, "500, 2048, 9999, 1, 0\n1000, 1024, 1024, 1, 0\n"))
    assert found.series["write"].values.max == 2048
    with pytest.raises(Failure, match=r":1: is not a line"):
        logs.summarize(written(tmp_path, "500, 2048, 7, 1, 0\n"))


def test_appended_runs_are_noticed(tmp_path: Path) -> None:
    one = "".join(f"{each}, 5, 1, 4096\n" for each in (100, 101, 100, 900))
    assert logs.summarize(written(tmp_path, one)).resets == 0
    assert logs.summarize(written(tmp_path, one * 3)).resets == 2


def test_lines_without_block_size_are_averages(tmp_path: Path) -> None:
    assert logs.summarize(written(tmp_path, "1, 2, 1, 0\n")).averaged
    assert not logs.summarize(written(tmp_path, "1, 2, 1, 0\n1, 2, 1, 512\n")).averaged


def test_histograms_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "a_clat_hist.1.log"
    path.write_text(histogram_line(100, 1, {3: 5}) + histogram_line(200, 1, {3: 4, 100: 1}) + histogram_line(200, 0, {9: 7}))
    found = logs.summarize(path)
    assert {name: series.values.n for name, series in found.series.items()} == {"read": 7, "write": 10}
    assert found.series["write"].values.percentile(50) == 14  # the middle of 12 to 16 ns


def test_histograms_before_fio_3_are_in_us(tmp_path: Path) -> None:
    path = tmp_path / "a_clat_hist.1.log"
    path.write_text(histogram_line(100, 1, {100: 1}, 19 * 64))
    assert logs.summarize(path).series["write"].values.percentile(50) == 100_500


def test_impossible_histograms_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a_clat_hist.1.log"
    path.write_text(histogram_line(100, 1, {100: 2**62}))
    with pytest.raises(Failure, match=r"\.log:1: is not a line of a histogram log"):
        logs.summarize(path)


def test_jobs_are_merged(tmp_path: Path) -> None:
    found = logs.merge(
        [
            logs.summarize(written(tmp_path, "100, 1000, 1, 4096\n", "x_lat.1.log")),
            logs.summarize(written(tmp_path, "200, 3000, 1, 4096\n200, 9, 0, 4096\n", "x_lat.2.log")),
        ]
    )
    write = found.series["write"]
    assert (found.lines, write.values.n, write.values.mean, write.start_s, write.end_s) == (3, 2, 2000, 0.1, 0.2)
    assert logs.of_all_jobs(Path("a/x_lat.12.log")) == Path("a/x_lat.*.log")


def test_compressed_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="--inflate-log"):
        logs.summarize(written(tmp_path, "x", "x_lat.1.log.fz"))


def test_logs_are_known_by_what_they_begin_with(tmp_path: Path) -> None:
    assert logs.is_log(written(tmp_path, "1, 2, 1, 0\n", "out.txt"))
    assert logs.is_log(written(tmp_path, "", "x_bw.log"))
    histograms = written(tmp_path, histogram_line(100, 1, {3: 5}), "out.txt")
    assert logs.is_log(histograms) and logs.summarize(histograms).series["write"].values.n == 5
    assert not logs.is_log(written(tmp_path, '{"fio version": "fio-3.33"}', "x_lat.log"))
    assert not logs.is_log(tmp_path / "none_bw.log")

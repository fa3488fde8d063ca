# SPDX-License-Identifier: GPL-2.0-only
"""The text of a comparison stays as wide as a mail, in ASCII, whatever names and numbers it is given."""

from __future__ import annotations

from typing import Any

import pytest
from durabenchlib import formats, results, tables
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = st.text(min_size=1, max_size=90)
METRICS = st.builds(
    lambda job, metric: f"{job}/{metric}" if job else metric,
    st.text(max_size=90),
    st.sampled_from(["write.iops", "write.clat.p99.9", "sync.lat.mean", "dirty_peak"]),
)
NUMBERS = st.none() | st.floats(min_value=0, allow_infinity=False) | st.integers(min_value=0, max_value=10**15).map(float)


def metric(name: str, before: float | None, after: float | None, published: float | None = None) -> formats.MetricComparison:
    """A metric of two repetitions a side."""
    return formats.MetricComparison(
        name=name,
        unit="us",
        better="lower",
        before=before,
        after=after,
        ratio=after / before if before and after is not None else None,
        values={"before": [] if before is None else [before] * 2, "after": [] if after is None else [after] * 2},
        published=None if published is None else formats.PublishedCell(published, published, 1.0),
    )


def environment(**changes: Any) -> dict[str, Any]:
    """One side's environment."""
    target = {"path": "/dev/sda", "write_cache": "write back", "fua": True, "scheduler": "none", **changes.pop("target", {})}
    common = {"kernel": "6.18.0", "fio": "fio-3.33", "cpus": 2, "memory_bytes": 2**33, "virtualization": "none"}
    return {**common, "created": "2026-11-30T10:00:00Z", "demo": False, "target": target, **changes}


def comparison(
    metrics: list[formats.MetricComparison],
    strategy: str = "fua",
    title: str = "a title",
    mechanism: float | None = 2.0,
    **sides: dict[str, Any],
) -> formats.Comparison:
    """A comparison of one case."""
    did = dict.fromkeys(results.MECHANISM, mechanism)
    case = formats.CaseComparison(
        name="seq",
        variant="as-described",
        before="dsync",
        after=strategy,
        repetitions={"before": 2, "after": 2},
        metrics=metrics,
        mechanism={"before": did, "after": dict.fromkeys(results.MECHANISM, 1.0)},
    )
    both = {side: sides.get(side, environment()) for side in ("before", "after")}
    return formats.Comparison([formats.MeasurementComparison("sample", title, "dsync", "fua", both, [title], [case])])


@settings(max_examples=80, deadline=None)
@given(
    metrics=st.lists(st.builds(metric, METRICS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4),
    strategy=NAMES,
    title=NAMES,
    mechanism=NUMBERS,
    path=NAMES,
)
def test_no_line_is_wider_than_a_mail(
    metrics: list[formats.MetricComparison], strategy: str, title: str, mechanism: float | None, path: str
) -> None:
    after = environment(target={"path": path})
    for line in tables.text(comparison(metrics, strategy, title, mechanism, after=after)).split("\n"):
        assert len(line) <= tables.WIDTH == 72
        assert line == line.rstrip() and line.isascii() and (line.isprintable() or not line)


def test_a_long_name_leaves_the_columns_where_they_are() -> None:
    long = "a_writer_with_a_very_long_name_that_leaves_no_room/write.clat.p99.9"
    lines = tables.text(comparison([metric("write.clat.p50", 1.0, 2.0), metric(long, 30.0, 40.0)])).splitlines()
    place = next(number for number, line in enumerate(lines) if long in line)
    assert lines[place].strip() == f"{long} us"
    cells = lines[place + 1].split()
    assert cells[:2] == ["30.00", "40.00"]
    (short,) = (line for line in lines if "write.clat.p50" in line)
    assert len(short) == len(lines[place + 1])


def test_the_environment_is_two_lines() -> None:
    found = comparison([metric("write.iops", 1.0, 2.0)]).measurements[0]
    assert tables.environment_lines(found) == [
        "Linux 6.18.0, fio-3.33, 2 CPUs, 8.0 GiB, 2026-11-30",
        "/dev/sda, write back, FUA, scheduler none",
    ]


def test_what_differs_is_told_of_both_sides() -> None:
    lab = {"clock": "virtual"}
    after = environment(kernel="7.4.0", cpus=1, lab=lab, target={"scheduler": "bfq", "filesystem": "xfs", "fua": None})
    found = comparison([metric("write.iops", 1.0, 2.0)], before=environment(lab=lab), after=after).measurements[0]
    assert tables.environment_lines(found) == [
        "Linux 6.18.0 -> Linux 7.4.0, fio-3.33, 2 CPUs -> 1 CPU, 8.0 GiB, lab guest by the virtual clock, 2026-11-30",
        "/dev/sda, - -> xfs, write back, FUA -> FUA unknown, scheduler none -> scheduler bfq",
    ]


def test_the_mechanism_is_a_line_without_its_counts() -> None:
    text = " ".join(tables.text(comparison([metric("write.iops", 1.0, 2.0)])).split())
    assert "mechanism: flushes per write 2.00 -> 1.00; flush calls per sync 2.00 -> 1.00;" in text
    assert "durable writes" not in text


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a \N{RIGHTWARDS ARROW} b", "a -> b"), ("5 \N{MICRO SIGN}s", "5 us"), ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe")]
    + [("\N{CJK UNIFIED IDEOGRAPH-4E00}", "?"), ("\x1b[2J", "?[2J"), ("a\nb", "a?b")],
)
def test_text_is_ascii(text: str, plain: str) -> None:
    assert tables.plain(text) == plain


@pytest.mark.parametrize(
    ("verdict", "after", "said"),
    [("regressed", 2.0, True), ("improved", 0.5, False), ("inconclusive", 2.0, False), ("no change", 1.0, False)],
)
def test_only_what_is_shown_goes_the_other_way(verdict: formats.Verdict, after: float, said: bool) -> None:
    """Half the latency was published."""
    shown = comparison([metric("sync.lat.mean", 1.0, after, published=8.0)])
    shown.measurements[0].cases[0].metrics[0].published = formats.PublishedCell(8.0, 4.0, 0.5)
    shown.measurements[0].cases[0].metrics[0].verdict = verdict
    assert ("the other way than what was published" in " ".join(tables.text(shown).split())) == said

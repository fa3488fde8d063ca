# SPDX-License-Identifier: GPL-2.0-only
"""The figures: what they declare, and that matplotlib and gnuplot draw it."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from durabenchlib import canvas, cli, figures, gnuplot, layout, plots, report, results, strategies, tables
from durabenchlib.errors import Exit, Failure
from sample_figures import HOSTILE, contexts, drawn, run_of
from sample_run import SampleRun, document, job

pytestmark = pytest.mark.usefixtures("sample_measurement")

# What the figures declare


def test_axes_are_honest(tmp_path: Path) -> None:
    named = drawn(run_of(tmp_path))
    for panel in (*named["rates"].panels, *named["series"].panels):
        values_axis = panel.x if panel in named["rates"].panels else panel.y
        assert (values_axis.low, values_axis.scale) == (0, "linear")
    assert all(panel.y.scale == "log" for panel in named["ladder"].panels)
    assert named["ratios"].panels[0].x.scale == "log"
    for figure in named.values():
        for panel in figure.panels:
            for mark in panel.marks:
                for axis, values in ((panel.x, mark.x), (panel.y, mark.y)):
                    low, high = sorted((axis.low, axis.high))
                    assert all(low <= value <= high or math.isnan(value) for value in values), (figure.name, panel.title, mark.name)
            for axis in (panel.x, panel.y):
                low, high = sorted((axis.low, axis.high))
                assert len(axis.ticks) >= 1 and all(low <= place <= high for place, _ in axis.ticks)


def test_a_strategy_has_one_colour(tmp_path: Path) -> None:
    for figure in drawn(run_of(tmp_path)).values():
        for panel in figure.panels:
            for mark in panel.marks:
                if mark.name.rstrip("*") in ("dsync", "fua", "none"):
                    assert mark.colour == strategies.colours([mark.name.rstrip("*")])[mark.name.rstrip("*")]


def test_what_is_not_durable_is_marked(tmp_path: Path) -> None:
    named = drawn(run_of(tmp_path))
    for name in ("ladder", "matrix", "series"):
        assert strategies.NOT_DURABLE_NOTE in named[name].footer
        assert "none*" in {mark.name for panel in named[name].panels for mark in panel.marks}
    assert strategies.NOT_DURABLE_NOTE not in named["ratios"].footer


def test_the_footer_says_where(tmp_path: Path) -> None:
    for figure in drawn(run_of(tmp_path)).values():
        assert figure.footer[-2:] == [
            "Linux 6.18.0, fio-3.33, 2 CPUs, 8.0 GiB, 2026-11-30",
            "/dev/loop0, write back, FUA, scheduler none, n=2",
        ]


def test_the_ladder_is_of_the_merged_bins(tmp_path: Path) -> None:
    """1000 writes of 1 ms in one repetition; one of 1 s in the other, which is the last thousandth of both."""
    run = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua"):
        run.add("seq", strategy, document(job(writes=[1_000_000] * 999)))
        run.add("seq", strategy, document(job(writes=[1_000_000_000])))
    line = drawn(run.write())["ladder"].panels[0].marks[0]
    # In steps: 1 ms until three nines, then 1 s.
    assert line.x == pytest.approx([0, 3, 3, 3])
    assert line.y == pytest.approx([1000, 1000, 1_000_000, 1_000_000], rel=0.01)
    assert drawn(run.folder)["ladder"].rows[0][2] == "1000"


def test_the_ecdf_is_of_the_merged_bins(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy, slow in (("dsync", 100_000_000), ("fua", 1_000_000)):
        run.add("seq", strategy, document(job(writes=[1_000_000] * 3)))
        run.add("seq", strategy, document(job(writes=[slow])))
    panel = drawn(run.write())["ecdf"].panels[0]
    by_name = {mark.name: mark for mark in panel.marks}
    assert by_name["dsync"].x == pytest.approx([1000, 1000, 100_000, 100_000], rel=0.01)
    assert by_name["dsync"].y == [0, 0.75, 0.75, 1]
    assert (panel.x.scale, panel.y.scale, panel.y.low, panel.y.high) == ("log", "linear", 0, 1)


def test_latency_that_fio_could_not_count_is_noted(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua"):
        path = run.add("seq", strategy, document(job(writes=[1000, 2000])))
        found = json.loads((path / "fio.json").read_text())
        found["jobs"][0]["write"]["clat_ns"] |= {"max": 20_000_000_000, "bins": {"1000": 1, "17112760320": 1}}
        (path / "fio.json").write_text(json.dumps(found))
    for name in ("ladder", "ecdf"):
        figure = drawn(run.write())[name]
        assert "fio counts every latency from 17.1 s on as 17.1 s" in figure.footer
        assert figure.rows[0][-1] == "20000000"


def test_ratios_have_their_interval_verdict_and_margin(tmp_path: Path) -> None:
    """Whiskers where there is an interval only."""
    (context,) = contexts(run_of(tmp_path))
    metrics = context.comparison.metrics
    metrics[0].interval, metrics[0].verdict, metrics[0].margin = [1.5, 2.5], "improved", 0.25
    metrics[1].interval, metrics[1].verdict, metrics[1].margin = None, "inconclusive", None
    metrics[2].interval = None
    figure = figures.ratios(context)
    assert figure is not None
    (panel,) = figure.panels
    assert [mark.x for mark in panel.marks if mark.draw == "whiskers"] == [[1.5, 2.5]]
    assert [mark.x for mark in panel.marks if mark.draw == "cells"][0] == [0.8, 1.25]
    assert ", improved; published 50.0x" in panel.labels[0].text
    assert figure.rows[0][2:] == ["1.50x .. 2.50x", "improved", "50.0x"]
    assert figure.rows[1][2:4] == ["", "inconclusive"]


def test_a_ratio_of_nothing_is_said_in_words(tmp_path: Path) -> None:
    (context,) = contexts(run_of(tmp_path))
    context.comparison.metrics[2].ratio = 0.0
    figure = figures.ratios(context)
    assert figure is not None
    assert figure.panels[0].labels[2].text.startswith("0x")
    assert not [mark for mark in figure.panels[0].marks if mark.draw == "dots" and mark.y == [2.0]]


def test_series_are_of_one_repetition_in_steps(tmp_path: Path) -> None:
    panels = {panel.title: panel for panel in drawn(run_of(tmp_path))["series"].panels}
    assert list(panels) == ["write bandwidth, MiB/s", "Dirty + Writeback, MiB", "flushes of the device, 1/s"]
    line = panels["write bandwidth, MiB/s"].marks[0]
    assert (line.x, line.y) == ([0, 0.5, 0.5, 1.0], [1, 1, 3, 3])
    assert panels["Dirty + Writeback, MiB"].marks[0].y[:4] == [2, 2, 3, 3]
    assert panels["flushes of the device, 1/s"].marks[0].y == pytest.approx([10] * 20)


def test_published_series_stand_below_ours(tmp_path: Path) -> None:
    with (layout.published() / "sample.toml").open("a") as toml:
        for name, strategy in (("write-cached", "buffered"), ("write-uncached", "")):
            toml.write(f'[[series]]\nname = "{name}"\ncase = "seq"\nstrategy = "{strategy}"\nunit = "MB/s"\n')
            toml.write("interval_s = 1.0\nvalues = [5.0, 7.0]\n")
    last = drawn(run_of(tmp_path))["series"].panels[-1]
    assert last.title == "published, MB/s"
    assert [(mark.name, mark.x, mark.y) for mark in last.marks] == [
        ("buffered*", [0, 1, 1, 2], [5, 5, 7, 7]),
        ("write-uncached", [0, 1, 1, 2], [5, 5, 7, 7]),
    ]


def test_latency_over_time_is_broken_where_nothing_completed(tmp_path: Path) -> None:
    """100 writes of 1 ms, one of them of 8 ms; nothing; 9 writes of 1 ms. Buckets are as wide as a power of two."""
    figure = drawn(run_of(tmp_path))["latency"]
    assert [panel.title for panel in figure.panels] == ["dsync", "fua", "none*"]
    band, p50, most = figure.panels[0].marks
    assert p50.x == [0, 0.5, 0.5, 1.0, 1.0, 1.5]
    middle, slow = (2**19 + 2**20) / 2000, (2**22 + 2**23) / 2000
    assert p50.y[:2] + p50.y[4:] == [middle] * 4 and all(math.isnan(y) for y in p50.y[2:4])
    assert most.y[:2] + most.y[4:] == [slow, slow, middle, middle]
    # p99 is the last of the 99 fast ones; no cell lies where nothing completed.
    assert (band.x, band.y) == ([0, 0.5, 1.0, 1.5], [middle] * 4)
    assert len({(panel.y.low, panel.y.high, panel.x.high) for panel in figure.panels}) == 1


def test_the_heat_map_has_each_completed_write(tmp_path: Path) -> None:
    figure = drawn(run_of(tmp_path))["heat"]
    assert figure.rows[0][:3] == ["dsync", "109", "99"]
    cells = {
        (tuple(mark.x[i : i + 2]), tuple(mark.y[i : i + 2])): mark.opacity
        for mark in figure.panels[0].marks
        for i in range(0, len(mark.x), 2)
    }
    fast, slow = (2**19 / 1000, 2**20 / 1000), (2**22 / 1000, 2**23 / 1000)
    assert sorted(cells) == [((0, 0.5), fast), ((0, 0.5), slow), ((1.0, 1.5), fast)]
    assert cells[(0, 0.5), slow] < cells[(1.0, 1.5), fast] < cells[(0, 0.5), fast] == 1


def test_long_latency_logs_are_thinned_and_lose_nothing(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    for log in path.glob("*/*_hist.1.log"):
        lines = [", ".join(map(str, (500 * i, 1, 4096, *[0] * 14, 2, *[0] * 14))) for i in range(1, 1001)]
        log.write_text("\n".join(lines))
    named = drawn(path)
    line = named["latency"].panels[0].marks[1]
    assert 200 < len(line.x) <= 300 and line.x[-1] == 500 and len(set(line.y)) == 1
    assert named["heat"].rows[0][1] == "2000"
    ends = {x for mark in named["heat"].panels[0].marks for x in mark.x}
    assert len(ends) <= 75 + 1 and max(ends) == 500


def test_without_histogram_logs_there_is_no_latency_over_time(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    for log in path.glob("*/*_hist.1.log"):
        log.unlink()
    assert not {"latency", "heat"} & set(drawn(path))


def test_long_series_are_thinned_and_keep_their_peak(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    for folder in path.glob("0*"):
        samples = folder / "samples.jsonl"
        header = samples.read_text().splitlines()[0]
        lines = [
            {
                "t": t / 10,
                "dirty": 2**20 * (500 if t == 777 else 1),
                "writeback": 0,
                "dev": {"loop0": [0, 0, 0, 0, t, 0]},
            }
            for t in range(1, 1001)
        ]
        samples.write_text("\n".join([header, *map(json.dumps, lines)]))
    panels = {panel.title: panel for panel in drawn(path)["series"].panels}
    line = panels["Dirty + Writeback, MiB"].marks[0]
    assert len(line.x) <= 2 * 300
    assert max(line.y) == 500
    assert panels["flushes of the device, 1/s"].marks[0].y == pytest.approx([10] * len(line.y))


@pytest.mark.parametrize("count", [2, 6, 14])
def test_labels_do_not_cover_each_other(count: int) -> None:
    x, y = canvas.linear_axis("", [1.0]), canvas.linear_axis("", [100.0])
    lines = [canvas.Mark("line", str(i), "#000000", [0.0, 1.0], [0.0, 100.0 - i % 2]) for i in range(count)]
    labels = canvas.labels_at_ends(x, y, lines, 2.6)
    heights = sorted(label.height for label in labels)
    assert len(heights) == count
    assert all(upper - lower >= 0.99 * canvas.LINE / 2.6 for lower, upper in zip(heights, heights[1:], strict=False))
    assert heights[-1] <= 1


def test_of_more_lines_than_have_room_the_outermost_are_named() -> None:
    x, y = canvas.linear_axis("", [1.0]), canvas.linear_axis("", [64.0])
    lines = [canvas.Mark("line", str(i), "#000000", [0.0, 1.0], [0.0, float(i)]) for i in range(64)]
    for labels in (canvas.labels_at_ends(x, y, lines, 1.55), canvas.labels_beside(lines, 1.55)):
        texts = [label.text for label in labels]
        assert len(texts) == 11 and "and 54 more" in texts and "0" in texts
        heights = sorted(label.height for label in labels)
        assert 0 <= heights[0] and heights[-1] <= 1
        assert all(upper - lower > 0.099 for lower, upper in zip(heights, heights[1:]))
    assert "63" in [label.text for label in canvas.labels_at_ends(x, y, lines, 1.55)]


def test_long_names_keep_what_tells_them_apart() -> None:
    names = [f"/somewhere/far/away/{name}.json" for name in ("before", "after")]
    assert canvas.shortened(names, 14 * canvas.CHAR) == ["\N{HORIZONTAL ELLIPSIS}before.json", "\N{HORIZONTAL ELLIPSIS}after.json"]
    assert canvas.shortened(names, 40 * canvas.CHAR) == names
    assert canvas.shortened(["x" * 30], 10 * canvas.CHAR) == ["x" * 9 + "\N{HORIZONTAL ELLIPSIS}"]
    assert canvas.shortened(["dsync", "dsync"], 3 * canvas.CHAR) == ["ds\N{HORIZONTAL ELLIPSIS}"] * 2


def test_ticks_do_not_cover_each_other() -> None:
    axis = canvas.nines_axis(9.0)
    for length in (1.0, 2.0, 6.0):
        kept = axis.fitting(length)
        ends = [(length * axis.fraction(place), canvas.CHAR * len(text) / 2) for place, text in kept]
        assert kept and all(a + half <= b - other for (a, half), (b, other) in zip(ends, ends[1:]))


def test_boxes_hold_the_texts_around_them(tmp_path: Path) -> None:
    for figure in drawn(run_of(tmp_path)).values():
        boxes = figure.boxes()
        for number, box in enumerate(boxes):
            assert 0 < box.left and 0 < box.bottom and box.width > 0.15 and box.height > 0
            assert box.left + box.width < 1 and box.bottom + box.height < 1
            for other in boxes[:number]:
                apart = other.bottom >= box.bottom + box.height or other.left + other.width <= box.left
                assert apart, figure.name


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([3.0, 90_000.0], ["10 us", "100 us", "1 ms", "10 ms", "100 ms"]),
        ([100.0, 5000.0], ["100 us", "200 us", "500 us", "1 ms", "2 ms", "5 ms"]),
        ([0.5, 2_000_000.0], ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]),
    ],
)
def test_latency_ticks(values: list[float], texts: list[str]) -> None:
    assert [text for _, text in canvas.latency_axis(values).ticks] == texts


def test_other_ticks() -> None:
    assert [text for _, text in canvas.linear_axis("", [7497.0]).ticks] == ["0", "2000", "4000", "6000"]
    assert [text for _, text in canvas.linear_axis("", []).ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [text for _, text in canvas.linear_axis("", [95121.0]).ticks] == ["0", "20k", "40k", "60k", "80k"]
    assert [text for _, text in canvas.nines_axis(5.2).ticks] == [
        "0",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "p99.999",
    ]
    assert [text for _, text in canvas.ratio_axis([0.4, 3.0]).ticks] == ["1/2x", "1x", "2x"]
    assert "1/64x" in [text for _, text in canvas.ratio_axis([0.0159, 62.6]).ticks]


# Drawing


def test_svg_takes_its_ink_from_the_page(tmp_path: Path) -> None:
    for figure in drawn(run_of(tmp_path)).values():
        text = plots.svg(figure)
        tree = ElementTree.fromstring(text)
        assert "currentColor" in text and "#010203" not in text
        assert "width" not in tree.attrib and tree.attrib["viewBox"]
        assert tree.attrib["aria-label"] == figure.title
        shown = "".join(tree.itertext())
        for panel in figure.panels:
            assert panel.title in shown
            assert all(label.text in shown for label in panel.labels)
        assert all(line in shown for line in figure.footer)


def hostile_figure() -> figures.Figure:
    mark = canvas.Mark("line", HOSTILE, "#0072B2", [0.0, 1.0], [1.0, 2.0], dashed=True)
    x, y = canvas.linear_axis(HOSTILE, [1.0]), canvas.rows_axis([HOSTILE, "plain\\n'", "c"])
    panel = canvas.Panel(HOSTILE, x, y, [mark], canvas.labels_at_ends(x, y, [mark], 2.0))
    return figures.Figure("hostile", HOSTILE, [panel], 1, [HOSTILE], [], [])


def test_hostile_names_in_svg() -> None:
    tree = ElementTree.fromstring(plots.svg(hostile_figure()))
    assert not [element for element in tree.iter() if element.tag.endswith("script")]
    assert tables.printable(HOSTILE) in "".join(tree.itertext())


def gnuplot_draws(script: Path) -> ElementTree.Element:
    """What gnuplot makes of a script, in its folder and without anything else."""
    program = shutil.which("gnuplot")
    assert program, "gnuplot is missing: make deps"
    done = subprocess.run([program, script.name], cwd=script.parent, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return ElementTree.parse(script.with_suffix(".svg")).getroot()


def test_gnuplot_redraws_every_figure(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    runs = [results.load_run(path)]
    for figure in report.all_figures(runs, report.compare_all(runs)):
        gnuplot.write(figure, tmp_path / "plots")
    named = {figure.name: figure for figure in drawn(path).values()}
    elsewhere = tmp_path / "elsewhere"
    shutil.move(tmp_path / "plots", elsewhere)
    assert sorted(script.stem for script in elsewhere.glob("*.gp")) == sorted(named)
    for name, figure in named.items():
        tree = gnuplot_draws(elsewhere / f"{name}.gp")
        shown = [
            " ".join("".join(element.itertext()).split()) for element in tree.iter() if element.tag.endswith("text")
        ]
        assert figure.title in shown
        for panel in figure.panels:
            for label in panel.labels:
                assert label.text in shown
            for axis in (panel.x, panel.y):
                assert all(text in shown for _, text in axis.ticks)
        # A line or a set of points for each mark, in its colour.
        text = (elsewhere / f"{name}.svg").read_text()
        for colour in {mark.colour for panel in figure.panels for mark in panel.marks} - {canvas.INK}:
            red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
            assert f"rgb({red:3d}, {green:3d}, {blue:3d})" in text


def test_hostile_names_in_gnuplot(tmp_path: Path) -> None:
    gnuplot.write(hostile_figure(), tmp_path)
    tree = gnuplot_draws(tmp_path / "hostile.gp")
    shown = ["".join(element.itertext()).strip() for element in tree.iter() if element.tag.endswith("text")]
    assert tables.printable(HOSTILE) in shown
    assert "plain\\n'" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.dat", "hostile.gp", "hostile.svg"]


def test_what_gnuplot_takes_for_a_format_is_text(tmp_path: Path) -> None:
    figure = drawn(run_of(tmp_path))["ecdf"]
    gnuplot.write(figure, tmp_path)
    tree = gnuplot_draws(tmp_path / f"{figure.name}.gp")
    shown = ["".join(element.itertext()).strip() for element in tree.iter() if element.tag.endswith("text")]
    assert {"0%", "25%", "50%", "75%", "100%"} <= set(shown)


def test_gnuplot_data_are_those_of_the_figure(tmp_path: Path) -> None:
    figure = drawn(run_of(tmp_path))["rates"]
    gnuplot.write(figure, tmp_path)
    blocks = (tmp_path / f"{figure.name}.dat").read_text().split("\n\n\n")
    marks = [mark for panel in figure.panels for mark in panel.marks]
    assert len(blocks) == len(marks) + 1 and not blocks[-1]
    for block, mark in zip(blocks, marks, strict=False):
        lines = [line.split() for line in block.splitlines() if not line.startswith("#")]
        assert [float(line[0]) for line in lines] == pytest.approx(mark.x)
        assert mark.name in block.splitlines()[0]


# The terminal


def test_the_terminal_shows_what_the_figure_says(tmp_path: Path) -> None:
    for name, figure in drawn(run_of(tmp_path)).items():
        text = gnuplot.terminal(figure, 100, colour=False)
        assert all(line.isprintable() and len(line) <= 100 for line in text.splitlines())
        assert text.splitlines()[0] == figure.title
        assert figure.footer[-1] in text
        for panel in figure.panels:
            assert panel.title in text
            for label in panel.labels:
                assert label.text in text, (name, label)
            for _, tick in (*panel.y.ticks, *panel.x.fitting(40, 1.0)[:1]):
                assert tick in text, (name, tick)


def test_a_locale_without_the_characters_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gnuplot warns of it."""
    monkeypatch.setenv("LC_ALL", "C")
    test_the_terminal_shows_what_the_figure_says(tmp_path)


def test_lines_in_the_terminal_are_told_apart(tmp_path: Path) -> None:
    """By their characters, which stand before their names; with colour they stay the same."""
    figure = drawn(run_of(tmp_path))["ladder"]
    plain = gnuplot.terminal(figure, 80, colour=False)
    found = re.findall(r"(.) (dsync|fua|none\*)$", plain, re.MULTILINE)
    assert len({pen for pen, _ in found}) == len(found) == 3
    assert all(plain.count(pen) > 5 for pen, _ in found)
    coloured = gnuplot.terminal(figure, 80, colour=True)
    assert "\x1b[38;5;" in coloured
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()] == plain.splitlines()


def test_hostile_names_in_the_terminal() -> None:
    text = gnuplot.terminal(hostile_figure(), 120, colour=False)
    assert "\x1b" not in text
    assert tables.printable(HOSTILE) in text


def test_a_missing_gnuplot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Failure, match="gnuplot-nox") as raised:
        gnuplot.terminal(hostile_figure(), 80, colour=False)
    assert raised.value.status == Exit.MISSING


def test_the_report_draws_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And writes nothing; only the figures that are asked for."""
    path = run_of(tmp_path)
    assert cli.main(["report", str(path), "--terminal", "--figure", "rates", "--figure", "ecdf"]) == Exit.OK
    text = capsys.readouterr().out
    named = drawn(path)
    assert [name for name, figure in named.items() if figure.title in text] == ["rates", "ecdf"]
    assert "\x1b" not in text
    assert list(tmp_path.iterdir()) == [path]


def test_the_report_writes_pictures(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    arguments = ["report", str(path), "-o", str(tmp_path / "report.html"), "--pictures", str(tmp_path / "pictures")]
    assert cli.main([*arguments, "--figure", "ratios"]) == Exit.OK
    name = drawn(path)["ratios"].name
    assert sorted(each.name for each in (tmp_path / "pictures").iterdir()) == [f"{name}.png", f"{name}.svg"]


# Colours

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), at
# full severity: what is seen of linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear_rgb(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear_rgb(colour) @ [0.2126, 0.7152, 0.0722])


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB under D65."""
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    x, y, z = (np.array(to_xyz) @ np.clip(rgb, 0, 1)) / [0.95047, 1.0, 1.08883]
    x, y, z = (np.cbrt(each) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart(vision: str) -> None:
    """15 is more than six times the smallest difference that is noticed side by side (2.3)."""
    seen = [lab(VISION[vision] @ linear_rgb(colour)) for colour in strategies.PALETTE]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 15


def test_colours_are_seen_on_light_and_dark_ground() -> None:
    template = (Path(figures.__file__).parent / "templates/report.html.j2").read_text()
    grounds = sorted(re.findall(r" --ground: (#[0-9a-f]{6})", template), key=luminance)
    dark, light = grounds[0], grounds[-1]
    for colour in strategies.PALETTE:
        assert (luminance(light) + 0.05) / (luminance(colour) + 0.05) > 2.2
        assert (luminance(colour) + 0.05) / (luminance(dark) + 0.05) > 3


def test_strategies_of_an_engine_have_colours_of_their_own() -> None:
    for folder in sorted((Path(__file__).parents[2] / "jobs").glob("*/measurement.toml")):
        names = tomllib.loads(folder.read_text())["strategies"]
        found = strategies.colours(names)
        assert len(set(found.values())) == len(names), folder
        assert found == {name: strategies.colours([name])[name] for name in names}


def test_other_names_take_the_colours_that_are_left() -> None:
    names = ["dsync", *(f"file {number}" for number in range(12))]
    found = strategies.colours(names)
    assert found["dsync"] == strategies.colours(["dsync"])["dsync"]
    assert sorted(found[name] for name in names[:7]) == sorted(strategies.PALETTE)
    assert set(found.values()) == set(strategies.PALETTE)


# Files


def test_the_same_figure_makes_the_same_files(tmp_path: Path) -> None:
    """In processes of their own, with another hash seed, clock and the user's own settings of matplotlib."""
    script = (
        "import sys, pathlib\n"
        "from durabenchlib import plots\n"
        "from test_figures import hostile_figure\n"
        "plots.write(hostile_figure(), pathlib.Path(sys.argv[1]) / 'made')\n"
    )
    modules = [str(Path(plots.__file__).parents[1]), str(Path(__file__).parent)]
    folders = [tmp_path / seed for seed in ("1", "2")]
    running = []
    for folder in folders:
        folder.mkdir()
        (folder / "matplotlibrc").write_text(f"lines.linewidth: {folder.name}0\nfont.size: 1{folder.name}\n")
        environment = {"PYTHONHASHSEED": folder.name, "MPLCONFIGDIR": str(folder), "PYTHONPATH": os.pathsep.join(modules)}
        running.append(subprocess.Popen([sys.executable, "-c", script, folder], env={**os.environ, **environment}))
    assert [each.wait(timeout=120) for each in running] == [0, 0]
    made = [{path.name: path.read_bytes() for path in (folder / "made").iterdir()} for folder in folders]
    assert sorted(made[0]) == ["hostile.png", "hostile.svg"]
    assert made[0] == made[1]


def test_files_stand_alone(tmp_path: Path) -> None:
    plots.write(hostile_figure(), tmp_path, pixels=600)
    assert ElementTree.parse(tmp_path / "hostile.svg").getroot().attrib["width"]
    text = (tmp_path / "hostile.svg").read_text()
    assert "currentColor" not in text and "sans-serif" in text
    assert not re.findall(r"\b\d{4}-\d\d-\d\d", re.sub(r"\"[^\"]*\"", "", text))
    size = struct.unpack(">II", (tmp_path / "hostile.png").read_bytes()[16:24])
    assert size[0] == 600

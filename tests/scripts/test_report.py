# SPDX-License-Identifier: GPL-2.0-only
"""`durabench report`: one page that needs nothing but itself, with a table behind every figure."""

from __future__ import annotations

import argparse
import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from durabenchlib import cli, compare, figures, formats, layout, report, results, tables
from durabenchlib.errors import Exit, Failure
from sample_figures import HOSTILE, drawn, run_of
from sample_run import SampleRun, device, document, job, observed

from command import durabench

pytestmark = pytest.mark.usefixtures("sample_measurement")


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and the text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.data = ""
        self.feed(path.read_text())
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += " " if tag in ("th", "td") else ""

    def handle_data(self, text: str) -> None:
        if self.open[-1:] == ["script"]:
            self.data += text
        elif self.open[-1:] != ["style"]:
            self.text += text


def page(folder: Path, *runs: Path) -> Page:
    loaded = [results.load_run(path) for path in runs]
    report.write_html(folder / "report.html", loaded, report.compare_all(loaded))
    return Page(folder / "report.html")


# The page


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    found = page(tmp_path, run_of(tmp_path))
    for tag, attributes in found.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), attributes
        assert "src" not in attributes
        if "href" in attributes:
            assert tag in ("a", "use") or attributes["href"].startswith("#")
        if "xlink:href" in attributes:
            assert attributes["xlink:href"].startswith("#")
    text = (tmp_path / "report.html").read_text()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    scripts = [attributes for tag, attributes in found.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "comparison"}]


def test_ids_are_unique_and_links_lead_somewhere(tmp_path: Path) -> None:
    found = page(tmp_path, run_of(tmp_path), run_of(tmp_path, "other"))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found.tags:
        for name in ("href", "xlink:href"):
            if (attributes.get(name) or "").startswith("#"):
                assert attributes[name][1:] in ids
    assert set(re.findall(r"url\(#([^)]*)\)", (tmp_path / "report.html").read_text())) <= set(ids)


def test_the_page_says_what_came_out_first(tmp_path: Path) -> None:
    run = results.load_run(run_of(tmp_path))
    found = page(tmp_path, run.path)
    comparison = compare.compare_runs(run, run)
    finding = tables.finding(comparison.measurements[0].cases[0])
    assert "dsync issued 2.00 flushes per write, fua 1.00" in finding
    text = found.text
    assert text.index("inconclusive") < text.index(finding) < text.index(tables.cover(comparison)) < text.index("Environment")
    assert "LC_ALL=C fio 'a b.fio'" in text
    repeat = "durabench run sample --target /dev/loop0 --case seq --strategy dsync --strategy fua --strategy none"
    assert f"{repeat} --set RUNTIME=1 --repeat 1" in text
    assert json.loads(found.data) == json.loads(formats.to_json(comparison))
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert "run/run.json" in links and (tmp_path / "run/run.json").exists()


def test_what_differs_between_runs_is_shown(tmp_path: Path) -> None:
    before = run_of(tmp_path, "before", ("dsync",))
    environment = json.loads((before / "run.json").read_text())["environment"]
    other = {**environment, "kernel": "7.4.0"}
    text = page(tmp_path, before, run_of(tmp_path, "after", ("dsync",), environment=other)).text
    assert "The kernel is the difference; all else that was recorded is alike" in text
    assert "should be alike" not in text and "what is compared" in text
    assert "Between the runs" not in text
    other["fio"] = "fio-3.42"
    words = " ".join(page(tmp_path, before, run_of(tmp_path, "worse", ("dsync",), environment=other)).text.split())
    assert "Before and after were measured differently: the ratios are the sum of all of this" in words
    assert "fio fio-3.33 fio-3.42 ! should be alike" in words
    assert "kernel 6.18.0 7.4.0 what is compared" in words


def test_a_guest_of_the_lab_is_told_first(tmp_path: Path) -> None:
    lab = {
        "clock": "virtual",
        "accelerator": "TCG",
        "qemu": "7.2",
        "devices": ["hdd a", "null_blk b"],
        "abilities": {"flushes_per_dsync_write": 1.0},
        "overhead_ns": 250,
    }
    run = run_of(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    manifest["environment"]["lab"] = lab
    (run / "run.json").write_text(json.dumps(manifest))
    text = page(tmp_path, run).text
    words = " ".join(text[text.index("Environment") :].split())
    told = "guest of the lab clock virtual accelerator TCG qemu 7.2 devices hdd a null_blk b"
    assert f"{told} abilities flushes_per_dsync_write: 1.000 overhead ns 250 machine" in words


def test_every_figure_has_its_numbers(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    found = page(tmp_path, path)
    named = drawn(path)
    assert set(named) == set(figures.FIGURES)
    assert [tag for tag, _ in found.tags].count("figure") == len(named)
    for figure in named.values():
        assert figure.rows
        assert all(len(row) == len(figure.head) for row in figure.rows)
        for row in figure.rows:
            assert all(cell in found.text for cell in row)


def test_names_can_do_no_harm(tmp_path: Path) -> None:
    """A label, a target, a job file and a warning that try to be HTML, TeX, a template and a terminal's command."""
    run = SampleRun(tmp_path / "run", label=HOSTILE, notes=[HOSTILE])
    run.manifest["target"]["path"] = HOSTILE
    for strategy in ("dsync", "fua"):
        path = run.add("seq", strategy, document(job(HOSTILE, writes=[1000] * 1000)), observed(device()))
        (path / "job.fio").write_text(HOSTILE)
    found = page(tmp_path, run.write())
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert "{{7*7}}" in found.text and "49}}" not in found.text
    assert "\x1b" not in (tmp_path / "report.html").read_text()
    assert json.loads(found.data)["measurements"][0]["environment"]["before"]["label"] == HOSTILE
    assert tables.printable(HOSTILE) in found.text


def test_the_same_runs_make_the_same_bytes(tmp_path: Path) -> None:
    """In processes of their own, with another hash seed and the user's own settings of matplotlib."""
    run = run_of(tmp_path)
    made = []
    for seed in ("1", "2"):
        settings = tmp_path / f"settings{seed}"
        settings.mkdir()
        (settings / "matplotlibrc").write_text(f"lines.linewidth: {seed}0\nfont.size: 1{seed}\n")
        output = tmp_path / f"report{seed}.html"
        script = (
            "import sys, pathlib\n"
            "from durabenchlib import layout, report, results\n"
            "library = pathlib.Path(sys.argv[3])\n"
            "layout.jobs = lambda: library / 'jobs'\n"
            "layout.published = lambda: library / 'published'\n"
            "runs = [results.load_run(pathlib.Path(sys.argv[1]))]\n"
            "report.write_html(pathlib.Path(sys.argv[2]), runs, report.compare_all(runs))\n"
        )
        subprocess.run(
            [sys.executable, "-c", script, run, output, layout.jobs().parent],
            check=True,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "MPLCONFIGDIR": str(settings),
                "PYTHONPATH": str(Path(report.__file__).parent.parent),
            },
        )
        made.append(output.read_bytes())
    assert made[0] == made[1]


def test_runs_of_one_measurement_are_compared(tmp_path: Path) -> None:
    runs = [results.load_run(run_of(tmp_path, name, label=name)) for name in ("old", "new")]
    found = report.compare_all(runs)
    assert [(each.before, each.after) for each in found.measurements] == [
        ("dsync", "fua"),
        ("dsync", "fua"),
        ("old", "new"),
    ]
    assert {each.before for each in found.measurements[2].cases} == {"dsync", "fua", "none"}
    report.write_html(tmp_path / "report.html", runs, found)
    text = Page(tmp_path / "report.html").text
    assert "seq with dsync: before" in text


def test_runs_of_one_strategy_are_only_compared_with_each_other(tmp_path: Path) -> None:
    runs = [results.load_run(run_of(tmp_path, name, ("dsync",))) for name in ("old", "new")]
    (found,) = report.compare_all(runs).measurements
    assert (found.cases[0].before, found.cases[0].after) == ("dsync", "dsync")
    with pytest.raises(Failure, match="dsync and fua"):
        report.compare_all(runs[:1])


def test_damaged_command_is_refused(tmp_path: Path) -> None:
    path = run_of(tmp_path)
    (path / "001-seq-dsync-1/command.json").write_text("{}")
    with pytest.raises(Failure, match=r"command\.json: is damaged"):
        page(tmp_path, path)


def test_the_command(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    report.add_parser(parser.add_subparsers())
    path = run_of(tmp_path)
    given = parser.parse_args(["report", str(path), "-o", str(tmp_path / "out.html")])
    assert given.func(given) == 0
    assert "dsync" in Page(tmp_path / "out.html").text
    assert sorted({each.suffix for each in (tmp_path / "out-gnuplot").iterdir()}) == [".dat", ".gp"]


def test_nothing_is_said_of_matplotlibs_cache(tmp_path: Path) -> None:
    for name, ns in (("a", 1000), ("b", 2000)):
        (tmp_path / f"{name}.json").write_text(document(job("w", writes=[ns] * 100)))
    command = ["report", tmp_path / "a.json", tmp_path / "b.json", "-o", tmp_path / "out.html"]
    done = durabench(*command, HOME="/dev/null", XDG_CACHE_HOME="", XDG_CONFIG_HOME="", MPLCONFIGDIR="", TMPDIR=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("matplotlib-*"))


def test_a_report_goes_to_a_regular_file_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_of(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    link = tmp_path / "link.html"
    link.symlink_to(fifo)
    for output in (fifo, link, path):
        assert cli.main(["report", str(path), "-o", str(output)]) == Exit.USAGE
        assert f"{output} is no regular file" in capsys.readouterr().err
    assert fifo.is_fifo() and link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["fifo", "link.html", "run"]


def test_fios_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two folders of them, each file a repetition: nothing is known of machine and commands, and nothing is made up."""
    for name, us in (("old", 200), ("new", 100)):
        (tmp_path / name).mkdir()
        for turn in range(2):
            text = document(job("one", writes=[us * 1000 + turn] * 500))
            (tmp_path / name / f"{turn}.json").write_text(text)
    folders = [str(tmp_path / name) for name in ("old", "new")]
    assert cli.main(["report", *folders, "-o", str(tmp_path / "out.html")]) == 0
    found = Page(tmp_path / "out.html")
    words = " ".join(found.text.split())
    assert "write.iops IOPS 500.0 500.0..500.0 500.0 500.0..500.0 1.00x" in words
    assert "durabench run" not in words and "cpus" not in words and "How each was measured" not in words
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert {"old", "new"} <= set(links)
    assert cli.main(["report", folders[0], "-o", str(tmp_path / "out.html")]) == Exit.USAGE
    assert "fio's own files are compared with others" in capsys.readouterr().err

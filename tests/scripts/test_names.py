# SPDX-License-Identifier: GPL-2.0-only
"""What comes from files and devices in every output: names that try to be HTML, Markdown, a formula, a script of gnuplot's, TeX, a
workflow command or a terminal's are text, and nothing that they name is run. Each output is read by a parser that is strict."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample_run
from durabenchlib import canvas, cli, figures, formats, gnuplot, plots, progress, tables
from durabenchlib.formats import Repetition
from rich.console import Console
from sample_run import SampleRun, device, document, job, observed

# Whatever runs one of them leaves this file where it runs.
CANARY = "canary"

EVIL = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]></svg><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)\" x='",
    "javascript:alert(1)",
    "{{7*7}}{% for %}${7*7}",
    "&lt;b&gt;&#60;",
    f"`touch {CANARY}`",
    f"$(touch {CANARY})",
    f"'; system('touch {CANARY}'); '",
    f"\"; system \"touch {CANARY}\"",
    f"x''; system('touch {CANARY}'); y''",
    f"'''; system(touch {CANARY})",
    f"@touch {CANARY} !touch {CANARY}",
    f"\\\n!touch {CANARY}\nload '{CANARY}'",
    "%h %% %s %n {/:Bold x}_{y}^{z}",
    r"$\frac{$ \input{x} $x^{2$",
    f"=cmd|' /C touch {CANARY}'!A0",
    "+1+1,\"a\nb\"",
    "-2+3",
    "@SUM(1)",
    "| a | b | <br> ~~c~~ **d** __e__",
    "[link](https://example.com) ![i](http://x/y.png) https://example.com www.example.com",
    "@someone #123 GH-1 &nbsp; # head\n- item\n===\n1. one",
    "::error::x%0A::set-output name=a::b",
    "\x1b[2J\x1b]0;title\x07\x9b31m\x08\x7f",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}\x85\x0c\x0b\x1c",
    "\x01\ufffe\ufeff\U0010ffff",
    "\ud800",
    "-rf",
    "..",
    "x" * 3000,
    "[bold]rich[/bold][/]",
]


def shown_as_text(text: str) -> None:
    """What may go to a terminal, line by line."""
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
    text.encode()


def evil_run(folder: Path) -> Path:
    """A run whose every text is evil: of these names one after the other."""
    names = iter(EVIL * 10)
    # fio itself can't have a job named by what is no text.
    jobs = iter([name for name in EVIL if name != "\ud800"] * 10)
    run = SampleRun(folder, label=next(names), notes=list(EVIL))
    for key in ("path", "resolved", "model", "serial", "filesystem", "mount_options", "write_cache", "scheduler", "backing"):
        run.manifest["target"][key] = next(names)
    for key in ("kernel", "cmdline", "fio", "fio_path", "engines", "virtualization", "date", "cpu_model"):
        run.manifest["environment"][key] = next(names)
    run.manifest["variables"] = {"RUNTIME": next(names)}
    run.manifest["reason"] = next(names)
    for number in range(2 * len(EVIL)):
        name = next(jobs)
        disk = next(names)
        path = run.add(
            "seq" if number % 4 < 2 else "sync",
            ("dsync", "fua")[number % 2],
            document(job(name, writes=[1000] * 20, syncs=[500] * 5, iodepth=name), version="fio-3.33"),
            observed(device(name=disk, writes=20, flushes=20)),
            [{"writes": 20, "durable_writes": 20, "syncs": 0, "flush_calls": 20, "job": name}],
        )
        (path / "job.fio").write_text(name)
        (path / "command.json").write_text(json.dumps({"command": ["fio", name], "environment": {"A": name}}))
    run.add("seq", "fua", document(job(writes=[1000])), status="failed", reason=next(names))
    return run.write()


def evil_files(folder: Path, us: int) -> Path:
    folder.mkdir()
    for number in range(4):
        jobs = [job(name, writes=[1000 * us] * 20, rw=name, bs=name) for name in EVIL if name != "\ud800"]
        (folder / f"{number}.json").write_text("fio: \x1b[2J ::error::x\n" + document(*jobs))
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield sample_run.only_measurement(tmp_path_factory.mktemp("library"), monkeypatch)


@pytest.fixture(scope="module")
def run(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evil_run(tmp_path_factory.mktemp("evil") / "run")


def ended(*words: object, status: tuple[int, ...] = (0,)) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = cli.main([str(word) for word in words])
    assert found in status, err.getvalue()
    shown_as_text(err.getvalue())
    return out.getvalue(), err.getvalue()


def plain_markdown(text: str) -> None:
    """Markdown in which all that is not ours is text: outside of code there is no markup but what durabench writes."""
    shown_as_text(text)
    for line in text.splitlines():
        assert line.count("`") % 2 == 0 or "\\`" in line, line
        bare = re.sub(r"(?<!\\)`[^`]*`", "", line)
        bare = re.sub(r"\\.", "", bare)
        for wrong in (r"[\[\]]", r"@\w", r"://", r"\bwww\.", r"#\d", r"&#?\w+;", r"<(?!/?details>|/?summary>)"):
            assert not re.search(wrong, bare), (wrong, line)
        assert not re.match(r"\s*([#+=-]{2,}[^#]|[+=] |\d+[.)] )", bare.removeprefix("##").removeprefix("#")), line
    # No cell ends early: all rows of a table are as long as its head.
    width = 0
    for line in text.splitlines():
        cells = re.sub(r"\\.", "", line).count("|")
        if line.startswith("|"):
            assert width in (0, cells), line
            width = cells
        else:
            width = 0


def test_markdown(run: Path) -> None:
    plain_markdown(ended("compare", run, "--format", "md")[0])


def test_text(run: Path) -> None:
    out, _ = ended("compare", run)
    assert out.isascii()
    shown_as_text(out)


def test_csv(run: Path, tmp_path: Path) -> None:
    files = evil_files(tmp_path / "fio", 100)
    shown = ended("show", *files.iterdir(), "--format", "csv")[0]
    for text in (ended("compare", run, "--format", "csv")[0], shown):
        shown_as_text(text)
        head, *rows = csv.reader(io.StringIO(text), strict=True)
        assert rows and all(len(row) == len(head) for row in rows)
        cells = [cell for row in rows for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not re.fullmatch(r"-?[\d.e+-]+", cell)]
    assert "'@SUM(1)" in shown and "'-2+3" in shown


def test_json(run: Path) -> None:
    found = json.loads(ended("compare", run, "--format", "json")[0])
    assert found["measurements"][0]["environment"]["before"]["label"] == EVIL[0]


def test_show(tmp_path: Path) -> None:
    files = evil_files(tmp_path / "fio", 100)
    shown_as_text(ended("show", *files.iterdir())[0])
    plain_markdown(ended("show", *files.iterdir(), "--format", "md")[0])


class Page(HTMLParser):
    """The tags and attributes of a page, and the data of its scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_and_gnuplot(run: Path, tmp_path: Path) -> None:
    ended("report", run, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    shown_as_text(text.replace("\t", " "))
    page = Page()
    page.feed(text)
    page.close()
    assert [attrs for tag, attrs in page.tags if tag == "script"] == [{"type": "application/json", "id": "comparison"}]
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "object", "embed", "link", "form", "base")]
    for tag, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on")], tag
        for name in ("href", "src", "xlink:href"):
            assert not re.match(r"\s*(javascript|data|vbscript):", attrs.get(name) or ""), attrs
    assert "<script>alert(1)</script>" in page.text and "{{7*7}}" in page.text and r"$\frac{$" in page.text
    program = shutil.which("gnuplot")
    assert program, "gnuplot is missing: make deps"
    folder = tmp_path / "report-gnuplot"
    scripts = sorted(folder.glob("*.gp"))
    assert scripts
    for script in scripts[:2]:
        done = subprocess.run([program, script.name], cwd=folder, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        ElementTree.parse(script.with_suffix(".svg"))
    assert not list(tmp_path.rglob(CANARY))


def evil_figure() -> figures.Figure:
    """Each name as a title, an axis, a tick, a mark, a label and a footer."""
    panels = []
    for number in range(0, len(EVIL), 4):
        names = (EVIL + EVIL)[number : number + 4]
        mark = canvas.Mark("line", names[0], "#0072B2", [0.0, 1.0], [1.0, 2.0])
        x, y = canvas.linear_axis(names[1], [1.0]), canvas.rows_axis(names)
        panels.append(canvas.Panel(names[2], x, y, [mark], canvas.labels_at_ends(x, y, [mark], 2.0)))
    return figures.Figure("evil", " ".join(EVIL[:24]), panels, 2, EVIL, [], [])


def test_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    figure = evil_figure()
    for text in (plots.svg(figure), (plots.write(figure, tmp_path), (tmp_path / "evil.svg").read_text())[1]):
        tree = ElementTree.fromstring(text)
        assert not [each for each in tree.iter() if each.tag.rpartition("}")[2] in ("script", "img", "foreignObject", "a")]
        assert not [name for each in tree.iter() for name in each.attrib if name.startswith("on")]
        assert r"$\frac{$" in "".join(tree.itertext())
    gnuplot.write(figure, tmp_path)
    program = shutil.which("gnuplot")
    assert program, "gnuplot is missing: make deps"
    done = subprocess.run([program, "evil.gp"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    ElementTree.parse("evil.svg")
    shown_as_text(re.sub(r"\x1b\[[\d;]*m", "", gnuplot.terminal(figure, 100, True)))
    assert not (tmp_path / CANARY).exists()


def test_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = evil_files(tmp_path / "one", 100), evil_files(tmp_path / "two", 300)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    reports = ["--markdown", tmp_path / "gate.md", "--junit", tmp_path / "gate.xml", "--json", tmp_path / "gate.json"]
    out, _ = ended("gate", "--baseline", one, "--candidate", two, *reports, status=(0, 1, 2, 3))
    shown_as_text(out)
    for line in out.splitlines():
        assert not line.startswith("::") or re.match(r"::(error|warning) title=durabench [a-z ]+::", line), line
        assert "%0A" not in line.replace("%250A", "") or not line.startswith("::")
    for name in ("gate.md", "summary"):
        plain_markdown((tmp_path / name).read_text())
    cases = list(ElementTree.parse(tmp_path / "gate.xml").iter("testcase"))
    assert len(cases) >= len(EVIL) - 3
    json.loads((tmp_path / "gate.json").read_text())


def test_history(run: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    changes = [f"[[change]]\nat = {json.dumps(name)}\nreason = {json.dumps(name)}\n" for name in EVIL if name.isprintable()]
    known.write_text('schema = "durabench-acknowledged/1"\n' + "".join(changes))
    shown_as_text(ended("history", evil_files(tmp_path / "fio", 100), "--acknowledged", known)[0])


def test_progress_and_messages() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=5000)
    for name in EVIL:
        progress.say(console, name)
        repetition = Repetition(1, name, name, 1, "001", elapsed_s=1.0, status="ok")
        progress.Shown(console, "").end(repetition)
    shown_as_text(out.getvalue())
    assert "[bold]rich[/bold][/]" in out.getvalue()
    for name in EVIL:
        shown_as_text(tables.complaint(name))
        assert all(line.startswith("durabench: ") for line in tables.complaint(name).split("\n"))


def test_every_kind_of_name_is_there() -> None:
    """So that the others test something: unescaped, each of these would have been found."""
    with pytest.raises(AssertionError):
        plain_markdown("a [link](x)")
    with pytest.raises(AssertionError):
        plain_markdown("| a |\n| b | c |")
    with pytest.raises(AssertionError):
        shown_as_text("\x1b[2J")
    assert formats.to_json(EVIL)

# SPDX-License-Identifier: GPL-2.0-only
"""The HOWTO and the manual pages: they have what the engines have, their
examples run as they stand, and no link leads nowhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ENGINES, FIO, ROOT, sanitizer_environment

NAMES = sorted(path.stem.removeprefix("fio-") for path in (ROOT / "engines").glob("fio-*.7"))
HOWTO = (ROOT / "docs/HOWTO.md").read_text()
PAGES = [*sorted((ROOT / "engines").glob("*.7")), *sorted(path for room in ("guard", "observe") for path in (ROOT / room).glob("*.1"))]


@dataclass(frozen=True)
class Option:
    """An option of an engine: its default ("" if it has none) and the names it takes (none if it takes anything)."""

    default: str
    values: tuple[str, ...]


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def options(engine_help, engine: str) -> dict[str, Option]:
    """What fio says that the engine has."""
    found = {}
    for name in re.findall(r"^(\w+) +:", engine_help(engine), re.MULTILINE):
        text = engine_help(engine, name)
        (default,) = re.findall(r"^ +default: (.*)$", text, re.MULTILINE)
        values = re.findall(r"^ +(?:valid values)?: ([\w-]+) +", text, re.MULTILINE)
        found[name] = Option("" if default == "no default" else default, tuple(values))
    assert {"strategy", "counters"} <= found.keys()
    return found


def test_every_engine_has_a_page():
    assert [f"fio-{name}.so" for name in NAMES] == sorted(path.name for path in ENGINES.glob("fio-*.so"))


# -- the HOWTO


def section(engine: str) -> str:
    (text,) = re.findall(rf"^## {engine}\n(.*?)(?=^## |\Z)", HOWTO, re.MULTILINE | re.DOTALL)
    return text


def table(text: str, head: str) -> dict[str, list[str]]:
    """The cells of a Markdown table by the first of each row, without what marks code."""
    (body,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-| ]*\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in body.splitlines()]
    return {row[0].strip("`"): [cell.strip("`") for cell in row[1:]] for row in rows}


def test_howto_has_every_option_and_its_default(engine, options):
    rows = table(section(engine), "option")
    assert {name: row[1] for name, row in rows.items()} == {
        name: option.default or "none" for name, option in options.items()
    }


def test_howto_has_every_name_that_an_option_takes(engine, options):
    for name, option in options.items():
        if option.values:
            assert sorted(table(section(engine), f"`{name}=`")) == sorted(option.values)


def test_messages_are_those_of_the_engines():
    code = "".join(path.read_text() for path in (ROOT / "engines").rglob("*.c"))
    messages = [message for part in HOWTO.split("\n### ") if "\n| message |" in part for message in table(part, "message")]
    assert len(messages) > 10
    for message in messages:
        # A name that differs from case to case, or the end of a sentence, is an ellipsis or a number of N.
        for part in re.split(r"…|\bN\b|FILE", message):
            assert part.strip(" :") in code, message


# -- the manual pages


def page(engine: str) -> str:
    return (ROOT / f"engines/fio-{engine}.7").read_text()


def items(engine: str, heading: str) -> dict[str, str]:
    """The items of the first list in a section, by name."""
    (text,) = re.findall(rf"^\.Sh {heading}\n.*?^\.Bl [^\n]*\n(.*?)^\.El", page(engine), re.MULTILINE | re.DOTALL)
    found = re.split(r"^\.It Cm ([\w-]+).*\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_page_has_every_option_and_its_default(engine, options):
    described = items(engine, "OPTIONS")
    assert described.keys() == options.keys()
    for name, option in options.items():
        default = re.findall(r"^The default is\n\.Cm (\S+) \.$", described[name], re.MULTILINE)
        assert default == ([option.default] if option.default else []), name
        assert ("There is no default" in described[name]) != bool(option.default), name


def test_page_has_every_name_that_an_option_takes(engine, options):
    assert sorted(items(engine, "STRATEGIES")) == sorted(options["strategy"].values)
    for name, option in options.items():
        if name != "strategy":
            described = re.findall(r"^\.Cm ([\w-]+)", items(engine, "OPTIONS")[name], re.MULTILINE)
            assert set(option.values) <= set(described)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_has_no_mistake(path):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    assert (done.returncode, done.stderr) == (0, "")
    assert path.stem in done.stdout


# -- examples


def howto_examples(engine: str) -> list[str]:
    """The blocks of code that the example of an engine consists of, in order: job files and shell commands."""
    (text,) = re.findall(r"^### Example\n(.*?)(?=^### )", section(engine), re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(?:ini|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def page_examples(engine: str) -> list[str]:
    (text,) = re.findall(r"^\.Sh EXAMPLES\n(.*?)^\.Sh ", page(engine), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^\.Bd -literal -offset indent\n(.*?)^\.Ed", text, re.MULTILINE | re.DOTALL)
    return [block.replace(r"\e", "\\") for block in blocks]


EXAMPLES = {f"{place.__name__}-{name}": (name, place) for name in NAMES for place in (howto_examples, page_examples)}


def run_example(engine: str, blocks: list[str], folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "DURABENCH_ENGINES": str(ENGINES), **sanitizer_environment(ENGINES / f"fio-{engine}.so")}
    assert any(block.startswith("[") for block in blocks)
    for block in blocks:
        if block.startswith("["):
            (folder / "example.fio").write_text(block)
            command = ["timeout", "-k", "5", "120", FIO, *arguments, "example.fio"]
        else:
            command = ["sh", "-ec", block]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_parsed(example, tmp_path):
    engine, place = EXAMPLES[example]
    run_example(engine, place(engine), tmp_path, "--parse-only")


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example, mount):
    engine, place = EXAMPLES[example]
    folder = mount("xfs")
    run_example(engine, place(engine), folder)
    strategies = [name for block in place(engine) for name in re.findall(r"^strategy=(.*)$", block, re.MULTILINE)]
    if place is howto_examples:
        counted = [json.loads(line) for line in (folder / "counters.jsonl").read_text().splitlines()]
        assert [line["strategy"] for line in counted] == strategies
        assert all(line["writes"] and not line["error"] for line in counted)


# -- links


def anchors(path: Path) -> set[str]:
    """What a forge makes of the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    pages = [path for path in ROOT.rglob("*.md") if not {"build", "local"} & set(path.relative_to(ROOT).parts)]
    links = [(path, link) for path in pages for link in re.findall(r"\]\(([^)]+)\)", path.read_text()) if ":" not in link]
    assert len(links) > 10
    for path, link in links:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path}: {link}"
        assert not anchor or anchor in anchors(target), f"{path}: {link}"

# SPDX-License-Identifier: GPL-2.0-only
"""The manual pages of the command: they have what its `--help` has and nothing else, and their examples are taken by it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FIO, ROOT
from durabenchlib import cli

PAGES = {path.stem: path for path in sorted((ROOT / "scripts/man").glob("*.1"))}
DURABENCH = ROOT / "scripts/durabench"


def inner(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser."""
    return {
        name: each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, each in action.choices.items()
    }


COMMANDS = {"durabench": cli._parser(), **{f"durabench-{name}": each for name, each in inner(cli._parser()).items()}}


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """All options by the names that they have, but for --help."""
    return {", ".join(each.option_strings): each for each in parser._actions if each.option_strings and each.dest != "help"}


def items(text: str) -> dict[str, str]:
    """What is said of each option in a page or a part of one, by its names, but for --help."""
    found = re.split(r"^\.It ((?:Fl \S+(?: , )?)+).*\n", text.replace(r"\-", "-"), flags=re.MULTILINE)
    named = {", ".join("-" + name for name in re.findall(r"Fl (\S+)", each)): said for each, said in zip(found[1::2], found[2::2])}
    return {names: said.partition("\n.El")[0] for names, said in named.items() if names != "-h, --help"}


def parts() -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Each command, its parser, and what the pages say of it."""
    for name, parser in COMMANDS.items():
        text = PAGES[name].read_text() if name in PAGES else ""
        within = inner(parser) if name != "durabench" else {}
        if not within:
            yield name, parser, text
        for each, its in within.items():
            found = re.findall(rf"^\.Ss {each}\n(.*?)(?=^\.S[sh] )", text, re.MULTILINE | re.DOTALL)
            yield f"{name} {each}", its, found[0] if found else ""


PARTS = {name: (parser, text) for name, parser, text in parts()}


def test_every_command_has_a_page():
    assert PAGES.keys() == COMMANDS.keys()
    assert re.findall(r"^\.It Cm (\w+)$", PAGES["durabench"].read_text(), re.MULTILINE) == [
        name.removeprefix("durabench-") for name in COMMANDS if name != "durabench"
    ]
    lab = re.findall(r"^\.Ss (\w+)$", PAGES["durabench-lab"].read_text(), re.MULTILINE)
    assert lab == list(inner(COMMANDS["durabench-lab"]))


@pytest.mark.parametrize("name", PARTS)
def test_page_has_every_option_and_no_other(name):
    parser, text = PARTS[name]
    assert items(text).keys() == options(parser).keys()


@pytest.mark.parametrize("name", PARTS)
def test_page_has_every_value_and_default(name):
    parser, text = PARTS[name]
    for names, option in options(parser).items():
        said = items(text)[names]
        named = re.findall(r"^\.Cm (\S+)", said, re.MULTILINE)
        assert {str(each) for each in option.choices or ()} <= set(named), names
        if option.default not in (None, False, argparse.SUPPRESS) and not isinstance(option.default, (list, tuple)):
            default = re.search(r"The default is(?:\n\.(?:Cm|Pa))? (\S+?) ?\.?$", said, re.MULTILINE)
            assert default and default[1] == str(option.default), names
        # Otherwise the help has it, in words.
        assert ("default" in (option.help or "")) <= ("default" in said), names


@pytest.mark.parametrize("name", PARTS)
def test_synopsis_has_every_option_once(name):
    parser, _ = PARTS[name]
    page = PAGES[name.split()[0]].read_text().replace(r"\-", "-")
    synopsis = page.partition(".Sh SYNOPSIS\n.Nm")[2].partition(".Sh ")[0]
    called = "" if name == "durabench" else name.replace("-", " ")
    (shown,) = [each for each in synopsis.split("\n.Nm") if each.splitlines()[0].strip() == called]
    given = re.findall(r"Fl (\S+)", shown)
    expected = [each.option_strings for each in options(parser).values()]
    assert len([each for each in given if each != "h"]) == len(expected)
    for names in expected:
        assert any(f"-{each}" in names for each in given), names


@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_mistake(name):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    command = ["man", "--warnings", "-l", PAGES[name]]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    assert (done.returncode, done.stderr) == (0, "")
    assert name in done.stdout and "EXIT STATUS" in done.stdout and "EXAMPLES" in done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_pages_refer_to_pages(name):
    """Those of durabench that are named are there."""
    there = {*PAGES, "durabench-observe", *(path.stem for path in (ROOT / "engines").glob("*.7"))}
    named = re.findall(r"^\.Xr (\S+)", PAGES[name].read_text(), re.MULTILINE)
    assert named and {each for each in named if re.match("durabench|fio-", each)} <= there


# -- examples


def examples(name: str) -> list[str]:
    """The commands of a page's examples, in order."""
    text = PAGES[name].read_text().partition(".Sh EXAMPLES\n")[2].partition("\n.Sh ")[0]
    blocks = re.findall(r"^\.Bd -literal -offset indent\n(.*?)^\.Ed", text, re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("\\e\n", " ").splitlines()


@pytest.mark.parametrize("name", PAGES)
def test_examples_are_taken(name):
    commands = [words[1:] for words in map(shlex.split, examples(name)) if words[0] == "durabench"]
    assert commands and (name == "durabench" or any(words[0] == name.removeprefix("durabench-") for words in commands))
    for words in commands:
        assert callable(cli._parser().parse_args(words).func)


def run(commands: list[str], folder: Path) -> None:
    bin_ = folder / "bin"
    bin_.mkdir()
    for program, path in (("durabench", DURABENCH), ("fio", FIO)):
        (bin_ / program).symlink_to(path)
    environment = {**os.environ, "PATH": f"{bin_}:/usr/bin:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["timeout", "-k", "5", "120", "sh", "-c", command], cwd=folder, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, (command, done.stdout + done.stderr)


def test_examples_of_show_run(tmp_path):
    run(examples("durabench-show"), tmp_path)

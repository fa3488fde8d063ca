# SPDX-License-Identifier: GPL-2.0-only
"""The lab's commands, with a program in place of QEMU and kernels that are never booted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib import cli, formats, layout
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import guest, kernels, qemu

FIO = Path(__file__).resolve().parent.parent / "scripts/data/fio-3.33-fdatasync.json"

# Carries out whatever plan there is: every repetition leaves the same.
GUEST = f"""
image=$(tr ' ' '\\n' <<<"$*" | grep /vmlinuz); initrd=$(tr ' ' '\\n' <<<"$*" | grep /initrd)
mkdir -p results/guest; basename $(dirname $image) >results/guest/release; keep guest
for name in $(strings $initrd | sed -n 's/^repeat //p'); do
	echo "durabench: begin $name"
	mkdir -p results/$name; cp {FIO} results/$name/fio.json
	( cd results/$name; echo 0 >status; echo 2026-01-02T03:04:05Z >started; echo 1 >elapsed; echo >command; touch stderr.txt )
	keep $name; echo "durabench: end $name 0"
done
echo 'durabench: done'
"""


@pytest.fixture(autouse=True)
def lab(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_qemu: Callable[[str], None]) -> None:
    """`small` is the only measurement, two kernels are fetched, and the guest is the one above."""
    monkeypatch.setattr(layout, "jobs", lambda: Path(small).parent)
    monkeypatch.setattr(guest, "_fill", lambda guest, root: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, version in (("9.8.1-a", "9.8.1-1"), ("9.9.2-a", "9.9.2-1")):
        fetched(tmp_path, name, version)
    fake_qemu(GUEST)


def fetched(tmp_path: Path, name: str, version: str) -> None:
    """Put a kernel into the cache that is never booted."""
    folder = tmp_path / "cache/durabench/lab/kernels" / name
    folder.mkdir(parents=True)
    (folder / "vmlinuz").touch()
    record = {"schema": "durabench-kernel/1", "package": "p", "version": version, "image": "vmlinuz", "modules": "m"}
    (folder / "kernel.json").write_text(json.dumps(record))


def test_two_kernels_are_compared(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert cli.main(["lab", "run", small, "--kernel", "9.8", "--kernel", "9.9", "--repeat", "2", "-o", str(output)]) == 0
    comparison = formats.read_comparison(output / "comparison.json")
    (compared,) = comparison.measurements
    # Nothing but what leaves it to the kernel says something about two of them; here both strategies were asked for.
    assert [(case.before, case.after) for case in compared.cases] == [("dsync", "dsync"), ("fua", "fua")]
    assert [compared.environment[side]["kernel"] for side in ("before", "after")] == ["9.8.1-a", "9.9.2-a"]
    assert [compared.environment[side]["label"] for side in ("before", "after")] == ["9.8.1-a", "9.9.2-a"]
    assert compared.cases[0].repetitions == {"before": 2, "after": 2}
    assert "9.9.2-a" in capsys.readouterr().out


def test_later_kernels_are_compared_with_the_first(small: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = [word for name in ("9.8", "9.9", "9.9.1-a") for word in ("--kernel", name)]
    fetched(tmp_path, "9.9.1-a", "9.9.1-1")
    assert cli.main(["lab", "run", small, "--strategy", "dsync", *arguments, "-o", str(output)]) == 0
    measurements = formats.read_comparison(output / "comparison.json").measurements
    kernels = [[each.environment[side]["kernel"] for side in ("before", "after")] for each in measurements]
    assert kernels == [["9.8.1-a", "9.9.2-a"], ["9.8.1-a", "9.9.1-a"]]


def test_kvm_is_tried_once(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []
    monkeypatch.setattr(qemu, "kvm_error", lambda image: tried.append(image) or "not here")
    arguments = ["--kernel", "9.8", "--kernel", "9.9", "--strategy", "dsync", "--clock", "host"]
    assert cli.main(["lab", "run", small, *arguments, "-o", str(tmp_path / "out")]) == 0
    assert len(tried) == 1
    assert [formats.read_run(tmp_path / "out" / name).environment.lab.accelerator for name in ("9.8.1-a", "9.9.2-a")] == ["TCG", "TCG"]


def test_reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert cli.main(["lab", "reproduce", "-o", str(output)]) == 0
    comparison = formats.read_comparison(output / "comparison.json")
    assert not comparison.missing
    assert [(each.name, each.before, each.after) for each in comparison.measurements] == [
        ("small", "9.9.2-a:dsync", "9.9.2-a:fua"),
        ("small", "9.8.1-a:dsync", "9.9.2-a:dsync"),
        ("small", "9.8.1-a:fua", "9.9.2-a:dsync"),
    ]
    # Nothing of other cases than those it is about.
    assert [[case.name for case in each.cases] for each in comparison.measurements] == [["seq"], ["seq"], ["list"]]
    assert not any("is not compared" in warning for each in comparison.measurements for warning in each.warnings)
    page = (output / "report.html").read_text()
    assert "9.8.1-a:fua" in page
    again = "durabench lab run small --kernel 9.8.1-a --case seq --case list --strategy dsync --strategy fua --set SPAN=16m --repeat 1"
    assert again in page
    said = capsys.readouterr()
    assert "small: 9.8.1-a:dsync -> 9.9.2-a:dsync" in said.out
    assert "small, 9.8.1-a: seq by dsync; list by fua, in virtual time" in said.err
    assert f"report: {output}/report.html" in said.err


def test_what_a_guest_that_fails_had_is_missing_and_the_rest_reported(
    tmp_path: Path, fake_qemu: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_qemu(f"[[ $* = *9.8.1-a* ]] && {{ echo 'Kernel panic - not syncing: no disk'; exit; }}\n{GUEST}")
    output = tmp_path / "out"
    assert cli.main(["lab", "reproduce", "-o", str(output)]) == 1
    comparison = formats.read_comparison(output / "comparison.json")
    assert [(each.before, each.after) for each in comparison.measurements] == [("9.9.2-a:dsync", "9.9.2-a:fua")]
    assert len(comparison.missing) == 2
    assert all("9.8.1-a: the guest's kernel panicked: no disk" in each for each in comparison.missing)
    assert "panicked: no disk" in (output / "report.html").read_text()
    assert "missing: small, 9.8:dsync against 9.9:dsync: " in capsys.readouterr().err


def test_what_a_kernel_that_is_gone_had_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(tmp_path / "cache/durabench/lab/kernels/9.8.1-a")

    def fetch(series: list[str]) -> None:
        raise Failure(Exit.MISSING, f"the archive has no kernel {series[0]} any more")

    monkeypatch.setattr(kernels, "fetch", fetch)
    output = tmp_path / "out"
    assert cli.main(["lab", "reproduce", "-o", str(output)]) == 69
    comparison = formats.read_comparison(output / "comparison.json")
    assert [(each.before, each.after) for each in comparison.measurements] == [("9.9.2-a:dsync", "9.9.2-a:fua")]
    assert comparison.missing[0] == "small, 9.8:dsync against 9.9:dsync: the archive has no kernel 9.8 any more"
    assert len(comparison.missing) == 2


def test_a_case_that_a_guest_did_not_come_to_is_missing(tmp_path: Path, fake_qemu: Callable[[str], None]) -> None:
    fake_qemu(GUEST.replace("; do\n", "; do [[ $image$name = *9.8.1-a*list* ]] && break\n"))
    output = tmp_path / "out"
    assert cli.main(["lab", "reproduce", "-o", str(output)]) == 1
    comparison = formats.read_comparison(output / "comparison.json")
    assert [(each.before, each.after) for each in comparison.measurements][-1] == ("9.8.1-a:dsync", "9.9.2-a:dsync")
    (missing,) = comparison.missing
    assert missing.startswith("small, 9.8:fua against 9.9:dsync: 9.8.1-a: the guest left out a part of its plan")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--kernel", "9.7"], 69, "kernel 9.7 was not fetched"),
        (["--kernel", "9.9", "--kernel", "9.9.2-a"], 64, "given twice"),
        (["--kernel", "./none"], 3, "kernel image can't be read"),
    ],
)
def test_kernels_that_can_not_be_had(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, says: str
) -> None:
    assert cli.main(["lab", "run", small, *arguments, "-o", str(tmp_path / "out")]) == status
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_image_of_this_folder_has_a_slash(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bzImage").touch()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["lab", "run", small, "--kernel", "bzImage", "-o", "out"]) == 64
    assert "./bzImage" in capsys.readouterr().err


def test_a_cache_that_can_not_be_made(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert cli.main(["lab", "fetch", "9.9"]) == 1
    assert "XDG_CACHE_HOME names another folder" in capsys.readouterr().err


def test_a_folder_that_is_not_empty(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    assert cli.main(["lab", "run", small, "-o", str(tmp_path / "out")]) == 64
    assert "never written over" in capsys.readouterr().err


def test_a_prompt_needs_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.isatty", lambda descriptor: False)
    assert cli.main(["lab", "shell", "9.9"]) == 64
    assert "needs a terminal" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["9.8", "9.8.1-a", "9.8.1-1"], ["9.9", "9.9.2-a", "9.9.2-1"]]


def test_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cli.main(["lab", "doctor"])
    out = capsys.readouterr().out
    assert re.search(r"^ok +qemu: .*qemu-system-x86_64 1.2.3$", out, re.MULTILINE)
    assert re.search(r"^ok +kernels: 9.8.1-a, 9.9.2-a$", out, re.MULTILINE)
    (tmp_path / "few").mkdir()
    (tmp_path / "few/dpkg").symlink_to("/usr/bin/dpkg")
    monkeypatch.setenv("PATH", str(tmp_path / "few"))
    assert cli.main(["lab", "doctor"]) == 69
    assert re.search(r"^missing +qemu: .*install the package qemu-system-x86$", capsys.readouterr().out, re.MULTILINE)

# SPDX-License-Identifier: GPL-2.0-only
"""Linked statically, the observer runs where there is nothing but /proc and /sys."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bare_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to chroot to, with the static observer and two empty folders."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is installed")
    root = tmp_path_factory.mktemp("root")
    sources = [*sorted((ROOT / "observe").glob("*.c")), ROOT / "util/json.c", ROOT / "util/printable.c"]
    flags = ["-static", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", '-DDURABENCH_VERSION="test"']
    command = [compiler, *flags, f"-I{ROOT}", "-o", root / "durabench-observe", *sources]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find -lc" in done.stderr:
        pytest.skip("there is no static libc")
    assert (done.returncode, done.stderr) == (0, "")
    (root / "proc").mkdir()
    (root / "sys").mkdir()
    return root


def run_in(root: Path, mounts: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # a mount namespace of its own, which ends with the command
    script = f"{mounts} exec chroot . /durabench-observe \"$@\""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", *arguments], cwd=root, env={}, capture_output=True, text=True
    )


PROC = "mount -t proc proc proc;"
SYS = "mount -t sysfs sysfs sys;"


def test_with_proc_and_sys(bare_root: Path, mount_namespace: None) -> None:
    disk = sorted(Path("/sys/block").iterdir())[0].name
    done = run_in(bare_root, PROC + SYS, "-d", disk, "-j", "/out", "/durabench-observe", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "durabench-observe from durabench test\n"
    summary = json.loads((bare_root / "out").read_text())
    assert summary["devices"][0]["name"] == disk
    assert summary["command"] == ["/durabench-observe", "--version"]


def test_without_sys(bare_root: Path, mount_namespace: None) -> None:
    done = run_in(bare_root, PROC, "-j", "/out", "/durabench-observe", "--version")
    assert done.returncode == 0, done.stderr
    assert json.loads((bare_root / "out").read_text())["devices"] == []
    done = run_in(bare_root, PROC, "-d", "sda", "/durabench-observe", "--version")
    assert done.returncode == 69


def test_without_proc(bare_root: Path, mount_namespace: None) -> None:
    done = run_in(bare_root, "", "/durabench-observe", "--version")
    assert done.returncode == 69
    assert done.stderr == (
        "durabench-observe: /proc/meminfo and /proc/stat; is /proc mounted?: No such file or directory\n"
    )

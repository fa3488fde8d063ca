# SPDX-License-Identifier: GPL-2.0-only
"""Rules that every source file keeps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

NOT_OURS = {".git", "build", "local", "__pycache__"}
SOURCES = {".c", ".h", ".py", ".sh", ".fio", ".toml", ".map"}
NAMES = {"CMakeLists.txt", "Makefile"}


def sources() -> list[Path]:
    """Source files of the checkout: by their name, or by their #! line."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        for path in (Path(folder, name) for name in names):
            if path.suffix in SOURCES or path.name in NAMES or first_line(path).startswith(b"#!"):
                found.append(path)
    return found


def first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(200)


def test_every_source_names_its_license():
    without = [
        str(path.relative_to(ROOT))
        for path in sources()
        if b"SPDX-License-Identifier: GPL-2.0-only" not in b"\n".join(path.read_bytes().splitlines()[:3])
    ]
    assert not without


def test_shellcheck():
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    scripts = [path for path in sources() if first_line(path).rstrip() in (b"#!/bin/sh", b"#!/bin/bash")]
    assert scripts
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

# SPDX-License-Identifier: GPL-2.0-only
"""How the command ends where its output can't be written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from command import COMMAND, PATIENCE_S, environment


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"], ["doctor", "--format", "json"]])
def test_standard_output_is_full(full_device: Path, arguments: list[str], unbuffered: str) -> None:
    with open(full_device, "wb") as full:
        done = subprocess.run(
            [COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=environment(PYTHONUNBUFFERED=unbuffered),
        )
    name = "" if unbuffered else "standard output: "
    assert (done.returncode, done.stderr) == (1, f"durabench: {name}No space left on device\n")

# SPDX-License-Identifier: GPL-2.0-only
"""Runs the durabench command of this checkout with the parts that the tests were told of, and looks for what it left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("DURABENCH_BUILD", ROOT / "build")).resolve()
COMMAND = ROOT / "scripts" / "durabench"
# Seconds after which what was to happen is taken to never do so, on a machine that does much else too.
PATIENCE_S = 300


def environment(**own: str | Path) -> dict[str, str]:
    """The environment that points durabench to the build under test."""
    parts = {"DURABENCH_ENGINES": BUILD / "engines", "DURABENCH_OBSERVE": BUILD / "observe/durabench-observe"}
    return {**os.environ, **{name: str(value) for name, value in {**parts, **own}.items()}}


def durabench(*arguments: str | Path, timeout: float = PATIENCE_S, **own: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; `own` are environment variables."""
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, check=False, env=environment(**own)
    )


def start(*arguments: str | Path, **own: str | Path) -> subprocess.Popen[str]:
    """Start the command, to stop it or to look at it meanwhile."""
    return subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**own),
        start_new_session=True,
    )


def processes(text: str | Path) -> dict[int, str]:
    """Command lines by pid of the processes, other than this one, that have a text in theirs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        pid = int(path.parent.name)
        if str(text) in line and pid != os.getpid():
            found[pid] = line
    return found


def eventually(condition: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether a condition comes to hold within some time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True

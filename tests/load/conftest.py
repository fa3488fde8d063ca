# SPDX-License-Identifier: GPL-2.0-only
"""The devices and the file system that a crowd of jobs writes to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crowd import DEVICES, Case, Seen, check, watched

from command import PATIENCE_S
from conftest import FioResult, LoopDevice, Mount, RunFio
from strategies import takes_dontcache

# What another engine has no use for when it only reads.
OURS = {"strategy", "submit", "coalesce", "kick_backlog", "fsync", "fdatasync"}
SAID = pytest.StashKey[list[str]]()
Crowd = Callable[..., tuple[FioResult, Seen]]


@pytest.fixture
def crowd(run_fio: RunFio, loop_device: LoopDevice, mount: Mount, tmp_path: Path) -> Crowd:
    """crowd(case, preload=…, …) -> what run_fio() has of it, once all is found to be right, and what it took."""
    devices: list[str] = []
    folders: list[Path] = []

    def run(case: Case, **further: object) -> tuple[FioResult, Seen]:
        # Those that have been there stay, and so does what was written to them.
        if case.where == "device":
            while len(devices) < DEVICES:
                devices.append(loop_device("2G"))
        elif not folders:
            folders.append(mount("xfs", "4G"))
        folder = folders[0] if folders else tmp_path
        if case.strategy.name == "dontcache":
            probe = Path(devices[0]) if case.where == "device" else folder / "probe"
            probe.touch()
            if not takes_dontcache(probe):
                pytest.skip(f"Linux {os.uname().release} has no RWF_DONTCACHE here")
        job = case.job(devices, folder, tmp_path)
        with watched(tmp_path) as seen:
            result = run_fio(case.strategy.engine, timeout=PATIENCE_S + case.options.get("runtime", 0), **job, **further)
        check(case, result, seen, tmp_path)
        if case.reads_back and "runtime" not in case.options:
            again = {key: value for key, value in job.items() if key not in OURS}
            read = run_fio("psync", verify_only=True, **{**again, "iodepth": 1, "direct": 1})
            assert read.exit_status == 0 and "verify" not in read.stderr, read.stderr
        if case.where == "files":
            for file in folder.iterdir():
                file.unlink()
        return result, seen

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=1200, help="how long the soak lasts (default: %(default)s)")
    parser.addoption("--seed", type=int, default=1, help="what the soak does, and in which order (default: %(default)s)")


@pytest.fixture
def said(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are printed in the end."""
    return request.config.stash.setdefault(SAID, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(SAID, []):
        terminalreporter.write_line(line)

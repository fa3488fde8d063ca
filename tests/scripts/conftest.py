# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of the command share."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import sample_run
from durabenchlib import layout


@pytest.fixture
def sample_measurement(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The measurement `sample` (tests/scripts/sample_run.py) is the only one there is; its folder."""
    return sample_run.only_measurement(tmp_path_factory.mktemp("library"), monkeypatch)


@pytest.fixture
def full_device(tmp_path: Path) -> Path:
    """A device node of the test's own that takes nothing, as /dev/full."""
    path = tmp_path / "full"
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        os.close(os.open(path, os.O_WRONLY))
    except PermissionError as error:
        pytest.skip(f"a device node can't be made or opened here: {error}")
    return path

# SPDX-License-Identifier: GPL-2.0-only
"""What durabench-guard, lsblk and findmnt say, mutated: it is read, or refused by one error; never by a traceback, and no device passes
that was not asked for.

`make test` takes some hundreds of mutants, always the same; DURABENCH_FUZZ=N takes more, and each time others.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import blockdev, guard
from durabenchlib.errors import Failure
from hypothesis import given
from hypothesis import strategies as st
from test_formats_fuzz import MUTANTS, mutated, scrambled, seeds

PATHS = ["/dev/sda", "/dev/disk/by-id/ata-x_1"]
DEVICE = {"node": "/dev/sda", "number": "8:0", "diskseq": 1, "size_bytes": 1 << 40, "names": ["1"], "holds": ""}
ANSWER = {"schema": "durabench-guard/1", "devices": [{"path": path, **DEVICE} for path in PATHS]}


def answers(value: Any) -> st.SearchStrategy[bytes]:
    """A program's JSON with other values in it, or other bytes."""
    whole = seeds.map(lambda seed: json.dumps(mutated(value, seed)).encode())
    return whole | seeds.map(lambda seed: scrambled(json.dumps(value).encode(), seed)) | st.binary()


def says(monkeypatch: pytest.MonkeyPatch, status: int, stdout: bytes, stderr: bytes) -> None:
    """Let each program that is started end with that."""

    def run(command: list[str], encoding: str, errors: str, **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, status, stdout.decode(encoding, errors), stderr.decode(encoding, errors))

    monkeypatch.setattr(subprocess, "run", run)


@MUTANTS
@given(st.sampled_from([0, 0, 0, 1, 2, 3, 127]), answers(ANSWER), st.binary())
def test_the_guard(monkeypatch: pytest.MonkeyPatch, status: int, stdout: bytes, stderr: bytes) -> None:
    with monkeypatch.context() as patch, guard.claims() as room:
        says(patch, status, stdout, stderr)
        try:
            devices = guard.claim(PATHS, [], room)
        except Failure as failure:
            str(failure).encode()
        else:
            assert status == 0 and [device.path for device in devices] == PATHS


MOUNT = {"target": "/home", "source": "/dev/sda1[/x]", "fstype": "xfs", "options": "rw"}


@MUTANTS
@given(answers({"filesystems": [MOUNT]}))
def test_findmnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdout: bytes) -> None:
    with monkeypatch.context() as patch, contextlib.suppress(Failure):
        says(patch, 0, stdout, b"")
        mount = blockdev.mount_of(tmp_path)
        assert mount is None or all(isinstance(each, str) for each in (mount.target, mount.source, mount.fstype, mount.options))


@MUTANTS
@given(answers({"blockdevices": [{"serial": "1", "model": None}]}))
def test_lsblk(monkeypatch: pytest.MonkeyPatch, stdout: bytes) -> None:
    with monkeypatch.context() as patch, contextlib.suppress(Failure):
        says(patch, 0, stdout, b"")
        device = blockdev.BlockDevice(0)
        assert all(each is None or isinstance(each, str) for each in (device.serial, device.model))

# SPDX-License-Identifier: GPL-2.0-only
"""Claims on block devices, by durabench-guard: that program has the rules, as the engines have them (docs/formats.md, "Guard").

A claim lasts as long as a process has the descriptors of `Claims`: this one, or an fio that it passed them to.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from . import formats, layout
from .errors import Exit, Failure


@dataclass(frozen=True)
class Claims:
    """What processes share that have claims together: the descriptors of their table and of a pair of sockets."""

    descriptors: tuple[int, int, int]

    @property
    def environment(self) -> dict[str, str]:
        """What a process that has the descriptors finds them by."""
        numbers = ",".join(map(str, self.descriptors))
        return {"DURABENCH_CLAIMS": f"{numbers},{os.fstat(self.descriptors[0]).st_ino}"}


@dataclass(frozen=True)
class Device:
    """A block device that may be written over, as durabench-guard tells it. `holds` is empty if nothing is on it, None if it was claimed
    before."""

    path: str
    number: str
    diskseq: int
    size_bytes: int
    holds: str | None

    @property
    def identity(self) -> tuple[str, int, int]:
        """Of the device and its medium."""
        return self.number, self.diskseq, self.size_bytes


@dataclass(frozen=True)
class _Answer:
    devices: list[Device]


@contextmanager
def claims() -> Iterator[Claims]:
    """Room for claims, which end with it."""
    table = os.memfd_create("durabench-guard")
    pair = socket.socketpair()
    try:
        yield Claims((table, pair[0].fileno(), pair[1].fileno()))
    finally:
        for end in pair:
            end.close()
        os.close(table)


def claim(paths: Sequence[str], destroy: Sequence[str], room: Claims) -> list[Device]:
    """Claim block devices of which what those named in `destroy` hold may be lost; refused if one must not be written."""
    if not paths:
        return []
    confirmed = [f"--destroy={name}" for name in destroy]
    done = subprocess.run(
        [layout.guard(), "--json", *confirmed, "--", *paths],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        pass_fds=room.descriptors,
        env={**os.environ, **room.environment},
    )
    if done.returncode == Exit.REFUSED:
        raise Failure(Exit.REFUSED, done.stderr.strip().removeprefix("durabench-guard: "))
    if done.returncode:
        raise Failure(Exit.FAILED, done.stderr.strip() or f"durabench-guard ended with status {done.returncode}")
    try:
        found = formats.parse_json(done.stdout)
    except (ValueError, RecursionError) as error:
        raise Failure(Exit.FAILED, f"durabench-guard: its answer is damaged: {error}") from None
    answer = formats.decode(_Answer, found, formats.GUARD, layout.guard())
    if len(answer.devices) != len(paths):
        raise Failure(Exit.FAILED, f"durabench-guard was asked for {len(paths)} devices, and told of {len(answer.devices)}")
    # In JSON, a path that is no UTF-8 is another.
    return [replace(device, path=path) for device, path in zip(answer.devices, paths, strict=True)]

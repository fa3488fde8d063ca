# SPDX-License-Identifier: GPL-2.0-only
"""Files and folders that are gone when the process that made them is, and what is left of those whose process had no say in its end: by
`kill -9` with all its children, or by a power cut.

Each is `durabench-` and 16 digits, and holds a lock of the process that uses it (flock(2) on the file or folder itself, as
systemd-tmpfiles heeds it). The kernel releases a lock when its process dies, so whoever can take it knows that nobody uses the thing. A
process number says nothing of the kind: another process may have it by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from . import blockdev
from .errors import Exit, Failure

_OURS = re.compile(r"\.?durabench-([a-z]+-)?[0-9a-f]{16}")
# File systems on which a lock is seen by all who can use it, so none that other hosts may have mounted too.
_LOCAL = ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "overlayfs", "tmpfs", "xfs", "zfs")


@contextlib.contextmanager
def folder(place: Path, kind: str = "") -> Iterator[Path]:
    """A fresh folder in `place`, removed at the end, whatever the end is; `kind` and a hyphen become part of its name."""
    while True:
        path = place / _name(f"durabench-{kind and kind + '-'}")
        path.mkdir(mode=0o700)
        descriptor = _locked(path, anyway=True)
        # Between the two another process may have taken it for left behind.
        if descriptor is not None:
            break
    try:
        with removed(path):
            yield path
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file(place: Path) -> Iterator[IO[bytes]]:
    """A fresh file in `place` to be written and then renamed; removed at the end if it was not."""
    while True:
        path = place / _name(".durabench-")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        os.close(descriptor)
        descriptor = _locked(path, os.O_WRONLY, anyway=True)
        if descriptor is not None:
            break
    try:
        with open(path, "wb", opener=lambda *_: descriptor) as opened:
            yield opened
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def removed(path: Path) -> Iterator[None]:
    """Remove a file or folder at the end, whatever the end is: by a process that waits for this one to leave or to die."""
    remover = subprocess.Popen(
        ["sh", "-c", 'read -r _; exec "$@"', "sh", *_removal(path)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        remover.communicate()


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep a folder for this process alone; refused if another has it."""
    descriptor = _locked(path, anyway=True)
    if descriptor is None:
        raise Failure(Exit.USAGE, f"{path} is in use by another durabench")
    try:
        yield
    finally:
        os.close(descriptor)


def temporary() -> Path:
    """Folder for what is made for a while. Python's own way of finding it makes a file there."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


def beside(*files: Path | None) -> list[Path]:
    """The folders in which these files, as far as there are any, are written."""
    return [Path(os.path.realpath(file)).parent for file in files if file]


def of_runs(folder: Path) -> Iterator[Path]:
    """The runs that a folder may have, and the repetitions of each: all are folders that something is written in."""
    for run in folder.iterdir() if folder.is_dir() else ():
        yield run
        if (run / "run.json").is_file():
            yield from (each for each in run.iterdir() if each.is_dir())


def clear(places: Iterable[Path]) -> list[Path]:
    """Remove what killed processes of this user left in these folders (not in those below). Returns what was removed."""
    return [path for place in dict.fromkeys(places) for path in _left_in(place) if _clear(path)]


def _name(prefix: str) -> str:
    return prefix + secrets.token_hex(8)


def _left_in(place: Path) -> list[Path]:
    """What has a name of ours in a folder, which need not be there."""
    try:
        found = [place / each.name for each in os.scandir(place) if _OURS.fullmatch(each.name) and not each.is_symlink()]
    except OSError:
        return []
    return sorted(found) if found and blockdev.filesystem_of(place) in _LOCAL else []


def _clear(path: Path) -> bool:
    """Remove what nobody uses; whether it was so, and is gone."""
    try:
        descriptor = _locked(path)
    except OSError:
        return False
    if descriptor is None:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        return subprocess.run(_removal(path), capture_output=True, check=False).returncode == 0
    finally:
        os.close(descriptor)


def _removal(path: Path) -> list[str]:
    """The command that removes it. What somebody has mounted below it is no part of it."""
    return ["rm", "-rf", "--one-file-system", "--", str(path)]


def _locked(path: Path, flags: int = os.O_RDONLY, anyway: bool = False) -> int | None:
    """A descriptor that has the lock of a path; None if another process has it, or has removed the path meanwhile. `anyway`: one
    without a lock where there are none (NFS locks no folder), which `clear` leaves alone."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError) or not anyway:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            return None
    try:
        there = os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        there = False
    if there:
        return descriptor
    os.close(descriptor)
    return None

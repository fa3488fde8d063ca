# SPDX-License-Identifier: GPL-2.0-only
"""Files that anybody made, to be read: of what is no regular file nothing is waited for (a pipe), read without end (/dev/zero) or set
off (a device)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# More than any file has that is read as a whole: JSON of fio's with the histograms of 10,000 jobs has a third of it.
MOST_BYTES = 1 << 30

_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFDIR: "folder"}


def check(path: Path) -> os.stat_result:
    """The status of a regular file; an OSError says what it is else."""
    status = os.stat(path)
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind:
        raise OSError(errno.EINVAL, f"it is a {kind}, and not a file", str(path))
    return status


def opened(path: Path) -> BinaryIO:
    """A regular file, open to be read; an OSError says what it is else."""
    check(path)
    # Should it be another thing by now.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def content(path: Path) -> bytes:
    """All of a regular file of at most MOST_BYTES; an OSError says what it is else."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 30} GiB", str(path))
        return file.read()


def text(path: Path) -> str:
    """All of a text, with U+FFFD for what is no UTF-8."""
    return content(path).decode("utf-8", errors="replace")

# SPDX-License-Identifier: GPL-2.0-only
"""Signals that stop a measurement, and processes that must not outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from .errors import Exit, Failure

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


# What a person or the system stops a command by.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Stopped(KeyboardInterrupt):
    """A signal came in the middle of something."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.status = Exit[signal.Signals(number).name]


class Stop:
    """Whether a person or the system asked to stop. The signal is only noted; who waits looks here, so that nothing is torn
    apart half done."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def note(self, number: int, _frame: FrameType | None = None) -> None:
        """Handler of the signals."""
        self.signal = self.signal or number

    def failure(self) -> Failure:
        """The end of a command that was asked to stop."""
        by = signal.Signals(self.signal or signal.SIGTERM)
        return Failure(Exit[by.name], f"stopped by {by.name}")

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """Raises at its end if it is to stop, also in place of a failure: Ctrl-C ends the programs that are run meanwhile too, which
        then seem to refuse what they were given."""
        try:
            yield
        except Failure:
            if not self:
                raise
        if self:
            raise self.failure()


@contextlib.contextmanager
def caught() -> Iterator[Stop]:
    """Note the signals that stop a command instead of dying by them."""
    stop = Stop()
    with _handled(stop.note):
        yield stop


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise Stopped for the first signal that stops a command, so that whatever is half done is removed; further ones are ignored."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    with _handled(stop):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # What is ignored stays so: nohup(1) asks for it.
    before = {number: former for number in STOPPING if (former := signal.getsignal(number)) not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def die_with_parent(number: int) -> None:
    """Ask the kernel to send this process a signal when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


@contextlib.contextmanager
def killed_first() -> Iterator[None]:
    """When memory is short, the kernel kills what is started meanwhile before this process, which can then tell of it, and before
    whatever else there is. Where that can't be asked for, it goes by size."""
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text(encoding="ascii")
    with contextlib.suppress(OSError):
        own.write_text("1000", encoding="ascii")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            own.write_text(before, encoding="ascii")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that `end_children` finds it. fio's jobs are in sessions
    of their own: a signal to the process group does not reach them, and they outlive a fio that is killed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """Process numbers of all children of this process."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text(encoding="ascii").split()}


def end_children(spare: set[int]) -> None:
    """Kill and reap all children of this process but those to spare, adopted ones too, until there are none."""
    while left := children() - spare:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process to end, `seconds` at most; whether it has."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")

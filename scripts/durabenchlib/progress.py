# SPDX-License-Identifier: GPL-2.0-only
"""Shows how a run goes on: a line for each repetition, and on a terminal a bar with the time left below them."""

from __future__ import annotations

from types import TracebackType

from rich import progress
from rich.console import Console

from .formats import Repetition
from .tables import printable


class Shown:
    """Context in which a run is shown on a console; it is the runner's Progress. Where several run at once, `name` tells which it
    is, and there is no bar."""

    def __init__(self, console: Console, name: str = "") -> None:
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[left]}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._console = console
        self._has_bar = console.is_terminal and not name
        self._prefix = f"{name}: " if name else ""
        self._task = self._bar.add_task("", total=None, visible=False, left="")
        self._total = 0
        self._left = ""

    def __enter__(self) -> Shown:
        if self._has_bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._has_bar:
            self._bar.stop()

    def begin(self, repetition: Repetition, total: int) -> None:
        """See runner.Progress."""
        self._total = total
        self._bar.update(self._task, description=f"[{repetition.order}/{total}] {_title(repetition)}", visible=True)
        self._refresh()

    def tick(self, elapsed_s: float, left_s: float | None) -> None:
        """See runner.Progress."""
        self._left = "" if left_s is None else f"{span(left_s)} left"
        total = None if left_s is None else elapsed_s + left_s
        self._bar.update(self._task, completed=elapsed_s, total=total, left=self._left or span(elapsed_s))
        self._refresh()

    def end(self, repetition: Repetition) -> None:
        """See runner.Progress."""
        text = f"{self._prefix}[{repetition.order}/{self._total}] {_title(repetition)}: {repetition.status} after {span(repetition.elapsed_s or 0)}"
        if self._left and repetition.order < self._total:
            text += f", {self._left}"
        say(self._console, text)

    def _refresh(self) -> None:
        if self._has_bar:
            self._bar.refresh()


def say(console: Console, *lines: str) -> None:
    """Print lines as they are, but for what a terminal would obey, or CI where it begins one: models of devices and names of files are
    in them."""
    console.print("\n".join(map(printable, lines)), markup=False, highlight=False, soft_wrap=True)


def span(seconds: float) -> str:
    """A time as people write it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _title(repetition: Repetition) -> str:
    return printable(f"{repetition.case} {repetition.strategy}, round {repetition.round}")

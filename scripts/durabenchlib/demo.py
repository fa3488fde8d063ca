# SPDX-License-Identifier: GPL-2.0-only
"""`durabench demo`: all measurements, shortened, on devices it makes itself, with the comparison at the end.

As root the targets are loop devices over files in the output folder, one with XFS on it; else, or where loop devices can't be
made, plain files and folders there, and the notes tell what those can't show. Whatever ends the demo, nothing stays behind but
what it measured (scratch.py, leftovers.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from . import blockdev, compare, environment, formats, layout, leftovers, measurement, report, results, runner, scratch, signals, targets
from .errors import Exit, Failure
from .formats import Comparison
from .progress import Shown, say
from .run import count

MIB = 1 << 20
GIB = 1 << 30

# What the demo's files may come to take, and rather more.
NEEDED_BYTES = 5 * GIB
# Two rounds are the least that can be interleaved.
REPEAT = 2

FLUSH_NOTE = "on a plain file the flushes counted are those of the whole disk, other programs' too"
FILE_NOTE = "only a write to a raw block device gets a redundant flush; on a plain file dsync and fua cost the same"
CACHE_NOTE = "the file behind the loop device is cached as well, and its dirty pages are counted beside those of XFS"


@dataclass
class Stage:
    """How a measurement is shown: where (nowhere: it is left out), with which strategies (the first and the last are compared;
    none: those that stand for before and after), and what that can't show."""

    target: str
    strategies: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Place:
    """Where the demo makes its targets: loop devices if it can, else files. `obstacle` tells why it can't."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.obstacle: str | None = None
        # Before the mount namespace is left behind: in there, the folder is never in use.
        self._point = stack.enter_context(leftovers.folder(folder, "xfs"))
        try:
            scratch.private_mounts()
            with scratch.loop_device(folder, MIB):
                pass
        except OSError as error:
            self.obstacle = "only root can make loop devices" if os.geteuid() else f"no loop device can be made: {error}"

    @contextmanager
    def device(self, size: int, filled: int = 0) -> Iterator[tuple[str, list[str]]]:
        """A loop device, else a file that the measurement makes; with what that can't show."""
        if self.obstacle:
            yield str(self.folder / "target"), [f"{self.obstacle}: {FLUSH_NOTE}"]
            return
        with scratch.loop_device(self.folder, size, filled) as path:
            yield path, []

    @contextmanager
    def directory(self, size: int) -> Iterator[tuple[str, list[str]]]:
        """A folder on a new XFS, else on the file system of the demo's folder; with what that can't show."""
        kind = blockdev.filesystem_of(self.folder)
        if self.obstacle:
            yield str(self.folder), [f"{self.obstacle}: measured on {kind}, not on XFS of its own"]
            return
        with ExitStack() as stack:
            try:
                device = stack.enter_context(scratch.loop_device(self.folder, size, direct=True))
                stack.enter_context(scratch.mounted(device, self._point, "xfs"))
                place, notes = str(self._point), [] if scratch.is_direct(device) else [CACHE_NOTE]
            except OSError as error:
                place, notes = str(self.folder), [f"no XFS can be made ({error.strerror}): measured on {kind}"]
            yield place, notes


def add_parser(subparsers: Any) -> None:
    """Add `demo` to the command's parsers."""
    parser = subparsers.add_parser(
        "demo",
        help="measure and compare everything, shortened, on devices it makes itself",
        description="Run measurements shortened, as root on loop devices, else on plain files, and compare. All of them take about "
        "two minutes. Writes report.html and comparison.json.",
    )
    parser.add_argument("measurement", metavar="MEASUREMENT", nargs="*", help=f"default: {', '.join(STAGES)}")
    parser.add_argument("--seconds", metavar="N", type=count, help="run time of a repetition (default: the measurement's)")
    parser.add_argument("--output", metavar="DIR", type=Path, help="a new or empty folder (default: build/demo, replaced)")
    parser.set_defaults(func=run, places=_places)


def _places(args: argparse.Namespace) -> Iterator[Path]:
    """Where a demo that was killed may have left something; its own folder is emptied."""
    if args.output:
        yield args.output
        yield from leftovers.of_runs(args.output / "runs")


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench demo`."""
    console = Console(stderr=True)
    for name in args.measurement:
        if name not in STAGES:
            raise Failure(Exit.USAGE, f"the demo has no measurement {name!r}; it has {', '.join(STAGES)}")
    settings = {"RUNTIME": str(args.seconds)} if args.seconds else {}
    # Who started the demo may be killed (make); it then has nobody to end it.
    signals.die_with_parent(signal.SIGTERM)
    with ExitStack() as kept, signals.caught() as stop:
        output = _prepare(args.output, kept)
        with ExitStack() as stack:
            place = Place(output, stack)
            done = list(_measure(args.measurement or list(STAGES), settings, place, console, stop))
        runs = [run for run, _ in done]
        comparison = Comparison([measurement for _, compared in done for measurement in compared.measurements])
        formats.write_json(output / "comparison.json", comparison)
        report.write_html(output / "report.html", runs, comparison)
    compare.print_text(comparison, Console())
    say(console, f"report: {output / 'report.html'}", f"comparison: {output / 'comparison.json'}")
    return Exit.OK


def _prepare(folder: Path | None, stack: ExitStack) -> Path:
    """The output folder, empty, and kept for this process."""
    output = stack.enter_context(layout.output(folder, "demo"))
    free = shutil.disk_usage(output).free
    if free < NEEDED_BYTES:
        raise Failure(
            Exit.MISSING, f"{output}: the demo needs {targets.human(NEEDED_BYTES)} there, {targets.human(free)} are free"
        )
    return output


def _measure(
    names: Sequence[str], settings: Mapping[str, str], place: Place, console: Console, stop: signals.Stop
) -> Iterator[tuple[results.Run, Comparison]]:
    for name in names:
        with STAGES[name](place) as stage:
            if stop:
                raise stop.failure()
            for note in stage.notes:
                say(console, f"{name}: {note}")
            if not stage.target:
                continue
            request = runner.Request(
                measurement=name,
                targets=[stage.target],
                strategies=stage.strategies,
                repeat=REPEAT,
                settings=settings,
                output=place.folder / "runs" / name,
                demo=True,
                notes=stage.notes,
            )
            plan = runner.plan(request, stop)
            say(console, f"{name}: {plan.measurement.title}")
            with Shown(console) as shown:
                runner.execute(plan, shown, stop)
            run = results.load_run(plan.output)
            pair = (stage.strategies[0], stage.strategies[-1]) if stage.strategies else ()
            yield run, compare.compare_runs(run, run, *pair)


@contextmanager
def _odsync(place: Place) -> Iterator[Stage]:
    # Written full, so that no write to the loop device has to allocate in the file behind it.
    with place.device(256 * MIB, filled=256 * MIB) as (target, notes):
        stage = Stage(target, notes=[*notes, FILE_NOTE] if notes else [])
        error = environment.io_uring_error()
        if error:
            stage.notes.append(f"strategy fua is left out, for it needs io_uring: {error}; write-flush stands for it")
            stage.strategies = ["dsync", "write-flush"]
        yield stage


@contextmanager
def _dontcache(place: Place) -> Iterator[Stage]:
    error = environment.io_uring_error()
    if error:
        yield Stage("", notes=[f"left out, for it needs io_uring: {error}"])
        return
    with place.directory(4 * GIB) as (target, notes):
        found, _ = measurement.find("xfs-dontcache")
        stage = Stage(target, [found.before, "dontcache", found.after], notes)
        error = environment.dontcache_error(Path(target))
        if error:
            stage.notes.append(f"strategy dontcache is left out: {error}")
            stage.strategies.remove("dontcache")
        yield stage


@contextmanager
def _dm(place: Place) -> Iterator[Stage]:
    # 1024 targets of 8000 sectors, one each 16384 sectors: just under 8 GiB.
    with place.device(8 * GIB) as (target, notes):
        yield Stage(target, notes=notes)


STAGES = {"seagate-odsync": _odsync, "xfs-dontcache": _dontcache, "dm-linear": _dm}

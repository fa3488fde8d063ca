# SPDX-License-Identifier: GPL-2.0-only
"""`durabench run`: measure on a target and keep everything in a run's folder."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from . import formats, layout, leftovers, measurement, runner, signals
from .errors import Exit, Failure
from .progress import Shown, say, span

# Far beyond any use: more is a slip of the hand.
REPEAT_MAX = 10_000


def add_parser(subparsers: Any) -> None:
    """Add `run` to the command's parsers."""
    names = measurement.names()
    parser = subparsers.add_parser(
        "run",
        help="measure on a device, file or directory",
        description="Run a measurement's cases with each strategy, interleaved, and keep job files, results and environment. "
        f"Measurements: {', '.join(names)}.",
        epilog="A block device that is in use is refused; one that holds anything is refused unless --destroy names it. On other hosts "
        "(--client) none of that can be checked: there a device or file is refused unless --destroy gives its full path.",
    )
    parser.add_argument("measurement", metavar="MEASUREMENT", help="its name, or the path of its folder")
    parser.add_argument(
        "--target",
        metavar="PATH",
        action="append",
        required=True,
        help="block device, file (made and removed) or directory to measure on; twice for a case of two devices",
    )
    parser.add_argument("--strategy", metavar="NAME", action="append", default=[], help="default: before and after")
    parser.add_argument(
        "--case", metavar="NAME", action="append", default=[], help="default: those of the headline; `all` for all"
    )
    parser.add_argument("--repeat", metavar="N", type=count, default=3, help="repetitions of each (default: 3)")
    parser.add_argument("--label", metavar="TEXT", type=_label, help="a name for the run")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", type=setting, default=[], help="set a variable of the job files"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="the run's folder, new or empty")
    parser.add_argument(
        "--destroy",
        metavar="NAME",
        action="append",
        default=[],
        help="confirm that what this device holds may be lost: its serial number, WWN or name in /dev/disk/by-id "
        "(a file: its full path)",
    )
    parser.add_argument(
        "--client",
        metavar="HOST[,HOST...]",
        type=_hosts,
        default=[],
        help="measure on these hosts together, each HOST or HOST:PORT of a `fio --server`, with the engines at the same path as here; "
        "TARGET is a path on each of them: below /dev a block device, with / at its end a directory, else a file",
    )
    parser.add_argument("--time-limit", metavar="SECONDS", type=seconds, help="end a repetition after that time")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failed repetition")
    parser.add_argument("--dry-run", action="store_true", help="check everything, show what would be done, write nothing")
    parser.add_argument("--demo", action="store_true", help="use the measurement's shortened variables")
    parser.set_defaults(func=run, places=_places)


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench run`."""
    console = Console(stderr=True)
    request = runner.Request(
        measurement=args.measurement,
        targets=args.target,
        strategies=args.strategy,
        cases=args.case,
        repeat=args.repeat,
        label=args.label or "",
        settings=dict(args.set),
        destroy=args.destroy,
        output=args.output,
        demo=args.demo,
        keep_going=args.keep_going,
        time_limit_s=args.time_limit,
        clients=args.client,
    )
    with signals.caught() as stop:
        plan = runner.plan(request, stop)
        if args.dry_run:
            _show(plan, Console())
            return Exit.OK
        for note in (*plan.notes, *plan.warnings):
            say(console, note)
        try:
            with Shown(console) as shown:
                runner.execute(plan, shown, stop)
        finally:
            if plan.output.exists():
                path = shlex.quote(str(plan.output))
                say(console, f"results: {path}")
                if _has_results(plan.output):
                    say(console, f"next: durabench compare {path}")
    return Exit.OK


def _has_results(output: Path) -> bool:
    """Whether a repetition that ended well was written down."""
    try:
        return any(each.status == "ok" for each in formats.read_run(output).repetitions)
    except Failure:
        return False


def _places(args: argparse.Namespace) -> Iterator[Path]:
    """Where a run that was killed may have left something: where this one makes the like, and in the runs beside it."""
    if args.dry_run:
        return
    yield leftovers.temporary()
    yield from () if args.client else map(Path, args.target)
    yield from leftovers.of_runs((args.output or layout.results() / "new").absolute().parent)


def _show(plan: runner.Plan, console: Console) -> None:
    """Print the plan as text."""
    lines = [f"measurement  {plan.measurement.name}: {plan.measurement.title}"]
    lines += [f"target       {target.path} ({target.kind})" for target in plan.targets]
    lines += [f"host         {host.address} ({host.hostname}, {host.fio})" for host in plan.environment.hosts]
    lines += [f"fio          {plan.environment.fio} {plan.environment.fio_path}"]
    lines += [f"output       {plan.output}"]
    lines += [f"variable     {name}={value}" for name, value in plan.values.items()]
    lines += [f"note         {note}" for note in (*plan.notes, *plan.warnings)]
    times = [plan.loads[repetition.case].runtime_s for repetition in plan.repetitions]
    known = [time for time in times if time is not None]
    lines += [f"time         {span(sum(known))}" + (" and what jobs take that end with their bytes" if len(known) < len(times) else "")]
    lines += [f"repetition   {repetition.dir} (at most {span(plan.limit_s(repetition.case))})" for repetition in plan.repetitions]
    say(console, *lines)


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    if number > REPEAT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {REPEAT_MAX}")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds from 1 on")
    return number


def _hosts(text: str) -> list[str]:
    found = text.split(",")
    # Taken for none, it would be this host that is measured.
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} lacks a host")
    return found


def _label(text: str) -> str:
    if not text or "/" in text or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"{text!r}: a label is part of a folder's name: one or more printable characters, none of them /"
        )
    return text


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if any(char.isspace() for char in value):
        raise argparse.ArgumentTypeError(f"{text!r}: a value has no blanks")
    return name, value

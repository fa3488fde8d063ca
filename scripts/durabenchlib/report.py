# SPDX-License-Identifier: GPL-2.0-only
"""`durabench report`: runs as one HTML file that needs no network, and as gnuplot scripts with their data."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import shlex
import urllib.parse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
from rich.console import Console

from . import __version__, advice, compare, figures, foreign, formats, gnuplot, inputs, leftovers, outputs, results, strategies, tables
from .errors import Exit, Failure
from .figures import Context, Figure, Subject
from .formats import CaseComparison, Comparison, MeasurementComparison
from .results import Run

# What plots.py's matplotlib has to say is of its cache: that it takes a moment, or is a temporary one where there is no home.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

_TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Recipe:
    """How one strategy of a case was measured: the command, and the job file it ran."""

    title: str
    command: str
    job: str


@dataclass(frozen=True)
class CaseView:
    """A case as the page shows it; `verdict` is that of its first metric, `drawn` are the figures, each with its SVG."""

    anchor: str
    comparison: CaseComparison
    title: str
    head: tuple[str, str]
    verdict: str
    sentence: str
    metrics: list[tables.Row]
    mechanism: list[tables.Row]
    reasons: dict[str, str]
    drawn: list[tuple[Figure, str]]
    recipes: list[Recipe]


@dataclass(frozen=True)
class MeasurementView:
    """A measurement as the page shows it. `name` tells of which run or runs; `environment` has for each part of it rows of name,
    before and after; `differences` are those of two runs, and `warnings` all others."""

    anchor: str
    name: str
    comparison: MeasurementComparison
    definition: formats.Measurement
    published: formats.Published | None
    cases: list[CaseView]
    environment: dict[str, list[tuple[str, str, str]]]
    one_run: bool
    differences: list[advice.Difference]
    warnings: list[str]
    repeat: list[str]


@dataclass(frozen=True)
class RunView:
    """A run as the page names it; `link` is its manifest, from where the page is."""

    name: str
    created: str
    status: str
    repetitions: int
    link: str


def compare_all(runs: Sequence[Run]) -> Comparison:
    """Each run's strategies against each other, then the runs of one measurement against the first of them."""
    found: list[MeasurementComparison] = []
    alone: list[Failure] = []
    for run in runs:
        if run.measurement.name == foreign.NAME:
            continue
        try:
            found += compare.compare_runs(run, run).measurements
        except Failure as failure:
            # A run of one strategy has nothing to compare within it, but may be compared with another.
            alone.append(failure)
    for number, run in enumerate(runs):
        first = next(other for other in runs if other.manifest.measurement == run.manifest.measurement)
        if number and first is not run:
            found += compare.compare_runs(first, run).measurements
    if not found:
        foreign_alone = Failure(Exit.USAGE, f"{runs[0].path}: fio's own files are compared with others; name these too")
        raise alone[0] if alone else foreign_alone
    return Comparison(measurements=found)


def write_html(path: Path, runs: Sequence[Run], comparison: Comparison) -> None:
    """Write the report of a comparison of these runs to one HTML file."""
    from . import plots  # matplotlib takes a second to load, which no other command needs

    views = []
    for number, measurement in enumerate(comparison.measurements):
        anchor = _anchor(number, measurement)
        before, after = _runs(runs, measurement)
        cases = []
        for context, case in _contexts(anchor, before, after, measurement):
            drawn = [(figure, plots.svg(figure)) for figure in figures.figures(context)]
            cases.append(_case_view(context, case, drawn, before))
        views.append(_measurement_view(anchor, before, after, measurement, cases))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
    )
    page = environment.get_template("report.html.j2").render(
        views=views,
        cover=tables.cover(comparison),
        missing=comparison.missing,
        symbols=tables.SYMBOLS,
        data=_embedded(comparison),
        not_durable=strategies.NOT_DURABLE_NOTE,
        version=__version__,
        number=tables.number,
        runs=[_run_view(run, path) for run in runs],
    )
    formats.write_text(path, page)


def all_figures(runs: Sequence[Run], comparison: Comparison, names: Collection[str] = ()) -> Iterator[Figure]:
    """The figures of the report, of all cases; only those of these names (of figures.FIGURES) if there are any."""
    for number, measurement in enumerate(comparison.measurements):
        before, after = _runs(runs, measurement)
        for context, _ in _contexts(_anchor(number, measurement), before, after, measurement):
            yield from figures.figures(context, names)


def _anchor(number: int, measurement: MeasurementComparison) -> str:
    return f"{number + 1}-{_slug(measurement.name)}"


def _slug(name: str) -> str:
    """A name as part of an id and of a file's name."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in name)


def _runs(runs: Sequence[Run], measurement: MeasurementComparison) -> tuple[Run, Run]:
    by_path = {str(run.path): run for run in runs}
    return by_path[measurement.environment["before"]["run"]], by_path[measurement.environment["after"]["run"]]


def _contexts(
    anchor: str, before: Run, after: Run, measurement: MeasurementComparison
) -> list[tuple[Context, CaseComparison]]:
    cases = {case.name: case for case in before.measurement.case}
    found = []
    for number, comparison in enumerate(measurement.cases):
        case = cases[comparison.name]
        if before is after:
            subjects = [Subject(name, before.of(case.name, name)) for name in before.measurement.strategies]
        else:
            subjects = [
                Subject(comparison.before, before.of(case.name, comparison.before), "before"),
                Subject(comparison.after, after.of(case.name, comparison.after), "after"),
            ]
        times = "/".join(dict.fromkeys(str(count) for count in comparison.repetitions.values()))
        *footer, last = tables.environment_lines(measurement)
        published = before.published.series if before.published else []
        found.append(
            (
                Context(
                    case=case,
                    comparison=comparison,
                    subjects=[subject for subject in subjects if subject.repetitions],
                    series=[each for each in published if each.case == case.name],
                    prefix=f"{anchor}-{number + 1}-{_slug(case.name)}",
                    footer=[*footer, f"{last}, n={times}"],
                ),
                comparison,
            )
        )
    return found


def _case_view(context: Context, case: CaseComparison, drawn: list[tuple[Figure, str]], run: Run) -> CaseView:
    metrics, mechanism = tables.metric_rows(case), tables.mechanism_rows(case)
    recipes = []
    for subject in context.subjects:
        folder = subject.repetitions[0].folder
        recipe = Recipe(subject.name, _command(folder / "command.json"), _if_there(folder / "job.fio"))
        recipes += [recipe] if recipe.command or recipe.job else []
    return CaseView(
        anchor=context.prefix,
        comparison=case,
        title=context.case.title,
        head=tables.sides(case),
        verdict=metrics[0].verdict,
        sentence=tables.finding(case),
        metrics=metrics,
        mechanism=mechanism,
        reasons=tables.reasons([case]),
        drawn=drawn,
        recipes=recipes,
    )


def _measurement_view(
    anchor: str, before: Run, after: Run, measurement: MeasurementComparison, cases: list[CaseView]
) -> MeasurementView:
    differences = advice.differences(before, after)
    labels = " \N{RIGHTWARDS ARROW} ".join(dict.fromkeys(run.manifest.label or run.path.name for run in (before, after)))
    return MeasurementView(
        anchor=anchor,
        name=f"{measurement.name} ({labels})",
        comparison=measurement,
        definition=before.measurement,
        published=before.published,
        cases=cases,
        environment=_environment(measurement),
        one_run=before is after,
        differences=differences,
        warnings=[warning for warning in measurement.warnings if warning not in advice.of_differences(differences)],
        repeat=list(dict.fromkeys(_repeat(run) for run in (before, after) if run.measurement.name != foreign.NAME)),
    )


def _environment(measurement: MeasurementComparison) -> dict[str, list[tuple[str, str, str]]]:
    """What is known of either side, by what it is of: the lab's guest first, for it says what the rest means."""
    sides = [measurement.environment[side] for side in ("before", "after")]
    parts = {
        "guest of the lab": [side.get("lab") or {} for side in sides],
        "machine": [
            # A machine without CPUs or memory is one that nothing is known of.
            {key: value or None for key, value in side.items() if key not in ("lab", "target", "hosts")} for side in sides
        ],
        "hosts": [{each["address"]: f"{each['hostname']}, {each['fio']}" for each in side.get("hosts", [])} for side in sides],
        "target": [side["target"] for side in sides],
    }
    found = {}
    for part, (before, after) in parts.items():
        rows = [(key.replace("_", " "), _text(before.get(key)), _text(after.get(key))) for key in {**before, **after}]
        found[part] = [row for row in rows if set(row[1:]) != {"-"}]
    return {part: rows for part, rows in found.items() if rows}


def _text(value: Any) -> str:
    """A value of an environment for people: a line for each entry."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {tables.number(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else str(value)


def _run_view(run: Run, page: Path) -> RunView:
    manifest = run.manifest
    kept = run.path if run.measurement.name == foreign.NAME else run.path / "run.json"
    link = os.path.relpath(kept.resolve(), page.resolve().parent)
    return RunView(
        name=manifest.label or run.path.name,
        created=manifest.created,
        status=manifest.status,
        repetitions=len(run.repetitions),
        link=urllib.parse.quote(os.fsencode(link)),
    )


def _repeat(run: Run) -> str:
    """The command that measures a run again."""
    manifest = run.manifest
    words = ["durabench", "run", manifest.measurement]
    targets = [each.path for each in (manifest.target, manifest.target2) if each is not None]
    where = {"--target": targets}
    if hosts := manifest.environment.hosts:
        # That nothing is lost by it has to be confirmed each time.
        where["--client"] = [",".join(each.address for each in hosts)]
    settings = [f"{name}={text}" for name, text in manifest.variables.items() if name in run.measurement.variables]
    if manifest.environment.lab and run.measurement.lab:
        words = ["durabench", "lab", "run", manifest.measurement]
        where = {"--kernel": [manifest.environment.kernel]}
        # A setting stands above those of a single case: only what differs from all of them is one.
        given = {**run.measurement.variables, **run.measurement.lab.variables}
        settings = [text for text in settings if given[text.partition("=")[0]] != text.partition("=")[2]]
    options = {**where, "--case": manifest.cases, "--strategy": manifest.strategies, "--set": settings}
    for option, values in options.items():
        words += itertools.chain.from_iterable((option, value) for value in values)
    return shlex.join([*words, "--repeat", str(manifest.repeat)])


def _command(path: Path) -> str:
    """The command line that a repetition ran; empty if it was not kept."""
    if not path.exists():
        return ""
    try:
        kept = json.loads(inputs.text(path))
        words = [f"{name}={shlex.quote(str(value))}" for name, value in kept["environment"].items()]
        return " ".join([*words, shlex.join(map(str, kept["command"]))])
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Failure(Exit.INPUT, f"{path}: is damaged: {error}") from None


def _if_there(path: Path) -> str:
    try:
        return inputs.text(path)
    except OSError:
        return ""


def _visible(value: Any) -> Any:
    """What the template prints, without control characters but those of text in lines."""
    if not isinstance(value, str) or isinstance(value, markupsafe.Markup):
        return value
    return "\n".join(tables.printable(line.replace("\t", "    ")) for line in value.split("\n"))


def _embedded(comparison: Comparison) -> str:
    """JSON that can't end the script element it stands in."""
    return formats.to_json(comparison).replace("<", "\\u003c")


def add_parser(subparsers: Any) -> None:
    """Add `report` to the command's parsers."""
    parser = subparsers.add_parser(
        "report",
        help="make one HTML file of runs, and gnuplot scripts",
        description="Make one HTML file of runs: each run's strategies, and runs of one measurement against the first.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="a run's folder; or a file of fio's, or a folder of such"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("report.html"), help="default: report.html"
    )
    parser.add_argument(
        "--gnuplot",
        metavar="DIR",
        type=Path,
        help="folder for the figures as gnuplot scripts with their data (default: beside the report, named after it)",
    )
    parser.add_argument(
        "--pictures", metavar="DIR", type=Path, help="folder for the figures as SVG and PNG files, for mails and documents"
    )
    parser.add_argument(
        "--terminal", action="store_true", help="draw the figures here, in characters, and write no report"
    )
    parser.add_argument(
        "--figure",
        metavar="NAME",
        action="append",
        choices=figures.FIGURES,
        help=f"only this figure, where they are drawn outside of the report: {', '.join(figures.FIGURES)}; may be repeated",
    )
    parser.set_defaults(func=run, places=_places)


def _gnuplot(args: argparse.Namespace) -> Path:
    """Folder of the gnuplot scripts."""
    return args.gnuplot or args.output.parent / f"{args.output.stem}-gnuplot"


def _places(args: argparse.Namespace) -> list[Path]:
    return [] if args.terminal else [*leftovers.beside(args.output), _gnuplot(args), *filter(None, [args.pictures])]


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench report`."""
    if formats.is_special(args.output):
        raise Failure(
            Exit.USAGE, f"{args.output} is no regular file; a report has files beside it: give -o the name of a file"
        )
    if not args.terminal:
        for output in (args.output, _gnuplot(args), args.pictures):
            outputs.check([output] if output else [], args.runs)
    foreign.refuse_twice(args.runs)
    runs = [foreign.load([path], str(path)) if foreign.is_fio(path) else results.load_run(path) for path in args.runs]
    comparison = compare_all(runs)
    chosen = all_figures(runs, comparison, args.figure or ())
    if args.terminal:
        console = Console()
        for figure in chosen:
            print(gnuplot.terminal(figure, console.width, console.color_system is not None))
        return Exit.OK
    from . import plots

    write_html(args.output, runs, comparison)
    folder = _gnuplot(args)
    for figure in chosen:
        gnuplot.write(figure, folder)
        if args.pictures:
            plots.write(figure, args.pictures)
    return Exit.OK

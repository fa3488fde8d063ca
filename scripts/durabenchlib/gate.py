# SPDX-License-Identifier: GPL-2.0-only
"""`durabench gate`: a verdict on a change, for CI: an exit status, a summary in Markdown, JUnit XML, JSON, and annotations."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import __version__, advice, compare, foreign, formats, leftovers, order, outputs, results, tables
from .errors import Exit, Failure, os_message
from .formats import CaseComparison, Check, Comparison, Gate, MeasurementComparison, Metric, MetricComparison
from .results import Run

# Exit status of each verdict: gate's own, as CI needs them (docs/formats.md).
STATUS = {"pass": 0, "regression": 1, "inconclusive": 2, "invalid": 3}

# GitHub takes 65,536 characters of a comment; a character is up to 4 bytes in other places that count those.
_SUMMARY_BYTES = 60_000
_LONGEST = 600


@dataclass(frozen=True)
class Finding:
    """What came out for one metric or one part of the mechanism. `headline` is true of what decides that the whole is not
    decided."""

    case: str
    name: str
    verdict: formats.Verdict
    text: str
    headline: bool


@dataclass
class Result:
    """What came out: findings, what is wrong with the data as a whole, and warnings."""

    findings: list[Finding] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    comparison: Comparison | None = None

    def texts(self, verdict: formats.Verdict) -> list[str]:
        """The findings of this verdict as sentences."""
        return [f"{each.case}: {each.text}" for each in self.findings if each.verdict == verdict]


def examine(before: Run, after: Run, comparison: Comparison) -> Result:
    """Findings of a comparison, and what of the data of its two sides is no basis for any."""
    (measurement,) = comparison.measurements
    result = Result(comparison=comparison, warnings=list(measurement.warnings))
    for run in [before] if before.path == after.path else [before, after]:
        if run.manifest.status != "complete":
            result.invalid.append(f"The run {run.path} is {run.manifest.status}.")
        result.invalid += run.unusable
        result.invalid += advice.contradictions(run)
    if measurement.name == foreign.NAME:
        result.warnings += foreign.differences(before, after)
    for case in measurement.cases:
        for position, metric in enumerate(each for each in case.metrics if each.verdict):
            text = f"{metric.name} {_of_metric(metric)}"
            result.findings.append(Finding(_where(case), metric.name, metric.verdict, text, position == 0))
        for check in case.checks:
            result.findings.append(Finding(_where(case), check.name, check.verdict, _of_check(check), False))
    if not any(metric.verdict for case in measurement.cases for metric in case.metrics):
        result.invalid.append("No metric was measured on either side.")
    # What was left out says so above; a warning need not repeat it.
    result.warnings = [warning for warning in result.warnings if warning not in result.invalid]
    return result


def missing(before: Run, after: Run) -> list[str]:
    """What the baseline has and the candidate has not, where all of a run is compared."""
    has = {(each.entry.case, each.entry.strategy) for each in after.repetitions}
    wanted = dict.fromkeys((each.entry.case, each.entry.strategy) for each in before.repetitions)
    return [
        f"{case} with {strategy} was measured for the baseline and not for the candidate."
        for case, strategy in wanted
        if (case, strategy) not in has
    ]


def conclude(result: Result, strict: bool, baseline: Sequence[str], candidate: Sequence[str]) -> Gate:
    """The verdict. A regression outweighs all else; data that is no basis outweighs what is not decided; and that is of a case's
    headline, or where `strict` of any metric."""
    regressions = result.texts("regressed")
    invalid = [*result.invalid, *result.texts("invalid")]
    inconclusive = result.texts("inconclusive")
    undecided = [each for each in result.findings if each.verdict == "inconclusive" and (strict or each.headline)]
    verdict = "regression" if regressions else "invalid" if invalid else "inconclusive" if undecided else "pass"
    return Gate(
        durabench=__version__,
        verdict=verdict,
        exit_status=STATUS[verdict],
        strict=strict,
        headline=_headline(result, regressions, invalid, inconclusive, verdict),
        baseline=list(baseline),
        candidate=list(candidate),
        regressions=regressions,
        invalid=invalid,
        inconclusive=inconclusive,
        improvements=result.texts("improved"),
        warnings=result.warnings,
        comparison=result.comparison,
    )


def _headline(
    result: Result, regressions: Sequence[str], invalid: Sequence[str], inconclusive: Sequence[str], verdict: str
) -> str:
    of = f"of {len(result.findings)} figures"
    if verdict == "regression":
        return f"Regression: {len(regressions)} {of} worse. {regressions[0]}"
    if verdict == "invalid":
        what = "no basis for a verdict" if result.invalid else f"{len(invalid)} {of} are no basis for a verdict"
        return f"Invalid data: {what}. {invalid[0]}"
    if verdict == "inconclusive":
        return f"Inconclusive: {len(inconclusive)} {of} can't be told. {inconclusive[0]}"
    same, better = (len(result.texts(each)) for each in ("no change", "improved"))
    return f"Pass: no regression. {of.capitalize()}, {same} did not change, {better} improved, {len(inconclusive)} can't be told."


def _where(case: CaseComparison) -> str:
    if case.before == case.after:
        return case.name if case.before == foreign.STRATEGY else f"{case.name} {case.before}"
    return f"{case.name} {case.before} -> {case.after}"


def _of_metric(metric: MetricComparison) -> str:
    if metric.before is None or metric.after is None:
        return metric.reason
    text = f"{tables.number(metric.before)} -> {tables.number(metric.after)} {metric.unit}"
    if metric.ratio is not None:
        text += f", {tables.ratio(metric.ratio)}"
    if metric.interval:
        text += f" ({_interval(metric)}, margin {metric.margin:.1%})"
    return f"{text}: {metric.reason}" if metric.reason else text


def _interval(metric: MetricComparison) -> str:
    return "..".join(tables.ratio(end) for end in metric.interval) if metric.interval else ""


def _of_check(check: Check) -> str:
    text = f"{check.name} {' -> '.join(_ranges(check))}"
    return f"{text}: {check.reason}" if check.reason else text


def _ranges(check: Check) -> list[str]:
    """The least and the greatest value before and after, one where they are shown alike."""
    return [
        "..".join(dict.fromkeys(tables.mechanism(check.name, end) for end in ends)) for ends in (check.before, check.after)
    ]


def text(gate: Gate) -> Iterator[str]:
    """Lines for people."""
    yield gate.headline
    for heading, lines in _sections(gate):
        for line in lines:
            yield f"{heading}: {line}"


def _sections(gate: Gate) -> Iterator[tuple[str, list[str]]]:
    yield "regressed", gate.regressions
    yield "invalid", gate.invalid
    yield "inconclusive", gate.inconclusive
    yield "improved", gate.improvements
    yield "warning", gate.warnings


def markdown(gate: Gate) -> str:
    """The summary: headline first, what is wrong next, all figures folded away; cut to what a comment takes."""
    out = [f"### durabench gate: {gate.verdict}", "", _inert(gate.headline), ""]
    out += [f"Baseline {_inert(' '.join(gate.baseline))}, candidate {_inert(' '.join(gate.candidate))}.", ""]
    for heading, lines in _sections(gate):
        if lines and heading != "improved":
            out += [f"**{heading.capitalize()}**", "", *(f"- {_inert(line)}" for line in lines), ""]
    rows = list(_figures(gate.comparison.measurements[0])) if gate.comparison else []
    end = []
    if rows:
        out += ["<details><summary>All figures</summary>", ""]
        out += ["| case | figure | before | after | ratio | interval | verdict |", "|---|---|--:|--:|--:|--:|---|"]
        end = ["", "</details>", ""]
    statistics = gate.comparison.measurements[0].statistics if gate.comparison else None
    if statistics:
        end += [
            f"Unchanged code is called changed in {statistics.alpha:.0%} of all comparisons at most; a ratio within its margin "
            "is no change. See docs/statistics.md."
        ]
    return _fit([*out, *rows], end)


def _figures(measurement: MeasurementComparison) -> Iterator[str]:
    for case in measurement.cases:
        for metric in case.metrics:
            yield _row(
                _where(case),
                f"{metric.name} {metric.unit}",
                tables.number(metric.before),
                tables.number(metric.after),
                tables.ratio(metric.ratio),
                _interval(metric),
                metric.verdict or "not measured",
            )
        for check in case.checks:
            yield _row(_where(case), check.name, *_ranges(check), "", "", check.verdict)


def _row(*cells: str) -> str:
    return f"| {' | '.join(_inert(cell) if cell else '' for cell in cells)} |"


def _inert(value: str) -> str:
    """Text as code, so that what a file or job is called makes no link, mention or markup; cut where it is too long to be read."""
    return tables.markdown_code(value if len(value) <= _LONGEST else value[:_LONGEST] + "...")


def _fit(lines: Sequence[str], end: Sequence[str]) -> str:
    """The lines as far as there is room, and the end."""
    room = _SUMMARY_BYTES - sum(len(line.encode()) + 1 for line in end)
    kept: list[str] = []
    for number, line in enumerate(lines):
        room -= len(line.encode()) + 1
        if room < 100:
            cut = f"{len(lines) - number} more lines do not fit; `--json` has all."
            # It must not become a part of a table.
            kept += ["", cut]
            break
        kept.append(line)
    return "\n".join([*kept, *end]) + "\n"


def junit(gate: Gate, result: Result) -> str:
    """JUnit XML: a test case for each figure, failed if it regressed, in error if invalid, skipped if it can't be told (where
    strict, failed)."""
    suite = ElementTree.Element("testsuite", name="durabench gate")
    count = dict.fromkeys(("failures", "errors", "skipped"), 0)
    cases = [(each.case, each.name, each.verdict, each.text) for each in result.findings]
    cases += [("data", f"data {number}", "invalid", each) for number, each in enumerate(result.invalid, 1)]
    for where, name, verdict, message in cases:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"durabench.{tables.printable(where)}", name=tables.printable(name)
        )
        failed = {"regressed": "failure", "invalid": "error", "inconclusive": "failure" if gate.strict else "skipped"}
        if verdict in failed:
            ElementTree.SubElement(case, failed[verdict], message=tables.printable(message))
            count[{"failure": "failures", "error": "errors", "skipped": "skipped"}[failed[verdict]]] += 1
    suite.attrib.update({"tests": str(len(cases)), **{name: str(number) for name, number in count.items()}})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def workflow_commands(gate: Gate) -> Iterator[str]:
    """Workflow commands of GitHub Actions; what is in them is no command."""
    for kind, title, lines in (
        ("error", "regression", gate.regressions),
        ("error", "invalid data", gate.invalid),
        ("error" if gate.strict else "warning", "inconclusive", gate.inconclusive),
        ("warning", "warning", gate.warnings),
    ):
        for line in lines:
            # Printable, it has no end of line, so that of what such a command decodes only this is left.
            yield f"::{kind} title=durabench {title}::{tables.printable(line).replace('%', '%25')}"


def add_parser(subparsers: Any) -> None:
    """Add `gate` to the command's parsers."""
    parser = subparsers.add_parser(
        "gate",
        help="judge a change for CI",
        description="Judge a candidate by a baseline: both are a run's folder (RUN, or RUN:STRATEGY), or fio's own JSON files, each "
        "a repetition. Exit status: 0 pass, 1 regression, 2 inconclusive, 3 invalid data, 64 usage.",
    )
    parser.add_argument("--baseline", metavar="RUN|FILE", nargs="+", required=True)
    parser.add_argument("--candidate", metavar="RUN|FILE", nargs="+", required=True)
    parser.add_argument(
        "--metric",
        metavar="NAME[=MARGIN]",
        action="append",
        default=[],
        help="judge by this metric alone (or these), with this margin, as in write.iops=0.03 (default: those of the measurement)",
    )
    parser.add_argument("--noise", metavar="FILE", type=Path, help="raise margins to this noise (durabench calibrate)")
    parser.add_argument(
        "--strict", action="store_true", help="any metric that can't be told makes all inconclusive, not only a headline"
    )
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write a summary of less than 64 KB")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write JSON (durabench-gate/1)")
    parser.set_defaults(func=run, places=lambda args: leftovers.beside(args.markdown, args.junit, args.json))


def run(args: argparse.Namespace) -> int:
    """Carry out `durabench gate`."""
    _check_outputs(args)
    chosen = [_metric(word) for word in args.metric]
    noise = formats.read_noise(args.noise) if args.noise else None
    try:
        result = _examine(args, chosen, noise)
    except Failure as failure:
        if failure.status != Exit.INPUT:
            raise
        # CI reads its reports above all when something is wrong.
        result = Result(invalid=[str(failure)])
    except OSError as error:
        result = Result(invalid=[os_message(error, "input")])
    gate = conclude(result, args.strict, args.baseline, args.candidate)
    try:
        _report(args, gate, result)
    except BrokenPipeError:
        raise
    except OSError as error:
        # 1 would say that there is a regression.
        raise Failure(Exit.USAGE, os_message(error)) from None
    return gate.exit_status


def _examine(args: argparse.Namespace, chosen: Sequence[Metric], noise: formats.Noise | None) -> Result:
    _refuse_same(args.baseline, args.candidate)
    before, before_strategy = compare.load_side(args.baseline, "baseline")
    after, after_strategy = compare.load_side(args.candidate, "candidate")
    if (before_strategy is None) != (after_strategy is None):
        raise Failure(Exit.USAGE, "name a strategy on both sides (RUN:STRATEGY) or on neither")
    if chosen:
        before = _judged_by(before, chosen)
    comparison = compare.compare_runs(before, after, before_strategy, after_strategy, noise)
    result = examine(before, after, comparison)
    if before.path != after.path and before_strategy is None:
        result.invalid += missing(before, after)
    if noise is None and before.path != after.path:
        result.warnings += order.one_after_the_other(before, after)
    if noise:
        (measurement,) = comparison.measurements
        if measurement.statistics:
            measurement.statistics.noise = str(args.noise)
        result.warnings += _other_host(noise, measurement)
    return result


def _refuse_same(baseline: Sequence[str], candidate: Sequence[str]) -> None:
    """A result can't differ from itself, so that such a gate would always pass."""
    before, after = ([compare.selection(word) for word in words] for words in (baseline, candidate))
    if {strategy for _, strategy in before} != {strategy for _, strategy in after}:
        return
    known = {key for path, _ in before for key, _ in foreign.identities(path)}
    for path, _ in after:
        for key, file in foreign.identities(path):
            if key in known:
                raise Failure(
                    Exit.USAGE,
                    f"{file}: is on both sides, a mistyped path? (Two strategies of one run are RUN:STRATEGY on each side)",
                )


def _report(args: argparse.Namespace, gate: Gate, result: Result) -> None:
    try:
        _write(args, gate, result)
    finally:  # an output that can't be written, or that nobody reads, doesn't hide the verdict
        with contextlib.suppress(BrokenPipeError):
            for line in text(gate):
                print(tables.printable(line))
            if os.environ.get("GITHUB_ACTIONS") == "true":
                for line in workflow_commands(gate):
                    print(line)
            sys.stdout.flush()


def _check_outputs(args: argparse.Namespace) -> None:
    read = [compare.selection(word)[0] for word in (*args.baseline, *args.candidate)]
    read += [args.noise] if args.noise else []
    outputs.check([path for path in (args.json, args.junit, args.markdown) if path], read)


def _write(args: argparse.Namespace, gate: Gate, result: Result) -> None:
    if args.json:
        formats.write_json(args.json, gate)
    if args.junit:
        formats.write_text(args.junit, junit(gate, result))
    summary = markdown(gate)
    if args.markdown:
        formats.write_text(args.markdown, summary)
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(summary)


def _metric(word: str) -> Metric:
    name, equals, given = word.partition("=")
    try:
        results.unit(name)
    except Failure as failure:
        raise Failure(Exit.USAGE, str(failure)) from None
    if not equals:
        return Metric(name, foreign.better(name))
    try:
        margin = float(given)
        if not 0 <= margin < 1:
            raise ValueError
    except ValueError:
        raise Failure(Exit.USAGE, f"--metric {word}: a margin is a ratio less 1, from 0 to 1, as 0.03 for 3%") from None
    return Metric(name, foreign.better(name), margin)


def _judged_by(run: Run, chosen: Sequence[Metric]) -> Run:
    """The run with other metrics; where one is the measurement's own, that says which way is better, and its margin."""
    cases = []
    for case in run.measurement.case:
        own = {metric.name: metric for metric in case.metrics}
        metrics = [
            dataclasses.replace(own[each.name], margin=own[each.name].margin if each.margin is None else each.margin)
            if each.name in own
            else each
            for each in chosen
        ]
        cases.append(dataclasses.replace(case, metrics=metrics))
    return dataclasses.replace(run, measurement=dataclasses.replace(run.measurement, case=cases))


def _other_host(noise: formats.Noise, measurement: MeasurementComparison) -> Iterator[str]:
    """The noise of one host says nothing of another."""
    side = measurement.environment["after"]
    for key in ("cpu_model", "virtualization", "fio"):
        if noise.environment.get(key) != side.get(key):
            yield (
                f"The noise was measured elsewhere: {key} was {noise.environment.get(key) or 'unknown'} and is "
                f"{side.get(key) or 'unknown'}. Calibrate on the host that is judged."
            )

# SPDX-License-Identifier: GPL-2.0-only
"""`durabench gate`: what passes, what fails, what can't be told, and its reports. A gate that can't fail is the worst."""

from __future__ import annotations

import json
import os
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest
from durabenchlib import cli, formats, gate
from sample_run import SampleRun, device, document, job, observed

pytestmark = pytest.mark.usefixtures("sample_measurement")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may run in CI themselves."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def fio_files(folder: Path, count: int, slower: float = 1.0, seed: int = 0, noise: float = 0.005, **options: str) -> Path:
    """fio's files of this many repetitions, each `slower` than 100 us a write, with noise between them."""
    folder.mkdir()
    chance = random.Random(seed)
    for number in range(count):
        us = 100 * slower * (1 + chance.gauss(0, noise))
        writes = [int(1000 * us)] * 1000
        asked = {"rw": "randwrite", "bs": "4k", **options}
        (folder / f"{number:02}.json").write_text(document(job("seq", writes=writes, runtime_ms=int(us), **asked)))
    return folder


def sample(folder: Path, name: str, slower: float = 1.0, flushes: float = 1.0, seed: int = 0, count: int = 7, **more: float) -> Path:
    """A run of `count` repetitions of fua and this many flushes a write."""
    run = SampleRun(folder / name)
    chance = random.Random(seed)
    for _ in range(count):
        ms = int(1000 * slower * (1 + chance.gauss(0, 0.004)))
        run.add(
            "seq",
            "fua",
            document(job(writes=[1000 * ms] * 1000, runtime_ms=ms)),
            observed(device(writes=1000, flushes=int(1000 * flushes)), dirty_mib=more.get("dirty", 100)),
            [{"writes": 1000, "durable_writes": int(more.get("durable", 1000)), "syncs": 0, "flush_calls": 0}],
        )
    return run.write()


def judged(*arguments: object, folder: Path) -> dict:
    """What the gate writes as JSON; its exit status has to agree."""
    output = folder / "gate.json"
    status = cli.main(["gate", *map(str, arguments), "--json", str(output)])
    found = json.loads(output.read_text())
    assert found["schema"] == "durabench-gate/1"
    assert status == found["exit_status"] == gate.STATUS[found["verdict"]]
    return found


# Must pass, must fail


def test_unchanged_passes(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, seed=1)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "pass"
    assert "3 did not change" in found["headline"]
    metrics = found["comparison"]["measurements"][0]["cases"][0]["metrics"]
    assert [(each["name"], each["verdict"]) for each in metrics] == [
        ("write.iops", "no change"),
        ("write.clat.p50", "no change"),
        ("write.clat.p99", "no change"),
    ]


def test_slower_fails_and_faster_passes(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, slower=1.06, seed=1)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "regression"
    assert found["regressions"][0].startswith("seq: write.iops 10")
    found = judged("--baseline", two, "--candidate", one, folder=tmp_path)
    assert (found["verdict"], len(found["improvements"]) >= 2) == ("pass", True)


def test_runs_of_durabench(tmp_path: Path) -> None:
    one, two, slow = sample(tmp_path, "one"), sample(tmp_path, "two", seed=1), sample(tmp_path, "slow", slower=1.1)
    assert judged("--baseline", one, "--candidate", two, folder=tmp_path)["verdict"] == "pass"
    found = judged("--baseline", one, "--candidate", slow, folder=tmp_path)
    assert found["verdict"] == "regression"
    assert all(each.startswith("seq fua: write.") for each in found["regressions"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"flushes": 1.1}, "flushes_per_write 1.00 -> 1.10"),
        ({"durable": 999 - 10}, "durable_writes_per_write 1.00 -> 0.99"),
        ({"dirty": 200}, "dirty_writeback_peak_bytes 100.0 -> 200.0"),
    ],
)
def test_the_mechanism_fails_where_time_does_not_tell(tmp_path: Path, change: dict, text: str) -> None:
    """Of two repetitions no test of times can say anything; counts do."""
    one, two = sample(tmp_path, "one", count=2), sample(tmp_path, "two", count=2, **change)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "regression"
    assert found["regressions"] == [f"seq fua: {text}"]


def test_fewer_flushes_pass_with_a_question(tmp_path: Path) -> None:
    one, two = sample(tmp_path, "one"), sample(tmp_path, "two", flushes=0.5, seed=1)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "pass"
    assert found["improvements"] == ["seq fua: flushes_per_write 1.00 -> 0.50: see that what has to be durable still is"]


def test_a_change_within_the_tolerance_of_counts(tmp_path: Path) -> None:
    one, two = sample(tmp_path, "one"), sample(tmp_path, "two", flushes=1.05, seed=1)
    assert judged("--baseline", one, "--candidate", two, folder=tmp_path)["regressions"] == []


# Can't be told


def counted(folder: Path, name: str, flushes: Sequence[float]) -> Path:
    run = SampleRun(folder / name)
    for each in flushes:
        run.add("seq", "fua", document(job(writes=[1000] * 1000)), observed(device(writes=1000, flushes=int(1000 * each))))
    return run.write()


@pytest.mark.parametrize(("after", "verdict"), [((1.6, 2.4), "inconclusive"), ((1.6, 1.6), "inconclusive"), ((3.4,) * 6, "regressed")])
def test_counts_that_stray(tmp_path: Path, after: Sequence[float], verdict: str) -> None:
    """Where others flush the same device, two repetitions lie apart from two by chance in one of three cases; six don't."""
    before = (1.0, 1.4) * (len(after) // 2)
    one, two = counted(tmp_path, "one", before), counted(tmp_path, "two", after)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    (case,) = found["comparison"]["measurements"][0]["cases"]
    assert {each["name"]: each["verdict"] for each in case["checks"]}["flushes_per_write"] == verdict


def test_three_repetitions_tell_nothing(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 3), fio_files(tmp_path / "two", 3, slower=1.5, seed=1)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "inconclusive"
    assert "p of 3 + 3 repetitions can't be below 0.1; to reach 0.01 for 3 metrics together it takes 6" in found["headline"]


def test_one_repetition(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 1), fio_files(tmp_path / "two", 1, slower=1.5)
    assert judged("--baseline", one, "--candidate", two, folder=tmp_path)["verdict"] == "inconclusive"


def test_strict_minds_every_metric(tmp_path: Path) -> None:
    """The p99 is 4% worse: no more than its margin allows, and no less than could be told."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, seed in ((one, 0), (two, 1)):
        folder.mkdir()
        chance = random.Random(seed)
        for number in range(7):
            tail = int(200_000 * (1 + 0.04 * seed) * (1 + chance.gauss(0, 0.02)))
            (folder / f"{number}.json").write_text(document(job(writes=[100_000] * 970 + [tail] * 30)))
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert (found["verdict"], len(found["inconclusive"])) == ("pass", 1)
    assert "write.clat.p99" in found["inconclusive"][0]
    assert judged("--baseline", one, "--candidate", two, "--strict", folder=tmp_path)["verdict"] == "inconclusive"


def test_noise_raises_the_margin(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, slower=1.06, seed=1)
    noise = formats.Noise(
        durabench="0",
        created="",
        runs=[],
        environment={"cpu_model": "", "virtualization": "", "fio": "fio-3.33"},
        alpha=0.01,
        power=0.95,
        metrics=[
            formats.MetricNoise("seq", "fio", name, 20, 4, 0.01, 0.02, 0.08, {})
            for name in ("write.iops", "write.clat.p50", "write.clat.p99")
        ],
    )
    formats.write_json(tmp_path / "noise.json", noise)
    found = judged("--baseline", one, "--candidate", two, "--noise", tmp_path / "noise.json", folder=tmp_path)
    assert (found["verdict"], found["warnings"]) == ("pass", [])
    (measurement,) = found["comparison"]["measurements"]
    assert measurement["statistics"]["noise"] == str(tmp_path / "noise.json")
    assert {each["margin"] for each in measurement["cases"][0]["metrics"]} == {0.08}
    noise.environment["cpu_model"] = "another"
    formats.write_json(tmp_path / "noise.json", noise)
    found = judged("--baseline", one, "--candidate", two, "--noise", tmp_path / "noise.json", folder=tmp_path)
    assert "measured elsewhere: cpu_model was another" in found["warnings"][0]


# Invalid


def test_a_failed_fio_is_no_pass(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, seed=1)
    (two / "07.json").write_text(document(job("seq", writes=[1000], error=5, rw="randwrite", bs="4k")))
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "invalid"
    assert "07.json is left out: job 'seq' ended with error 5" in found["invalid"][0]


@pytest.mark.parametrize(
    ("content", "part"),
    [("", "has no fio JSON"), ('{"fio version" : "fio-3.33", "jobs" : [', "cut off"), ("fio: bad", "has no fio JSON")],
)
def test_a_damaged_file(tmp_path: Path, content: str, part: str) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, seed=1)
    (two / "03.json").write_text(content)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "invalid"
    assert "03.json" in found["headline"] and part in found["headline"]
    assert found["comparison"] is None


def test_numbers_that_contradict_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited count: of such a file show says to rely on nothing."""
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, seed=1)
    file = two / "03.json"
    edited = json.loads(file.read_text())
    edited["jobs"][0]["write"]["clat_ns"]["N"] += 1
    file.write_text(json.dumps(edited))
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert found["verdict"] == "invalid"
    (reason,) = found["invalid"]
    assert reason.startswith(f"{file}: Numbers contradict each other: 'seq' write.clat has 1001 samples, and 1000 in its bins.")
    capsys.readouterr()
    assert cli.main(["compare", str(one), str(two)]) == 0
    assert "Numbers contradict each other" in capsys.readouterr().out


def test_files_that_are_no_repetitions_of_each_other(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, bs="8k")
    mixed = [*one.iterdir(), two / "00.json"]
    found = judged("--baseline", *mixed, "--candidate", two / "01.json", folder=tmp_path)
    assert (found["verdict"], "bs=8k" in found["headline"]) == ("invalid", True)
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert "seq was not asked for the same: bs (4k before, 8k after)." in found["warnings"]


def test_a_percentile_that_is_a_maximum(tmp_path: Path) -> None:
    one, two = (fio_files(tmp_path / name, 7, seed=seed) for seed, name in enumerate(("one", "two")))
    found = judged("--baseline", one, "--candidate", two, "--metric", "write.clat.p99.99", folder=tmp_path)
    assert found["verdict"] == "invalid"
    assert "1000 samples, and below 10000 this percentile is nothing but the maximum" in found["headline"]


def test_what_the_candidate_lacks(tmp_path: Path) -> None:
    one, two = SampleRun(tmp_path / "one"), SampleRun(tmp_path / "two")
    for run, cases in ((one, ("seq", "sync")), (two, ("seq",))):
        for case in cases:
            for _ in range(7):
                run.add(case, "fua", document(job(writes=[1000] * 1000, syncs=[1000] * 9)), observed(device(writes=1000)))
    found = judged("--baseline", one.write(), "--candidate", two.write(), folder=tmp_path)
    assert found["invalid"] == ["sync with fua was measured for the baseline and not for the candidate."]


def test_a_partial_run(tmp_path: Path) -> None:
    one, two = sample(tmp_path, "one"), sample(tmp_path, "two", seed=1)
    manifest = json.loads((two / "run.json").read_text())
    manifest["status"] = "partial"
    (two / "run.json").write_text(json.dumps(manifest))
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert (found["verdict"], found["invalid"]) == ("invalid", [f"The run {two} is partial."])


def test_a_regression_outweighs_what_is_invalid(tmp_path: Path) -> None:
    one, two = sample(tmp_path, "one"), sample(tmp_path, "two", flushes=2)
    manifest = json.loads((two / "run.json").read_text())
    manifest["status"] = "failed"
    (two / "run.json").write_text(json.dumps(manifest))
    found = judged("--baseline", one, "--candidate", two, folder=tmp_path)
    assert (found["verdict"], len(found["invalid"])) == ("regression", 1)


# Usage


@pytest.mark.parametrize(
    "arguments",
    [
        ["--baseline", "{one}"],
        ["--baseline", "{run}", "{run}", "--candidate", "{run}"],
        ["--baseline", "{run}:fua", "--candidate", "{run}"],
        ["--baseline", "{one}", "--candidate", "{run}"],
        ["--baseline", "{one}", "--candidate", "{two}", "--metric", "write.speed"],
        ["--baseline", "{one}", "--candidate", "{two}", "--metric", "write.iops=3%"],
        ["--baseline", "{one}", "--candidate", "{two}", "--junit", "{one}/no/such/folder.xml"],
        ["--baseline", "{one}", "--candidate", "{two}", "--markdown", "{full}"],
    ],
)
def test_usage(tmp_path: Path, full_device: Path, arguments: list[str]) -> None:
    """An output that can't be written must not end as a regression either."""
    paths = {name: fio_files(tmp_path / name, 2) for name in ("one", "two")}
    paths |= {"run": sample(tmp_path, "run", count=2), "full": full_device}
    try:
        status = cli.main(["gate", *(argument.format(**paths) for argument in arguments)])
    except SystemExit as ended:
        status = ended.code
    assert status == 64


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [("one", "one"), ("one", "one/01.json"), ("one/00.json", "two two/../one/00.json"), ("run", "run/run.json"), ("run:fua", "./run:fua")],
)
def test_the_same_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], baseline: str, candidate: str
) -> None:
    fio_files(tmp_path / "one", 2), fio_files(tmp_path / "two", 2), sample(tmp_path, "run", count=2)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["gate", "--baseline", *baseline.split(), "--candidate", *candidate.split()]) == 64
    captured = capsys.readouterr()
    assert captured.out == "" and "is on both sides" in captured.err


# Reports


def test_an_output_that_cant_be_written_hides_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, slower=1.06, seed=1)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "summary"))
    assert cli.main(["gate", "--baseline", str(one), "--candidate", str(two)]) == 64
    captured = capsys.readouterr()
    assert captured.out.startswith("Regression: 3 of 3 figures worse.")
    assert "\n::error title=durabench regression::" in captured.out
    assert "No such file or directory" in captured.err


def test_input_that_cant_be_opened_is_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = fio_files(tmp_path / "one", 7)
    long = tmp_path / ("x" * 300)
    assert cli.main(["gate", "--baseline", str(one), "--candidate", str(long)]) == 3
    assert f"{long}: can't be read: File name too long" in capsys.readouterr().out


def test_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, slower=1.06, seed=1)
    summary = tmp_path / "summary"
    summary.write_text("what was there\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    judged(
        *("--baseline", one, "--candidate", two, "--markdown", tmp_path / "gate.md", "--junit", tmp_path / "gate.xml"),
        folder=tmp_path,
    )
    markdown = (tmp_path / "gate.md").read_text()
    assert markdown.startswith("### durabench gate: regression\n\n`Regression: 3 of 3 figures worse. seq: write.iops")
    assert summary.read_text() == "what was there\n" + markdown
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {"tests": "3", "failures": "3", "errors": "0"}
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["write.iops", "write.clat.p50", "write.clat.p99"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Regression: ")
    assert len([line for line in printed if line.startswith("::error title=durabench regression::seq: write.")]) == 3


def hostile_files(folder: Path, name: str, ns: int) -> Path:
    folder.mkdir()
    for number in range(7):
        (folder / f"{number}.json").write_text(document(job(name, writes=[ns + number] * 1000)))
    return folder


def test_names_from_files_are_no_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\n::error::x\r\x1b[31m%0A|`@someone` <b>&"
    one, two = hostile_files(tmp_path / "one", name, 100_000), hostile_files(tmp_path / "two", name, 200_000)
    (two / "7.json").write_text(document(job(name, writes=[100_000] * 1000, error=5)))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    reports = ("--markdown", tmp_path / "gate.md", "--junit", tmp_path / "gate.xml")
    judged("--baseline", one, "--candidate", two, *reports, folder=tmp_path)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\r" not in printed
    commands = [line for line in printed.splitlines() if line.startswith("::")]
    assert len(commands) >= 3 and all(line.startswith(("::error title=durabench ", "::warning title=durabench ")) for line in commands)
    markdown = (tmp_path / "gate.md").read_text()
    assert "\x1b" not in markdown and "\n::" not in markdown
    # All of it is inside of code, where nothing is markup, and no cell ends early.
    assert all(line.count("`") % 2 == 0 for line in markdown.splitlines())
    assert all(line.replace("\\|", "").count("|") == 8 for line in markdown.splitlines() if line.startswith("|"))
    ElementTree.parse(tmp_path / "gate.xml")


def many_cases(folder: Path, count: int) -> Path:
    folder.mkdir()
    jobs = [job(f"job {number} " + "x" * 100, writes=[1000]) for number in range(count)]
    (folder / "a.json").write_text(document(*jobs))
    return folder


def test_the_summary_fits_a_comment(tmp_path: Path) -> None:
    one, two = many_cases(tmp_path / "one", 300), many_cases(tmp_path / "two", 300)
    output = tmp_path / "gate.md"
    judged("--baseline", one, "--candidate", two, "--markdown", output, folder=tmp_path)
    markdown = output.read_text()
    assert len(markdown.encode()) < 64_000
    assert "more lines do not fit; `--json` has all." in markdown
    assert markdown.splitlines()[-1].startswith("Unchanged code")


def test_reports_are_written_of_what_can_not_be_read(tmp_path: Path) -> None:
    reports = ("--markdown", tmp_path / "gate.md", "--junit", tmp_path / "gate.xml")
    found = judged("--baseline", tmp_path / "none", "--candidate", tmp_path / "none", *reports, folder=tmp_path)
    assert found["verdict"] == "invalid"
    assert "is this a run?" in (tmp_path / "gate.md").read_text()
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("errors") == "1"


def test_chosen_metrics_and_margins(tmp_path: Path) -> None:
    one, two = fio_files(tmp_path / "one", 7), fio_files(tmp_path / "two", 7, slower=1.06, seed=1)

    def verdicts(*words: str) -> Sequence[str]:
        chosen = [part for word in words for part in ("--metric", word)]
        (measurement,) = judged("--baseline", one, "--candidate", two, *chosen, folder=tmp_path)["comparison"]["measurements"]
        return [each["verdict"] for each in measurement["cases"][0]["metrics"]]

    assert verdicts("write.clat.mean") == ["regressed"]
    assert verdicts("write.clat.mean=0.1", "write.bw=0.01") == ["no change", "regressed"]


def test_strategies_of_one_run(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for number in range(7):
        for strategy, ms in (("fua", 1000), ("dsync", 1200)):
            run.add("seq", strategy, document(job(writes=[1000] * 1000, runtime_ms=ms + number)), observed(device(writes=1000)))
    path = run.write()
    found = judged("--baseline", f"{path}:fua", "--candidate", f"{path}:dsync", folder=tmp_path)
    assert found["verdict"] == "regression"
    assert found["regressions"][0].startswith("seq fua -> dsync: write.iops")


def test_the_working_directory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = fio_files(tmp_path / "one", 2), fio_files(tmp_path / "two", 2)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cli.main(["gate", "--baseline", str(one), "--candidate", str(two)])
    assert os.listdir() == []

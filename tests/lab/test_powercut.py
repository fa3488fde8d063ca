# SPDX-License-Identifier: GPL-2.0-only
"""Power cuts: what is cut how often, what the command says of it, and a short run in a guest, in which a strategy that promises keeps
it and each kind of control loses. That a loss is found where it is planted is in tests/unit/test_witness.c; docs/lab.md has the command
that cuts all strategies on all kernels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from durabenchlib import cli, signals
from durabenchlib.lab import kernels, powercut, qemu
from durabenchlib.lab.kernels import Kernel
from durabenchlib.lab.powercut import STRATEGIES, Case, Outcome, Row
from rich.console import Console


def outcome(case: Case, **numbers: int) -> Outcome:
    given = {"cuts": case.cuts, "acknowledged": 100, "lost": 0, "foreign": 0, "dropped_sectors": 10, "errors": 1, **numbers}
    return Outcome("9.9.9-test", case.name, first=None, **given)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> Callable[..., tuple[int, list[list[Case]]]]:
    """command(lost(case) -> writes, ARGUMENTS...) -> its exit status, and what was cut on each kernel; nothing is booted."""

    def run(lost: Callable[[Case], int], *arguments: str) -> tuple[int, list[list[Case]]]:
        seen = []

        def guest(_kernel: Kernel, cases: Sequence[Case], *_rest: object) -> list[Outcome]:
            seen.append(list(cases))
            return [outcome(case, lost=lost(case)) for case in cases]

        monkeypatch.setattr(powercut, "_guest", guest)
        monkeypatch.setattr(kernels, "find_all", lambda names, _modules: [replace(kernel, name=f"{name}.9-test") for name in names])
        monkeypatch.setattr(qemu, "version", lambda: "1.2.3")
        return cli.main(["lab", "powercut", *arguments]), seen

    return run


def as_they_should(case: Case) -> int:
    return 0 if case.strategy.promises else 3


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=lambda each: each.name)
def test_a_strategy_is_cut_as_often_as_is_asked_for_in_all_its_places(strategy: powercut.Strategy) -> None:
    cases = powercut.cases_of(strategy, 200, 1)
    assert 200 <= sum(case.cuts for case in cases) <= 200 + len(cases)
    assert all(case.cuts for case in cases)
    assert {case.place for case in cases} == {*strategy.places}
    assert {case.pattern for case in cases} == {"write", "randwrite"}
    assert {case.jobs for case in cases} == {*strategy.jobs}
    assert len({case.seed for case in cases}) == len(cases)


def test_what_is_cut_covers_engines_jobs_and_depths() -> None:
    cases = [case for strategy in STRATEGIES.values() for case in powercut.cases_of(strategy, 10, 1)]
    promised = [case for case in cases if case.strategy.promises]
    assert {case.strategy.engine for case in promised} == {"fua-dsync", "dm-linear-flush", "dontcache-kick"}
    assert {case.place for case in promised} == {"raw", "nvme", "scsi", "xfs", "ext4", "table", "table2", "dm", "dm2"}
    for name in ("fua", "nvme-fua"):
        assert {case.depth for case in promised if case.strategy.name == name} == {1, 32}
    assert {each.name for each in STRATEGIES.values() if not each.promises} == {
        "none",
        "buffered",
        "fua,device-ignores-it",
        "nvme-fua,device-ignores-it",
        "scsi-fua,device-ignores-it",
        "per-device,broken-coalescer",
    }


@pytest.mark.parametrize("engine", ["fua-dsync", "dontcache-kick", "dm-linear-flush"])
def test_no_strategy_of_an_engine_is_left_out(engine: str, engine_help: Callable[..., str]) -> None:
    help = engine_help(engine, "strategy").partition("valid values:")[2]
    known = {line.removeprefix(":").split()[0] for line in map(str.strip, help.splitlines()) if line}
    assert known == {each.name.partition(",")[0] for each in STRATEGIES.values() if each.engine == engine}


def test_the_result_as_json(command: Callable[..., tuple[int, list[list[Case]]]], capsys: pytest.CaptureFixture[str]) -> None:
    names = ("dsync", "none")
    arguments = [word for name in names for word in ("--strategy", name)]
    status, seen = command(as_they_should, *arguments, "--cuts", "90", "--seed", "5", "--kernel", "a", "--kernel", "b", "--format", "json")
    assert status == 0
    assert len(seen) == 2
    described = json.loads(capsys.readouterr().out)
    assert (described["schema"], described["seed"]) == ("durabench-powercut/1", 5)
    dsync, none = described["strategies"]
    assert (dsync["name"], dsync["promises"], dsync["lost"]) == ("dsync", True, 0)
    assert (none["name"], none["promises"]) == ("none", False)
    assert none["lost"] == 3 * len(none["cases"])
    for row in (dsync, none):
        assert row["cuts"] == sum(case["cuts"] for case in row["cases"]) >= 90
        assert row["acknowledged"] == 100 * len(row["cases"])


def test_what_some_kernels_cannot_do_is_cut_on_the_others(command: Callable[..., tuple[int, list[list[Case]]]]) -> None:
    _, seen = command(as_they_should, "--strategy", "dontcache,fdatasync", "--strategy", "dsync", "--cuts", "300")
    cuts = [{name: sum(case.cuts for case in cases if case.strategy.name == name) for name in STRATEGIES} for cases in seen]
    assert [each["dontcache,fdatasync"] for each in cuts][0] == 0
    assert sum(each["dontcache,fdatasync"] for each in cuts) >= 300
    assert all(each["dsync"] >= 100 for each in cuts)
    # On none that can it is left to the engine to say so.
    _, seen = command(as_they_should, "--strategy", "dontcache,fdatasync", "--cuts", "300", "--kernel", "6.1")
    assert sum(case.cuts for case in seen[0]) >= 300


def test_a_broken_promise_fails(command: Callable[..., tuple[int, list[list[Case]]]], capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = command(lambda case: int(case.place == "raw"), "--strategy", "dsync")
    assert status == 1
    said = capsys.readouterr()
    assert "dsync: a promise was broken" in said.err
    assert "dsync" in said.out


def test_a_control_that_loses_nothing_fails(
    command: Callable[..., tuple[int, list[list[Case]]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(lambda case: 0, "--strategy", "none")[0] == 1
    assert "none: a control that has to lose lost nothing" in capsys.readouterr().err


def test_an_unknown_strategy_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "powercut", "--strategy", "nvme"]) == 64
    assert "nvme is no strategy that can be cut; these can: dsync, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({}, ""),
        ({"lost": 1}, "a promise was broken"),
        ({"foreign": 1}, "what was never written there was found"),
        ({"acknowledged": 0}, "nothing was acknowledged"),
    ],
)
def test_what_is_wrong(numbers: dict[str, int], expected: str) -> None:
    case = powercut.cases_of(STRATEGIES["dsync"], 10, 1)[0]
    one = outcome(case, **numbers)
    assert Row("dsync", True, one.cuts, one.acknowledged, one.lost, one.dropped_sectors, [one]).wrong == expected


def test_what_failed_is_told_and_the_rest_kept(tmp_path: Path, kernel: Kernel) -> None:
    case = powercut.cases_of(STRATEGIES["dsync"], 10, 1)[0]
    (tmp_path / "stdout").touch()
    (tmp_path / "stderr").write_text("durabench-powercut: fio ended with status 256\n")
    failed = powercut._outcome(kernel, case, tmp_path, qemu.End())
    assert failed.error == "durabench-powercut: fio ended with status 256"
    assert failed.error in Row("dsync", True, 10, 100, 0, 10, [outcome(case), failed]).wrong
    (tmp_path / "stderr").write_text("fio-dontcache-kick: Linux 6.1 has no RWF_DONTCACHE for xfs; take strategy=kick\n")
    refused = powercut._outcome(kernel, case, tmp_path, qemu.End())
    assert (refused.error, refused.cuts) == (None, 0)
    assert refused.refused


def test_promises_are_kept_in_a_guest_and_controls_lose(stock: Kernel) -> None:
    # One case each: 16 jobs, depth 32 where there is one, random.
    wanted: dict[str, powercut.Place] = {
        "fua": "raw",
        "nvme-fua": "nvme",
        "scsi-fua": "scsi",
        "per-device,coalesce=1": "table2",
        "kernel": "dm",
        "kick,fdatasync": "xfs",
        "rwf-dsync": "ext4",
        "none": "raw",
        "fua,device-ignores-it": "ignores-fua",
        "nvme-fua,device-ignores-it": "nvme-ignores-fua",
        "scsi-fua,device-ignores-it": "scsi-ignores-fua",
        "per-device,broken-coalescer": "table",
        "buffered": "xfs",
    }
    cases = []
    for name, place in wanted.items():
        all_cases = powercut.cases_of(STRATEGIES[name], 10, 1)
        case = next(each for each in all_cases if (each.place, each.pattern, each.jobs) == (place, "randwrite", 16))
        cases.append(replace(case, cuts=2 if place in powercut.FILES else 5))
    with signals.caught() as stop:
        outcomes = powercut._guest(stock, cases, Console(stderr=True), stop)
    for case, found in zip(cases, outcomes, strict=True):
        assert found.error is None, (case, found)
        assert (found.cuts, found.foreign) == (case.cuts, 0), (case, found)
        assert found.acknowledged > 0, (case, found)
        assert (found.lost == 0) == case.strategy.promises, (case, found)
    # The cuts did take something from those that kept their promise.
    assert all(found.dropped_sectors for case, found in zip(cases, outcomes, strict=True) if case.place not in powercut.FILES)

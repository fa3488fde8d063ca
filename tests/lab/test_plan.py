# SPDX-License-Identifier: GPL-2.0-only
"""What the guest is given to do: complete job files and command lines with its own paths, and the calls of lab/init."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from durabenchlib import layout, measurement, signals
from durabenchlib.errors import Exit, Failure
from durabenchlib.formats import LabDevice
from durabenchlib.lab import plan
from durabenchlib.lab.kernels import Kernel
from durabenchlib.lab.plan import GuestPlan, Request


def planned(
    small: str, kernel: Kernel, root: Path, cases: Sequence[str] = (), strategies: Sequence[str] = (), **asked: object
) -> GuestPlan:
    made = plan.make(request(small, kernel, cases, strategies, **asked))
    root.mkdir()
    plan.write(made, root)
    return made


def request(
    small: str, kernel: Kernel, cases: Sequence[str] = (), strategies: Sequence[str] = (), **asked: object
) -> Request:
    chosen = plan.chosen(measurement.find(small)[0], cases, strategies)
    return Request(small, kernel, chosen, **asked)  # type: ignore[arg-type]


def test_a_plan(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made = planned(small, kernel, root, repeat=2)
    assert (root / "plan/plan").read_text().splitlines() == [
        "make_null_blk nullb0 size=32 memory_backed=1 cache_size=4 irqmode=2 completion_nsec=100000",
        "make_null_blk nullb1 size=16 memory_backed=1",
        "describe target nullb0",
        "begin",
        "repeat 001-seq-dsync-1",
        "repeat 002-seq-fua-1",
        "repeat 003-seq-fua-2",
        "repeat 004-seq-dsync-2",
    ]
    assert (root / "plan/drop-caches").exists()
    assert made.modules == ["virtio_pci", "virtio_blk", "null_blk"]


def test_job_files_have_the_guests_paths(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    planned(small, kernel, root, strategies=["fua"], settings={"RUNTIME": "2"})
    job = (root / "plan/001-seq-fua-1/job.fio").read_text()
    assert "${" not in job
    for line in (
        "ioengine=external:/engines/fio-fua-dsync.so",
        "strategy=fua",
        "counters=/results/001-seq-fua-1/counters.jsonl",
        "filename=/dev/nullb0",
        "size=16m",  # half of the device
        "runtime=2",
    ):
        assert line in job.splitlines()


def test_the_command_is_that_of_a_run(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    planned(small, kernel, root, strategies=["fua"], time_limit_s=7)
    folder = root / "plan/001-seq-fua-1"
    kept = json.loads((folder / "command.json").read_text())
    assert kept["environment"] == {"DURABENCH_ENGINES": "/engines", "LC_ALL": "C"}
    text = " ".join(kept["command"])
    assert text.startswith("/bin/durabench-observe --die-with-parent -d /dev/nullb0 ")
    assert "-- timeout --verbose --kill-after=10 7 /bin/fio --output-format=json+ --output=/results/001-seq-fua-1/fio.json " in text
    assert (folder / "command").read_text().splitlines() == ["export DURABENCH_ENGINES=/engines LC_ALL=C", f"exec {text}"]


def test_files_are_laid_out_before_what_is_observed(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    planned(small, kernel, root, cases=["files"], strategies=["fua"], time_limit_s=7)
    folder = root / "plan/001-files-fua-1"
    assert (folder / "fill").read_text().splitlines() == [
        "export DURABENCH_ENGINES=/engines LC_ALL=C",
        "exec /bin/durabench-observe --die-with-parent -- timeout --verbose --kill-after=10 7 "
        "/bin/fio --create_only=1 /results/001-files-fua-1/job.fio",
    ]
    assert "--create_only" not in (folder / "command").read_text()


def test_nothing_is_laid_out_on_a_device(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    planned(small, kernel, root, strategies=["fua"])
    assert not (root / "plan/001-seq-fua-1/fill").exists()


def test_a_job_that_fio_does_not_take_is_refused_while_it_is_planned(small: str, kernel: Kernel) -> None:
    with pytest.raises(Failure, match=r"seq\.fio: fio does not take it with .*RUNTIME=soon") as caught:
        plan.make(request(small, kernel, settings={"RUNTIME": "soon"}))
    assert caught.value.status == Exit.INPUT


def test_a_command_that_fails_is_told_while_it_is_planned(small: str, kernel: Kernel) -> None:
    file = Path(small) / "measurement.toml"
    file.write_text(file.read_text().replace("stat -c", "stat -x"))
    with pytest.raises(Failure, match="stat: invalid option") as caught:
        plan.make(request(small, kernel, ["list"]))
    assert caught.value.status == Exit.REFUSED


def test_a_dm_target(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made = planned(small, kernel, root, cases=["dm"], strategies=["dsync"])
    assert (root / "plan/dm-table").read_text() == "0 16 linear /dev/nullb0 0\n16 16 linear /dev/nullb1 8\n"
    lines = (root / "plan/plan").read_text().splitlines()
    assert lines[2:] == ["make_dm /plan/dm-table", "describe target dm-0", "begin", "repeat 001-dm-dsync-1"]
    assert "filename=/dev/dm-0" in (root / "plan/001-dm-dsync-1/job.fio").read_text().splitlines()
    assert "dm_mod" in made.modules


def test_each_dm_case_has_its_own_table(small: str, kernel: Kernel, tmp_path: Path) -> None:
    file = Path(small) / "measurement.toml"
    file.write_text(file.read_text().replace("[lab.tables]", '[lab.tables]\nno-table = ["echo", "0 8 zero"]'))
    root = tmp_path / "root"
    planned(small, kernel, root, cases=["dm", "no-table"], strategies=["dsync"], repeat=2)
    assert (root / "plan/plan").read_text().splitlines()[-6:] == [
        "begin",
        "repeat 001-dm-dsync-1",
        "repeat 002-dm-dsync-2",
        "make_dm /plan/no-table-table",
        "repeat 003-no-table-dsync-1",
        "repeat 004-no-table-dsync-2",
    ]
    assert (root / "plan/no-table-table").read_text() == "0 8 zero\n"


def test_generated_files_see_devices_of_the_right_size(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    planned(small, kernel, root, cases=["list"], strategies=["dsync"])
    assert (root / "results/list-list").read_text() == f"/dev/nullb0 {32 << 20}\n"
    assert "description=/results/list-list" in (root / "plan/001-list-dsync-1/job.fio").read_text().splitlines()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cases": ["seq", "dm"]}, r"run them apart: seq \(block\), dm \(dm\)"),
        ({"cases": ["nothing"]}, "has no case 'nothing'"),
        ({"strategies": ["nothing"]}, "has no strategy 'nothing'"),
        ({"settings": {"NOTHING": "1"}}, "has no variable 'NOTHING'"),
        ({"cases": ["no-table"]}, "has no table for case no-table"),
    ],
)
def test_what_can_not_be_planned(small: str, kernel: Kernel, tmp_path: Path, asked: dict[str, object], says: str) -> None:
    with pytest.raises(Failure, match=says) as caught:
        planned(small, kernel, tmp_path / "root", **asked)
    assert caught.value.status == Exit.USAGE


def test_other_devices_than_the_measurements(small: str, kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    devices = [LabDevice("nvme", "64m"), LabDevice("scsi", "1g", settings={"throttling.bps-write": 1000})]
    made = planned(small, kernel, root, strategies=["fua"], devices=devices, clock="host")
    assert (root / "plan/plan").read_text().splitlines() == ["describe target nvme0n1", "begin", "repeat 001-seq-fua-1"]
    job = (root / "plan/001-seq-fua-1/job.fio").read_text().splitlines()
    assert "filename=/dev/nvme0n1" in job
    assert "size=32m" in job
    assert made.modules == ["virtio_pci", "virtio_blk", "nvme", "virtio_scsi", "sd_mod"]
    with pytest.raises(Failure, match="--device and --clock: lab: nvme is a disk over a file"):
        planned(small, kernel, tmp_path / "other", devices=devices)


@pytest.mark.parametrize(
    ("settings", "filled"), [({"memory_backed": 1}, True), ({"memory_backed": "1"}, True), ({"memory_backed": 0}, False), ({}, False)]
)
def test_a_device_in_the_guests_memory_is_filled_before_its_file_system(
    small: str, kernel: Kernel, tmp_path: Path, settings: dict[str, str | int], filled: bool
) -> None:
    devices = [LabDevice("null_blk", "32m", settings=settings)]
    planned(small, kernel, tmp_path / "root", cases=["files"], strategies=["fua"], devices=devices)
    lines = (tmp_path / "root/plan/plan").read_text().splitlines()
    assert lines[0].startswith("make_null_blk nullb0 size=32")
    assert lines[1:-3] == ["fill_device nullb0", "make_xfs nullb0"][not filled :]


def test_what_the_comparisons_need(small: str) -> None:
    assert plan.needed(measurement.find(small)[0]) == {
        "9.9": {"seq": ["dsync", "fua"], "list": ["dsync"]},
        "9.8": {"seq": ["dsync"], "list": ["fua"]},
    }


def test_what_is_run_where_nothing_is_named(small: str) -> None:
    found, _ = measurement.find(small)
    assert plan.first_kernels(found) == ["9.9"]
    assert plan.chosen(found, [], []) == {"seq": ["dsync", "fua"]}
    # Compared by one comparison, and by none.
    assert plan.chosen(found, ["list", "dm"], []) == {"list": ["fua", "dsync"], "dm": ["dsync", "fua"]}
    assert plan.chosen(found, ["list"], ["dsync"]) == {"list": ["dsync"]}


def test_variables_of_a_case_and_of_a_strategy(small: str, kernel: Kernel, tmp_path: Path) -> None:
    file = Path(small) / "measurement.toml"
    own = '[lab.set]\n"seq" = { SPAN = "3m", RUNTIME = "7" }\n"seq:fua" = { RUNTIME = "2" }\n[lab.tables]'
    file.write_text(file.read_text().replace("[lab.tables]", own))
    root = tmp_path / "root"
    made = planned(small, kernel, root)
    jobs = [(root / f"plan/{name}/job.fio").read_text().splitlines() for name in ("001-seq-dsync-1", "002-seq-fua-1")]
    assert all("size=3m" in job for job in jobs)
    assert [line for job in jobs for line in job if line.startswith("runtime=")] == ["runtime=7", "runtime=2"]
    assert made.run.limit_s("seq") == 67
    planned(small, kernel, tmp_path / "other", settings={"RUNTIME": "5"})
    assert "runtime=5" in (tmp_path / "other/plan/002-seq-fua-1/job.fio").read_text()


def test_planning_heeds_a_stop(small: str, kernel: Kernel) -> None:
    stop = signals.Stop()

    def requests() -> Iterator[Request]:
        yield request(small, kernel)
        stop.note(signal.SIGTERM)
        # What a signal does to a program that is run meanwhile is not told as an error of the measurement's.
        yield request(small, kernel, settings={"RUNTIME": "soon"})
        pytest.fail("it goes on")

    with pytest.raises(Failure, match="stopped by SIGTERM"):
        plan.all_of(requests(), stop)


def test_a_measurement_without_a_lab(small: str, kernel: Kernel, tmp_path: Path) -> None:
    file = Path(small) / "measurement.toml"
    file.write_text(re.sub(r"\[lab\].*?(?=\[\[case)", "", file.read_text(), flags=re.DOTALL))
    with pytest.raises(Failure, match=r"small has no \[lab\]"):
        planned(small, kernel, tmp_path / "root")


@pytest.mark.parametrize(
    ("line", "wrong", "says"),
    [
        ('cases = ["list"]', 'cases = ["gone"]', "there is no case 'gone'"),
        ('before = "9.8:dsync"', 'before = "9.8"', "'9.8' is not KERNEL:STRATEGY, such as 6.12:dsync"),
        ('before = "9.8:dsync"', 'before = "9.8:other"', "'other' is not in strategies"),
        ("[lab.tables]", '[lab.set]\n"gone" = {}\n[lab.tables]', "there is no case 'gone'"),
        ("[lab.tables]", '[lab.set]\n"seq:other" = {}\n[lab.tables]', "'other' is not in strategies"),
        ("[lab.tables]", '[lab.set]\n"seq" = { TARGET = "x" }\n[lab.tables]', "TARGET is given by the runner"),
        ('memory = "512m"', 'memory = "much"', "'much' is not a size"),
        ('model = "null_blk"', 'model = "tape"', "'tape' is none of null_blk, nbdkit, virtio, scsi, nvme"),
        ('model = "null_blk"', 'model = "scsi"', "scsi is a disk over a file of the host's"),
        ('clock = "virtual"', 'clock = "sun"', "'sun' is none of virtual, host"),
    ],
)
def test_a_wrong_lab_is_told(small: str, kernel: Kernel, tmp_path: Path, line: str, wrong: str, says: str) -> None:
    file = Path(small) / "measurement.toml"
    assert line in file.read_text()
    file.write_text(file.read_text().replace(line, wrong))
    with pytest.raises(Failure, match=says) as caught:
        planned(small, kernel, tmp_path / "root")
    assert caught.value.status == Exit.INPUT


def test_every_measurement_has_a_plan(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "plugin", lambda name: Path(f"nbdkit-{name}-plugin.so"))
    for name in measurement.names():
        for series, strategies in plan.needed(measurement.find(name)[0]).items():
            made = plan.make(Request(name, kernel, strategies))
            root = tmp_path / f"{name}-{series}"
            root.mkdir()
            plan.write(made, root)
            repeated = [line.removeprefix("repeat ") for line in (root / "plan/plan").read_text().splitlines() if "repeat " in line]
            assert len(repeated) == sum(map(len, strategies.values()))

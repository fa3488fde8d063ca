# SPDX-License-Identifier: GPL-2.0-only
"""durabench run, for real: fio with the project's engine under the observer, on files and loop devices."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import cli, formats, measurement, runner, signals

from command import PATIENCE_S, durabench, environment, eventually, processes, start

TINY = """
schema = "durabench-measurement/1"
name = "tiny"
title = "a tiny measurement"
engine = "fua-dsync"
targets = ["block", "file", "directory"]
before = "dsync"
after = "fua"
strategies = ["dsync", "fua", "none"]
file_size = "4m"
[variables]
SIZE = { target = 1.0, max = "1m" }
BS = "4k"
RUNTIME = "1"
[demo]
BS = "8k"
[[case]]
name = "one"
job = "one.fio"
headline = true
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "timed"
job = "timed.fio"
targets = ["block", "file"]
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "made"
job = "made.fio"
targets = ["file"]
set = { BS = "16k" }
generate = { LIST = ["sh", "-c", "echo ${BS} of ${TARGET}"] }
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "refused"
job = "made.fio"
targets = ["file"]
generate = { LIST = ["sh", "-c", "echo ${TARGET} is too small >&2; exit 2"] }
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "pair"
job = "pair.fio"
targets = ["file"]
devices = 2
metrics = [{ name = "write.iops", better = "higher" }]
"""

HEAD = """
[global]
# ${NOTHING} in a comment stands for nothing
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
bs=${BS}
size=${SIZE}
rw=write
"""

JOBS = {
    "one.fio": HEAD + "[one]\n" + "filename=${TARGET}\n",
    "timed.fio": HEAD + "[timed]\nfilename=${TARGET}\ntime_based\nruntime=${RUNTIME}\nnumjobs=2\n",
    "made.fio": HEAD + "[made]\nfilename=${TARGET}\n# kept\nwrite_bw_log=made\ndescription=${LIST}\n",
    "pair.fio": HEAD + "[a]\nfilename=${TARGET}\n[b]\nfilename=${TARGET2}\n",
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a measurement of a second or so."""
    folder = tmp_path / "jobs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "measurement.toml").write_text(TINY)
    for name, text in JOBS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Where a run goes; its name is in the command line of everything that it starts."""
    return tmp_path / "output"


@pytest.fixture
def fake_fio(tmp_path: Path) -> Callable[[str], Path]:
    """fake_fio(SHELL) -> a fio that says its version and otherwise does what the shell text says, `$output` being the file that
    its JSON is to go to."""

    def make(text: str) -> Path:
        path = tmp_path / "fio"
        path.write_text(
            '#!/bin/sh\ncase $1 in --version) echo fio-3.33; exit;; --parse-only|--create_only=1) exit;; esac\noutput=${2#--output=}\n' + text + "\n"
        )
        path.chmod(0o755)
        return path

    return make


def manifest(folder: Path) -> formats.Run:
    """The run's manifest, by the strict reader."""
    return formats.read_run(folder)


def line(folder: Path, name: str) -> Any:
    """The only document of a JSON lines file."""
    (text,) = (folder / name).read_text().splitlines()
    return json.loads(text)


def test_complete_run_on_a_file(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = durabench("run", tiny, "--target", target, "--repeat", "2", "--output", output, "--label", "first")
    assert done.returncode == 0, done.stderr
    run = manifest(output)
    assert (run.status, run.reason, run.label, run.demo) == ("complete", None, "first", False)
    assert [each.dir for each in run.repetitions] == [
        "001-one-dsync-1",
        "002-one-fua-1",
        "003-one-fua-2",
        "004-one-dsync-2",
    ]
    assert all(each.status == "ok" and each.exit_status == 0 and each.started for each in run.repetitions)
    assert run.variables == {"SIZE": "1m", "BS": "4k", "RUNTIME": "1"}
    assert run.environment.fio.startswith("fio-3.") and run.environment.kernel == os.uname().release
    assert run.target.kind == "file" and run.target.size_bytes == 4 << 20
    for repetition in run.repetitions:
        folder = output / repetition.dir
        counters = line(folder, "counters.jsonl")
        assert (counters["strategy"], counters["writes"]) == (repetition.strategy, 256)
        assert json.loads((folder / "observe.json").read_text())["exit_status"] == 0
        assert "${" not in (folder / "job.fio").read_text().replace("${NOTHING}", "")
    assert not target.exists()
    assert "[4/4] one dsync, round 2: ok" in done.stderr
    # It is not one of jobs/, and need not be there any more.
    shutil.rmtree(tiny)
    assert durabench("compare", output).returncode == 0
    assert not processes(output)


def test_stored_job_runs_as_it_is(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert durabench("run", tiny, "--target", target, "--repeat", "1", "--output", output).returncode == 0
    command = json.loads((output / "001-one-dsync-1/command.json").read_text())
    fio = command["command"].index("--") + 1
    shutil.move(output / "001-one-dsync-1", tmp_path / "kept")
    (output / "001-one-dsync-1").mkdir()
    again = subprocess.run(
        [*command["command"][fio:-1], tmp_path / "kept/job.fio"],
        env={"PATH": os.environ["PATH"], **command["environment"]},
        capture_output=True,
        text=True,
    )
    assert again.returncode == 0, again.stderr
    assert line(output / "001-one-dsync-1", "counters.jsonl")["writes"] == 256


def test_raw_device_counts_flushes(tiny: Path, output: Path, loop_device) -> None:
    device = loop_device("64M")
    done = durabench("run", tiny, "--target", device, "--repeat", "1", "--output", output)
    assert done.returncode == 0, done.stderr
    assert f"{device} (64.0 MiB) will be written over" in done.stderr
    observed = json.loads((output / "002-one-fua-1/observe.json").read_text())
    # A loop device has a write cache and no FUA: the kernel makes a write and a flush of each.
    assert [each["flushes"] for each in observed["devices"] if each["role"] == "target"] == [256]


def test_laying_files_out_is_not_observed(tiny: Path, output: Path, mount) -> None:
    job = tiny / "one.fio"
    job.write_text(job.read_text() + "overwrite=1\n")
    place = mount("xfs")
    done = durabench("run", tiny, "--target", place / "t", "--strategy", "fua", "--repeat", "1", "--output", output)
    assert done.returncode == 0, done.stderr
    (counters,) = map(json.loads, (output / "001-one-fua-1/counters.jsonl").read_text().splitlines())
    assert counters["writes"] == 256
    observed = json.loads((output / "001-one-fua-1/observe.json").read_text())
    (device,) = [each for each in observed["devices"] if each["role"] == "target"]
    # 256 writes of 4 KiB, and what XFS writes meanwhile; laid out, it would be twice as much.
    assert 2048 <= device["write_sectors"] < 3072


def test_directory_is_left_as_it_was(tiny: Path, output: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    job = tiny / "one.fio"
    job.write_text(job.read_text().replace("filename=", "directory="))
    assert durabench("run", tiny, "--target", place, "--repeat", "1", "--output", output).returncode == 0
    assert list(place.iterdir()) == []
    assert f"directory={place}/durabench-" in (output / "001-one-dsync-1/job.fio").read_text()


def test_path_with_a_colon(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "a:b"
    done = durabench("run", tiny, "--target", target, "--repeat", "1", "--output", output, "--strategy", "none")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("a*"))


def test_demo_and_settings(tiny: Path, output: Path, tmp_path: Path) -> None:
    done = durabench(
        "run", tiny, "--target", tmp_path / "t", "--repeat", "1", "--demo", "--set", "SIZE=64k", "--output", output
    )
    assert done.returncode == 0, done.stderr
    run = manifest(output)
    assert run.demo and run.variables == {"SIZE": "64k", "BS": "8k", "RUNTIME": "1"}
    assert line(output / "001-one-dsync-1", "counters.jsonl")["writes"] == 8


def test_generated_file_and_case_variables(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    done = durabench("run", tiny, "--target", target, "--case", "made", "--repeat", "1", "--output", output)
    assert done.returncode == 0, done.stderr
    assert (output / "made-list").read_text() == f"16k of {target}\n"
    assert f"description={output}/made-list" in (output / "001-made-dsync-1/job.fio").read_text()
    assert (output / "001-made-dsync-1/made_bw.1.log").exists()


def test_generator_refuses_the_target(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    done = durabench("run", tiny, "--target", target, "--case", "refused", "--output", output)
    assert (done.returncode, f"{target} is too small" in done.stderr) == (2, True)
    run = manifest(output)
    assert (run.status, run.reason) == ("failed", f"{target} is too small")
    assert {each.status for each in run.repetitions} == {"pending"}


def test_generator_refuses_a_target_that_is_there_before_anything_is_written(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.touch()
    done = durabench("run", tiny, "--target", target, "--case", "refused", "--output", output, "--dry-run")
    assert (done.returncode, f"{target} is too small" in done.stderr) == (2, True)
    assert not output.exists() and target.exists()


def test_two_targets(tiny: Path, output: Path, tmp_path: Path) -> None:
    arguments = ["run", tiny, "--target", tmp_path / "t1", "--case", "pair", "--repeat", "1", "--output", output]
    done = durabench(*arguments)
    assert (done.returncode, "needs 2 targets" in done.stderr) == (2, True)
    done = durabench(*arguments, "--target", tmp_path / "t2")
    assert done.returncode == 0, done.stderr
    run = manifest(output)
    assert run.target2 and run.target2.path == str(tmp_path / "t2")
    assert f"filename={tmp_path}/t2" in (output / "001-pair-dsync-1/job.fio").read_text()


def test_cases_that_do_not_fit_are_left_out_and_named(tiny: Path, output: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    arguments = ["run", tiny, "--target", place, "--dry-run"]
    done = durabench(*arguments, "--case", "all")
    assert done.returncode == 0, done.stderr
    assert "case timed is left out: it takes block or file" in done.stdout
    done = durabench(*arguments, "--case", "timed")
    assert (done.returncode, f"{place} is directory" in done.stderr) == (2, True)


def test_dry_run_writes_nothing(tiny: Path, output: Path, tmp_path: Path) -> None:
    before = sorted(path for path in tmp_path.rglob("*"))
    done = durabench("run", tiny, "--target", tmp_path / "t", "--case", "all", "--repeat", "2", "--output", output, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert "004-one-dsync-2" in done.stdout and "SIZE=1m" in done.stdout


def test_failure_has_the_engines_words(tiny: Path, output: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    done = durabench("run", tiny, "--target", target, "--set", "BS=1000", "--output", output)
    assert done.returncode == 1
    run = manifest(output)
    assert run.status == "failed"
    assert [each.status for each in run.repetitions[:3]] == ["failed", "pending", "pending"]
    assert run.repetitions[0].reason and run.repetitions[0].reason.startswith("fio-fua-dsync: ")
    assert run.repetitions[0].reason in done.stderr
    assert not target.exists()


def test_keep_going(tiny: Path, output: Path, tmp_path: Path) -> None:
    arguments = ["run", tiny, "--target", tmp_path / "t", "--set", "BS=1000", "--repeat", "1", "--keep-going"]
    done = durabench(*arguments, "--output", output)
    assert done.returncode == 1
    run = manifest(output)
    assert run.status == "failed" and [each.status for each in run.repetitions] == ["failed", "failed"]


def test_error_in_the_json_counts(tiny: Path, output: Path, tmp_path: Path, fake_fio) -> None:
    document = {"fio version": "fio-3.33", "jobs": [{"jobname": "one", "error": 28, "read": {}, "write": {}}]}
    fio = fake_fio(f"cat >$output <<'END'\n{json.dumps(document, indent=1)}\nEND")
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output, FIO=fio)
    assert done.returncode == 1
    assert "job 'one' ended with error 28" in (manifest(output).repetitions[0].reason or "")


def test_no_json_is_a_failure(tiny: Path, output: Path, tmp_path: Path, fake_fio) -> None:
    fio = fake_fio("echo 'fio: engine is not loadable' >&2; exit 1")
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output, FIO=fio)
    assert (done.returncode, "fio: engine is not loadable" in done.stderr) == (1, True)


def test_a_device_that_fails(tiny: Path, output: Path, tmp_path: Path, broken_device: str) -> None:
    """It is told once and in the engine's or fio's words, the run is invalid, and what was measured before is as it was."""
    earlier, arguments = tmp_path / "earlier", ["run", tiny, "--target", broken_device, "--case", "one", "--repeat", "1"]
    assert durabench(*arguments, "--output", earlier, "--set", "SIZE=512k").returncode == 0
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    done = durabench(*arguments, "--output", output, "--set", "SIZE=4m", "--keep-going", "--time-limit", "60")
    assert done.returncode == 1
    own = [line for line in done.stderr.splitlines() if line.startswith("durabench: ")]
    says = f"durabench: 001-one-dsync-1: fio-fua-dsync: job one: {broken_device}: strategy=dsync: write at 1048576: "
    assert len(own) == 1 and own[0].startswith(says), done.stderr
    run = manifest(output)
    assert run.status == "failed" and {each.status for each in run.repetitions} == {"failed"}
    assert {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()} == before
    gate = durabench("gate", "--baseline", earlier, "--candidate", output)
    assert (gate.returncode, "Invalid data" in gate.stdout) == (3, True), gate.stdout
    assert durabench("compare", earlier, output).returncode == 3


def test_time_limit(tiny: Path, output: Path, tmp_path: Path) -> None:
    arguments = ["run", tiny, "--target", tmp_path / "t", "--case", "timed", "--set", "RUNTIME=600"]
    done = durabench(*arguments, "--time-limit", "2", "--output", output)
    assert (done.returncode, "ended after 2 s, its time limit" in done.stderr) == (1, True)
    repetition = manifest(output).repetitions[0]
    assert repetition.status == "failed"
    assert not processes(output)


def test_job_that_is_killed(tiny: Path, output: Path, tmp_path: Path) -> None:
    """As for want of memory: fio says so, and ends by status 0."""
    (tiny / "timed.fio").write_text(HEAD + "[timed]\nfilename=${TARGET}\ntime_based\nruntime=${RUNTIME}\nnumjobs=2\nexec_prerun=kill -9 $PPID\n")
    done = durabench("run", tiny, "--target", tmp_path / "t", "--case", "timed", "--strategy", "fua", "--repeat", "1", "--output", output)
    assert (done.returncode, "got signal=9" in done.stderr) == (1, True), done.stderr
    assert manifest(output).repetitions[0].status == "failed"


def test_hang_that_ignores_sigterm(tiny: Path, output: Path, tmp_path: Path, fake_fio) -> None:
    # Like a job of fio, the child is in a session of its own, where no signal to the process group reaches it.
    fio = fake_fio("trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' \"$output\" & while :; do sleep 1; done")
    arguments = ["run", tiny, "--target", tmp_path / "t", "--time-limit", "1", "--output", output]
    done = durabench(*arguments, FIO=fio)
    assert (done.returncode, "its time limit" in done.stderr) == (1, True)
    assert not processes(output)


def test_kill_ends_what_ignores_sigterm(tiny: Path, output: Path, tmp_path: Path, fake_fio) -> None:
    """fio loses a SIGTERM that comes while it starts its jobs, and they are in sessions of their own."""
    begun = tmp_path / "begun"
    job = f"trap \"\" TERM; touch {begun}; while :; do sleep 1; done"
    fio = fake_fio(f"trap '' TERM; setsid sh -c '{job}' \"$output\" & while :; do sleep 1; done")
    command = start("run", tiny, "--target", tmp_path / "t", "--output", output, FIO=fio)
    assert eventually(begun.exists)
    command.kill()
    command.communicate(timeout=PATIENCE_S)
    assert eventually(lambda: not processes(output))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGQUIT, 131), (signal.SIGTERM, 143)])
def test_stop_keeps_a_partial_result(tiny: Path, output: Path, tmp_path: Path, number: int, status: int) -> None:
    target = tmp_path / "t"
    arguments = ["run", tiny, "--target", target, "--case", "one", "--case", "timed", "--set", "RUNTIME=600"]
    command = start(*arguments, "--repeat", "1", "--output", output)
    # The observer begins to sample when fio starts.
    assert eventually(lambda: list(output.glob("003-timed-dsync-1/samples.jsonl*")))
    command.send_signal(number)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == status, said
    assert f"stopped by {signal.Signals(number).name}" in said
    run = manifest(output)
    assert run.status == "partial" and run.reason
    assert [each.status for each in run.repetitions] == ["ok", "ok", "interrupted", "pending"]
    assert json.loads((output / "003-timed-dsync-1/observe.json").read_text())
    assert not processes(output) and not target.exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("takes", [True, False])
def test_stop_while_planning(
    tiny: Path, output: Path, tmp_path: Path, fake_fio, number: int, status: int, takes: bool
) -> None:
    parsed, go = tmp_path / "parsed", tmp_path / "go"
    fio = fake_fio("exit 1")
    check = f"--parse-only) echo >>{parsed}; until [ -e {go} ]; do sleep 0.1; done; exit {int(not takes)};;"
    fio.write_text(fio.read_text().replace("--parse-only|", f"{check} "))
    command = start("run", tiny, "--target", tmp_path / "t", "--case", "one", "--output", output, FIO=fio)
    assert eventually(parsed.exists)
    command.send_signal(number)
    go.touch()
    _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (status, f"durabench: stopped by {signal.Signals(number).name}\n")
    # The plan has two jobs to check.
    assert parsed.read_text() == "\n"
    assert not output.exists() and not (tmp_path / "t").exists()


def test_kill_leaves_nothing_behind(tiny: Path, output: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    target = place / "t"
    command = start("run", tiny, "--target", target, "--case", "timed", "--set", "RUNTIME=600", "--output", output)
    assert eventually(lambda: list(output.glob("001-timed-dsync-1/samples.jsonl*")))
    command.kill()
    command.communicate(timeout=PATIENCE_S)
    assert eventually(lambda: not processes(output) and not processes(target))
    assert list(place.iterdir()) == []
    assert manifest(output).status == "running"


def test_what_is_about_to_be_measured_is_told(tiny: Path, output: Path, mount) -> None:
    place = mount("xfs")
    device = subprocess.run(["findmnt", "-no", "SOURCE", place], capture_output=True, text=True).stdout.strip()
    done = durabench("run", tiny, "--target", place / "new", "--dry-run", "--output", output)
    assert f"{place}/new (on xfs, {device}) is written for the measurement" in done.stdout
    assert f"fresh folder in {place} (on xfs, {device})" in durabench("run", tiny, "--target", place, "--dry-run").stdout


def test_no_comparison_of_what_was_not_written(
    tiny: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(made: runner.Plan, *_: object) -> None:
        made.output.mkdir()
        made.repetitions[0].status = "ok"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(made.output / "run.json"))

    monkeypatch.setattr(runner, "execute", execute)
    assert cli.main(["run", str(tiny), f"--target={tmp_path / 't'}", f"--output={output}"]) == 1
    err = capsys.readouterr().err
    assert f"results: {output}\n" in err and "next: " not in err and "run.json: No space left on device" in err


def test_run_is_never_written_over(tiny: Path, output: Path, tmp_path: Path) -> None:
    output.mkdir()
    (output / "mine").write_text("stays")
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output)
    assert (done.returncode, "never written over" in done.stderr) == (64, True)
    assert [path.name for path in output.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--case", "nine"], 64, "no case 'nine'; it has"),
        (["--strategy", "magic"], 64, "no strategy 'magic'; it has dsync, fua, none"),
        (["--set", "NOPE=1"], 64, "no variable 'NOPE'; it has BS, RUNTIME, SIZE"),
        (["--set", "BS="], 64, "can't be empty"),
        (["--set", "BS"], 64, "is not NAME=VALUE"),
        (["--set", "BS=4k\nfilename=other"], 64, "a value has no blanks"),
        (["--set", "BS=4k filename=other"], 64, "a value has no blanks"),
        (["--set", "BS=$pagesize"], 64, "can't hold as part of a value"),
        (["--repeat", "0"], 64, "less than 1"),
        (["--repeat", "10001"], 64, "more than 10000"),
        (["--label", "a/b"], 64, "'a/b': a label is part of a folder's name: one or more printable characters, none of them /"),
        (["--label", ""], 64, "'': a label is part of a folder's name"),
        (["--label", "a\nb"], 64, "'a\\nb': a label is part of a folder's name"),
        (["--destroy", "disk7"], 2, "--destroy=disk7 is no name of"),
        (["--set", "SIZE=100t"], 2, "are free"),
        *((["--case", "timed", "--set", f"RUNTIME={time}"], 3, f"it has runtime={time}, which ends nothing") for time in ("0", "0.5", "1:30", "-1")),
        (["--case", "timed", "--set", "RUNTIME=soon"], 3, "timed.fio: fio does not take it with SIZE=1m BS=4k RUNTIME=soon: "),
    ],
)
def test_wrong_arguments(tiny: Path, output: Path, tmp_path: Path, arguments: list[str], status: int, says: str) -> None:
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output, *arguments)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert not output.exists() and not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("measurement/1", "measurement/9"), "'durabench-measurement/9'; this durabench reads 'durabench-measurement/1'"),
        (('name = "tiny"', 'name = "huge"'), "the folder is 'tiny'"),
        (('better = "higher"', 'better = "faster"'), "'faster' is none of higher, lower"),
        (('better = "higher"', 'better = "higher", margin = 3'), "a margin is a ratio less 1"),
        (('after = "fua"', 'after = "fast"'), "'fast' is not in strategies"),
        (('job = "pair.fio"', 'job = "none.fio"'), "'none.fio' is not there"),
        (('max = "1m"', 'max = "much"'), "'much' is not a size"),
        (('RUNTIME = "1"', 'TARGET = "/dev/sda"'), "TARGET is given by the runner"),
        (("[variables]", "[variables"), "is damaged"),
    ],
)
def test_wrong_measurement(tiny: Path, output: Path, tmp_path: Path, change: tuple[str, str], says: str) -> None:
    path = tiny / "measurement.toml"
    path.write_text(path.read_text().replace(*change))
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output)
    assert (done.returncode, says in done.stderr) == (3, True), done.stderr


def test_unknown_variable_in_a_job(tiny: Path, output: Path, tmp_path: Path) -> None:
    (tiny / "one.fio").write_text(JOBS["one.fio"] + "runtime=${RUNTIMES}\n")
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output)
    assert (done.returncode, f"{tiny}/one.fio:12: ${{RUNTIMES}} is not a variable" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("name", "says"), [("FIO", "no-such is not there"), ("DURABENCH_OBSERVE", "no-such"), ("DURABENCH_ENGINES", "no engines in")]
)
def test_what_is_missing(tiny: Path, tmp_path: Path, name: str, says: str) -> None:
    done = durabench("run", tiny, "--target", tmp_path / "t", **{name: tmp_path / "no-such"})
    assert (done.returncode, says in done.stderr) == (69, True), done.stderr


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (formats.Rule(memory=2.0), 8 << 30),
        (formats.Rule(memory=0.001, min="1g"), 1 << 30),
        (formats.Rule(memory=2.0, target=0.5), 5 << 29),
        (formats.Rule(memory=2.0, max="1g"), 1 << 30),
        (formats.Rule(target=1.0, max="100g"), 5 << 30),
    ],
)
def test_size_rules(tiny: Path, rule: formats.Rule, expected: int) -> None:
    found, _ = measurement.find(str(tiny))
    found.variables["SIZE"] = rule
    values = measurement.variables(found, {}, shortened={}, memory_bytes=4 << 30, target_bytes=5 << 30)
    assert values["SIZE"] == f"{expected >> 20}m"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("[a]\nsize=1g\nruntime=10\n[b]\nsize=1g\nruntime=20\n", (20.0, 2 << 30, 2 << 30)),
        ("[a]\nsize=1g\nruntime=1m\nramp_time=5s\n[b]\nstonewall\nsize=1g\nruntime=20\n", (85.0, 2 << 30, 2 << 30)),
        ("[global]\nfilename=f\nsize=64k\n[a]\nnumjobs=4\n[b]\nsize=1m\n", (None, (256 << 10) + (1 << 20), 1 << 20)),
        ("[global]\ndirectory=d\nsize=1m\n[a]\nnumjobs=4\n", (None, 4 << 20, 4 << 20)),
    ],
)
def test_load_of_a_job(job: str, expected: tuple[float | None, int, int]) -> None:
    load = measurement.load_of(job)
    assert (load.runtime_s, load.io_bytes, load.footprint_bytes) == expected


def test_time_limit_follows_the_job(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", environment())
    request = runner.Request(str(tiny), [str(tmp_path / "t")], cases=["one", "timed"], settings={"RUNTIME": "30"})
    plan = runner.plan(request, signals.Stop())
    assert plan.limit_s("timed") > 30 + runner.MARGIN_S
    assert plan.limit_s("one") > runner.MARGIN_S


@pytest.mark.parametrize("name", ["${HOME}x", "a\nfilename=b", "a#b", "a;b", "`id`"])
@pytest.mark.parametrize("what", ["target", "output"])
def test_path_that_fio_would_read_as_another(tiny: Path, output: Path, tmp_path: Path, name: str, what: str) -> None:
    """fio would write to a file that nobody checked."""
    paths = {"target": tmp_path / "t", "output": output, what: tmp_path / name}
    before = sorted(tmp_path.iterdir())
    done = durabench("run", tiny, "--target", paths["target"], "--output", paths["output"])
    assert done.returncode == 64
    assert "can't hold as part of a value" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_empty_target(tiny: Path) -> None:
    done = durabench("run", tiny, "--target", "", "--dry-run")
    assert done.returncode == 64
    assert "the target is empty" in done.stderr


def test_misspelt_option_is_the_reason(tiny: Path, output: Path, tmp_path: Path) -> None:
    for each in tiny.glob("*.fio"):
        each.write_text(each.read_text().replace("strategy=", "stratgy="))
    done = durabench("run", tiny, "--target", tmp_path / "t", "--output", output)
    assert done.returncode == 3
    assert f"{tiny}/one.fio: fio does not take it" in done.stderr and "Bad option <stratgy=" in done.stderr
    assert not output.exists()

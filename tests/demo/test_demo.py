# SPDX-License-Identifier: GPL-2.0-only
"""durabench demo, with repetitions of a second: what it shows, and that nothing stays behind, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import formats

import stages
from command import COMMAND, PATIENCE_S, durabench, environment, eventually, start


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The demo's folder; its name is in all that the demo makes."""
    return tmp_path / "demo"


def left_behind(output: Path) -> list[str]:
    """Loop devices, mounts in any namespace, processes and temporary files that belong to a demo."""
    found = stages.in_use(output)
    if output.exists():
        found += [str(path) for path in output.iterdir() if path.name not in ("runs", "report.html", "comparison.json")]
    return found


def needs_loop_devices() -> None:
    """Skip where the demo would measure on plain files."""
    if os.geteuid() or not Path("/dev/loop-control").exists():
        pytest.skip("the demo makes loop devices only as root, and where there are some")


def case(comparison: Any, measurement: str, name: str) -> Any:
    """One case of a comparison's JSON."""
    (found,) = [each for each in comparison["measurements"] if each["name"] == measurement]
    (wanted,) = [each for each in found["cases"] if each["name"] == name]
    return wanted


def test_whole_demo(output: Path) -> None:
    needs_loop_devices()
    done = durabench("demo", "--seconds", "1", "--output", output)
    assert done.returncode == 0, done.stderr
    assert left_behind(output) == []
    assert "flushes per write" in done.stdout
    assert (output / "report.html").stat().st_size
    formats.read_comparison(output / "comparison.json")
    comparison = json.loads((output / "comparison.json").read_text())
    assert [each["name"] for each in comparison["measurements"]] == ["seagate-odsync", "xfs-dontcache", "dm-linear"]
    for run in sorted((output / "runs").iterdir()):
        manifest = formats.read_run(run)
        assert manifest.status == "complete" and manifest.demo, run
        assert manifest.target.backing is None or str(output) in manifest.target.backing
    assert formats.read_run(output / "runs/xfs-dontcache").target.filesystem == "xfs"

    # The mechanism: a loop device has a write cache and no FUA.
    seq = case(comparison, "seagate-odsync", "seq")["mechanism"]
    assert seq["after"]["flushes_per_write"] == pytest.approx(1, rel=0.05)
    if _kernel() < (7, 4):
        assert seq["before"]["flushes_per_write"] == pytest.approx(2, rel=0.05)
    table = case(comparison, "dm-linear", "one-device")["mechanism"]
    assert table["before"]["flush_calls_per_sync"] == pytest.approx(1024, rel=0.1)
    assert table["after"]["flush_calls_per_sync"] == pytest.approx(1, rel=0.1)
    stream = case(comparison, "xfs-dontcache", "seq")["mechanism"]
    assert not stream["before"]["kicks"] and stream["after"]["kicks"] > 0


@pytest.mark.parametrize(
    ("measurement", "number", "status"),
    [
        ("seagate-odsync", signal.SIGKILL, -9),
        ("xfs-dontcache", signal.SIGKILL, -9),
        ("dm-linear", signal.SIGKILL, -9),
        ("xfs-dontcache", signal.SIGTERM, 143),
        ("seagate-odsync", signal.SIGINT, 130),
    ],
)
def test_stopped_while_measuring(output: Path, measurement: str, number: int, status: int) -> None:
    needs_loop_devices()
    command = start("demo", measurement, "--seconds", "60", "--output", output)
    # The observer begins to sample when fio starts.
    assert eventually(lambda: list(output.glob("runs/*/*/samples.jsonl*")))
    command.send_signal(number)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == status, said
    assert eventually(lambda: not left_behind(output)), left_behind(output)
    manifest = formats.read_run(output / "runs" / measurement)
    assert manifest.status == ("running" if number == signal.SIGKILL else "partial")
    assert not (output / "comparison.json").exists()


def test_at_its_stages(tmp_path: Path) -> None:
    needs_loop_devices()
    stages.sweep(tmp_path, lambda folder: ["demo", "xfs-dontcache", "--seconds", "1", "--output", folder / "out"], "comparison.json")


def test_ends_with_who_started_it(output: Path) -> None:
    """make is killed, and has nobody pass it on."""
    starter = subprocess.Popen(
        ["sh", "-c", '"$0" demo seagate-odsync --seconds 60 --output "$1"; true', COMMAND, output],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: list(output.glob("runs/*/*/samples.jsonl*")))
    starter.kill()
    starter.wait()
    assert eventually(lambda: not left_behind(output)), left_behind(output)


def test_without_root(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can become an ordinary user")
    # An ordinary user can't enter the folders that pytest makes for root.
    output = Path("/var/tmp") / f"durabench-test-{os.getpid()}"
    output.mkdir(mode=0o777)
    output.chmod(0o777)
    try:
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run(
            [*user, COMMAND, "demo", "seagate-odsync", "dm-linear", "--seconds", "1", "--output", output / "demo"],
            env=environment(),
            capture_output=True,
            text=True,
        )
        if "Permission denied" in done.stderr and "can't open" in done.stderr:
            pytest.skip(f"an ordinary user can't read this checkout: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert "only root can make loop devices" in done.stderr
        manifest = formats.read_run(output / "demo/runs/seagate-odsync")
        assert manifest.target.kind == "file" and any("plain file" in note for note in manifest.notes)
        comparison = json.loads((output / "demo/comparison.json").read_text())
        table = case(comparison, "dm-linear", "one-device")["mechanism"]
        assert table["before"]["flush_calls_per_sync"] == pytest.approx(1024, rel=0.1)
        assert left_behind(output / "demo") == []
    finally:
        subprocess.run(["rm", "-rf", output], check=True)


def test_folder_of_a_persons_own_is_not_replaced(output: Path) -> None:
    output.mkdir()
    (output / "mine").write_text("stays")
    done = durabench("demo", "--output", output)
    assert (done.returncode, "not empty" in done.stderr) == (64, True)
    assert (output / "mine").read_text() == "stays"


def test_unknown_measurement(output: Path) -> None:
    done = durabench("demo", "nine", "--output", output)
    assert (done.returncode, "no measurement 'nine'" in done.stderr) == (64, True)
    assert not output.exists()


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor)

# SPDX-License-Identifier: GPL-2.0-only
"""No job writes over data, or to what is in use: the guard (guard/guard.h) in every engine, on loop devices. tests/lab/guard.py has
the disks that this machine has not."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD, ENGINES, RunFio, sanitizer_environment

GUARD = BUILD / "guard/durabench-guard"
STRATEGIES = {"fua-dsync": "dsync", "dontcache-kick": "buffered", "dm-linear-flush": "kernel"}
TABLE = "table"  # dm-linear-flush with table=, whose devices are no files of fio's
# Jobs are processes or threads; files are set up before them, or in them.
WAYS = [{}, {"thread": 1}, {"create_serialize": 0}, {"create_serialize": 0, "thread": 1}]

Write = Callable[..., Any]


@pytest.fixture(params=[*STRATEGIES, TABLE])
def write(request: pytest.FixtureRequest, run_fio: RunFio, tmp_path: Path) -> Write:
    """write(device, …) -> what becomes of four jobs that write to it, by an engine."""

    def run(device: str | Path, **options: Any) -> Any:
        options = {"rw": "write", "bs": "4k", "size": "64k", "numjobs": 4, "group_reporting": 1, **options}
        if request.param != TABLE:
            return run_fio(request.param, strategy=STRATEGIES[request.param], filename=device, **options)
        table = tmp_path / "table"
        table.write_text(f"0 1024 linear {device} 0\n")
        return run_fio("dm-linear-flush", strategy="per-device", table=table, filename="mapped", **options)

    return run


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def disk(loop_device: Callable[..., str], tmp_path: Path) -> tuple[str, Path]:
    """A loop device with ext4 on it, and the file behind."""
    device = loop_device("16M")
    subprocess.run(["mkfs.ext4", "-q", "-L", "precious", device], check=True)
    return device, tmp_path / "loop-0.img"


def refused(result: Any, *says: str) -> None:
    """By one message that has all of these."""
    assert result.exit_status != 0
    told = [line for line in result.stderr.splitlines() if line.startswith("fio-")]
    assert len(told) == 1 and all(text in told[0] for text in says), result.stderr
    assert "Nothing was written" in told[0]
    # fio itself repeats an error of its own.
    assert "Invalid argument" not in result.stderr


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_holds_something(write: Write, disk: tuple[str, Path], way: dict[str, int]) -> None:
    device, backing = disk
    before = digest(backing)
    refused(write(device, **way), "holds ext4 'precious' on ", f"confirm it by name: destroy={backing}.")
    assert digest(backing) == before
    os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    result = write(device, destroy=backing, **way)
    assert result.exit_status == 0, result.stderr
    assert (len(result.counters), {line["writes"] for line in result.counters}) == (4, {16})
    os.close(os.open(device, os.O_RDONLY | os.O_EXCL))


def test_a_name_that_confirms_no_device_of_the_job(write: Write, disk: tuple[str, Path], loop_device: Any, tmp_path: Path) -> None:
    device, backing = disk
    for name in ("S123", device, Path(device).name, f"{backing},S123"):
        refused(write(device, destroy=name), "is no name of ", str(backing))
    refused(write(loop_device("16M"), destroy=backing), f"destroy={backing} is no name of ")


def test_a_label_and_a_path_break_no_line(write: Write, loop_device: Callable[..., str], tmp_path: Path) -> None:
    device = loop_device("16M")
    subprocess.run(["mkfs.ext4", "-q", "-L", "a\nfio-b\033[2J", device], check=True)
    refused(write(device), "holds ext4 'a?fio-b?[2J' on ")
    point = tmp_path / "a b\n\\c"
    point.mkdir()
    subprocess.run(["mount", "-o", "ro", device, point], check=True)
    try:
        refused(write(device, allow_mounted_write=1), "is mounted on ", "/a b?\\c. Release it first")
    finally:
        subprocess.run(["umount", point], check=True)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("engine", STRATEGIES)
def test_no_file_takes_the_place_of_a_device(run_fio: RunFio, engine: str, way: dict[str, int]) -> None:
    missing = Path(f"/dev/durabench-missing-{os.getpid()}")
    result = run_fio(engine, strategy=STRATEGIES[engine], filename=missing, rw="write", bs="4k", size="64k", numjobs=2, **way)
    assert not missing.exists()
    told = [line for line in result.stderr.splitlines() if line.startswith("fio-")]
    assert (result.exit_status != 0, len(told)) == (True, 1) and told[0].endswith(f"{missing}: there is no such device"), result.stderr


def test_reads_are_not_refused(write: Write, disk: tuple[str, Path]) -> None:
    assert write(disk[0], rw="read").exit_status == 0


def test_in_use_can_not_be_confirmed(write: Write, disk: tuple[str, Path], tmp_path: Path) -> None:
    device, backing = disk
    link = tmp_path / "link"
    link.symlink_to(device)
    point = tmp_path / "point"
    point.mkdir()
    subprocess.run(["mount", "-o", "ro", device, point], check=True)
    before = digest(backing)
    try:
        for options in ({}, {"allow_mounted_write": 1}, {"create_serialize": 0}):
            refused(write(link, destroy=backing, **options), f"is in use: {Path(device).name} is mounted on {point}")
    finally:
        subprocess.run(["umount", point], check=True)
    assert digest(backing) == before


def test_held_by_another_program(write: Write, loop_device: Callable[..., str]) -> None:
    device = loop_device("16M")
    held = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        refused(write(device), "is in use: the kernel holds it for something")
    finally:
        os.close(held)


@pytest.fixture(params=["btrfs", "journal", "log"])
def second(request: pytest.FixtureRequest, loop_device: Callable[..., str], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A device that is in use by the mount of another, which alone is in /proc: of a btrfs of two, the journal of an ext4, the log of an
    XFS. And the file behind."""
    first, device = loop_device("320M"), loop_device("320M")
    make, options = {
        "btrfs": ([["mkfs.btrfs", "-q", first, device]], [f"device={device}"]),
        "journal": ([["mkfs.ext4", "-q", "-O", "journal_dev", device], ["mkfs.ext4", "-q", "-J", f"device={device}", first]], []),
        "log": ([["mkfs.xfs", "-q", "-l", f"logdev={device},size=64m", first]], [f"logdev={device}"]),
    }[request.param]
    for command in make:
        subprocess.run(command, check=True, capture_output=True)
    point = tmp_path / "point"
    point.mkdir()
    # A file system that may be written is, some time after its mount, by itself.
    done = subprocess.run(["mount", "-o", ",".join(["ro", *options]), first, point], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"it can't be mounted here: {done.stderr.strip()}")
    yield device, tmp_path / "loop-1.img"
    subprocess.run(["umount", point], check=True)


def test_in_use_by_the_mount_of_another(run_fio: RunFio, second: tuple[str, Path]) -> None:
    device, backing = second
    options = {"filename": device, "rw": "write", "bs": "4k", "size": "64k"}
    before = backing.open("rb").read(1 << 20)
    refused(run_fio("fua-dsync", strategy="dsync", destroy=backing, **options), "is in use: the kernel holds it for something")
    assert backing.open("rb").read(1 << 20) == before
    # fio's own engines see nothing of it.
    assert run_fio("psync", direct=1, **options).exit_status == 0
    assert backing.open("rb").read(1 << 20) != before


def test_nothing_can_have_it_meanwhile(write: Write, loop_device: Callable[..., str], tmp_path: Path) -> None:
    """While the last of several jobs still runs."""
    device = loop_device("16M")
    script = tmp_path / "probe.sh"
    script.write_text(f"#!/bin/sh\nexec {GUARD} {device} 2>{tmp_path}/probe\n")
    script.chmod(0o755)
    jobs = [{"name": "short"}, {"name": "long", "startdelay": 1, "exec_prerun": script}]
    result = write(device, jobs=jobs, numjobs=1, group_reporting=0)
    assert result.exit_status == 0, result.stderr
    assert "is in use: the kernel holds it" in (tmp_path / "probe").read_text()


def test_engines_of_one_fio_share_a_device(fio: Path, loop_device: Callable[..., str], tmp_path: Path) -> None:
    lines = [f"[global]\nfilename={loop_device('16M')}\nrw=write\nbs=4k\nsize=64k"]
    for number, (name, strategy) in enumerate(STRATEGIES.items()):
        lines.append(f"[{name}]\nioengine=external:{ENGINES}/fio-{name}.so\nstrategy={strategy}\noffset={number}m")
    job = tmp_path / "job.fio"
    job.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, **sanitizer_environment(ENGINES / "fio-fua-dsync.so")}
    for serialize in (0, 1):
        done = subprocess.run(
            ["timeout", "60", fio, f"--create_serialize={serialize}", job], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr


def test_a_claim_of_the_program_that_started_fio(write: Write, disk: tuple[str, Path]) -> None:
    """It was confirmed there; fio finds it claimed, and nobody else can claim it."""
    device, backing = disk
    claimed = [GUARD, "--destroy", str(backing), device, "--"]
    result = write(device, under=claimed)
    assert result.exit_status == 0, result.stderr
    done = subprocess.run([*claimed, "env", "-u", "DURABENCH_CLAIMS", GUARD, device], capture_output=True, text=True)
    assert (done.returncode, "is in use: the kernel holds it" in done.stderr) == (2, True)


def test_the_variable_alone_is_worth_nothing(write: Write, disk: tuple[str, Path]) -> None:
    """As it is when somebody copies it, or with other files in the place of its descriptors."""
    for value in ("3,4,5,1", "0,1,2,3", "nonsense", "-1,-1,-1,0"):
        refused(write(disk[0], variables={"DURABENCH_CLAIMS": value}), "holds ext4")


def test_a_device_that_changes_before_it_is_opened(write: Write, loop_device: Callable[..., str], tmp_path: Path) -> None:
    """A path that leads to another device after the check, which is that of a job before it."""
    first, second = loop_device("16M"), loop_device("16M")
    subprocess.run(["mkfs.ext4", "-q", second], check=True)
    before = digest(tmp_path / "loop-1.img")
    link = tmp_path / "link"
    link.symlink_to(first)
    script = tmp_path / "swap.sh"
    script.write_text(f"#!/bin/sh\nln -sfn {second} {link}\n")
    script.chmod(0o755)
    result = write(link, numjobs=1, group_reporting=0, exec_prerun=script)
    assert digest(tmp_path / "loop-1.img") == before
    if result.exit_status:  # with table= it was resolved before
        assert "is not the device that was checked" in result.stderr

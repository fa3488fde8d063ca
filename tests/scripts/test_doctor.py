# SPDX-License-Identifier: GPL-2.0-only
"""durabench doctor: what it finds here, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import doctor, formats

from command import BUILD, ROOT, durabench


def checks(*arguments: str | Path, **own: str | Path) -> tuple[int, Any]:
    """Exit status and JSON of doctor."""
    done = durabench("doctor", "--format", "json", *arguments, **own)
    return done.returncode, json.loads(done.stdout)


def of(listed: list[Any], name: str) -> Any:
    """The check of a name."""
    (found,) = [each for each in listed if each["name"] == name]
    return found


def test_everything_is_there() -> None:
    status, found = checks()
    assert (status, found["schema"]) == (0, formats.DOCTOR)
    for name in ("fio", *doctor.ENGINES, "durabench-observe", "durabench-guard"):
        assert of(found["tools"], name)["status"] == "ok", name
    assert found["targets"] == {}


@pytest.mark.parametrize("libdir", ["lib", "lib/x86_64-linux-gnu"])
def test_installation_finds_its_parts(tmp_path: Path, libdir: str) -> None:
    parts = {
        "bin/durabench": ROOT / "scripts/durabench",
        "bin/durabench-observe": BUILD / "observe/durabench-observe",
        "bin/durabench-guard": BUILD / "guard/durabench-guard",
        "share/durabench/durabenchlib": ROOT / "scripts/durabenchlib",
        "share/durabench/jobs": ROOT / "jobs",
        f"{libdir}/fio": BUILD / "engines",
    }
    for name, source in parts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", source, tmp_path / name], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DURABENCH_")}
    done = subprocess.run([tmp_path / "bin/durabench", "doctor"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout
    for name in ("bin/durabench-observe", "bin/durabench-guard", f"{libdir}/fio/fio-fua-dsync.so loads"):
        assert f"{tmp_path}/{name}" in done.stdout
    nine = [tmp_path / "bin/durabench", "run", "nine", "--target", tmp_path]
    done = subprocess.run(nine, capture_output=True, text=True, env=environment)
    assert "there are: dm-linear, seagate-odsync, xfs-dontcache" in done.stderr


def test_text_says_the_same(tmp_path: Path) -> None:
    done = durabench("doctor", "--target", tmp_path)
    assert done.returncode == 0
    assert "fua-dsync" in done.stdout and str(tmp_path) in done.stdout and "RWF_DONTCACHE" in done.stdout


def test_directory(tmp_path: Path) -> None:
    _, found = checks("--target", tmp_path)
    listed = found["targets"][str(tmp_path)]
    assert of(listed, "target")["found"].startswith("directory, ")
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_dontcache(mount) -> None:
    point = mount("tmpfs", "8M")
    _, found = checks("--target", point)
    listed = found["targets"][str(point)]
    assert "has no RWF_DONTCACHE" in of(listed, "RWF_DONTCACHE")["found"]
    assert of(listed, "device")["status"] == "note"


def test_loop_device(loop_device) -> None:
    device = loop_device("64M")
    _, found = checks("--target", device)
    listed = found["targets"][device]
    assert of(listed, "FUA")["found"] == "no"
    assert of(listed, "write cache")["found"] == "write back"
    assert of(listed, "loop")["advice"]
    assert of(listed, "run")["status"] == "ok"
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    _, found = checks("--target", device)
    refused = of(found["targets"][device], "run")
    assert (refused["status"], refused["found"]) == ("note", "refuses it")
    assert "holds ext4" in refused["advice"]


def test_missing_target(tmp_path: Path) -> None:
    status, found = checks("--target", "/dev/no-such-disk")
    assert status == 69
    assert of(found["targets"]["/dev/no-such-disk"], "target")["status"] == "missing"


@pytest.mark.parametrize(
    ("variable", "check"),
    [("FIO", "fio"), ("DURABENCH_ENGINES", "fua-dsync"), ("DURABENCH_OBSERVE", "durabench-observe"), ("DURABENCH_GUARD", "durabench-guard")],
)
def test_missing_tool(tmp_path: Path, variable: str, check: str) -> None:
    status, found = checks(**{variable: tmp_path / "no-such"})
    assert (status, of(found["tools"], check)["status"]) == (69, "missing")


def test_engine_that_fio_does_not_load(tmp_path: Path) -> None:
    for name in doctor.ENGINES:
        (tmp_path / f"fio-{name}.so").write_text("no engine")
    status, found = checks(DURABENCH_ENGINES=tmp_path)
    assert (status, of(found["tools"], "fua-dsync")["status"]) == (69, "missing")


@pytest.mark.parametrize(
    ("release", "cache", "fua", "expected"),
    [
        ("6.18.44", "write back", True, (1, 0)),
        ("6.18.44", "write back", False, (2, 1)),
        ("7.3.4-amd64", "write back", False, (2, 1)),
        ("7.4.0", "write back", True, (0, 0)),
        ("7.4.0", "write back", False, (1, 1)),
        ("7.10.1", "write back", False, (1, 1)),
        ("6.18.44", "write through", False, (0, 0)),
    ],
)
def test_flushes_of_an_odsync_write(release: str, cache: str, fua: bool, expected: tuple[int, int]) -> None:
    target = formats.Target(kind="block", path="/dev/x", resolved="/dev/x", write_cache=cache, fua=fua)
    assert doctor.flushes_per_dsync(target, release) == expected


def test_expectation_is_what_the_kernel_does(loop_device, run_fio, executed) -> None:
    """The table is checked against this kernel: 64 durable writes to a loop device by each way."""
    device = loop_device("64M")
    target = formats.Target(kind="block", path=device, resolved=device, write_cache="write back", fua=False)
    counts = []
    for strategy in ("dsync", "fua"):
        options = {"filename": device, "strategy": strategy, "rw": "write", "bs": "4k", "size": "256k"}
        counts.append(executed(device, lambda options=options: run_fio("fua-dsync", **options))["flushes"])
    waits, asynchronous = doctor.flushes_per_dsync(target, Path("/proc/sys/kernel/osrelease").read_text())
    assert counts == [64 * waits, 64 * asynchronous]

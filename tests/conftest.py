# SPDX-License-Identifier: GPL-2.0-only
"""What the tests share: the programs under test, fio under a time limit, and
block devices and file systems that are gone afterwards.

The environment chooses the build: DURABENCH_BUILD (default: build/ of this
checkout). A sanitized build is noticed and its runtime is preloaded into fio.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from command import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("DURABENCH_BUILD", ROOT / "build")).resolve()
ENGINES = BUILD / "engines"
FIO = Path(os.environ.get("FIO", ROOT / "build/bin/fio"))


def cached(name: str) -> str:
    """A value of the build's CMake cache."""
    return re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]


def fio_source_dir() -> Path:
    """The source of the fio that the engines are built for."""
    return Path(cached("FIO_SOURCE_DIR")).resolve()


def configured(build: Path, source: Path) -> str:
    """The option of CMake for a new build that needs no configure of fio's headers, which takes seconds: they are as for this build."""
    shutil.copytree(BUILD / "fio-config", build / "fio-config")
    return f"-DFIO_CONFIGURED={source}"


@functools.cache
def sanitizer_environment(library: Path) -> dict[str, str]:
    """What fio needs to load a sanitized engine; nothing for a plain one."""
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    if "libasan" not in needed:
        return {}
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    return {
        "LD_PRELOAD": runtime.strip(),
        # fio itself leaks at exit; what engines leak the shim tells. It and
        # others stand in front of the runtime.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


@dataclass
class FioResult:
    """One run of fio: its exit status, its last JSON document, what it and the
    engines said, and the counters lines of its jobs."""

    exit_status: int
    json: dict[str, Any] | None
    stderr: str
    stdout: str
    counters: list[dict[str, Any]] = field(default_factory=list)

    @property
    def job(self) -> dict[str, Any]:
        assert self.json is not None, self.stderr
        return self.json["jobs"][0]

    @property
    def counter(self) -> dict[str, Any]:
        assert len(self.counters) == 1, (self.counters, self.stderr)
        return self.counters[0]

    def of(self, name: str) -> FioResult:
        """What there is of the job of that name alone."""
        assert self.json is not None, self.stderr
        jobs = [job for job in self.json["jobs"] if job["jobname"] == name]
        return replace(self, json={**self.json, "jobs": jobs}, counters=[line for line in self.counters if line["job"] == name])


@pytest.fixture(scope="session")
def fio() -> Path:
    assert FIO.exists(), f"{FIO} is missing: run make, or set FIO"
    return FIO


EngineHelp = Callable[..., str]


@pytest.fixture
def engine_help(fio: Path) -> EngineHelp:
    """engine_help("fua-dsync", "strategy") -> what fio says of an engine's
    options, or of one."""

    def ask(engine: str, option: str = "") -> str:
        library = ENGINES / f"fio-{engine}.so"
        done = subprocess.run(
            ["timeout", "20", fio, f"--enghelp={library}" + (f",{option}" if option else "")],
            capture_output=True,
            text=True,
            env={**os.environ, **sanitizer_environment(library)},
        )
        assert done.returncode == 0, done.stderr
        assert "not built for" not in done.stderr
        return done.stdout

    return ask


RunFio = Callable[..., FioResult]


@pytest.fixture
def run_fio(fio: Path, tmp_path: Path) -> RunFio:
    """run_fio(engine, name="t", …options…): one job of one of our engines (or
    of fio's own) with `option=value` for each keyword; `a__b` stands for a-b,
    True for an option without a value. `jobs=[{…}, …]` has several jobs, which
    cost less than several runs; with stonewall=True one waits for the other.
    `under=[…]` is a command that runs fio, such as strace; `preload` a library
    that stands in for system calls, and `variables` are its."""
    counter = 0

    def run(
        engine: str,
        *,
        timeout: float = PATIENCE_S,
        under: list[str | Path] | None = None,
        library: Path | None = None,
        args: list[str] | None = None,
        jobs: list[dict[str, Any]] | None = None,
        preload: Path | None = None,
        variables: dict[str, str] | None = None,
        **options: Any,
    ) -> FioResult:
        nonlocal counter
        counter += 1
        ours = engine in ("fua-dsync", "dontcache-kick", "dm-linear-flush")
        path = library or ENGINES / f"fio-{engine}.so"
        counters = tmp_path / f"counters-{counter}.jsonl"
        output = tmp_path / f"fio-{counter}.json"

        # Of 0.15 s that a start of fio takes, 0.06 s are its test of whether the CPU's own clock can be had.
        # Nor need they the statistics of disks, for which it looks through /sys/block, where those of other tests come and go.
        lines = ["[global]", "clocksource=clock_gettime", "disk_util=0", f"ioengine={'external:' + str(path) if ours else engine}"]
        if ours and "counters" not in options:
            lines.append(f"counters={counters}")
        lines += option_lines(options)
        for number, job in enumerate(jobs or [{}]):
            lines += [f"[{job.get('name', f'job{number}')}]"]
            lines += option_lines({key: value for key, value in job.items() if key != "name"})
        job_file = tmp_path / f"job-{counter}.fio"
        job_file.write_text("\n".join(lines) + "\n")

        environment = {**os.environ, **(sanitizer_environment(path) if ours else {}), **(variables or {})}
        if preload:
            libraries = [str(preload), environment.get("LD_PRELOAD")]
            environment["LD_PRELOAD"] = ":".join(filter(None, libraries))
        done = subprocess.run(
            ["timeout", "-k", "5", str(timeout), *(under or []), fio, "--output-format=json+", f"--output={output}"]
            + (args or [])
            + [job_file],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode not in (124, 137, -signal.SIGKILL), f"fio hung: {job_file.read_text()}\n{done.stderr}"
        assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        return FioResult(
            exit_status=done.returncode,
            json=last_document(output),
            stderr=done.stderr,
            stdout=done.stdout,
            counters=[json.loads(line) for line in counters.read_text().splitlines()] if counters.exists() else [],
        )

    return run


@pytest.fixture
def shim(tmp_path: Path) -> Callable[[str], Path]:
    """shim(source) -> a library to preload, whose functions stand in for others'."""

    def build(source: str) -> Path:
        path, library = tmp_path / "shim.c", tmp_path / "shim.so"
        path.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n" + source)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, path], check=True)
        return library

    return build


@pytest.fixture
def strace_fio(run_fio: RunFio, tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    """strace_fio("pwrite64,fsync", engine, …) -> the (system call, path of its
    descriptor) of a run that must succeed, in order."""

    def run(calls: str, engine: str, **options: Any) -> list[tuple[str, str]]:
        log = tmp_path / "strace.log"
        command = ["strace", "-f", "-y", "-qq", "-e", "signal=none", "-e", f"trace={calls}", "-o", log]
        result = run_fio(engine, under=command, **options)
        assert result.exit_status == 0, result.stderr
        found = re.findall(r"^\d+ +(\w+)\(\d+<([^>]*)>", log.read_text(), re.MULTILINE)
        assert found, log.read_text()
        return found

    return run


def option_lines(options: dict[str, Any]) -> list[str]:
    return [
        key.replace("__", "-") if value is True else f"{key.replace('__', '-')}={value}"
        for key, value in options.items()
    ]


def last_document(path: Path) -> dict[str, Any] | None:
    """fio writes messages before its JSON, and control characters into it."""
    if not path.exists():
        return None
    lines = path.read_text().splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.rstrip() == "{"]
    if not starts:
        return None
    document, _ = json.JSONDecoder(strict=False).raw_decode("".join(lines[starts[-1] :]))
    return document


LoopDevice = Callable[..., str]


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[LoopDevice]:
    """loop_device(size="64M", sector_size=512) -> "/dev/loopN"; gone afterwards.
    `backing` names the file behind it, which the caller then detaches itself."""
    if os.geteuid():
        pytest.skip("loop devices need root")
    made: list[str] = []

    def make(size: str = "64M", sector_size: int = 512, backing: Path | None = None) -> str:
        own = backing is None
        backing = backing or tmp_path / f"loop-{len(made)}.img"
        subprocess.run(["truncate", "-s", size, backing], check=True)
        done = subprocess.run(
            ["losetup", "--find", "--show", f"--sector-size={sector_size}", backing], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"no loop device can be made here: {done.stderr.strip()}")
        device = done.stdout.strip()
        if own:
            made.append(device)
        return device

    yield make
    for device in made:
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.fixture
def broken_device(loop_device: LoopDevice, tmp_path: Path) -> Iterator[str]:
    """A block device that takes 1 MiB and fails every write after that: a loop
    device over a file on a full tmpfs."""
    if os.geteuid():
        pytest.skip("loop devices and mounts need root")
    point = tmp_path / "full"
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", point], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"tmpfs can't be mounted here: {done.stderr.strip()}")
    device = None
    try:
        device = loop_device("64M", backing=point / "backing")
        yield device
    finally:
        if device:
            subprocess.run(["losetup", "--detach", device], check=True)
        subprocess.run(["umount", "--lazy", point], check=True)


@pytest.fixture
def mount_namespace() -> None:
    """For tests that call unshare --mount."""
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no mount namespace can be made here (not root, or in a chroot): {done.stderr.strip()}")


Mount = Callable[..., Path]


@pytest.fixture
def mount(loop_device: LoopDevice, tmp_path: Path) -> Iterator[Mount]:
    """mount(kind="xfs", size="512M") -> folder on a new file system of that
    kind on a loop device (or a tmpfs); unmounted afterwards."""
    mounted: list[Path] = []

    def make(kind: str = "xfs", size: str = "512M") -> Path:
        point = tmp_path / f"mnt-{len(mounted)}"
        point.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", point]
        else:
            device = loop_device(size)
            force = {"xfs": "-f", "btrfs": "-f", "ext4": "-F"}[kind]
            subprocess.run([f"mkfs.{kind}", "-q", force, device], check=True, capture_output=True)
            command = ["mount", device, point]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{kind} can't be mounted here: {done.stderr.strip()}")
        mounted.append(point)
        return point

    yield make
    for point in reversed(mounted):
        subprocess.run(["umount", point], check=True)


def device_stat(device: str) -> dict[str, int]:
    """Counters of /sys/block/NAME/stat that tell what a device executed."""
    fields = Path(f"/sys/block/{Path(device).name}/stat").read_text().split()
    return {
        "writes": int(fields[4]),
        "write_sectors": int(fields[6]),
        "flushes": int(fields[15]),
    }


@pytest.fixture
def executed() -> Callable[[str, Callable[[], Any]], dict[str, int]]:
    """executed(device, action) -> what the device executed during action()."""

    def difference(device: str, action: Callable[[], Any]) -> dict[str, int]:
        before = device_stat(device)
        action()
        after = device_stat(device)
        return {name: after[name] - before[name] for name in after}

    return difference

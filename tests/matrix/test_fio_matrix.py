# SPDX-License-Identifier: GPL-2.0-only
"""Engines built for several releases of fio, each loaded by each: the right
pairs run, the others are refused by the guard and write nothing.

The environment chooses: SOURCES are fio source trees (default: the one that
`make test` looks for), beside the fio of this build; COMPILERS are what the
engines are built with. `make matrix` gives more of both. What is built stays
in build/matrix.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import FIO, ROOT, FioResult, RunFio, fio_source_dir

ENGINES = ["fua-dsync", "dontcache-kick", "dm-linear-flush"]
COMPILERS = os.environ.get("COMPILERS", "gcc").split()


@dataclass(frozen=True)
class Source:
    """A source tree of fio, or in its place a file that says why there is none."""

    path: Path  # without symbolic links, which may come to lead elsewhere

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def obstacle(self) -> str | None:
        if (self.path / "ioengines.h").exists():
            return None
        return self.path.read_text().strip() if self.path.is_file() else f"there is no source tree {self.path}"

    def headers(self) -> str:
        """A digest of all that the engines may be compiled with."""
        digest = hashlib.sha256()
        for path in sorted(self.path.rglob("*.h")):
            if path.name != "config-host.h":
                digest.update(str(path.relative_to(self.path)).encode() + path.read_bytes())
        return digest.hexdigest()

    def build(self, compiler: str) -> Path:
        return ROOT / "build/matrix" / f"{self.path.name}-{zlib.crc32(bytes(self.path)):08x}-{compiler}"


HERE = Source(fio_source_dir())
GIVEN = [Source(Path(word).resolve()) for word in os.environ.get("SOURCES", str(ROOT / "build/fio/another")).split()]
TREES = [source for source in dict.fromkeys([HERE, *GIVEN]) if not source.obstacle]


def run(*command: str | Path) -> None:
    # Inside of make, another make would look for a job server that is not there.
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@functools.cache
def engines(source: Source, compiler: str) -> Path:
    """The folder of the engines built for a fio."""
    build = source.build(compiler)
    configure = ["cmake", "-S", ROOT, "-B", build, f"-DFIO_SOURCE_DIR={source.path}", "-DDURABENCH_WERROR=ON"]
    run(*configure, f"-DCMAKE_C_COMPILER={compiler}")
    run("cmake", "--build", build, "--parallel", "2", "--target", *(f"fio-{name}" for name in ENGINES))
    return build / "engines"


@functools.cache
def fio_of(source: Source) -> Path:
    """The fio of a source: the one of this build, or one built with the configuration that the engines have."""
    if source == HERE:
        return FIO
    folder = engines(source, COMPILERS[0]).parent / "fio-config"
    run("make", "-C", folder, "-j2", "fio")
    return folder / "fio"


def version(fio: Path) -> str:
    return subprocess.run(["timeout", "20", fio, "--version"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(params=TREES, ids=lambda source: source.name)
def running(request: pytest.FixtureRequest) -> Source:
    return request.param


@pytest.fixture(params=TREES, ids=lambda source: source.name)
def built_for(request: pytest.FixtureRequest) -> Source:
    return request.param


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def fio(running: Source) -> Path:
    """The fio of run_fio()."""
    return fio_of(running)


@pytest.mark.parametrize("source", GIVEN, ids=lambda source: source.name)
def test_source_can_be_had(source):
    if source.obstacle:
        pytest.skip(f"fio {source.name}: {source.obstacle}")
    assert source in TREES


@pytest.mark.parametrize("engine", ENGINES)
def test_pair(run_fio: RunFio, fio, running, built_for, compiler, engine, tmp_path, request):
    about = request.node.user_properties
    about += [("running", running.name), ("built_for", built_for.name)]
    library = engines(built_for, compiler) / f"fio-{engine}.so"
    (tmp_path / "table").write_text(table(tmp_path / "below-0", tmp_path / "below-1"))
    jobs, expected = zip(*WORKLOADS[engine], strict=True)
    result = run_fio(engine, library=library, filename="target", rw="write", bs="4k", size="64k", jobs=list(jobs))

    versions = version(fio), version(fio_of(built_for))
    if versions[0] != versions[1]:
        right = False
    elif running.headers() == built_for.headers():
        right = True
    else:
        # One version, and a difference that engines need not meet: if they run, they have to run rightly.
        right = result.exit_status == 0
    if right:
        assert_ran(result, engine, versions[0], expected)
    else:
        assert_refused(result, engine, fio, *versions)
        assert sum(path.stat().st_blocks for path in (tmp_path / "below-0", tmp_path / "below-1")) == 0
        assert not (tmp_path / "target").exists()
    about.append(("outcome", "runs" if right else "refused"))


# Jobs of an engine, a job a way of submission, that any machine can do; and what they have to count.
WORKLOADS = {
    "fua-dsync": [
        ({"strategy": "dsync"}, {"strategy": "dsync", "durable_writes": 16}),
        ({"strategy": "fua", "iodepth": 4}, {"strategy": "fua", "durable_writes": 16}),
        ({"strategy": "none", "iodepth": 4}, {"strategy": "none", "durable_writes": 0}),
    ],
    "dontcache-kick": [
        ({"strategy": "buffered", "fsync": 1}, {"strategy": "buffered", "syncs": 15, "flush_calls": 15}),
        ({"strategy": "buffered", "submit": "io_uring", "iodepth": 4}, {"strategy": "buffered", "syncs": 0}),
    ],
    "dm-linear-flush": [
        ({"strategy": name, "table": "table", "fdatasync": 1}, {"strategy": name, "syncs": 15, "flush_calls": calls * 15})
        for name, calls in (("per-target", 8), ("per-device", 2))
    ],
}


def table(*devices: Path) -> str:
    """Eight linear targets of 8 KiB on regular files, which are made."""
    for device in devices:
        with device.open("wb") as file:
            file.truncate(64 << 10)
    return "".join(f"{16 * i} 16 linear {devices[i % len(devices)]} {16 * (i // len(devices))}\n" for i in range(8))


def assert_ran(result: FioResult, engine: str, fio_version: str, expected: Sequence[dict[str, Any]]) -> None:
    assert result.exit_status == 0, result.stderr
    assert [job["error"] for job in result.json["jobs"]] == [0] * len(expected)
    assert [job["write"]["total_ios"] for job in result.json["jobs"]] == [16] * len(expected)
    by_job = sorted(result.counters, key=lambda line: line["job"])
    assert len(by_job) == len(expected)
    for line, counts in zip(by_job, expected, strict=True):
        common = {"schema": "durabench-counters/1", "engine": engine, "fio": fio_version, "error": 0, "writes": 16}
        wanted = {**common, "write_bytes": 64 << 10, **counts}
        assert {key: line[key] for key in wanted} == wanted


def assert_refused(result: FioResult, engine: str, fio: Path, running: str, built_for: str) -> None:
    assert result.exit_status == 1, result.stderr
    assert result.json is None and not result.counters
    said = [line for line in result.stderr.splitlines() if line.startswith(f"fio-{engine}: ")]
    # At load, by two lines; or by each job, where only struct thread_data differs.
    if len(said) == 2 and "first difference: " in said[0]:
        assert f"running {running} ({fio.resolve()}), built against the headers of {built_for};" in said[0]
        assert said[1] == f"fio-{engine}: rebuild it with: make FIO={fio.resolve()}"
    else:
        assert said and all("struct thread_data differs" in line and "rebuild" in line for line in said), result.stderr

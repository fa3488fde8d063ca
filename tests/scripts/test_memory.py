# SPDX-License-Identifier: GPL-2.0-only
"""Memory runs out, by the limit of a cgroup: whom the kernel kills is told, and who is left clears up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from durabenchlib import environment, formats
from test_stages import MEASUREMENT

from command import COMMAND, PATIENCE_S, durabench, eventually, processes
from command import environment as parts

MIB = 1 << 20
OUT_OF_MEMORY = "out of memory, the machine's or its cgroup's"
# Its buffer is the size of a block.
JOB = """[global]
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
directory=${TARGET}
size=${BUFFER}
bs=${BUFFER}
fallocate=none
thread=${THREAD}
rw=write
exec_prerun=cat /proc/self/oom_score_adj
[one]
"""
# limited(MiB) -> what a command begins with that has no more memory, with its children.
Limited = Callable[[int], list[str]]


def memory_cgroup(name: str) -> Path:
    """A new cgroup with a memory controller, of version 2 or 1."""
    version_2 = Path("/sys/fs/cgroup/cgroup.subtree_control")
    try:
        if version_2.exists():
            if "memory" not in version_2.read_text().split():
                version_2.write_text("+memory")
            root = version_2.parent
        else:
            root = Path("/sys/fs/cgroup/memory")
        (root / name).mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup with a memory controller can be made: {error}")
    return root / name


@pytest.fixture
def limited() -> Iterator[Limited]:
    own = memory_cgroup(f"durabench-test-{os.getpid()}")

    def limit(mib: int) -> list[str]:
        file = next(own / name for name in ("memory.max", "memory.limit_in_bytes") if (own / name).exists())
        file.write_text(str(mib * MIB))
        return ["sh", "-c", f'echo $$ >{own}/cgroup.procs && exec "$@"', "sh"]

    swap = own / "memory.swap.max"
    if swap.exists():
        swap.write_text("0")
    yield limit
    assert eventually(lambda: not (own / "cgroup.procs").read_text())
    own.rmdir()


@pytest.fixture
def run_arguments(tmp_path: Path) -> Iterator[list[str | Path]]:
    for name in ("place", "small"):
        (tmp_path / name).mkdir()
    definition = MEASUREMENT.replace("[variables]", '[variables]\nBUFFER = "16m"\nTHREAD = "0"')
    (tmp_path / "small/measurement.toml").write_text(definition)
    (tmp_path / "small/one.fio").write_text(JOB)
    options = ["--target", tmp_path / "place", "--strategy", "fua", "--repeat", "1", "--output", tmp_path / "run"]
    yield ["run", tmp_path / "small", *options]
    assert not list((tmp_path / "place").iterdir()) and not processes(tmp_path / "run")


def run(under: list[str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, begun with others."""
    return subprocess.run([*under, COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=parts())


@pytest.mark.parametrize(("thread", "killed"), [(0, "fio: pid="), (1, "fio was killed (SIGKILL)")])
def test_fio_is_killed(limited: Limited, run_arguments: list[str | Path], tmp_path: Path, thread: int, killed: str) -> None:
    """A job that is a process of its own, or fio itself."""
    done = run(limited(200), *run_arguments, "--set", "BUFFER=512m", "--set", f"THREAD={thread}")
    said = [line for line in done.stderr.splitlines() if line.startswith("durabench: ")]
    assert (done.returncode, len(said)) == (1, 1), done.stderr
    assert said[0].startswith(f"durabench: 001-one-fua-1: {killed}") and said[0].endswith(OUT_OF_MEMORY), done.stderr
    left = formats.read_run(tmp_path / "run")
    assert (left.status, [each.status for each in left.repetitions]) == ("failed", ["failed"])
    assert durabench("compare", tmp_path / "run", tmp_path / "run").returncode == 3


def test_fio_is_to_be_killed_first(run_arguments: list[str | Path], tmp_path: Path) -> None:
    """Whoever is larger; else nobody would be left to tell."""
    done = run(["choom", "-n", "7", "--"], *run_arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/001-one-fua-1/one.prerun.txt").read_text() == "1000\n"


def test_cached_writes_with_little_memory(limited: Limited, mount, run_fio) -> None:
    """More is written at once than may be cached, and is what was written."""
    jobs = [{"name": strategy, "strategy": strategy} for strategy in ("buffered", "dontcache", "inline", "kick")]
    options = {"directory": mount(), "bs": "64k", "size": "64m", "rw": "write", "verify": "crc32c", "invalidate": 0, "end_fsync": 1}
    before = environment.oom_kills()
    done = run_fio("dontcache-kick", under=limited(48), jobs=jobs, **options)
    assert done.exit_status == 0 and done.json, done.stderr
    assert [job["error"] for job in done.json["jobs"]] == [0] * len(jobs)
    assert environment.oom_kills() == before

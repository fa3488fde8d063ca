# SPDX-License-Identifier: GPL-2.0-only
"""The load guard: an engine runs in the fio it was built for and in no other.

Engines are built here against changed copies of the headers: the same version
string and ioops number as the running fio, but another layout, which is what
a distribution's snapshot of a release looks like.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ENGINES, ROOT, configured, fio_source_dir

ENGINE_NAMES = ["fua-dsync", "dontcache-kick", "dm-linear-flush"]


class Headers:
    """A copy of the headers the engines were built with, and one build by it: what was not changed is as good as ever."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build = folder / "fio", folder / "build"
        shutil.copytree(fio_source_dir(), self.source, ignore=shutil.ignore_patterns("*.o", "*.a", "fio", ".git"))
        # A guard that is not optimized is made in half of the time.
        options = [f"-DFIO_SOURCE_DIR={self.source}", configured(self.build, self.source), "-DCMAKE_BUILD_TYPE=Debug"]
        self.run("cmake", "-S", ROOT, "-B", self.build, *options)

    @staticmethod
    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)

    def engine(self, name: str, change: Callable[[str], str]) -> Path:
        """fua-dsync built with the file of that name changed, which is as before afterwards."""
        path = self.source / name
        before = path.read_text()
        path.write_text(change(before))
        try:
            self.run("cmake", "--build", self.build, "--target", "fio-fua-dsync")
        finally:
            path.write_text(before)
        return self.build / "engines/fio-fua-dsync.so"


def insert(before: str, text: str) -> Callable[[str], str]:
    """Insert `text` before the only line that reads `before`."""

    def change(content: str) -> str:
        lines = content.splitlines(keepends=True)
        (number,) = [i for i, line in enumerate(lines) if line.strip() == before]
        return "".join([*lines[:number], text + "\n", *lines[number:]])

    return change


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Headers:
    return Headers(tmp_path_factory.mktemp("headers"))


def assert_refused(result, *words: str) -> None:
    assert result.exit_status == 1
    assert result.json is None
    said = [line for line in result.stderr.splitlines() if line.startswith("fio-fua-dsync:")]
    assert any(all(word in line for word in words) for line in said), result.stderr
    assert "rebuild" in result.stderr


WORKLOAD = {"strategy": "dsync", "rw": "write", "bs": "4k", "size": "64k"}


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_accepted_by_the_fio_it_was_built_for(engine_help, engine):
    assert "strategy" in engine_help(engine)


@pytest.mark.parametrize(
    "before, option",
    [
        ("unsigned int iodepth;", "iodepth"),
        ("unsigned int use_thread;", "thread"),
        ("unsigned int log_prio;", "log_prio"),
    ],
)
def test_another_layout_of_the_options(run_fio, headers, tmp_path, before, option):
    library = headers.engine("thread_options.h", insert(before, "\tchar *inserted_by_a_distribution;"))
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert_refused(result, f'first difference: option "{option}" is at offset', "running fio-", "headers of fio-")
    assert not (tmp_path / "f").exists()


def test_another_layout_of_the_statistics(run_fio, headers, tmp_path):
    library = headers.engine("stat.h", insert("uint64_t total_io_u[DDIR_RWDIR_SYNC_CNT];", "\tuint64_t inserted;"))
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert_refused(result, "first difference: size of client_ts is")


@pytest.mark.parametrize("before", ["void *eo;", "struct ioengine_ops *io_ops;"])
def test_another_layout_of_the_job(run_fio, headers, loop_device, tmp_path, before):
    """Only struct thread_data differs, which no exported object shows: found
    when fio first calls the engine, before anything of it is used."""
    library = headers.engine("fio.h", insert(before, "\tvoid *inserted;"))
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert result.exit_status == 1
    assert "struct thread_data differs" in result.stderr
    result = run_fio("fua-dsync", library=library, filename=loop_device(), **WORKLOAD)
    assert result.exit_status == 1
    assert "struct thread_data differs" in result.stderr
    assert "rebuild" in result.stderr


def test_another_version_of_the_same_layout(run_fio, headers, tmp_path):
    name = "FIO-VERSION-FILE" if (headers.source / "FIO-VERSION-FILE").exists() else "FIO-VERSION-GEN"
    library = headers.engine(name, lambda content: re.sub(r"fio-\d[\w.-]*", "fio-3.33-7-gabcdef0", content, count=1))
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert_refused(result, "headers of fio-3.33-7-gabcdef0", "first difference: version")


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_exports_one_symbol_and_stays_mapped(engine):
    library = ENGINES / f"fio-{engine}.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["get_ioengine"]
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in dynamic


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_every_option_has_help(engine_help, engine):
    options = dict(re.findall(r"^(\w+) +: (.*)$", engine_help(engine), re.MULTILINE))
    assert {"strategy", "destroy", "counters"} <= options.keys()
    assert all(len(text) > 10 and text != "No help available" for text in options.values()), options

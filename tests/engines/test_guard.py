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
from pathlib import Path

import pytest

from conftest import ENGINES, ROOT, fio_source_dir

ENGINE_NAMES = ["fua-dsync", "dontcache-kick", "dm-linear-flush"]


def build_engine(source: Path, build: Path) -> Path:
    """fua-dsync built against the headers in `source`."""
    for command in (
        ["cmake", "-S", ROOT, "-B", build, f"-DFIO_SOURCE_DIR={source}"],
        ["cmake", "--build", build, "--target", "fio-fua-dsync"],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)
    return build / "engines/fio-fua-dsync.so"


def insert(path: Path, before: str, text: str) -> None:
    """Insert `text` before the only line that reads `before`."""
    lines = path.read_text().splitlines(keepends=True)
    (number,) = [i for i, line in enumerate(lines) if line.strip() == before]
    lines.insert(number, text + "\n")
    path.write_text("".join(lines))


@pytest.fixture
def changed_headers(tmp_path):
    """A copy of the headers the engines were built with, to be changed."""
    copy = tmp_path / "fio"
    shutil.copytree(fio_source_dir(), copy, ignore=shutil.ignore_patterns("*.o", "*.a", "fio", ".git"))
    return copy


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
def test_another_layout_of_the_options(run_fio, changed_headers, tmp_path, before, option):
    insert(changed_headers / "thread_options.h", before, "\tchar *inserted_by_a_distribution;")
    library = build_engine(changed_headers, tmp_path / "build")
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert_refused(result, f'first difference: option "{option}" is at offset', "running fio-", "headers of fio-")
    assert not (tmp_path / "f").exists()


def test_another_layout_of_the_statistics(run_fio, changed_headers, tmp_path):
    insert(changed_headers / "stat.h", "uint64_t total_io_u[DDIR_RWDIR_SYNC_CNT];", "\tuint64_t inserted;")
    library = build_engine(changed_headers, tmp_path / "build")
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert_refused(result, "first difference: size of client_ts is")


@pytest.mark.parametrize("before", ["void *eo;", "struct ioengine_ops *io_ops;"])
def test_another_layout_of_the_job(run_fio, changed_headers, loop_device, tmp_path, before):
    """Only struct thread_data differs, which no exported object shows: found
    when fio first calls the engine, before anything of it is used."""
    insert(changed_headers / "fio.h", before, "\tvoid *inserted;")
    library = build_engine(changed_headers, tmp_path / "build")
    result = run_fio("fua-dsync", library=library, filename=tmp_path / "f", **WORKLOAD)
    assert result.exit_status == 1
    assert "struct thread_data differs" in result.stderr
    result = run_fio("fua-dsync", library=library, filename=loop_device(), **WORKLOAD)
    assert result.exit_status == 1
    assert "struct thread_data differs" in result.stderr
    assert "rebuild" in result.stderr


def test_another_version_of_the_same_layout(run_fio, changed_headers, tmp_path):
    (changed_headers / "FIO-VERSION-FILE").write_text("FIO_VERSION = fio-3.33-7-gabcdef0\n")
    library = build_engine(changed_headers, tmp_path / "build")
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

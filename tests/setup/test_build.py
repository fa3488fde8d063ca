# SPDX-License-Identifier: GPL-2.0-only
"""The build: no warning with either compiler, and an installation that is
complete and works from where it was put."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import FIO, ROOT, cached, configured, fio_source_dir

LIBDIR = "lib/some-multiarch"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where this module builds, a folder a compiler."""
    return tmp_path_factory.mktemp("build")


def build(compiler: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    configure = ["cmake", "-S", ROOT, "-B", folder, f"-DCMAKE_C_COMPILER={compiler}", "-DDURABENCH_WERROR=ON"]
    configure += [f"-DFIO_SOURCE_DIR={fio_source_dir()}", "-DCMAKE_INSTALL_PREFIX=/usr", f"-DCMAKE_INSTALL_LIBDIR={LIBDIR}"]
    if not folder.exists():
        configure.append(configured(folder, fio_source_dir()))
    # What clang warns of does not depend on how much it optimizes.
    if compiler == "clang":
        configure.append("-DCMAKE_BUILD_TYPE=Debug")
    subprocess.run(configure, check=True, capture_output=True, text=True)
    return subprocess.run(["cmake", "--build", folder, "--parallel", "2"], capture_output=True, text=True)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(compiler, folder):
    done = build(compiler, folder / compiler)
    assert done.returncode == 0, done.stderr
    assert "Building C object" in done.stdout
    assert "warning:" not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(folder) -> Path:
    """The prefix of an installation that was staged with DESTDIR."""
    assert build("gcc", folder / "gcc").returncode == 0
    environment = {**os.environ, "DESTDIR": str(folder / "stage")}
    subprocess.run(["cmake", "--install", folder / "gcc"], check=True, capture_output=True, env=environment)
    assert [path.name for path in (folder / "stage").iterdir()] == ["usr"]
    return folder / "stage/usr"


def test_installed_engines_are_loaded(installed):
    engines = sorted((installed / LIBDIR / "fio").iterdir())
    assert [path.name for path in engines] == [
        "fio-dm-linear-flush.so",
        "fio-dontcache-kick.so",
        "fio-fua-dsync.so",
    ]
    for engine in engines:
        done = subprocess.run(["timeout", "60", FIO, f"--enghelp={engine}"], capture_output=True, text=True)
        assert done.returncode == 0 and "strategy" in done.stdout, done.stderr


def test_installed_command_finds_its_modules(installed):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DURABENCH_")}
    done = subprocess.run(
        [installed / "bin/durabench", "--version"], capture_output=True, text=True, cwd="/", env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"durabench {cached('CMAKE_PROJECT_VERSION')}\n"


def test_installed_observer_runs(installed):
    done = subprocess.run([installed / "bin/durabench-observe", "--", "true"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_installed_manual_pages_are_found(installed):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    pages = [*(ROOT / "engines").glob("*.7"), *(ROOT / "observe").glob("*.1"), *(ROOT / "scripts/man").glob("*.1")]
    assert len(pages) == 15
    for page in pages:
        done = subprocess.run(["man", "-M", installed / "share/man", "-w", page.stem], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert Path(done.stdout.strip()).read_bytes() == page.read_bytes()


def test_installed_data_is_that_of_the_checkout(installed):
    for source, place in (
        ("scripts/durabenchlib", "durabenchlib"),
        ("jobs", "jobs"),
        ("results/published", "published"),
    ):
        expected = files(ROOT / source)
        assert expected and files(installed / "share/durabench" / place) == expected


def files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Content, and whether it can be executed, of each file in a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

# SPDX-License-Identifier: GPL-2.0-only
"""Jobs by thread under ThreadSanitizer: what they share is used in an order that the code makes sure of (`make test-lab`).

The engines are built with it, and fio is not: it sees every access of theirs, and of fio the locks and threads. Each of the mistakes in a
copy of the code has to be found, so that it is known to look at what it should.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from crowd import KIB, MIB, Case
from test_load import BY_NAME, SYNCED

from conftest import ROOT, cached, configured, fio_source_dir

# One build serves all.
pytestmark = pytest.mark.xdist_group("races")

JOBS = 32
# Of a job of up to 16 threads, of which the sanitizer keeps books.
MEMORY = 64 * MIB
# Fio waits for its threads by looking at a state of theirs again and again, which is no order for a sanitizer. This is what it does to
# their options and semaphores when it has seen that they ended.
FIOS_OWN = "race:^options_free$\nrace:^fio_sem_remove$\n"


class Build:
    """A copy of the code, and its engines with ThreadSanitizer."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build = folder / "source", folder / "build"
        shutil.copytree(ROOT, self.source, ignore=shutil.ignore_patterns("build", ".git", "results", "__pycache__"))
        fio = fio_source_dir()
        options = [f"-DFIO_SOURCE_DIR={fio}", configured(self.build, fio), "-DCMAKE_C_FLAGS=-fsanitize=thread"]
        self.run("cmake", "-S", self.source, "-B", self.build, *options)
        runtime = subprocess.run([cached("CMAKE_C_COMPILER"), "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
        (folder / "suppressions").write_text(FIOS_OWN)
        # A random layout of the address space may have what it needs.
        self.under = ["setarch", "-R", "env", f"LD_PRELOAD={runtime.stdout.strip()}", f"TSAN_OPTIONS=suppressions={folder}/suppressions"]

    @staticmethod
    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)

    def engine(self, name: str) -> Path:
        self.run("cmake", "--build", self.build, "--target", f"fio-{name}")
        return self.build / f"engines/fio-{name}.so"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    if not cached("HAVE_TSAN"):
        pytest.skip("the compiler has no ThreadSanitizer")
    made = Build(tmp_path_factory.mktemp("tsan"))
    done = subprocess.run([*made.under, "true"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be run under ThreadSanitizer here: {done.stderr.strip()}")
    return made


def by_thread(name: str, where: str = "device", depth: int = 1) -> Case:
    return Case(BY_NAME[name], where, thread=1, depth=depth, part=32 * KIB, jobs=JOBS, memory=MEMORY, **SYNCED)


CASES = [
    by_thread("fua-dsync-fua-flush", depth=8),
    by_thread("dontcache-kick-kick-pwritev2", "file"),
    by_thread("dontcache-kick-kick-io_uring", "file", depth=8),
    by_thread("dm-linear-flush-kernel-1"),
    by_thread("dm-linear-flush-per-target"),
    by_thread("dm-linear-flush-per-target-1"),
    by_thread("dm-linear-flush-per-device-1"),
]
# A file of an engine, what stands there once, and what in its place.
MISTAKES = {
    "shared flushes are counted without order": ("group-commit.c", "_Atomic uint64_t begun, done;", "uint64_t begun, done;"),
    "ranges are queued without order": ("kick.c", "_Atomic unsigned int head;", "unsigned int head;"),
    "flushes are not waited for": ("flush-pool.c", "	if (p->nr_threads)\n		wait_for(&p->done);\n", ""),
}
FOUND_BY = ["dm-linear-flush-per-device-1", "dontcache-kick-kick-pwritev2", "dm-linear-flush-per-target"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_race(crowd, build: Build, case: Case) -> None:
    crowd(case, library=build.engine(case.strategy.engine), under=build.under)


@pytest.mark.parametrize(("mistake", "name"), zip(MISTAKES, FOUND_BY, strict=True))
def test_a_race_is_found(crowd, build: Build, mistake: str, name: str) -> None:
    file, old, new = MISTAKES[mistake]
    path = build.source / "engines" / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    try:
        case = by_thread(name)
        with pytest.raises(AssertionError, match="ThreadSanitizer: data race"):
            crowd(case, library=build.engine(case.strategy.engine), under=build.under)
    finally:
        path.write_text(text)

# SPDX-License-Identifier: GPL-2.0-only
"""Where the parts of durabench are, in a checkout and in an installation (docs/formats.md, "Layout")."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from . import leftovers
from .errors import Exit, Failure

PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = PACKAGE.parent.parent if (PACKAGE.parent.parent / "CMakeLists.txt").is_file() else None
# Installed, the package is PREFIX/share/durabench/durabenchlib.
_PREFIX = PACKAGE.parent.parent.parent


def jobs() -> Path:
    """Folder of the measurements, one folder each."""
    return (_CHECKOUT or PACKAGE.parent) / "jobs"


def lab() -> Path:
    """Folder of what goes into the lab's guests: init."""
    return (_CHECKOUT or PACKAGE.parent) / "lab"


def plugin(name: str) -> Path:
    """The nbdkit plugin of that name, one of the lab's device models."""
    needs = "it is built where nbdkit-plugin-dev and libbsd-dev are"
    return _library(Path("lab", "model"), f"nbdkit-{name}-plugin.so", needs)


def reader() -> Path:
    """The library that reads what of fio's output is large."""
    return _library(Path("util"), "durabench-reader.so", "logs of fio are read by it")


def _library(built_in: Path, file: str, why: str) -> Path:
    """What is installed into lib/durabench, and built in that folder."""
    folder = _CHECKOUT / "build" / built_in if _CHECKOUT else _PREFIX / "lib" / "durabench"
    found = [folder / file] if _CHECKOUT else [*_PREFIX.glob(f"lib*/durabench/{file}"), *_PREFIX.glob(f"lib/*/durabench/{file}")]
    for path in found:
        if path.is_file():
            return path
    raise Failure(Exit.MISSING, f"{folder / file} is not there: {_remedy(why)}")


def powercut() -> Path:
    """Folder of the programs that cut the power of the lab's devices."""
    return _library(Path("lab", "powercut"), "durabench-powercut", "it is built where libbsd-dev is").parent


def published() -> Path:
    """Folder of the published numbers."""
    return _CHECKOUT / "results" / "published" if _CHECKOUT else PACKAGE.parent / "published"


def results() -> Path:
    """Folder that runs are put into where no other is named."""
    return _CHECKOUT / "results" / "local" if _CHECKOUT else Path.cwd() / "durabench-results"


def build() -> Path:
    """Folder for what is made and can be made again."""
    return _CHECKOUT / "build" if _CHECKOUT else Path.cwd() / "durabench-results"


@contextlib.contextmanager
def output(folder: Path | None, name: str) -> Iterator[Path]:
    """A new or empty folder for results, which no other process gets meanwhile; where none is given, `name` in `build()`, emptied."""
    path = folder.absolute() if folder else build() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Failure(Exit.USAGE, f"{path} is there already and no folder") from None
    except OSError as error:
        raise Failure(Exit.USAGE, f"{path}: {error.strerror}") from None
    with leftovers.held(path):
        for each in path.iterdir() if folder is None else ():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        if any(path.iterdir()):
            raise Failure(Exit.USAGE, f"{path} is there already and not empty")
        yield path


def engines() -> Path:
    """Folder of the engines."""
    named = os.environ.get("DURABENCH_ENGINES")
    if named:
        candidates = [Path(named)]
    elif _CHECKOUT:
        candidates = [_CHECKOUT / "build" / "engines"]
    else:
        candidates = [_PREFIX / "lib" / "fio", *_PREFIX.glob("lib*/fio"), *_PREFIX.glob("lib/*/fio")]
    for folder in candidates:
        if any(folder.glob("fio-*.so")):
            return folder.resolve()
    raise Failure(Exit.MISSING, f"no engines in {candidates[0]}: {_remedy('DURABENCH_ENGINES names their folder')}")


def observer() -> Path:
    """The program durabench-observe."""
    return _program("observe", "DURABENCH_OBSERVE")


def guard() -> Path:
    """The program durabench-guard."""
    return _program("guard", "DURABENCH_GUARD")


def _program(name: str, variable: str) -> Path:
    named = os.environ.get(variable)
    if named:
        path = Path(named)
    elif _CHECKOUT:
        path = _CHECKOUT / "build" / name / f"durabench-{name}"
    else:
        path = _PREFIX / "bin" / f"durabench-{name}"
    if not os.access(path, os.X_OK):
        raise Failure(Exit.MISSING, f"{path} is not there: {_remedy(f'{variable} names it')}")
    return path.resolve()


def fio() -> Path:
    """The fio that the engines were built for."""
    named = os.environ.get("FIO")
    built = _CHECKOUT / "build" / "bin" / "fio" if _CHECKOUT else None
    name = named or (str(built) if built and built.exists() else "fio")
    found = shutil.which(name)
    if not found:
        raise Failure(Exit.MISSING, f"{name} is not there: install the package fio, or name one by FIO=")
    return Path(found).absolute()


def _remedy(environment: str) -> str:
    return f"`make` builds them; {environment}" if _CHECKOUT else f"the installation is not complete; {environment}"

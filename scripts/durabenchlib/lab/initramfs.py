# SPDX-License-Identifier: GPL-2.0-only
"""The guest's file system: an archive of this machine's own programs with the libraries they need, and of a kernel's modules.

It is made without root: nothing but folders and regular files is in it, and the kernel makes the device nodes.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .. import inputs
from ..errors import Exit, Failure
from .kernels import Kernel

# Programs of the guest that are not the project's own, and the package that has each.
TOOLS = {
    "busybox": "busybox-static",
    "dmsetup": "dmsetup",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "nbdkit": "nbdkit",
    "nbd-client": "nbd-client",
}

_LIBRARY = re.compile(r"(?:=>\s+)?(/\S+)\s+\(0x")
_DEPENDS = re.compile(rb"\0(?:depends|softdep)=([^\0]*)\0")


def tool(name: str) -> Path:
    """A program of this machine for the guest."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not found:
        raise Failure(Exit.MISSING, f"{name} is not there: install the package {TOOLS[name]}")
    return Path(found)


def add_programs(root: Path, programs: Iterable[Path]) -> None:
    """Copy programs into the guest's /bin, and all libraries they need to where they are here."""
    (root / "bin").mkdir(exist_ok=True)
    for program in programs:
        shutil.copy(program, root / "bin" / program.name)
        add_libraries(root, program)


def add_libraries(root: Path, program: Path) -> None:
    """Copy the libraries that a program or a library needs to where they are here."""
    for library in libraries(program):
        copy = root / library.relative_to("/")
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)


def libraries(program: Path) -> list[Path]:
    """The shared libraries that the dynamic linker loads for a program, itself included."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    missing = re.findall(r"(\S+) => not found", done.stdout)
    if missing:
        raise Failure(Exit.MISSING, f"{program} needs {', '.join(missing)}, which is not there")
    return [Path(match[1]) for match in map(_LIBRARY.search, done.stdout.splitlines()) if match]


def add_modules(root: Path, kernel: Kernel, wanted: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Put modules and those they need into the guest's /modules, numbered in the order in which they have to be loaded. What is
    built into the kernel is left out; of a kernel without a folder of modules everything is taken to be."""
    folder = root / "modules"
    folder.mkdir(exist_ok=True)
    if kernel.modules is None:
        return
    tree = Modules(kernel)
    for number, (name, content) in enumerate(tree.ordered(wanted, optional)):
        (folder / f"{number:03d}-{name}.ko").write_bytes(content)


class Modules:
    """The modules of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        assert kernel.modules
        self._kernel = kernel
        self._files = {_name(path.name): path for path in kernel.modules.rglob("*.ko*")}
        built_in = kernel.modules / "modules.builtin"
        lines = inputs.text(built_in).split() if built_in.exists() else []
        self._built_in = {_name(Path(line).name) for line in lines}

    def ordered(self, wanted: Iterable[str], optional: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Name and content of the wanted modules, and of the optional ones that there are, each after those it needs."""
        seen: set[str] = set()
        there = [name for name in optional if _name(name) in self._files]
        for name in (*there, *wanted):
            yield from self._with_needs(_name(name), seen, must=True)

    def _with_needs(self, name: str, seen: set[str], must: bool) -> Iterator[tuple[str, bytes]]:
        if name in seen or name in self._built_in:
            return
        seen.add(name)
        if name not in self._files:
            if must:
                raise Failure(Exit.MISSING, f"kernel {self._kernel.name} has no {name}, neither built in nor as a module")
            return
        content = _content(self._files[name])
        must_have, may_have = needs(content)
        for each in must_have:
            yield from self._with_needs(each, seen, must=True)
        for each in may_have:
            yield from self._with_needs(each, seen, must=False)
        yield name, content


def needs(module: bytes) -> tuple[list[str], list[str]]:
    """What a module says it needs (depends), and what it likes to have before it (softdep pre)."""
    must, may = [], []
    for value in _DEPENDS.findall(module):
        text = value.decode("ascii", "replace")
        if text.startswith(("pre:", "post:")):
            may += [_name(each) for each in text.partition("post:")[0].removeprefix("pre:").split()]
        else:
            must += [_name(each) for each in text.split(",") if each]
    return must, may


def archive(root: Path, output: Path) -> None:
    """Write a folder as a cpio archive that the kernel unpacks; archives can follow each other in one file."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    with open(output, "ab") as file:
        done = subprocess.run(
            [tool("busybox"), "cpio", "-o", "-H", "newc", "-R", "0:0"],
            cwd=root,
            input="\n".join(names).encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    if done.returncode:
        raise Failure(Exit.FAILED, f"busybox cpio: {done.stderr.decode('utf-8', 'replace').strip()}")


def _name(text: str) -> str:
    """A module's name as the kernel has it."""
    return text.partition(".")[0].replace("-", "_")


def _content(path: Path) -> bytes:
    """A module, unpacked: not every guest's insmod can."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return zlib.decompress(data, wbits=47)
    if path.suffix != ".ko":
        raise Failure(Exit.INPUT, f"{path}: a module compressed like this can't be read; unpack it (xz and gzip can)")
    return data

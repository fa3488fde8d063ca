# SPDX-License-Identifier: GPL-2.0-only
"""The kernels of the lab: stock Debian ones, fetched without root and kept in a cache, or a person's own build.

apt does the fetching, with lists, cache and state of its own; mirrors, keys and proxies are the machine's. It checks every
package against the archive's signature.
"""

from __future__ import annotations

import functools
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .. import formats, inputs, leftovers
from ..errors import Exit, Failure

# The suites that have kernels, of the archive and of its security archive. What a suite lacks it need not have.
SUITES = ("bookworm", "bookworm-updates", "trixie", "trixie-updates", "trixie-backports", "sid", "experimental")
SECURITY_SUITES = ("bookworm-security", "trixie-security")
# Named by the suites of testing and unstable alike; a machine's own sources may name another.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

FLAVOUR = "cloud-amd64"
# How long lists of packages serve.
DAY_S = 86400.0

_SERIES = re.compile(r"\d+\.\d+")
_IMAGE = re.compile(rf"linux-image-[0-9].*-{FLAVOUR}")
# The header of an image for x86, which begins at 0x1f1; what it names lies in the setup code, of at most 64 sectors.
_HEADER_BYTES = 0x8200
_SIGNATURE = slice(0x202, 0x206)
_KERNEL_VERSION = slice(0x20E, 0x210)
_XLOADFLAGS = slice(0x236, 0x238)
_RELEASE = re.compile(rb"\w[\w.+~-]*")
# What images for other machines have at 0x38.
_OTHER_MACHINES = {b"ARM\x64": "arm64", b"RSC\x05": "RISC-V"}
# What an image package has its parts from, since 6.19: vmlinuz, modules, and the list of what is built in.
_PARTS = re.compile(r"(linux-[^\s,|]+) \(= ([^)]+)\)")


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted. `modules` is the folder of its modules (lib/modules/RELEASE), None where it has none;
    `package` and `version` are empty for a person's own."""

    name: str
    image: Path
    modules: Path | None
    package: str = ""
    version: str = ""


@dataclass(frozen=True)
class Package:
    """A package as apt tells it; `needs` are the packages that belong to it: those it needs in one exact version."""

    name: str
    version: str
    needs: tuple[tuple[str, str], ...] = ()


Versioned = TypeVar("Versioned", Kernel, Package)


def cache() -> Path:
    """Folder for what is fetched and can be fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "durabench" / "lab"


def folder() -> Path:
    """Folder of the kernels that were fetched."""
    return cache() / "kernels"


def find_all(texts: Sequence[str], modules: Sequence[Path] = ()) -> list[Kernel]:
    """Kernels of different names, each by its series, its release or the path of its image. `modules` are folders that modules of
    one's own kernels were installed into; each takes those of its release."""
    if modules and not any("/" in text for text in texts):
        raise Failure(Exit.USAGE, "--modules goes with the path of a kernel's image (such as ./bzImage), and none is given")
    found = [find(text, modules) for text in texts]
    for number, kernel in enumerate(found):
        for other in found[:number]:
            if other.image == kernel.image:
                raise Failure(Exit.USAGE, f"kernel {kernel.name} is given twice; --repeat N repeats")
            if other.name == kernel.name:
                raise Failure(
                    Exit.USAGE,
                    f"{other.image} and {kernel.image} both are {kernel.name}, which is what their results are told apart by; "
                    "`make LOCALVERSION=-NAME` gives a build a name",
                )
    return found


def find(text: str, modules: Sequence[Path] = ()) -> Kernel:
    """A kernel as one of `find_all`."""
    if not text:
        raise Failure(Exit.USAGE, "the name of a kernel is empty")
    if "/" in text:
        return _own(Path(text), modules)
    known = fetched()
    found = [each for each in known if text in (each.name, series_of(each.version))]
    if not found and Path(text).is_file():
        raise Failure(Exit.USAGE, f"kernel {text}: the path of an image has a slash in it: ./{text}")
    if not found:
        has = ", ".join(each.name for each in known) or "none"
        remedy = f"`durabench lab fetch {text}`" if _SERIES.fullmatch(text) else "`durabench lab fetch SERIES`"
        raise Failure(Exit.MISSING, f"kernel {text} was not fetched ({remedy} does); there are: {has}")
    return newest(found)


def fetched() -> list[Kernel]:
    """The kernels in the cache, oldest first."""
    found = []
    for path in folder().glob("*/kernel.json"):
        record = formats.read_kernel(path)
        own = path.parent
        found.append(Kernel(own.name, own / record.image, own / record.modules, record.package, record.version))
    return _ordered(found)


def fetch(series: Sequence[str], refresh: bool = False) -> list[Kernel]:
    """Get the newest stock kernel of each series, unless it is there. The lists of packages are fetched if they are a day old or
    don't have it, or to `refresh` them."""
    for each in series:
        if not _SERIES.fullmatch(each):
            raise Failure(Exit.USAGE, f"{each} is no series of kernels, such as 6.12")
    archive = Archive(cache() / "apt")
    if not refresh and archive.age_s() < DAY_S:
        try:
            return _fetch(archive, series)
        except Failure:
            # What the archive has has changed since.
            pass
    archive.update()
    return _fetch(archive, series)


def _fetch(archive: Archive, series: Sequence[str]) -> list[Kernel]:
    packages = archive.images()
    chosen = {each: choose(packages, each) for each in series}
    return [_install(archive, chosen[each]) for each in series]


def choose(packages: Sequence[Package], series: str) -> Package:
    """The newest image package of a series."""
    found = [each for each in packages if series_of(each.version) == series]
    if not found:
        known = sorted({series_of(each.version) for each in packages} - {""}, key=lambda text: [int(part) for part in text.split(".")])
        raise Failure(Exit.MISSING, f"the archive has no kernel {series} any more, or not yet; it has {', '.join(known) or 'none'}")
    return newest(found)


def series_of(version: str) -> str:
    """The series of a kernel's version: 6.12 of 6.12.117-1, 7.3 of 7.3~rc7-1."""
    match = _SERIES.match(version)
    return match[0] if match else ""


def newest(found: Sequence[Versioned]) -> Versioned:
    """The one of the highest version."""
    return _ordered(found)[-1]


def packages_of(records: str) -> list[Package]:
    """The packages in what `apt-cache show` or `search --full` prints."""
    found = []
    for record in records.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Package") and fields.get("Version"):
            found.append(Package(fields["Package"], fields["Version"], tuple(_PARTS.findall(fields.get("Depends", "")))))
    return found


def sources_of(targets: str, keyring: Path = KEYRING) -> str:
    """A sources.list with all suites that have kernels, from what `apt-get indextargets` tells of this machine's sources: lines of
    origin, label, address. Empty if there is no Debian archive among them."""
    mirrors: dict[str, str] = {}
    for line in targets.splitlines():
        origin, *rest = line.split("|")
        if origin == "Debian" and len(rest) == 2:
            label, address = rest
            mirrors.setdefault(label, address)
    suites = [("Debian", suite) for suite in SUITES] + [("Debian-Security", suite) for suite in SECURITY_SUITES]
    lines = [f"deb [arch=amd64 signed-by={keyring}] {mirrors[label]} {suite} main" for label, suite in suites if label in mirrors]
    return "".join(f"{line}\n" for line in lines)


class Archive:
    """Debian's archive, asked by apt with a root of its own in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fetched = folder / "fetched"
        self._options = [
            "-qq",
            *("-o", "APT::Sandbox::User="),
            *("-o", "APT::Architecture=amd64"),
            *("-o", "Acquire::Languages=none"),
            *("-o", f"Dir::Etc::SourceList={folder}/sources.list"),
            *("-o", f"Dir::Etc::SourceParts={folder}/sources.list.d"),
            *("-o", f"Dir::State={folder}/state"),
            *("-o", f"Dir::State::status={folder}/state/status"),
            *("-o", f"Dir::Cache={folder}/cache"),
        ]

    def age_s(self) -> float:
        """Seconds since the lists were fetched; infinite if they never were."""
        try:
            return time.time() - self._fetched.stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def update(self) -> None:
        """Fetch the lists of packages."""
        if not shutil.which("apt-get"):
            raise Failure(Exit.MISSING, "stock kernels come by apt, which is not there; --kernel takes the path of a kernel's image")
        targets = _run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"])
        sources = sources_of(targets)
        if not sources:
            raise Failure(
                Exit.MISSING, "none of this machine's package sources is Debian's archive; --kernel takes the path of a kernel's image"
            )
        try:
            for name in ("sources.list.d", "state/lists/partial", "cache/archives/partial"):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(Exit.FAILED, f"{error.filename}: {error.strerror}; XDG_CACHE_HOME names another folder for kernels") from None
        (self._folder / "state/status").touch()
        formats.write_text(self._folder / "sources.list", sources)
        _run(["apt-get", *self._options, "update"])
        self._fetched.touch()

    def images(self) -> list[Package]:
        """The image packages there are, of the flavour."""
        names = _run(["apt-cache", *self._options, "pkgnames", "linux-image-"]).split()
        return self._show([name for name in names if _IMAGE.fullmatch(name)])

    def download(self, package: Package, folder: Path) -> None:
        """Unpack a package and those that belong to it into a folder."""
        for file in self._download([(package.name, package.version)], folder):
            _run(["dpkg-deb", "--extract", str(file), str(folder)])
            file.unlink()
            _keep_inside(folder)

    def _show(self, names: Iterable[str]) -> list[Package]:
        return packages_of(_run(["apt-cache", *self._options, "show", *names]))

    def _download(self, wanted: list[tuple[str, str]], folder: Path) -> list[Path]:
        # A part that has left the archive before the package that names it is one of an empty linux-base; what is really missing
        # is found when the kernel is looked for.
        there: list[Package] = []
        while wanted:
            shown = self._show(f"{name}={version}" for name, version in wanted)
            there += shown
            have = {(package.name, package.version) for package in there}
            wanted = list(dict.fromkeys(need for package in shown for need in package.needs if need not in have))
            if not shown:
                break
        _run(["apt-get", *self._options, "download", *(f"{package.name}={package.version}" for package in there)], cwd=folder)
        return sorted(folder.glob("*.deb"))


def _keep_inside(root: Path) -> None:
    """Remove symbolic links that lead out of a folder: the next package would be unpacked through them."""
    inside = Path(os.path.realpath(root))
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in folders + files):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
                path.unlink()


def _install(archive: Archive, package: Package) -> Kernel:
    for kernel in fetched():
        if kernel.version == package.version:
            return kernel
    folder().mkdir(exist_ok=True)
    with leftovers.folder(folder()) as temporary:
        part = temporary / "root"
        part.mkdir()
        archive.download(package, part)
        image, modules = locate(part)
        record = formats.FetchedKernel(package.name, package.version, str(image.relative_to(part)), str(modules.relative_to(part)))
        formats.write_json(part / "kernel.json", record)
        own = folder() / modules.name
        if own.exists():
            shutil.rmtree(own)
        part.rename(own)
    return Kernel(modules.name, own / record.image, own / record.modules, package.name, package.version)


def locate(root: Path) -> tuple[Path, Path]:
    """Image and folder of modules among unpacked packages. Up to 6.19 the image is boot/vmlinuz-RELEASE, later it lies with the
    modules."""
    modules = [each for where in ("lib/modules", "usr/lib/modules") for each in root.glob(f"{where}/*") if each.is_dir()]
    images = [*root.glob("boot/vmlinuz-*"), *(each / "vmlinuz" for each in modules if (each / "vmlinuz").is_file())]
    with_modules = [each for each in modules if any(each.rglob("*.ko*"))]
    if len(images) != 1 or len(with_modules) != 1:
        raise Failure(Exit.FAILED, f"{root}: a kernel's package holds {len(images)} images, not one; is its layout a new one?")
    return images[0], with_modules[0]


def _own(image: Path, modules: Sequence[Path]) -> Kernel:
    if image.is_dir():
        raise Failure(Exit.INPUT, f"{image}: is a folder; the image in a kernel's tree is arch/x86/boot/bzImage")
    release = _release(image)
    return Kernel(release, image.resolve(), _modules_of(release, modules) if modules else None)


def _modules_of(release: str, folders: Sequence[Path]) -> Path:
    """The modules of a release among those that were installed into some folders."""
    there = [path for folder in folders for where in ("lib/modules", ".") for path in (folder / where).glob("*/modules.builtin")]
    found = [path.parent for path in there if path.parent.name == release]
    if not found:
        has = ", ".join(sorted({path.parent.name for path in there})) or "those of no kernel"
        told = ", ".join(map(str, folders))
        raise Failure(
            Exit.INPUT,
            f"{told}: has no modules of kernel {release}, but {has}; `make modules_install INSTALL_MOD_PATH=DIR` puts them into DIR",
        )
    return found[0]


def _release(image: Path) -> str:
    """The release that an x86 kernel image names in its header (Documentation/arch/x86/boot.rst)."""
    try:
        with inputs.opened(image) as file:
            start = file.read(_HEADER_BYTES)
    except OSError as error:
        raise Failure(Exit.INPUT, f"{image}: the kernel image can't be read: {error.strerror}") from None
    if start[_SIGNATURE] != b"HdrS":
        raise Failure(Exit.INPUT, f"{image}: is {_kind(start)}; of a kernel for x86, arch/x86/boot/bzImage is")
    if not int.from_bytes(start[_XLOADFLAGS], "little") & 1:
        raise Failure(Exit.INPUT, f"{image}: is a 32-bit kernel; the programs of a guest are 64-bit")
    offset = 0x200 + int.from_bytes(start[_KERNEL_VERSION], "little")
    match = _RELEASE.match(start, offset)
    if not match:
        raise Failure(Exit.INPUT, f"{image}: the kernel image's header names no release")
    return match[0].decode("ascii")


def _kind(start: bytes) -> str:
    """What a file is, by its first bytes, that no guest can boot."""
    if start.startswith(b"\x7fELF"):
        return "an ELF file, such as vmlinux, and no image that boots"
    machine = _OTHER_MACHINES.get(start[0x38:0x3C])
    return f"a kernel image for {machine}" if machine else "no kernel image"


def _ordered(found: Sequence[Versioned]) -> list[Versioned]:
    return sorted(found, key=functools.cmp_to_key(_compare))


def _compare(one: Kernel | Package, other: Kernel | Package) -> int:
    if one.version == other.version:
        return 0
    less = subprocess.run(["dpkg", "--compare-versions", one.version, "lt", other.version], check=False).returncode == 0
    return -1 if less else 1


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """Output of a command that must succeed."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise Failure(Exit.MISSING, f"{command[0]} is not there") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or [done.stderr.strip()]
        raise Failure(Exit.MISSING, f"{command[0]} failed: {'; '.join(lines)}")
    return done.stdout

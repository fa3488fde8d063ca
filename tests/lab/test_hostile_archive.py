# SPDX-License-Identifier: GPL-2.0-only
"""What a mirror says and has: nothing of it is run, nothing leaves the cache's folder, and what is not signed, or is no longer what the
lists of packages tell, is not taken. By apt and dpkg-deb as they are, on an archive in a folder."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import kernels
from durabenchlib.lab.kernels import Archive, Package

NAME, VERSION, RELEASE = "linux-image-6.12.9-cloud-amd64", "6.12.9-1", "6.12.9-cloud-amd64"
GOOD: Mapping[str, str | bytes] = {
    f"./boot/vmlinuz-{RELEASE}": b"a kernel",
    f"./lib/modules/{RELEASE}/kernel/nbd.ko": b"a module",
}


def tar(members: Mapping[str, str | bytes]) -> bytes:
    """Files by their content, and symbolic links by where they lead (a text)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size, member.mode = len(content), 0o755
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def package(members: Mapping[str, str | bytes], canary: Path) -> bytes:
    """A .deb, whose scripts would leave the canary."""
    script = f"#!/bin/sh\ntouch {canary}\n".encode()
    control = f"Package: {NAME}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: x <x@example.com>\nDescription: x\n"
    scripts = {f"./{name}": script for name in ("preinst", "postinst", "prerm", "postrm", "config")}
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": tar({"./control": control.encode(), **scripts}), "data.tar.xz": tar(members)}
    made = b"!<arch>\n"
    for name, data in parts.items():
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return made


class Mirror:
    """An archive of the suite bookworm in a folder, which this machine's sources name; `trusted` without any signature."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool = True) -> None:
        self.folder, self.canary = folder / "mirror", folder / "canary"
        self.lists = self.folder / "dists/bookworm/main/binary-amd64"
        self.lists.mkdir(parents=True)
        programs = folder / "bin"
        programs.mkdir()
        # What the machine's own sources are.
        (programs / "apt-get").write_text(
            f"#!/bin/sh\n[ $1 = indextargets ] && echo 'Debian|Debian|file:{self.folder}/' && exit\nexec {shutil.which('apt-get')} \"$@\"\n"
        )
        (programs / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(kernels, "SUITES", ("bookworm",))
        monkeypatch.setattr(kernels, "SECURITY_SUITES", ())
        if trusted:
            sources = kernels.sources_of
            monkeypatch.setattr(kernels, "sources_of", lambda told: sources(told).replace("[arch", "[trusted=yes arch"))

    def publish(self, deb: bytes, name: str = NAME, version: str = VERSION, more: str = "", records: Sequence[str] = ()) -> None:
        """A list with the package, and with further records."""
        (self.folder / "p.deb").write_bytes(deb)
        told = f"Size: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\nFilename: p.deb\n"
        record = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n{told}{more}Description: x\n"
        (self.lists / "Packages").write_text("\n".join([record, *records]))
        listed = (self.lists / "Packages").read_bytes()
        (self.lists.parent.parent / "Release").write_text(
            "Origin: Debian\nLabel: Debian\nSuite: bookworm\nCodename: bookworm\nArchitectures: amd64\nComponents: main\n"
            f"Date: Mon, 30 Nov 2026 00:00:00 UTC\nSHA256:\n {hashlib.sha256(listed).hexdigest()} {len(listed)} main/binary-amd64/Packages\n"
        )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    return Mirror(tmp_path, monkeypatch)


def nothing_taken(mirror: Mirror) -> None:
    assert not mirror.canary.exists() and not kernels.fetched()
    assert not list(kernels.folder().glob("*"))


def test_a_good_package_is_taken_and_its_scripts_are_not_run(mirror: Mirror) -> None:
    mirror.publish(package(GOOD, mirror.canary))
    (kernel,) = kernels.fetch(["6.12"])
    assert (kernel.name, kernel.version, kernel.image.read_bytes()) == (RELEASE, VERSION, b"a kernel")
    assert not mirror.canary.exists()


def test_an_archive_without_a_signature_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(tmp_path, monkeypatch, trusted=False)
    mirror.publish(package(GOOD, mirror.canary))
    with pytest.raises(Failure, match="apt-get failed: E: The repository .* is not signed") as caught:
        kernels.fetch(["6.12"])
    assert caught.value.status == Exit.MISSING
    nothing_taken(mirror)


@pytest.mark.parametrize("what", ["package", "list"])
def test_what_is_not_what_was_listed_is_refused(mirror: Mirror, what: str) -> None:
    deb = package(GOOD, mirror.canary)
    mirror.publish(deb)
    path = mirror.folder / "p.deb" if what == "package" else mirror.lists / "Packages"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Failure, match="apt-get failed: E: .*(Hash Sum|mismatch|unexpected size)"):
        kernels.fetch(["6.12"])
    nothing_taken(mirror)


@pytest.mark.parametrize(
    ("name", "version", "more"),
    [
        (f"{NAME};touch$IFS{{canary}}", VERSION, ""),
        ("--help", VERSION, ""),
        (f"../../{NAME}", VERSION, ""),
        (NAME, "6.12.9-1$(touch {canary})", ""),
        (NAME, "6.12.9-1/../../../x", ""),
        (NAME, "", ""),
        (NAME, "none", ""),
        (NAME, VERSION, "Depends: linux-x (= 1 -o APT::Update::Pre-Invoke::=touch${{IFS}}{canary})\n"),
        (NAME, VERSION, "Depends: linux-image-6.12.9-cloud-amd64 (= $(touch {canary}))\n"),
        (NAME, VERSION, "Filename: ../../../../../../etc/hostname\n"),
        (NAME, VERSION, "Package: another\n"),
    ],
)
def test_an_evil_record(mirror: Mirror, tmp_path: Path, name: str, version: str, more: str) -> None:
    before = {path for path in tmp_path.iterdir()}
    name, version, more = (text.format(canary=mirror.canary) if "{" in text else text for text in (name, version, more))
    mirror.publish(package(GOOD, mirror.canary), name, version, more)
    try:
        taken = [kernel.name for kernel in kernels.fetch(["6.12"])]
    except Failure as failure:
        assert failure.status in (Exit.MISSING, Exit.FAILED) and str(failure)
    else:
        assert taken == [RELEASE]
    assert not mirror.canary.exists()
    assert {path for path in tmp_path.iterdir()} - before <= {tmp_path / "cache"}
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"durabench"}


@pytest.mark.parametrize("text", ["", "Package: a\n", "Package: a\nVersion: \n", "Version: 1\n\n\n", ": \n: : :\n", "Package: a\nVersion: x\n"])
def test_records_that_lack_something(text: str) -> None:
    packages = kernels.packages_of(text)
    assert all(each.name and each.version for each in packages)
    with pytest.raises(Failure, match="has no kernel 6.12"):
        kernels.choose(packages, "6.12")


@pytest.mark.parametrize("line", ["", "a", "Debian|Debian", "Debian|Debian|http://a|b", "|||||"])
def test_sources_that_are_none(line: str) -> None:
    assert kernels.sources_of(f"{line}\nDebian|Debian|http://m/\n").count("deb ") == len(kernels.SUITES)


def test_no_package_writes_through_the_link_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    first = {"./boot": str(outside), "./lib": "../outside", "./usr": "inside", "./inside/x": b""}
    debs = []
    for number, members in enumerate((first, {**GOOD, "./usr/y": b"y"})):
        debs.append(root / f"{number}.deb")
        debs[-1].write_bytes(package(members, tmp_path / "canary"))
    monkeypatch.setattr(Archive, "_download", lambda *_: debs)
    Archive(tmp_path / "apt").download(Package(NAME, VERSION), root)
    assert not list(outside.iterdir()) and not (tmp_path / "canary").exists()
    assert (root / "inside/y").read_bytes() == b"y"
    image, modules = kernels.locate(root)
    assert (image.read_bytes(), modules.name) == (b"a kernel", RELEASE)

# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel of an archive is taken, of which packages it is, and how one that is there is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import kernels
from durabenchlib.lab.kernels import Archive, Kernel, Package

# As `apt-cache show` prints them, shortened.
RECORDS = """Package: linux-image-6.12.9+deb13-cloud-amd64
Version: 6.12.9-1
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120) | linux-initramfs-tool

Package: linux-image-6.12.118+deb13-cloud-amd64
Version: 6.12.118-1
Depends: kmod, linux-base (>= 4.3~)
Description: Linux 6.12
 for clouds: a line that goes on

Package: linux-image-7.3-cloud-amd64
Version: 7.3~rc7-1~exp1
Depends: linux-base-7.3-cloud-amd64 (= 7.3~rc7-1~exp1), linux-binary-7.3-cloud-amd64 (= 7.3~rc7-1~exp1)

Package: linux-image-7.3.4+deb13-cloud-amd64
Version: 7.3.4-1~bpo13+1
Depends: dracut | linux-initramfs-tool, linux-base-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1), linux-binary-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1), linux-modules-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1)

"""


@pytest.mark.parametrize(("series", "version"), [("6.12", "6.12.118-1"), ("7.3", "7.3.4-1~bpo13+1")])
def test_the_newest_of_a_series_is_taken(series: str, version: str) -> None:
    assert kernels.choose(kernels.packages_of(RECORDS), series).version == version


def test_a_release_candidate_is_of_its_series() -> None:
    assert kernels.choose(kernels.packages_of(RECORDS)[:3], "7.3").version == "7.3~rc7-1~exp1"


@pytest.mark.parametrize("series", ["6.1", "6.18", "7"])
def test_a_series_that_is_not_there(series: str) -> None:
    with pytest.raises(Failure, match="it has 6.12, 7.3") as caught:
        kernels.choose(kernels.packages_of(RECORDS), series)
    assert caught.value.status == Exit.MISSING


def test_the_parts_of_a_kernel() -> None:
    packages = kernels.packages_of(RECORDS)
    version = "7.3.4-1~bpo13+1"
    assert packages[0].needs == packages[1].needs == ()
    assert packages[3].needs == (
        ("linux-base-7.3.4+deb13-cloud-amd64", version),
        ("linux-binary-7.3.4+deb13-cloud-amd64", version),
        ("linux-modules-7.3.4+deb13-cloud-amd64", version),
    )


def test_sources_are_those_of_the_machine() -> None:
    targets = "Debian|Debian|http://m.example/debian/\nElsewhere|Apt|http://x.example/\nDebian|Debian-Security|http://s.example/sec/\n"
    lines = kernels.sources_of(targets).splitlines()
    assert any(line.endswith("http://m.example/debian/ sid main") for line in lines)
    assert any(line.endswith("http://s.example/sec/ bookworm-security main") for line in lines)
    assert all(line.startswith("deb [") and "signed-by=" in line for line in lines)
    assert "x.example" not in "".join(lines)
    assert kernels.sources_of("Elsewhere|Apt|http://x.example/\n") == ""


def module(folder: Path, name: str = "nbd.ko") -> None:
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / name).touch()


def test_both_layouts_of_packages(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    module(old / "lib/modules/6.1.0")
    (old / "boot").mkdir()
    (old / "boot/vmlinuz-6.1.0").touch()
    assert kernels.locate(old) == (old / "boot/vmlinuz-6.1.0", old / "lib/modules/6.1.0")
    module(new / "usr/lib/modules/7.3.4", "nbd.ko.xz")
    (new / "usr/lib/modules/7.3.4/vmlinuz").touch()
    assert kernels.locate(new) == (new / "usr/lib/modules/7.3.4/vmlinuz", new / "usr/lib/modules/7.3.4")
    with pytest.raises(Failure, match="0 images"):
        kernels.locate(tmp_path / "empty")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with three kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, version in (("6.12.9-a", "6.12.9-1"), ("6.12.118-a", "6.12.118-1"), ("7.3.4-a", "7.3.4-1")):
        folder = tmp_path / "durabench/lab/kernels" / name
        folder.mkdir(parents=True)
        record = {"schema": "durabench-kernel/1", "package": "p", "version": version, "image": "vmlinuz", "modules": "m"}
        (folder / "kernel.json").write_text(json.dumps(record))
    return tmp_path


def test_fetched_kernels_are_found(cache: Path) -> None:
    assert [kernel.name for kernel in kernels.fetched()] == ["6.12.9-a", "6.12.118-a", "7.3.4-a"]
    assert kernels.find("6.12").name == "6.12.118-a"
    assert kernels.find("6.12.9-a").version == "6.12.9-1"
    with pytest.raises(Failure, match="durabench lab fetch 6.1`.*there are: 6.12.9-a, 6.12.118-a, 7.3.4-a") as caught:
        kernels.find("6.1")
    assert caught.value.status == Exit.MISSING


def test_a_kernel_of_ones_own(own_image: Path) -> None:
    assert kernels.find(str(own_image)) == Kernel("7.4.0-mine", own_image, None)


def build(folder: Path, release: str, own_image: Path) -> Path:
    """A build's image, as far as its header goes."""
    folder.mkdir()
    image = folder / "bzImage"
    image.write_bytes(own_image.read_bytes().replace(b"7.4.0-mine", release.encode()))
    return image


def install(folder: Path, *releases: str) -> Path:
    """What `make modules_install INSTALL_MOD_PATH=folder` leaves."""
    for release in releases:
        module(folder / "lib/modules" / release)
        (folder / "lib/modules" / release / "modules.builtin").touch()
    return folder


def test_each_takes_the_modules_of_its_release(cache: Path, own_image: Path, tmp_path: Path) -> None:
    images = [str(build(tmp_path / name, f"7.4.0-{name}", own_image)) for name in ("plain", "patched", "third")]
    both = install(tmp_path / "both", "7.4.0-plain", "7.4.0-patched")
    other = install(tmp_path / "other", "7.4.0-third")
    found = kernels.find_all([*images, "6.12"], [both, other])
    assert [kernel.modules for kernel in found] == [
        both / "lib/modules/7.4.0-plain",
        both / "lib/modules/7.4.0-patched",
        other / "lib/modules/7.4.0-third",
        cache / "durabench/lab/kernels/6.12.118-a/m",
    ]
    # The folder of the modules themselves will do.
    assert kernels.find_all(images[:1], [both / "lib/modules"])[0].modules == both / "lib/modules/7.4.0-plain"
    for folder, has in ((both, "7.4.0-patched, 7.4.0-plain"), (cache, "those of no kernel")):
        with pytest.raises(Failure, match=f"has no modules of kernel 7.4.0-third, but {has}; `make modules_install") as caught:
            kernels.find_all(images[2:], [folder])
        assert caught.value.status == Exit.INPUT
    with pytest.raises(Failure, match="--modules goes with the path of a kernel's image"):
        kernels.find_all(["6.12"], [both])


def test_kernels_are_told_apart(cache: Path, own_image: Path, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="6.12.118-a is given twice; --repeat N repeats"):
        kernels.find_all(["6.12", "7.3", "6.12.118-a"])
    same = build(tmp_path / "same", "7.4.0-mine", own_image)
    with pytest.raises(Failure, match=f"{own_image} and {same} both are 7.4.0-mine.*LOCALVERSION") as caught:
        kernels.find_all([str(own_image), str(same)])
    assert caught.value.status == Exit.USAGE


HDRS = b"HdrS".rjust(0x206, b"\0")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is no kernel image; of a kernel for x86, arch/x86/boot/bzImage is"),
        (b"#!/bin/sh\n" * 100, "is no kernel image"),
        (b"\x7fELF" + bytes(0x400), "is an ELF file, such as vmlinux, and no image that boots"),
        (b"MZ".ljust(0x38, b"\0") + b"ARM\x64" + bytes(0x400), "is a kernel image for arm64"),
        (HDRS.ljust(0x400, b"\0"), "is a 32-bit kernel"),
        (HDRS, "is a 32-bit kernel"),
        (HDRS.ljust(0x236, b"\0") + b"\1", "names no release"),
        (HDRS.ljust(0x236, b"\0") + b"\1" + b"/../x ".rjust(0x400, b"/"), "names no release"),
    ],
    ids=["empty", "script", "vmlinux", "arm64", "32-bit", "cut", "no release", "path"],
)
def test_what_is_no_kernel_image(tmp_path: Path, data: bytes, says: str) -> None:
    image = tmp_path / "image"
    image.write_bytes(data)
    with pytest.raises(Failure, match=says) as caught:
        kernels.find(str(image))
    assert caught.value.status == Exit.INPUT
    assert str(image) in str(caught.value)


def test_an_image_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is a folder; the image in a kernel's tree is arch/x86/boot/bzImage"):
        kernels.find(str(tmp_path))
    with pytest.raises(Failure, match="can't be read: No such file") as caught:
        kernels.find(str(tmp_path / "none"))
    assert caught.value.status == Exit.INPUT


def test_what_apt_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("apt-get", "apt-cache"):
        (tmp_path / name).write_text("#!/bin/sh\n[ $1 = indextargets ] && echo 'Debian|Debian|http://m/' && exit\necho E: no such >&2\nexit 100\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Failure, match="apt-get failed: E: no such"):
        kernels.fetch(["6.12"])
    with pytest.raises(Failure, match="is no series"):
        kernels.fetch(["stable"])


def test_lists_of_packages_serve_for_a_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[str] = []
    monkeypatch.setattr(Archive, "update", lambda archive: (cache / "durabench/lab/apt/fetched").touch() or updates.append(""))
    monkeypatch.setattr(Archive, "images", lambda archive: kernels.packages_of(RECORDS))
    (cache / "durabench/lab/apt").mkdir()
    assert [kernel.name for kernel in kernels.fetch(["6.12"])] == ["6.12.118-a"]
    assert [kernel.name for kernel in kernels.fetch(["6.12"])] == ["6.12.118-a"]
    assert len(updates) == 1
    kernels.fetch(["6.12"], refresh=True)
    assert len(updates) == 2
    os.utime(cache / "durabench/lab/apt/fetched", (0, 0))
    kernels.fetch(["6.12"])
    assert len(updates) == 3
    # What they don't have may be there by now.
    with pytest.raises(Failure, match="has no kernel 8.0"):
        kernels.fetch(["8.0"])
    assert len(updates) == 4


def test_versions_are_compared_as_dpkg_does() -> None:
    some = [Package("a", version) for version in ("6.12.9-1", "6.12.118-1", "6.12.118-1~bpo12+1")]
    assert kernels.newest(some).version == "6.12.118-1"

# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel of an archive is taken, of which packages it is, and how one that is there is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import kernels
from durabenchlib.lab.kernels import Kernel, Package

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
    with pytest.raises(Failure, match="--modules goes with a kernel's path"):
        kernels.find("6.12", cache)


def test_a_kernel_of_ones_own(own_image: Path, tmp_path: Path) -> None:
    image = own_image
    assert kernels.find(str(image)) == Kernel("7.4.0-mine", image, None)
    module(tmp_path / "install/lib/modules/7.4.0-mine")
    assert kernels.find(str(image), tmp_path / "install").modules == tmp_path / "install/lib/modules/7.4.0-mine"
    with pytest.raises(Failure, match="modules of 0 kernels"):
        kernels.find(str(image), tmp_path)
    image.write_bytes(b"\x7fELF" + bytes(0x400))
    with pytest.raises(Failure, match="bzImage is one"):
        kernels.find(str(image))
    with pytest.raises(Failure, match="there is no such kernel image"):
        kernels.find(str(tmp_path / "none"))


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


def test_versions_are_compared_as_dpkg_does() -> None:
    some = [Package("a", version) for version in ("6.12.9-1", "6.12.118-1", "6.12.118-1~bpo12+1")]
    assert kernels.newest(some).version == "6.12.118-1"

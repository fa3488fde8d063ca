# SPDX-License-Identifier: GPL-2.0-only
"""The guest's files: which modules in which order, which libraries, and an archive that cpio reads."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import pytest
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import initramfs
from durabenchlib.lab.kernels import Kernel


def module(*info: str) -> bytes:
    """A file with a module's information, as in its section .modinfo."""
    return b"\x7fELF\0" + b"".join(each.encode() + b"\0" for each in ("license=GPL", *info, "name=x"))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel with a few modules, one of them compressed."""
    folder = tmp_path / "modules/9.9.9"
    (folder / "kernel").mkdir(parents=True)
    files = {
        "xfs.ko": module("depends=libcrc32c"),
        "libcrc32c.ko.xz": lzma.compress(module("softdep=pre: crc32c_intel gone", "depends=")),
        "crc32c-intel.ko": module("depends="),
        "dm-zero.ko": module("depends=dm-mod"),
        "dm-mod.ko": module("depends="),
        "broken.ko": module("depends=nowhere"),
        "packed.ko.zst": b"",
    }
    for name, content in files.items():
        (folder / "kernel" / name).write_bytes(content)
    (folder / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    return Kernel("9.9.9", tmp_path / "vmlinuz", folder)


def loaded(root: Path) -> list[str]:
    return [path.stem.partition("-")[2] for path in sorted((root / "modules").iterdir())]


def test_modules_come_after_those_they_need(kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    initramfs.add_modules(root, kernel, ["virtio_pci", "xfs", "dm_zero", "dm-mod"], ["crc32c_generic"])
    assert loaded(root) == ["crc32c_intel", "libcrc32c", "xfs", "dm_mod", "dm_zero"]
    assert (root / "modules/001-libcrc32c.ko").read_bytes() == module("softdep=pre: crc32c_intel gone", "depends=")


@pytest.mark.parametrize(
    ("wanted", "says"), [("nbd", "has no nbd, neither"), ("broken", "has no nowhere, neither"), ("packed", "can't be read")]
)
def test_modules_that_can_not_be_had(kernel: Kernel, tmp_path: Path, wanted: str, says: str) -> None:
    with pytest.raises(Failure, match=says):
        initramfs.add_modules(tmp_path, kernel, [wanted])


def test_a_program_brings_its_libraries(tmp_path: Path, tools: None) -> None:
    initramfs.add_programs(tmp_path, [initramfs.tool("dmsetup")])
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "chroot", tmp_path, "/bin/dmsetup", "--version"], capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespace can be made here")
    assert "Library version" in done.stdout, done.stderr


def test_a_tool_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initramfs, "TOOLS", {"no-such-tool": "its-package"})
    with pytest.raises(Failure, match="install the package its-package") as caught:
        initramfs.tool("no-such-tool")
    assert caught.value.status == Exit.MISSING


def test_archives_follow_each_other(tmp_path: Path, tools: None) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / f"a {name}").write_text(name)
        initramfs.archive(tmp_path / name, tmp_path / "initrd")
    data = (tmp_path / "initrd").read_bytes()
    assert data.count(b"TRAILER!!!") == 2
    (tmp_path / "unpacked").mkdir()
    second = data.index(b"070701", data.index(b"TRAILER!!!"))
    for part in (data[:second], data[second:]):
        subprocess.run(["busybox", "cpio", "-id"], input=part, cwd=tmp_path / "unpacked", check=True, capture_output=True)
    assert (tmp_path / "unpacked/folder/a one").read_text() == "one"
    assert (tmp_path / "unpacked/folder/a two").read_text() == "two"

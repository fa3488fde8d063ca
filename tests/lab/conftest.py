# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of the lab share: a measurement with a [lab], and programs that stand in for QEMU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib.errors import Failure
from durabenchlib.lab import initramfs, kernels, qemu
from durabenchlib.lab.kernels import Kernel

# What is fetched where there is no stock kernel yet.
SERIES = "6.12"
MEASUREMENT = """
schema = "durabench-measurement/1"
name = "small"
title = "a small measurement"
engine = "fua-dsync"
targets = ["block", "dm", "directory"]
before = "dsync"
after = "fua"
strategies = ["dsync", "fua"]
drop_caches = true
[variables]
SPAN = "1g"
RUNTIME = "60"
[lab]
comparisons = [
  { before = "9.9:dsync", after = "9.9:fua", cases = ["seq"] },
  { before = "9.8:dsync", after = "9.9:dsync", cases = ["seq"] },
  { before = "9.8:fua", after = "9.9:dsync", cases = ["list"] },
]
clock = "virtual"
memory = "512m"
[lab.variables]
SPAN = { target = 0.5 }
RUNTIME = "1"
[[lab.device]]
model = "null_blk"
size = "32m"
settings = { memory_backed = 1, cache_size = 4, irqmode = 2, completion_nsec = 100000 }
[[lab.device]]
model = "null_blk"
size = "16m"
settings = { memory_backed = 1 }
[lab.tables]
dm = ["sh", "-c", "echo 0 16 linear ${TARGET} 0; echo 16 16 linear ${TARGET2} 8"]
[[case]]
name = "seq"
job = "seq.fio"
targets = ["block"]
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "list"
job = "list.fio"
targets = ["block"]
generate = { LIST = ["sh", "-c", "stat -c '%n %s' ${TARGET}"] }
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "files"
job = "files.fio"
targets = ["directory"]
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "dm"
job = "seq.fio"
targets = ["dm"]
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "no-table"
job = "seq.fio"
targets = ["dm"]
metrics = [{ name = "write.iops", better = "higher" }]
"""

SEQ = """[global]
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
filename=${TARGET}
bs=4k
size=${SPAN}
time_based
runtime=${RUNTIME}
[seq]
rw=write
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Path of the measurement's folder."""
    folder = tmp_path / "jobs/small"
    folder.mkdir(parents=True)
    (folder / "measurement.toml").write_text(MEASUREMENT)
    (folder / "seq.fio").write_text(SEQ)
    (folder / "list.fio").write_text(SEQ + "description=${LIST}\n")
    (folder / "files.fio").write_text(SEQ.replace("filename=", "directory=") + "overwrite=1\n")
    return str(folder)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel that is never booted."""
    image = tmp_path / "vmlinuz"
    image.touch()
    return Kernel("9.9.9-test", image, None)


@pytest.fixture(scope="session")
def newest() -> Callable[[str], Kernel]:
    """newest("6.12") -> the newest stock kernel of a series, which is fetched if none is there."""

    def get(series: str) -> Kernel:
        if series not in {kernels.series_of(kernel.version) for kernel in kernels.fetched()}:
            kernels.fetch([series])
        return kernels.find(series)

    return get


@pytest.fixture
def tools() -> None:
    """What every guest's files are made with and of is there."""
    try:
        for name in ("busybox", "dmsetup"):
            initramfs.tool(name)
    except Failure as failure:
        pytest.skip(str(failure))


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: None) -> Callable[[str], None]:
    """fake_qemu(SHELL): the shell text is what QEMU does from now on; `$disk` is the guest's, and `keep FOLDER` hands a folder out
    as lab/init does."""

    def make(text: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "qemu-system-x86_64"
        program.write_text(
            "#!/bin/bash\n[ \"$1\" = --version ] && { echo 'QEMU emulator version 1.2.3'; exit; }\n"
            "disk=$(tr ' ' '\\n' <<<\"$*\" | sed -n 's/^file=\\([^,]*\\),.*id=disk0,.*/\\1/p'); offset=0\n"
            "keep() { tar -cf t -C results \"$1\" && dd if=t of=\"$disk\" bs=512 seek=$offset conv=notrunc status=none\n"
            "offset=$((offset + $(stat -c %s t) / 512)); echo \"durabench: kept $offset\"; }\n"
            f"cd $(mktemp -d -p {tmp_path}); mkdir -p results\n{text}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return make


@pytest.fixture
def own_image(tmp_path: Path) -> Path:
    """A kernel image of one's own, as far as its header goes; its release is 7.4.0-mine."""
    header = bytearray(0x300)
    header[0x202:0x206] = b"HdrS"
    header[0x20E:0x210] = (0x100).to_bytes(2, "little")
    header[0x236] = 1
    image = tmp_path / "bzImage"
    image.write_bytes(bytes(header) + b"7.4.0-mine (me@here) #1 SMP\0" + bytes(64))
    return image


@pytest.fixture
def stock(tools: None) -> Kernel:
    """A stock kernel, fetched if none is there."""
    try:
        qemu.program()
        found = kernels.fetched()
        return found[-1] if found else kernels.fetch([SERIES])[0]
    except Failure as failure:
        pytest.skip(str(failure))

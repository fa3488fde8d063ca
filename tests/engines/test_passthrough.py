# SPDX-License-Identifier: GPL-2.0-only
"""fua-dsync's strategies nvme-fua and scsi-fua inside fio: which commands reach
the drive, and what is refused. The drive is shim/drive.c over a regular file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD

SHIM = BUILD / "tests/engines/shim/drive-shim.so"
SIZE = 16 << 20
WRITES = 64
FUA = 1 << 30


class Drive:
    """A drive of that kernel's name, to be given to fio as `path`."""

    def __init__(self, run_fio, folder: Path, monkeypatch, name: str, path: str) -> None:
        self.run_fio, self.monkeypatch, self.path = run_fio, monkeypatch, path
        self.strategy = "scsi-fua" if name.startswith("s") else "nvme-fua"
        self.data, self.log, self.sys = folder / "data", folder / "commands", folder / "sys"
        self.data.write_bytes(bytes(SIZE))
        (self.sys / "queue").mkdir(parents=True)
        (self.sys / "queue/max_hw_sectors_kb").write_text("128\n")
        # Without a block device, nothing but a person knows what it holds.
        (self.sys / "device").mkdir()
        (self.sys / "device/serial").write_text("S123  \n")
        self.destroy = {"destroy": "S123"} if path == "/dev/null" else {}
        if name.startswith("sg"):
            (self.sys / "names/sdq").mkdir(parents=True)
        self.set(NAME=name, DATA=self.data, SYS=self.sys, LOG=self.log)

    def set(self, **variables) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(f"DRIVE_{name}", str(value))

    def fio(self, **options):
        self.log.unlink(missing_ok=True)
        options = {"rw": "write", "bs": "4k", "size": WRITES * 4096, "filename": self.path, **self.destroy, **options}
        return self.run_fio("fua-dsync", strategy=self.strategy, preload=SHIM, **options)

    def works(self, **options):
        result = self.fio(**options)
        assert result.exit_status == 0, result.stderr
        assert result.stderr == ""
        return result

    def refuses(self, *parts: str, **options) -> None:
        """Before any I/O, with one message."""
        result = self.fio(**options)
        assert result.exit_status == 1
        told = [line for line in result.stderr.splitlines() if line.startswith("fio-fua-dsync")]
        assert len(told) == 1, result.stderr
        for part in parts:
            assert part in told[0]
        assert self.transfers() == []

    def transfers(self) -> list[str]:
        """The commands that are not about the drive itself, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if self.strategy == "nvme-fua" or line[:2] in ("28", "2a", "88", "8a", "35")]


@pytest.fixture
def drive(run_fio, tmp_path, monkeypatch):
    """drive("ng7n1") -> that drive in the place of /dev/null, or of path=."""

    def make(name: str, path: str = "/dev/null") -> Drive:
        return Drive(run_fio, tmp_path, monkeypatch, name, path)

    return make


@pytest.fixture(params=["ng7n1", "sg7"])
def any_drive(drive, request):
    return drive(request.param)


# ---- both -------------------------------------------------------------------


@pytest.mark.parametrize("rw", ["randwrite", "randrw"])
def test_verify_round_trip(any_drive, rw):
    counter = any_drive.works(rw=rw, size="1M", verify="crc32c", verify_fatal=1).counter
    assert counter["reads"] >= counter["writes"] > 0
    assert counter["durable_writes"] == counter["writes"]
    assert (counter["strategy"], counter["error"]) == (any_drive.strategy, 0)


def test_written_data_is_where_it_belongs(any_drive):
    any_drive.works(buffer_pattern="0xa5", offset="8k")
    data = any_drive.data.read_bytes()
    assert data[: 8192 + WRITES * 4096 + 1] == bytes(8192) + b"\xa5" * (WRITES * 4096) + b"\0"


def test_the_size_is_the_drive_s(any_drive):
    assert any_drive.works(size=0, bs="128k").counter["write_bytes"] == SIZE


@pytest.mark.parametrize("sync", ["fsync", "fdatasync"])
def test_syncs_flush_the_drive(any_drive, sync):
    counter = any_drive.works(**{sync: 8}, end_fsync=1).counter
    assert counter["syncs"] == counter["flush_calls"] == WRITES // 8
    flush = "00 3 0 0 0 0" if any_drive.strategy == "nvme-fua" else "35" + "00" * 9
    assert any_drive.transfers().count(flush) == WRITES // 8
    assert len(any_drive.transfers()) == WRITES + WRITES // 8


@pytest.mark.parametrize("thread", [0, 1])
def test_jobs_that_start_together(any_drive, thread):
    result = any_drive.works(numjobs=8, thread=thread, group_reporting=1)
    assert [line["writes"] for line in result.counters] == [WRITES] * 8


def test_create_serialize_off(any_drive):
    """fio then calls ->init() before it asks for the size."""
    any_drive.works(create_serialize=0)


def test_readonly(any_drive):
    any_drive.works(rw="read", args=["--readonly"])
    assert len(any_drive.transfers()) == WRITES


def test_block_sizes_are_refused_at_once(any_drive):
    any_drive.refuses("bs= must be a multiple of its logical block size of 512", bs=256)
    any_drive.refuses("bs=262144 is more than one command can carry there; take at most 131072", bs="256k")
    any_drive.refuses("bs= must be a multiple", rw="read", bssplit="4k/50:4608/40:700/10", bs_unaligned=1)


def test_an_odd_offset_is_refused(any_drive):
    result = any_drive.fio(offset=256)
    assert result.exit_status == 1
    assert "/dev/null: 4096 bytes at 256: not multiples of its logical block size of 512" in result.stderr
    assert (result.counter["error"], result.counter["writes"]) == (22, 0)
    assert any_drive.transfers() == []


def test_one_drive_a_job(any_drive):
    any_drive.refuses("is for one drive; give one filename=", filename="/dev/null:/dev/zero", create_serialize=0)


@pytest.mark.parametrize("strategy, path", [("nvme-fua", "/dev/ng0n1"), ("scsi-fua", "/dev/sdX or /dev/sgN")])
def test_what_is_no_such_drive_is_refused(run_fio, tmp_path, strategy, path):
    regular = tmp_path / "regular"
    regular.write_bytes(bytes(4096))
    for other in (regular, tmp_path, "/dev/zero"):
        result = run_fio("fua-dsync", strategy=strategy, filename=other, rw="write", bs="4k", size="4k")
        assert result.exit_status == 1
        assert f"{other} is not " in result.stderr and path in result.stderr
    missing = tmp_path / "missing"
    result = run_fio("fua-dsync", strategy=strategy, filename=missing, rw="write", bs="4k", size="4k")
    assert result.exit_status == 1
    assert f"{missing}: No such file or directory" in result.stderr
    assert not missing.exists()


def test_its_block_device_is_guarded(any_drive, loop_device, tmp_path):
    device = loop_device()
    any_drive.set(BLOCK=device)
    any_drive.destroy = {}
    number = os.stat(device).st_rdev
    (any_drive.sys / "dev").write_text(f"{os.major(number)}:{os.minor(number)}\n")
    any_drive.works()
    held = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        any_drive.refuses("/dev/null is in use: the kernel holds it for something")
        any_drive.refuses("/dev/null is in use: the kernel holds it for something", allow_mounted_write=1)
        any_drive.works(rw="read")
    finally:
        os.close(held)
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    any_drive.refuses("holds ext4 on ", "destroy=")
    any_drive.works(destroy=tmp_path / "loop-0.img")
    any_drive.set(BLOCK=tmp_path / "missing")
    any_drive.refuses(" can't be opened: No such file")


def test_a_drive_without_a_block_device_has_to_be_confirmed(any_drive):
    any_drive.refuses("destroy=S124 is no name of /dev/null", destroy="S124")
    any_drive.destroy = {}
    any_drive.refuses("holds what can't be seen, as it has no block device", "confirm it by name: destroy=S123")
    any_drive.works(rw="read")


# ---- nvme-fua ---------------------------------------------------------------


def test_nvme_commands(drive):
    """Opcode, nsid, SLBA (two dwords), NLB and FUA, bytes of data."""
    nvme = drive("ng7n1")
    nvme.works(bs="8k", offset="1M", size="32k")
    assert nvme.transfers() == [f"01 3 {lba:x} 0 {15 | FUA:x} 8192" for lba in range(2048, 2112, 16)]
    nvme.works(rw="read", bs="512", offset="1M", size="1k")
    assert nvme.transfers() == ["02 3 800 0 0 512", "02 3 801 0 0 512"]


@pytest.mark.parametrize("depth", [1, 7, 256])
def test_nvme_depth(drive, depth):
    result = drive("ng7n1").works(rw="randwrite", iodepth=depth, io_size="2M", size="4M")
    assert result.job["write"]["total_ios"] == result.job["write"]["clat_ns"]["N"] == 512
    assert result.counter["durable_writes"] == 512


def test_nvme_limits(drive):
    nvme = drive("ng7n1")
    (nvme.sys / "queue/max_hw_sectors_kb").write_text("64\n")
    nvme.refuses("take at most 65536", bs="128k")
    (nvme.sys / "queue/max_hw_sectors_kb").unlink()
    nvme.set(IDENTIFY="1004d:4")  # MDTS
    nvme.refuses("take at most 65536", bs="128k")
    nvme.works(bs="64k", size="1M")


def test_nvme_formats(drive):
    nvme = drive("ng7n1")
    nvme.set(IDENTIFY="19:1 1a:1 84:8 86:9")  # NLBAF, FLBAS, MS and LBADS of format 1
    nvme.refuses("its LBA format 1 has 8 bytes of metadata a block", "take strategy=fua")
    nvme.set(IDENTIFY="82:c 1:8")  # LBADS of format 0, NSZE
    nvme.refuses("logical block size of 4096", bs="512")


@pytest.mark.parametrize("nth", [1, 20])
def test_nvme_error(drive, nth):
    nvme = drive("ng7n1")
    nvme.set(FAULT=f"{nth} 1 4280")
    result = nvme.fio()
    assert result.exit_status == 1
    told = [line for line in result.stderr.splitlines() if line.startswith("fio-fua-dsync")]
    assert told == [
        "fio-fua-dsync: /dev/null: NVMe Write: status type 2h (media and data integrity), code 80h (Write Fault), do not retry"
    ]
    assert result.counter["error"] == 5
    assert result.counter["writes"] == result.counter["durable_writes"] == nth - 1


def test_nvme_flush_error(drive):
    nvme = drive("ng7n1")
    nvme.set(FAULT="5 1 6")
    result = nvme.fio(fsync=4)
    assert result.exit_status == 1
    assert "NVMe Flush: status type 0h (generic), code 06h (Internal Error)" in result.stderr
    assert (result.counter["error"], result.counter["syncs"], result.counter["flush_calls"]) == (5, 0, 1)


def test_a_block_device_is_sent_to_the_generic_one(drive):
    drive("nvme7n1").refuses("/dev/null is a block device", "take /dev/ng7n1, or strategy=fua")


# ---- scsi-fua ---------------------------------------------------------------


def test_scsi_commands(drive):
    scsi = drive("sg7")
    scsi.works(bs="8k", offset="1M", size="32k")
    assert scsi.transfers() == [f"2a08{lba:08x}00001000" for lba in range(2048, 2112, 16)]
    scsi.works(rw="read", bs="512", offset="1M", size="1k")
    assert scsi.transfers() == ["28000000080000000100", "28000000080100000100"]


def test_scsi_beyond_2_tib(drive):
    scsi = drive("sg7")
    scsi.set(BLOCKS=1 << 33)
    scsi.works(offset="2T", size="8k")
    assert scsi.transfers() == ["8a08" + f"{lba:016x}" + "00000008" + "0000" for lba in (1 << 32, (1 << 32) + 8)]


def test_scsi_depth(drive):
    drive("sg7").refuses("strategy=scsi-fua submits one I/O at a time", iodepth=2)


def test_scsi_without_fua(drive):
    scsi = drive("sg7")
    scsi.set(MODE="00")
    scsi.refuses("takes no FUA writes (DPOFUA is 0", "take strategy=write-flush")
    scsi.works(rw="read")
    scsi.set(MODE="90")
    scsi.refuses("is write protected")
    scsi.works(rw="read")


def test_scsi_protection_information(drive):
    scsi = drive("sg7")
    scsi.set(PROTECT="03")
    scsi.refuses("protection information, type 2", "take strategy=fua")


def test_scsi_other_types(drive):
    scsi = drive("sg7")
    scsi.set(TYPE="14")
    scsi.refuses("peripheral device type 14h")


def test_scsi_disk_and_partition(drive, loop_device):
    scsi = drive("sdq", loop_device())
    scsi.works(verify="crc32c")
    assert scsi.transfers()[0][:4] == "2a08"
    scsi.refuses("take at most 131072", bs="1M", size="1M")
    (scsi.sys / "partition").write_text("1\n")
    scsi.refuses("is a partition, and a SCSI command goes to the whole disk")


@pytest.mark.parametrize("nth", [1, 20])
def test_scsi_error(drive, nth):
    scsi = drive("sg7")
    scsi.set(FAULT=f"{nth} 1 2 70000300000000 0a 00000000 0c02")
    result = scsi.fio()
    assert result.exit_status == 1
    told = [line for line in result.stderr.splitlines() if line.startswith("fio-fua-dsync")]
    assert told == [
        "fio-fua-dsync: /dev/null: SCSI WRITE: MEDIUM ERROR, write error - auto reallocation failed (ASC 0ch, ASCQ 02h)"
    ]
    assert (result.counter["error"], result.counter["writes"]) == (5, nth - 1)


@pytest.mark.parametrize("fault", ["2 7206290000000000", "8", "28"], ids=["unit attention", "busy", "task set full"])
def test_scsi_tries_again(drive, fault):
    scsi = drive("sg7")
    scsi.set(FAULT=f"3 2 {fault}")
    assert scsi.works().counter["writes"] == WRITES
    transfers = scsi.transfers()
    assert len(transfers) == WRITES + 2
    assert transfers[2] == transfers[3] == transfers[4]


def test_scsi_flush_error(drive):
    scsi = drive("sg7")
    scsi.set(FAULT="5 1 18")
    result = scsi.fio(fdatasync=4)
    assert result.exit_status == 1
    assert "SCSI SYNCHRONIZE CACHE(10): status 18h (RESERVATION CONFLICT" in result.stderr
    assert (result.counter["syncs"], result.counter["flush_calls"]) == (0, 1)

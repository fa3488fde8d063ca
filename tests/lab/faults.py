# SPDX-License-Identifier: GPL-2.0-only
"""Devices and file systems that fail under a running job, in guests: `make test-lab`.

For each fault fio runs one job of each way in which the engines submit and flush, on the device that fails in the middle. Each job has to
end by itself, with the error in fio's JSON, told once; the kernel has to have no complaint; and all can be taken down afterwards.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import layout, signals
from durabenchlib.lab import initramfs, qemu
from durabenchlib.lab.kernels import Kernel

KERNELS = ("6.1", "6.18", "7.3")
# Seconds within which a guest has to say something, on a machine that does much else, too.
PATIENCE_S = 1800
MODULES = ["virtio_pci", "virtio_blk", "dm_mod", "dm_flakey", "dm_delay", "dm_thin_pool", "null_blk", "sd_mod", "scsi_debug", "nbd", "xfs", "ext4"]
NO_SPACE, IO = {errno.ENOSPC}, {errno.EIO}
# ext4 takes no more writes once its journal has failed.
EXT4_IO = {errno.EIO, errno.EROFS}
# Of a disk that is no longer there, whose size is 0.
GONE = {errno.EIO, errno.ENODEV, errno.ENXIO, errno.ENOSPC}

FUA, KICK, LINEAR = "fua-dsync", "dontcache-kick", "dm-linear-flush"
SYNCED = {"fdatasync": 8}
MAPPED = {"table": "", **SYNCED}
# Each way that has code of its own for errors: engine, and options.
BLOCK_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dsync": (FUA, {}),
    "fua": (FUA, {"iodepth": 8}),
    "fua-flush": (FUA, {"iodepth": 4}),
    "write-flush": (FUA, {}),
    "direct": (KICK, {"submit": "io_uring", "iodepth": 4, **SYNCED}),
    "buffered": (KICK, SYNCED),
    "inline": (KICK, SYNCED),
    "kick": (KICK, {"kick_backlog": "64k", **SYNCED}),
    "kernel": (LINEAR, SYNCED),
    "per-target": (LINEAR, MAPPED),
    "per-device": (LINEAR, MAPPED),
    "shared": (LINEAR, {"strategy": "per-device", "coalesce": 1, "numjobs": 2, **MAPPED}),
}
FILE_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: BLOCK_JOBS[name] for name in ("dsync", "fua", "fua-flush", "write-flush", "direct", "buffered", "inline", "kick", "kernel")},
    "dontcache": (KICK, {"submit": "io_uring", "iodepth": 4, **SYNCED}),
}
# What a kernel may lack (6.1), for a file system or at all: it is refused before anything is written.
DONTCACHE = "RWF_DONTCACHE"
AREA = 512 << 10  # of a device, for each job

# What the shell text of a fault can call. All of it is taken down by what `after` has; what is still in use then makes that fail.
SHELL = """
set -e
base() { make_null_blk base memory_backed=1 cache_size=8 irqmode=2 completion_nsec=100000 "$@"; }
no_base() { rmdir /sys/kernel/config/nullb/base; }
mapped() {
	dmsetup create --noudevsync "$1" --table "$2"
	for dm in /sys/block/dm-*; do
		[ "$(cat $dm/dm/name)" != "$1" ] || ln -sf /dev/${dm##*/} /dev/$1
	done
}
turned() {
	dmsetup suspend --noudevsync --noflush --nolockfs device
	dmsetup load device --table "$1"
	dmsetup resume --noudevsync device
}
unmapped() { for name; do dmsetup remove --noudevsync $name; rm /dev/$name; done; }
scsi() { echo $2 >/sys/bus/pseudo/drivers/scsi_debug/$1; }
files() {
	base size=320
	mapped device '0 655360 linear /dev/base 0'
	mkfs.$1 -q /dev/device
	mount -t $1 /dev/device /target
}
no_files() { umount /target; unmapped device; no_base; }
filled() {
	dd if=/dev/zero of=/target/room bs=1M count=6 conv=fsync
	dd if=/dev/zero of=/target/filler bs=1M conv=fsync || true
	rm /target/room
}
little_memory() {
	mkdir -p /cgroups
	mount -t cgroup2 cgroups /cgroups
	echo +memory >/cgroups/cgroup.subtree_control
	mkdir /cgroups/fio
	echo $1 >/cgroups/fio/memory.max
}
much_memory() {
	cat /cgroups/fio/memory.events
	grep -q '^oom_kill 0$' /cgroups/fio/memory.events
	# what busybox's timeout leaves to watch is there for up to a second
	for i in 1 2 3 4 5; do rmdir /cgroups/fio 2>/dev/null && break; sleep 1; done
	! [ -d /cgroups/fio ]
	umount /cgroups
}
for disk in /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/*; do disk=${disk##*/}; done
"""
# The plan's own, so that a fault that hangs ends no guest.
COMMAND = """
{shell}
{before}
dmesg -c >/dev/null
(sleep 0.5; {during}) &
set +e
{within} timeout -k 10 120 fio --output-format=json+ --output=fio.json job.fio
status=$?
wait
set -e
dmesg -c >dmesg
! pidof fio >left
{after}
exit $status
"""


@dataclass(frozen=True)
class Fault:
    """Shell text that makes /dev/device (or mounts /target), what goes wrong half a second after fio began, and how all is taken down
    again. `errors` are those that a job may end with, none: each has to end well; `well` are jobs that do in any case. `within` is what fio
    is begun by."""

    before: str
    during: str
    after: str
    errors: set[int] = field(default_factory=set)
    files: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    well: tuple[str, ...] = ()
    within: str = ""

    @property
    def jobs(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return FILE_JOBS if self.files else BLOCK_JOBS


FILLS = {"fallocate": "none", "size": "8m", "rate_iops": 0, "time_based": 0}
LINEAR_16M = 'base size=16; mapped device "0 32768 linear /dev/base 0"'
DM_GONE = "unmapped device; no_base"
FAULTS = {
    "dm-error": Fault(LINEAR_16M, 'turned "0 32768 error"', DM_GONE, IO),
    "dm-flakey": Fault(LINEAR_16M, 'turned "0 32768 flakey /dev/base 0 0 3600 1 error_writes"', DM_GONE, IO),
    "dm-delay": Fault(LINEAR_16M, 'turned "0 32768 delay /dev/base 0 20"', DM_GONE, options={"runtime": 2}),
    "thin-full": Fault(
        """base size=16; mapped meta "0 4096 linear /dev/base 0"; mapped data "0 4096 linear /dev/base 8192"
        mapped pool "0 4096 thin-pool /dev/meta /dev/data 128 0 1 error_if_no_space"
        dmsetup message pool 0 "create_thin 0"; mapped device "0 32768 thin /dev/pool 0" """,
        "true",
        "unmapped device pool data meta; no_base",
        NO_SPACE | IO,
    ),
    "badblocks": Fault(
        "base size=16; ln -s /dev/base /dev/device",
        # One that is longer goes astray in the table of kernels before 6.8.
        "for at in $(seq 0 512 32767); do echo +$at-$((at + 511)) >/sys/kernel/config/nullb/base/badblocks; done",
        "rm /dev/device; no_base",
        IO,
    ),
    "null_blk-removed": Fault(
        "base size=16; ln -s /dev/base /dev/device", "echo 0 >/sys/kernel/config/nullb/base/power", "rm /dev/device; no_base", GONE
    ),
    "scsi-error": Fault("ln -s /dev/$disk /dev/device", "scsi opts 16; scsi every_nth 1", "scsi every_nth 0; scsi opts 0; rm /dev/device", IO),
    "scsi-removed": Fault("ln -s /dev/$disk /dev/device", "echo 1 >/sys/block/$disk/device/delete", "rm /dev/device; [ ! -e /dev/$disk ]", GONE),
    # It takes writes, with FUA too, and can't flush.
    "flush-error": Fault(
        "make_nbd nbd0 /models/nbdkit-noflush-plugin.so; ln -s /dev/nbd0 /dev/device",
        "touch /run/fail",
        "nbd-client -d /dev/nbd0 >/dev/null; rm /run/fail /dev/device",
        IO,
        options={"runtime": 3},
        well=("fua",),
    ),
    # It keeps none of what it takes: that is seen by who reads it from there.
    "dm-drops": Fault(
        LINEAR_16M,
        'turned "0 32768 flakey /dev/base 0 0 3600 1 drop_writes"',
        DM_GONE,
        {errno.EILSEQ},
        options={"time_based": 0, "verify": "crc32c"},
    ),
    "dm-drops-unread": Fault(
        LINEAR_16M, 'turned "0 32768 flakey /dev/base 0 0 3600 1 drop_writes"', DM_GONE, options={"runtime": 2}
    ),
    "xfs-full": Fault("files xfs; filled", "true", "no_files", NO_SPACE, files=True, options=FILLS),
    "ext4-full": Fault("files ext4; filled", "true", "no_files", NO_SPACE, files=True, options=FILLS),
    "xfs-error": Fault("files xfs", "turned '0 655360 error'", "no_files", IO, files=True),
    "ext4-error": Fault("files ext4", "turned '0 655360 error'", "no_files", EXT4_IO, files=True),
    # That is refused while files are open for writing.
    "xfs-read-only": Fault("files xfs", "! mount -o remount,ro /target", "no_files", files=True, options={"runtime": 2}),
    "ext4-read-only": Fault("files ext4", "! mount -o remount,ro /target", "no_files", files=True, options={"runtime": 2}),
    # Several times as much as may be cached.
    "little-memory": Fault(
        "files xfs; little_memory 64M",
        "true",
        "no_files; much_memory",
        files=True,
        options={"bs": "64k", "size": "16m", "rate_iops": 0, "time_based": 0, "verify": "crc32c"},
        within="sh -c 'echo $$ >/cgroups/fio/cgroup.procs && exec \"$@\"' sh",
    ),
}
NO_FLUSH = """
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <nbdkit-plugin.h>
#include <string.h>
#include <unistd.h>

static char disk[16 << 20];

static void *no_open(int readonly) { return disk; }
static int64_t no_size(void *h) { return sizeof(disk); }
static int no_can_fua(void *h) { return NBDKIT_FUA_NATIVE; }
static int no_pread(void *h, void *to, uint32_t n, uint64_t at, uint32_t flags)
{
	memcpy(to, disk + at, n);
	return 0;
}
static int no_pwrite(void *h, const void *from, uint32_t n, uint64_t at, uint32_t flags)
{
	memcpy(disk + at, from, n);
	return 0;
}
static int no_flush(void *h, uint32_t flags)
{
	if (access("/run/fail", F_OK))
		return 0;
	nbdkit_set_error(EIO);
	return -1;
}

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
static struct nbdkit_plugin plugin = {
	.name = "noflush", .open = no_open, .get_size = no_size, .can_fua = no_can_fua,
	.pread = no_pread, .pwrite = no_pwrite, .flush = no_flush,
};
NBDKIT_REGISTER_PLUGIN(plugin)
"""


def job_file(fault: Fault) -> str:
    """Each job writes to a part of the device of its own, or to a file of its own."""
    lines = ["[global]", "counters=counters.jsonl", "bs=4k", "rw=write", "time_based=1", "runtime=60", "rate_iops=200", f"size={AREA}"]
    counters = lines.pop(1)
    if fault.files:
        lines.append("directory=/target")
    lines += [f"{name}={value}" for name, value in fault.options.items()]
    for number, (name, (engine, own)) in enumerate(fault.jobs.items()):
        options = {"strategy": name, **own}
        lines += [f"[{name}]", f"ioengine=external:/engines/fio-{engine}.so", counters]
        if "table" in own:
            options |= {"table": f"table-{name}", "filename": f"mapped-{name}"}
        elif not fault.files:
            options |= {"filename": "/dev/device", "offset": number * AREA}
        lines += [f"{option}={value}" for option, value in options.items()]
    return "\n".join(lines) + "\n"


def tables(fault: Fault) -> Iterator[tuple[str, str]]:
    """Name and text of the jobs' tables, of 4 targets each."""
    length = AREA // 512 // 4
    for number, (name, (_, own)) in enumerate(fault.jobs.items()):
        if "table" in own:
            starts = [number * 4 * length + each * length for each in range(4)]
            yield f"table-{name}", "".join(f"{each * length} {length} linear /dev/device {start}\n" for each, start in enumerate(starts))


@dataclass(frozen=True)
class Seen:
    """What a fault left."""

    folder: Path

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")

    @property
    def document(self) -> dict[str, Any]:
        text = self.text("fio.json")
        return json.loads(text[text.index("\n{" if not text.startswith("{") else "{") :], strict=False)


def boot(kernel: Kernel, folder: Path) -> None:
    """Carry all faults out in a guest. Their results are then in the folder."""
    root = folder / "root"
    for part in ("plan", "engines", "models"):
        (root / part).mkdir(parents=True)
    programs = [initramfs.tool(name) for name in ("busybox", "dmsetup", "mkfs.xfs", "nbdkit", "nbd-client")]
    programs += [Path(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "") for name in ("timeout", "mkfs.ext4")]
    initramfs.add_programs(root, [*programs, layout.fio()])
    for engine in layout.engines().glob("fio-*.so"):
        shutil.copy(engine, root / "engines")
        initramfs.add_libraries(root, engine)
    plugin = root / "models/nbdkit-noflush-plugin.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plugin, "-xc", "-"], input=NO_FLUSH, text=True, check=True)
    initramfs.add_modules(root, kernel, MODULES)
    shutil.copy(layout.lab() / "init", root / "init")
    for name, fault in FAULTS.items():
        own = root / "plan" / name
        own.mkdir()
        (own / "job.fio").write_text(job_file(fault))
        for table, text in tables(fault):
            (own / table).write_text(text)
        shell = f". /plan/calls; {SHELL}"
        (own / "command").write_text(COMMAND.format(shell=shell, before=fault.before, during=fault.during, within=fault.within, after=fault.after))
    # The calls of init's own.
    calls, _, _ = (layout.lab() / "init").read_text().partition("\nmount_all\n")
    (root / "plan/calls").write_text(calls.partition("\nexec 3>&1")[2].partition("\n")[2])
    (root / "plan/plan").write_text("".join(f"repeat {name}\n" for name in FAULTS))
    initramfs.archive(root, folder / "initrd")

    results = folder / "results.img"
    results.touch()
    subprocess.run(["truncate", "-s", "64M", results], check=True)
    machine = qemu.Machine(kernel.image, folder / "initrd", [qemu.Disk(results)], qemu.VIRTUAL, "1g", 1)
    console = qemu.Console(lambda word, rest: PATIENCE_S, lambda word, rest: None)
    console.deadline = time.monotonic() + PATIENCE_S
    end = qemu.run(machine, console, folder / "console.log", signals.Stop(), lambda: None)
    subprocess.run(["tar", "--ignore-zeros", "-xf", results, "-C", folder], check=True)
    assert not end.error, (end.error, (folder / "console.log").read_text()[-3000:])


@pytest.fixture(scope="module", params=[pytest.param(each, marks=pytest.mark.xdist_group(each)) for each in KERNELS])
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, newest: Callable[[str], Kernel]) -> Path:
    """The folder of what was seen with a kernel, in one guest for all faults."""
    folder = tmp_path_factory.mktemp(f"guest-{request.param}-")
    boot(newest(request.param), folder)
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_each_job_ends_and_says_why_once(guest: Path, name: str) -> None:
    fault, seen = FAULTS[name], Seen(guest / name)
    said = seen.text("stderr.txt")
    jobs = seen.document["jobs"]
    assert len(jobs) == len(fault.jobs) + ("shared" in fault.jobs)
    wrong = {}
    for job in jobs:
        expected = {0} if not fault.errors or job["jobname"] in fault.well else fault.errors
        if job["jobname"] == "dontcache" and f"has no {DONTCACHE}" in said:
            expected = {errno.EOPNOTSUPP}
        if job["error"] not in expected:
            wrong[job["jobname"]] = job["error"]
    assert not wrong, (wrong, said)
    failed = [job for job in jobs if job["error"]]
    assert int(seen.text("status")) == len(failed), said
    # fio's lines of the I/Os that failed, no more than were in flight; and one of the engine's.
    in_flight = sum(fault.jobs[job["jobname"]][1].get("iodepth", 1) for job in failed)
    of_io = [line for line in (seen.text("fio.json") + said).splitlines() if "error on file" in line or line.startswith(("fio-", "verify: "))]
    assert len(failed) <= len(of_io) <= in_flight + len(failed), "\n".join(of_io)
    assert all(re.search(rf"(/dev/device|mapped-|/target/)\S*:? .*(error|No space|o such|device|Read-only|requested block|{DONTCACHE})", line) for line in of_io), of_io
    # What the engine counted was done, and its errors are fio's.
    counters = {(each["job"], each["subjob"]): each for each in map(json.loads, seen.text("counters.jsonl").splitlines())}
    for job in failed:
        errors = {each["error"] for (own, _), each in counters.items() if own == job["jobname"]}
        assert job["error"] in errors, (job["jobname"], errors)


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_left(guest: Path, name: str) -> None:
    """No process of fio, nothing that holds a device or file system, no complaint of the kernel's."""
    seen = Seen(guest / name)
    assert not seen.text("left").strip()
    complaints = [line for line in seen.text("dmesg").splitlines() if re.search(r"WARNING:|BUG:|Oops|blocked for more than|general protection", line)]
    assert not complaints, seen.text("dmesg")

# SPDX-License-Identifier: GPL-2.0-only
"""Disks that must not be written, in a guest that has them: `make test-lab`. Each is tried by durabench-guard, by a job with an engine
that is started by hand, and by one of fio's own, which tells what there is to protect from (docs/safety.md has the table).

tests/engines/test_claims.py and tests/scripts/test_targets.py do as much with loop devices on this machine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from durabenchlib import layout, signals
from durabenchlib.lab import initramfs, qemu
from durabenchlib.lab.kernels import Kernel

KERNELS = ("6.1", "6.18", "7.3")
CPUS = 1  # tests/lab/passthrough.py says why
MODULES = [
    *("virtio_pci", "virtio_blk", "nvme", "virtio_scsi", "sd_mod", "sg", "scsi_debug", "loop", "nbd", "zram", "btrfs", "bcache"),
    *("dm_mod", "dm_multipath", "dm_round_robin", "dm_thin_pool", "md_mod", "raid1"),
]
# What zram compresses by and btrfs sums up by, where they do not themselves.
OPTIONAL = ["lzo_rle", "crc32c_cryptoapi", "crc32c_intel"]
# In MiB, of the disks by their serial numbers.
SIZES = [("one", 8), ("two", 8), ("twin", 8), ("twin", 8), ("big", 512), ("large", 512), ("nvme", 8)]

# Names the disks by their serial numbers: $one, $two, $twin, $big, $large, $nvme, and as udev would; $debug is one of scsi_debug. Then
# what the cases are written in.
PRELUDE = """
ln -sf /proc/mounts /etc/mtab
mkdir -p /mnt /dev/disk/by-id
tries=0
until [ -b /dev/sdg ] && [ -b /dev/nvme0n1 ] || [ $tries = 600 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
for block in /sys/block/sd*; do
	serial=$(tail -c +5 $block/device/vpd_pg80)
	! grep -q scsi_debug $block/device/model || debug_serial=$serial serial=debug
	ln -sf /dev/${block##*/} /dev/disk/by-id/scsi-${serial%% *}
	eval ${serial%% *}=/dev/${block##*/}
done
nvme=/dev/nvme0n1
watch=$one	# whose content is compared

# wipe DISK: nothing is on it, no partitions either
wipe() {
	dd if=/dev/zero of=$1 bs=1M count=8 2>/dev/null
	blockdev --rereadpt $1 2>/dev/null
	sync
}

# parts DISK: two partitions
parts() {
	printf 'o\\nn\\np\\n1\\n\\n+3M\\nn\\np\\n2\\n\\n\\nw\\n' | fdisk $1 >/dev/null 2>&1
	blockdev --rereadpt $1 2>/dev/null
	sleep 0.2
	[ -b ${1}2 ] || echo "no partitions on $1" >&2
}

# dm NAME TABLE [UUID]: sets $node
dm() {
	echo "$2" | dmsetup create --noudevsync ${3:+-u $3} $1 || return
	node=/dev/dm-$(dmsetup info -c --noheadings -o minor $1)
}

# lvm NAME TABLE SUFFIX: as LVM calls what it keeps for itself
lvm() {
	dm $1 "$2" LVM-GroupGroupGroupGroupGroupGroupGrVolumeVolumeVolumeVolumeVolumeVo-$3
}

# pool: $data is where the volumes of a thin pool lie, $pool that, on $one
pool() {
	lvm vg-pool_tmeta "0 4096 linear $one 2048" tmeta
	metadata=$node
	lvm vg-pool_tdata "0 8192 linear $one 6144" tdata
	data=$node
	lvm vg-pool-tpool "0 8192 thin-pool $metadata $data 128 0" tpool
	pool=$node
}

remove_pool() {
	for name in vg-pool-tpool vg-pool_tdata vg-pool_tmeta; do
		dmsetup remove --noudevsync $name
	done
}

# bcache: $big is the cache, $large is behind it, $node is what comes of it
bcache() {
	make-bcache --wipe-bcache -C $big -B $large >/dev/null
	node=/dev/bcache0
	for disk in $big $large; do
		echo $disk >/sys/fs/bcache/register
	done
	until [ -b $node ] && [ -e /sys/block/${big#/dev/}/holders/bcache0 ]; do sleep 0.1; done
}

remove_bcache() {
	for set in /sys/fs/bcache/*-*; do
		echo 1 >$set/stop
	done
	until [ -z "$(ls /sys/fs/bcache | grep -e -)" ] && [ ! -e /sys/block/bcache0 ]; do sleep 0.1; done
	wipe $big
}

# What is on the disk, where anything is written: a page cache may have what was there before a write to a partition, or to a device above.
sums() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	head -c 8388608 $watch | md5sum
}

# try NAME FIO...: what becomes of a command, in files
try() {
	name=$1
	shift
	timeout 60 "$@" >$name.out 2>$name.txt
	echo $? >$name.status
}

# check TARGET [NAME]: by the guard, the engine, the guard once more (which finds nothing held or left by either), and plain fio
check() {
	sums >before
	try guard durabench-guard ${2:+--destroy=$2} $1
	engine="--ioengine=external:/engines/fio-fua-dsync.so --strategy=${strategy:-dsync}"
	fio='fio --clocksource=clock_gettime --disk_util=0 --name=t'
	try engine $fio --output=engine.json $engine --filename=$1 --rw=write --bs=4k --size=64k \\
		--allow_mounted_write=1 ${2:+--destroy=$2}
	try again durabench-guard ${2:+--destroy=$2} $1
	sums >after
	try plain $fio --output=plain.json ${plain:---ioengine=psync --direct=1} --filename=$1 --rw=write --bs=4k --size=64k
	sums >changed
}
"""


@dataclass(frozen=True)
class Case:
    """A disk in a state. `says` is in the refusal, empty where it may be written; `plain` tells whether fio's own engine writes over
    it."""

    state: str
    says: str
    plain: bool


MOUNTED = "mke2fs -F $one >/dev/null; mount -t ext4 -o ro $one /mnt; "
UNMOUNT = "; umount /mnt"

CASES = {
    "empty": Case("check $one", "", True),
    "confirmed": Case("mke2fs -F $one >/dev/null; check $one one", "", True),
    "mounted": Case(MOUNTED + "check $one one" + UNMOUNT, "is mounted on /mnt", False),
    "by-id-of-mounted": Case(MOUNTED + "check /dev/disk/by-id/scsi-one one" + UNMOUNT, "is mounted on /mnt", True),
    "disk-of-mounted-partition": Case(
        "parts $one; mke2fs -F ${one}1 >/dev/null; mount -t ext4 -o ro ${one}1 /mnt; check $one one" + UNMOUNT, "1 is mounted on /mnt", True
    ),
    "beside-a-mounted-partition": Case(
        "parts $one; mke2fs -F ${one}1 >/dev/null; mount -t ext4 -o ro ${one}1 /mnt; check ${one}2" + UNMOUNT, "", True
    ),
    "partition-of-mounted-disk": Case(
        "parts $one; dd if=$one of=/tmp/mbr bs=512 count=1 2>/dev/null; "
        "mke2fs -F $one >/dev/null; dd if=/tmp/mbr of=$one conv=notrunc 2>/dev/null; blockdev --rereadpt $one; sleep 0.2; "
        "mount -t ext4 -o ro $one /mnt; check ${one}2" + UNMOUNT,
        "is mounted on /mnt",
        True,
    ),
    "other-mount-namespace": Case(
        "mke2fs -F $one >/dev/null; unshare -m sh -c \"mount -t ext4 -o ro $one /mnt; touch /tmp/ready; exec sleep 100\" & pid=$!; "
        "until [ -e /tmp/ready ]; do sleep 0.1; done; check $one one; kill $pid; wait; rm /tmp/ready",
        "is in use: the kernel holds it",
        True,
    ),
    "swap": Case("mkswap $one >/dev/null; swapon $one; check $one one; swapoff $one", "is swap", False),
    "swap-signature": Case("mkswap $one >/dev/null; check $one", "holds swap on ", True),
    "file-system": Case("mke2fs -F -L precious $one >/dev/null; check $one", "holds ext2 'precious' on ", True),
    "partition-table": Case("parts $one; check $one", "holds a dos partition table on ", True),
    "partition-with-a-file-system": Case(
        "parts $one; mke2fs -F ${one}2 >/dev/null; mkdir -p /dev/disk/by-partuuid; ln -sf ${one}2 /dev/disk/by-partuuid/x-02; "
        "check /dev/disk/by-partuuid/x-02",
        "holds ext2 on ",
        True,
    ),
    "luks-signature": Case(r"printf 'LUKS\272\276\000\001' | dd of=$one conv=notrunc 2>/dev/null; check $one", "holds crypto_LUKS on ", True),
    "lvm-signature": Case(
        r"printf 'LABELONE\001\0\0\0\0\0\0\0\0\0\0\0\040\0\0\0LVM2 001' | dd of=$one bs=512 seek=1 conv=notrunc 2>/dev/null; check $one",
        "holds LVM2_member on ",
        True,
    ),
    "lvm-active": Case('dm vg-root "0 8192 linear $one 2048"; check $one one; dmsetup remove --noudevsync vg-root', "is part of dm-0", True),
    "nested-dm": Case(
        'dm lower "0 8192 linear $one 2048"; below=$node; dm upper "0 4096 linear $below 0"; mke2fs -F $node >/dev/null; '
        "mount -t ext4 -o ro $node /mnt; check $one one; umount /mnt; dmsetup remove --noudevsync upper; dmsetup remove --noudevsync lower",
        "is mounted on /mnt",
        True,
    ),
    "dm-below-dm": Case(
        'dm lower "0 8192 linear $one 2048"; below=$node; dm upper "0 4096 linear $below 0"; check $below lower; '
        "dmsetup remove --noudevsync upper; dmsetup remove --noudevsync lower",
        "is part of dm-1",
        True,
    ),
    "dm-with-a-file-system": Case(
        'dm data "0 8192 linear $one 2048"; mke2fs -F $node >/dev/null; check $node; dmsetup remove --noudevsync data', "holds ext2 on dm-0", True
    ),
    "dm-over-loop-over-mounted": Case(
        MOUNTED + 'loop=$(losetup -f); losetup $loop $one; dm data "0 4096 linear $loop 8192"; check $node data; '
        "dmsetup remove --noudevsync data; losetup -d $loop" + UNMOUNT,
        "is mounted on /mnt",
        True,
    ),
    "md-active": Case(
        "echo md_x >/sys/module/md_mod/parameters/new_array; md=/sys/block/md_x/md; echo none >$md/metadata_version; echo raid1 >$md/level; "
        "echo 2 >$md/raid_disks; cat /sys/block/${one#/dev/}/dev >$md/new_dev; echo 4096 >$md/dev-${one#/dev/}/size; "
        "echo 0 >$md/dev-${one#/dev/}/slot; echo active >$md/array_state; check $one one; echo clear >$md/array_state",
        "is part of md_x",
        True,
    ),
    "read-only": Case("blockdev --setro $one; check $one one; blockdev --setrw $one", "is read-only", False),
    "file-behind-two-loops": Case(
        "watch=/tmp/file; truncate -s 4M $watch; a=$(losetup -f); losetup $a $watch; b=$(losetup -f); losetup $b $watch; "
        "check $a $watch; losetup -d $a; losetup -d $b; watch=$one",
        "is behind loop1",
        True,
    ),
    "loop-on-a-mounted-disk": Case(
        MOUNTED + "loop=$(losetup -f); losetup $loop $one; check $loop one; losetup -d $loop" + UNMOUNT, "is mounted on /mnt", True
    ),
    "disk-below-a-mounted-loop": Case(
        "mke2fs -F $one >/dev/null; loop=$(losetup -f); losetup $loop $one; mount -t ext4 -o ro $loop /mnt; check $one one; umount /mnt; losetup -d $loop",
        "is behind loop0",
        True,
    ),
    "held-by-a-program": Case(
        "durabench-guard $one -- sleep 100 & pid=$!; sleep 1; check $one one; kill $pid; wait", "is in use: the kernel holds it", True
    ),
    "name-of-another-disk": Case("mke2fs -F $one >/dev/null; check $one two", "--destroy=two is no name of ", True),
    "name-of-two-disks": Case("watch=$twin; mke2fs -F $twin >/dev/null; check $twin twin", "--destroy=twin is no name of ", True),
    "sg-of-a-mounted-disk": Case(
        MOUNTED + "strategy=scsi-fua plain=--ioengine=sg; check /dev/$(ls /sys/block/${one#/dev/}/device/scsi_generic) one; "
        "strategy= plain=" + UNMOUNT,
        "is mounted on /mnt",
        True,
    ),
    "ng-of-a-mounted-disk": Case(
        "watch=$nvme; mke2fs -F $nvme >/dev/null; mount -t ext4 -o ro $nvme /mnt; strategy=nvme-fua plain='--ioengine=io_uring_cmd --cmd_type=nvme'; "
        "check /dev/ng0n1 nvme; strategy= plain=" + UNMOUNT,
        "is mounted on /mnt",
        True,
    ),
    "ng-with-a-file-system": Case(
        "watch=$nvme; mke2fs -F $nvme >/dev/null; strategy=nvme-fua plain='--ioengine=io_uring_cmd --cmd_type=nvme'; check /dev/ng0n1; strategy= plain=",
        "holds ext2 on nvme0n1",
        True,
    ),
    "mounted-by-a-bind-mount": Case(
        MOUNTED + "mkdir -p /bound; mount --bind /mnt/lost+found /bound; umount /mnt; check $one one; umount /bound", "is mounted on /bound", False
    ),
    "another-node-of-mounted": Case(
        MOUNTED + "mknod /tmp/node b $(tr : ' ' </sys/block/${one#/dev/}/dev); check /tmp/node one; rm /tmp/node" + UNMOUNT,
        "is mounted on /mnt",
        True,
    ),
    "node-bound-to-a-file": Case(
        MOUNTED + "touch /tmp/file; mount --bind $one /tmp/file; check /tmp/file one; umount /tmp/file" + UNMOUNT, "is mounted on /mnt", True
    ),
    "btrfs": Case(
        "mkfs.btrfs -q -f $big; watch=$big; mount -t btrfs -o ro $big /mnt; check $big big" + UNMOUNT, "is mounted on /mnt", False
    ),
    "btrfs-second-device": Case(
        "mkfs.btrfs -q -f $big $large; watch=$large; mount -t btrfs -o ro,device=$big,device=$large $big /mnt; check $large large"
        + UNMOUNT
        + "; wipe $big",
        "is in use: the kernel holds it",
        True,
    ),
    "journal-of-ext4": Case(
        "mkfs.ext4 -q -F -b 1024 -O journal_dev $two; mkfs.ext4 -q -F -b 1024 -J device=$two $one; watch=$two; mount -t ext4 -o ro $one /mnt; "
        "check $two two; umount /mnt; wipe $one",
        "is in use: the kernel holds it",
        True,
    ),
    "journal-signature": Case("mkfs.ext4 -q -F -b 1024 -O journal_dev $one; check $one", "holds jbd on ", True),
    # what bcache has made is written down by itself within a second
    "bcache-cache": Case("bcache; sync; sleep 3; watch=$big; check $big big; remove_bcache; wipe $large", "is part of bcache0", True),
    "bcache-backing-mounted": Case(
        "bcache; mkfs.ext4 -q -F $node; mount -t ext4 -o ro $node /mnt; watch=$large; check $large large; umount /mnt; remove_bcache",
        "bcache0 is mounted on /mnt",
        True,
    ),
    "bcache-cache-of-nothing": Case(
        "make-bcache --wipe-bcache -C $big >/dev/null; echo $big >/sys/fs/bcache/register; sleep 1; watch=$big; check $big big; "
        "echo 1 >$(echo /sys/fs/bcache/*-*)/stop; until [ -z \"$(ls /sys/fs/bcache | grep -e -)\" ]; do sleep 0.1; done",
        "is in use: the kernel holds it",
        True,
    ),
    "bcache-signature": Case("make-bcache --wipe-bcache -B $big >/dev/null; watch=$big; check $big", "holds bcache on ", True),
    "thin-pool-data": Case("pool; check $data vg-pool_tdata; remove_pool", "is part of dm-2", True),
    "thin-pool": Case("pool; check $pool; remove_pool", "holds an internal volume of LVM on dm-2", True),
    "thin-volume-mounted": Case(
        'pool; dmsetup message vg-pool-tpool 0 "create_thin 0"; dm vg-thin "0 8192 thin $pool 0"; mke2fs -F $node >/dev/null; mount -t ext4 -o ro $node /mnt; '
        # the pool itself writes what is new down within a second
        "sync; sleep 2; "
        "check $one one; umount /mnt; dmsetup remove --noudevsync vg-thin; remove_pool",
        "dm-3 is mounted on /mnt",
        True,
    ),
    "lvm-internal": Case(
        'lvm vg-pool_tdata "0 8192 linear $one 6144" tdata; check $node; dmsetup remove --noudevsync vg-pool_tdata',
        "holds an internal volume of LVM on dm-0",
        True,
    ),
    "multipath": Case(
        'dm mpath "0 16384 multipath 0 0 1 1 round-robin 0 2 1 $one 1000 $two 1000"; check $one one; dmsetup remove --noudevsync mpath; wipe $two',
        "is part of dm-0",
        True,
    ),
    "nbd-mounted": Case(
        "nbdkit --unix /run/nbd /models/plugin.so /models/null.conf capacity=8388608; nbd-client -unix /run/nbd /dev/nbd0 -b 512 >/dev/null; "
        "mke2fs -F /dev/nbd0 >/dev/null; mount -t ext4 -o ro /dev/nbd0 /mnt; ln -s /dev/nbd0 /tmp/link; watch=/dev/nbd0; check /tmp/link; umount /mnt; "
        "rm /tmp/link; nbd-client -d /dev/nbd0 >/dev/null; watch=$one",
        "nbd0 is mounted on /mnt",
        True,
    ),
    "zram-swap": Case(
        "echo 8M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null; swapon /dev/zram0; watch=/dev/zram0; check /dev/zram0; swapoff /dev/zram0; "
        "watch=$one",
        "zram0 is swap",
        False,
    ),
    "loop-on-a-swap-file": Case(
        "mkfs.ext4 -q -F $big; mount -t ext4 $big /mnt; watch=/mnt/file; dd if=/dev/zero of=$watch bs=1M count=8 2>/dev/null; chmod 600 $watch; "
        "mkswap $watch >/dev/null; loop=$(losetup -f); losetup $loop $watch; swapon $watch; check $loop $watch; swapoff $watch; losetup -d $loop; "
        "umount /mnt; watch=$big",
        "/mnt/file, which is behind loop0, is swap",
        False,
    ),
    "scsi-debug": Case("watch=$debug; mke2fs -F $debug >/dev/null; check $debug", "holds ext2 on ", True),
    "scsi-debug-confirmed": Case("watch=$debug; mke2fs -F $debug >/dev/null; check $debug $debug_serial", "", True),
    "unreadable": Case('dm bad "0 8192 error"; check $node bad; dmsetup remove --noudevsync bad', "can't be read", False),
}


@dataclass(frozen=True)
class Machine(qemu.Machine):
    """A guest with further devices."""

    devices: tuple[str, ...] = ()

    def command(self, serial: str) -> list[str]:
        return [*super().command(serial), *self.devices]


def program(name: str) -> Path:
    """Of this machine."""
    found = shutil.which(name)
    assert found, f"{name} is not there; setup/packages.list has its package"
    return Path(found)


def boot(kernel: Kernel, folder: Path) -> None:
    """Carry the cases out in a guest. Their results are then in the folder."""
    root = folder / "root"
    for part in ("plan", "engines", "etc", "models"):
        (root / part).mkdir(parents=True)
    tools = ["busybox", "dmsetup", "mkfs.btrfs", "mkfs.ext4", "make-bcache", "nbdkit", "nbd-client", "timeout"]
    initramfs.add_programs(root, [*map(program, tools), layout.guard(), layout.fio()])
    model = layout.plugin("devicemodel")
    shutil.copy(model, root / "models/plugin.so")
    initramfs.add_libraries(root, model)
    shutil.copy(layout.lab() / "model/null.conf", root / "models")
    engine = layout.engines() / "fio-fua-dsync.so"
    shutil.copy(engine, root / "engines")
    initramfs.add_libraries(root, engine)
    initramfs.add_modules(root, kernel, MODULES, OPTIONAL)
    shutil.copy(layout.lab() / "init", root / "init")
    (root / "plan/prelude").write_text(PRELUDE)
    for name, case in CASES.items():
        (root / "plan" / name).mkdir()
        (root / "plan" / name / "command").write_text(f". /plan/prelude\n{case.state}\nwipe $watch\n")
    (root / "plan/plan").write_text("".join(f"repeat {name}\n" for name in CASES))
    initramfs.archive(root, folder / "initrd")

    results = folder / "results.img"
    devices = ["-device", "virtio-scsi-pci,id=hba"]
    for number, (serial, size) in enumerate(SIZES):
        image, name = folder / f"{number}.img", f"d{number}"
        subprocess.run(["truncate", "-s", f"{size}M", image], check=True)
        device = "nvme" if serial == "nvme" else "scsi-hd,bus=hba.0,dpofua=on"
        devices += ["-drive", f"file={image},if=none,id={name},format=raw,cache=unsafe", "-device", f"{device},drive={name},serial={serial}"]
    subprocess.run(["truncate", "-s", "64M", results], check=True)
    accelerator = qemu.accelerator("host", kernel.image)
    machine = Machine(kernel.image, folder / "initrd", [qemu.Disk(results)], accelerator, "1g", CPUS, tuple(devices))
    console = qemu.Console(lambda word, rest: 300, lambda word, rest: None)
    end = qemu.run(machine, console, folder / "console.log", signals.Stop(), lambda: None)
    subprocess.run(["tar", "--ignore-zeros", "-xf", results, "-C", folder], check=True)
    assert not end.error, (end.error, (folder / "console.log").read_text()[-3000:])


@pytest.fixture(scope="module", params=[pytest.param(each, marks=pytest.mark.xdist_group(f"guard {each}")) for each in KERNELS])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, newest: Callable[[str], Kernel]) -> Path:
    """The folder with what was seen in the guest."""
    folder = tmp_path_factory.mktemp("guard")
    boot(newest(request.param), folder)
    return folder


def text(path: Path) -> str:
    return path.read_text().strip()


@pytest.mark.parametrize("name", CASES)
def test_disk(seen: Path, name: str) -> None:
    case, folder = CASES[name], seen / name
    said = {who: text(folder / f"{who}.txt") for who in ("guard", "engine", "again", "plain")}
    status = {who: int(text(folder / f"{who}.status")) for who in said}
    same = text(folder / "before") == text(folder / "after")
    if case.says:
        assert (status["guard"], status["engine"], status["again"], same) == (2, 1, 2, True), (said, text(folder / "stderr.txt"))
        assert case.says in said["guard"] and said["again"] == said["guard"]
        engine = [line for line in said["engine"].splitlines() if line.startswith("fio-fua-dsync: ")]
        assert len(engine) == 1 and case.says.replace("--destroy", "destroy") in engine[0], said["engine"]
    else:
        assert (status["guard"], status["engine"], same) == (0, 0, False), (said, text(folder / "stderr.txt"))
    wrote = text(folder / "after") != text(folder / "changed")
    assert wrote == case.plain, said["plain"]

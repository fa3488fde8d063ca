# SPDX-License-Identifier: GPL-2.0-only
"""The strategies of fua-dsync that send commands to a drive themselves, in guests that have such drives: `make test-lab`.

Each write is followed down: what the engine counts, which commands the kernel hands to its drivers (tracepoints), and what then reaches
the device behind QEMU's drives, a model on this host which tells FUA from flush.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import layout, signals
from durabenchlib.lab import initramfs, qemu
from durabenchlib.lab.kernels import Kernel

from command import eventually

KERNELS = ("6.1", "6.18", "7.3")
MODULES = ["virtio_pci", "virtio_blk", "nvme", "virtio_scsi", "sd_mod", "sg", "scsi_debug"]
# QEMU's TCG does not always get it right when one CPU changes the code that another runs, as the kernel does for its tracepoints.
CPUS = 1
WRITES = 256
# The first byte that can't be written on the broken drives; the block in which scsi_debug's first medium error lies (LBA 1234h).
BROKEN_AT = 4 << 20
MEDIUM_ERROR_AT = 0x1234 * 512 // 4096 * 4096

# The device of each way, by /dev/by/NAME, its strategy, and how many writes it has in flight.
WAYS = {
    "nvme": ("nvme-generic", "nvme-fua", 1),
    "nvme-deep": ("nvme-generic", "nvme-fua", 32),
    "sg": ("scsi-generic", "scsi-fua", 1),
    "sd": ("scsi", "scsi-fua", 1),
    "debug": ("debug-generic", "scsi-fua", 1),
}

# Gives each drive its name in /dev/by: a serial number, or for scsi_debug its model. Drives are found while this goes on.
FIND = """
mkdir /dev/by
tries=0
until [ -b /dev/sdd ] && [ -b /dev/nvme1n1 ] || [ $tries = 600 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
for block in /sys/block/nvme* /sys/block/sd*; do
	name=${block##*/}
	case $name in
	nvme*)
		serial=$(cat $block/device/serial)
		generic=ng${name#nvme}
		;;
	sd*)
		serial=$(tail -c +5 $block/device/vpd_pg80)
		! grep -q scsi_debug $block/device/model || serial=debug
		generic=$(ls $block/device/scsi_generic)
		;;
	esac
	ln -s /dev/$name /dev/by/${serial%% *}
	ln -s /dev/$generic /dev/by/${serial%% *}-generic
done
ls -l /dev/by >&3
"""

# The device is claimed before, so that what the guard reads of it is not among the commands of the job.
STEP = "exec timeout 120 durabench-guard {device} -- sh traced"
TRACED = """
{before}
trace=/sys/kernel/tracing
events="$trace/events/nvme/nvme_setup_cmd/enable $trace/events/scsi/scsi_dispatch_cmd_start/enable"
echo >$trace/trace
for event in $events; do echo 1 >$event; done
{fio}
status=$?
for event in $events; do echo 0 >$event; done
cp $trace/trace trace
exit $status
"""


def fio(device: str, before: str = "", **options: str | int) -> dict[str, str]:
    """The files of a step: fio on a device of /dev/by, which leaves its result in the working directory."""
    filename = f"/dev/by/{device}"
    own = {"name": "t", "output": "fio.json", "output-format": "json+", "bs": "4k", "filename": filename, **options}
    command = shlex.join(["fio", *(f"--{name}={value}" for name, value in own.items())])
    return {"command": STEP.format(device=filename), "traced": TRACED.format(before=before, fio=command)}


def ours(device: str, strategy: str, before: str = "", **options: str | int) -> dict[str, str]:
    """The files of a step with the engine."""
    engine = {"ioengine": "external:/engines/fio-fua-dsync.so", "strategy": strategy, "counters": "counters.jsonl"}
    return fio(device, before, **engine, **options)


def steps() -> Iterator[tuple[str, dict[str, str]]]:
    """Name and files."""
    written = {"rw": "write", "size": 4096 * WRITES, "verify": "crc32c", "verify_fatal": 1}
    for way, (device, strategy, depth) in WAYS.items():
        yield f"{way}-write", ours(device, strategy, iodepth=depth, **written)
        block = device.removesuffix("-generic")
        yield f"{way}-back", fio(block, ioengine="psync", direct=1, verify_only=1, **written)
        yield f"{way}-sync", ours(device, strategy, iodepth=depth, rw="write", size=4096 * 64, fsync=8, end_fsync=1)
    for name, depth in (("nvme", 1), ("nvme", 32), ("scsi", 1)):
        at = {"offset": BROKEN_AT - 16 * 4096, "size": 32 * 4096}
        yield f"{name}-broken-{depth}", ours(f"{name}-broken-generic", f"{name}-fua", rw="write", iodepth=depth, **at)
    at = {"offset": MEDIUM_ERROR_AT - 4 * 4096, "size": 16 * 4096}
    fails, protects = "echo 2 >/sys/bus/pseudo/drivers/scsi_debug/opts", "echo 1 >/sys/module/scsi_debug/parameters/wp"
    yield "medium", ours("debug-generic", "scsi-fua", fails, rw="read", **at)
    yield "protected", ours("debug-generic", "scsi-fua", protects, rw="write", size="64k")
    yield "no-fua", ours("no-fua-generic", "scsi-fua", rw="write", size="64k")


@dataclass(frozen=True)
class Step:
    """What a step left."""

    folder: Path

    @property
    def status(self) -> int:
        return int((self.folder / "status").read_text())

    @property
    def said(self) -> str:
        return (self.folder / "stderr.txt").read_text()

    @property
    def counter(self) -> dict[str, Any]:
        return json.loads((self.folder / "counters.jsonl").read_text())

    @property
    def commands(self) -> Counter[str]:
        """Reads, writes with FUA and without, and flushes that the kernel handed to a driver."""
        text = (self.folder / "trace").read_text()
        found: Counter[str] = Counter()
        for name, control in re.findall(r"nvme_setup_cmd: .*cmd=\(nvme_cmd_(\w+)(?:.* ctrl=0x([0-9a-f]+))?", text):
            found[_kind(name, bool(int(control or "0", 16) & 1 << 14))] += 1
        for name, flags in re.findall(r"scsi_dispatch_cmd_start: .*cmnd=\((\w+?)(?:_\d+)? .*raw=\w\w (\w\w)", text):
            found[_kind(name, bool(int(flags, 16) & 1 << 3))] += 1
        return Counter({kind: count for kind, count in found.items() if kind})


def _kind(name: str, fua: bool) -> str:
    name = {"synchronize_cache": "flush"}.get(name.lower(), name.lower())
    if name not in ("read", "write", "flush"):
        return ""
    return f"{name}, FUA" if fua else name


@dataclass(frozen=True)
class Machine(qemu.Machine):
    """A guest with further devices."""

    devices: tuple[str, ...] = ()

    def command(self, serial: str) -> list[str]:
        return [*super().command(serial), *self.devices]


@dataclass(frozen=True)
class Seen:
    """Of one guest: its steps by their names, and the counts of the models behind its drives."""

    steps: dict[str, Step]
    models: dict[str, dict[str, Any]]


def broken(folder: Path, name: str) -> list[str]:
    """QEMU's arguments for what stands behind a drive on which one sector can't be written."""
    image = folder / f"{name}.img"
    image.touch()
    subprocess.run(["truncate", "-s", "64M", image], check=True)
    error = {"event": "none", "iotype": "write", "sector": BROKEN_AT // 512, "once": "off", "errno": errno.EIO}
    rule = ",".join(f"inject-error.0.{key}={value}" for key, value in error.items())
    return [
        *("-blockdev", f"driver=file,filename={image},node-name={name}-file"),
        *("-blockdev", f"driver=blkdebug,image={name}-file,node-name={name},{rule}"),
    ]


def modelled(folder: Path, name: str) -> tuple[subprocess.Popen[bytes], list[str]]:
    """A device model on this host, and QEMU's arguments for it to stand behind a drive."""
    socket, plugin, conf = folder / f"{name}.sock", layout.plugin("devicemodel"), layout.lab() / "model/null.conf"
    command = ["nbdkit", "--exit-with-parent", "-f", "-U", socket, plugin, conf, "capacity=67108864", f"stats={folder / name}.json"]
    process = subprocess.Popen(command)
    assert eventually(socket.exists)
    return process, ["-blockdev", f"driver=nbd,server.type=unix,server.path={socket},node-name={name}"]


def boot(kernel: Kernel, folder: Path) -> None:
    """Carry the steps out in a guest. Their results are then in the folder, and the models' counts."""
    root = folder / "root"
    for part in ("plan", "engines", "models"):
        (root / part).mkdir(parents=True)
    programs = [initramfs.tool("busybox"), Path(shutil.which("timeout") or ""), layout.guard(), layout.fio()]
    initramfs.add_programs(root, programs)
    engine = layout.engines() / "fio-fua-dsync.so"
    shutil.copy(engine, root / "engines")
    initramfs.add_libraries(root, engine)
    initramfs.add_modules(root, kernel, MODULES)
    shutil.copy(layout.lab() / "init", root / "init")
    lines = [FIND]
    for name, files in steps():
        (root / "plan" / name).mkdir()
        for file, content in files.items():
            (root / "plan" / name / file).write_text(content)
        lines.append(f"repeat {name}")
    (root / "plan/plan").write_text("\n".join(lines) + "\n")
    initramfs.archive(root, folder / "initrd")

    results = folder / "results.img"
    results.touch()
    subprocess.run(["truncate", "-s", "64M", results], check=True)
    servers, devices = [], ["-device", "virtio-scsi-pci,id=hba"]
    scsi = "scsi-hd,bus=hba.0,werror=report"
    for name, device in (("nvme", "nvme"), ("scsi", f"{scsi},dpofua=on")):
        server, behind = modelled(folder, name)
        servers.append(server)
        devices += [*behind, "-device", f"{device},drive={name},serial={name}"]
        devices += [*broken(folder, f"{name}-broken"), "-device", f"{device},drive={name}-broken,serial={name}-broken"]
    devices += ["-blockdev", "driver=null-co,size=67108864,node-name=no-fua", "-device", f"{scsi},drive=no-fua,serial=no-fua"]
    accelerator = qemu.accelerator("host", kernel.image)
    machine = Machine(kernel.image, folder / "initrd", [qemu.Disk(results)], accelerator, "1g", CPUS, tuple(devices))
    console = qemu.Console(lambda word, rest: 300, lambda word, rest: None)
    try:
        end = qemu.run(machine, console, folder / "console.log", signals.Stop(), lambda: None)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    assert not end.error, (end.error, (folder / "console.log").read_text()[-3000:])
    subprocess.run(["tar", "--ignore-zeros", "-xf", results, "-C", folder], check=True)


@pytest.fixture(scope="module", params=[pytest.param(each, marks=pytest.mark.xdist_group(each)) for each in KERNELS])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, newest: Callable[[str], Kernel]) -> Seen:
    """What was seen in a guest with that kernel, of which there is one: its tests keep together."""
    folder = tmp_path_factory.mktemp("guest")
    boot(newest(request.param), folder)
    models = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("nvme", "scsi")}
    return Seen({name: Step(folder / name) for name, _ in steps()}, models)


@pytest.mark.parametrize("way", WAYS)
def test_each_write_is_one_command_with_fua(seen: Seen, way: str) -> None:
    step = seen.steps[f"{way}-write"]
    assert (step.status, step.said) == (0, "")
    counter = step.counter
    # As many reads verify them.
    assert (counter["writes"], counter["durable_writes"], counter["reads"]) == (WRITES, WRITES, WRITES)
    assert (counter["flush_calls"], counter["error"]) == (0, 0)
    assert step.commands == {"write, FUA": WRITES, "read": WRITES}
    levels = json.loads((step.folder / "fio.json").read_text())["jobs"][0]["iodepth_level"]
    assert (levels["32"] > 0) == (way == "nvme-deep"), levels


@pytest.mark.parametrize("way", WAYS)
def test_the_block_layer_reads_it_back(seen: Seen, way: str) -> None:
    step = seen.steps[f"{way}-back"]
    assert step.status == 0, step.said
    assert step.commands["read"] == WRITES


@pytest.mark.parametrize("way", WAYS)
def test_a_sync_is_one_flush(seen: Seen, way: str) -> None:
    step = seen.steps[f"{way}-sync"]
    assert (step.status, step.said) == (0, "")
    syncs = step.counter["syncs"]
    # Of what is in flight fio counts some more before it syncs.
    assert syncs == 8 or way == "nvme-deep" and 1 < syncs < 8
    assert step.counter["flush_calls"] == syncs
    assert step.commands == {"write, FUA": 64, "flush": syncs}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nvme-broken-1", "NVMe Write: status type 2h (media and data integrity), code 80h (Write Fault)"),
        ("nvme-broken-32", "NVMe Write: status type 2h (media and data integrity), code 80h (Write Fault)"),
        ("scsi-broken-1", "SCSI WRITE: ABORTED COMMAND, I/O process terminated (ASC 00h, ASCQ 06h)"),
        ("medium", "SCSI READ: MEDIUM ERROR, unrecovered read error (ASC 11h, ASCQ 00h)"),
    ],
)
def test_a_command_that_fails(seen: Seen, name: str, says: str) -> None:
    step = seen.steps[name]
    assert step.status == 1
    assert step.said.count("fio-fua-dsync: ") == 1 and says in step.said, step.said
    done = step.counter["reads"] if name == "medium" else step.counter["writes"]
    assert step.counter["error"] == errno.EIO
    if name == "nvme-broken-32":  # with those that were in flight
        assert 16 <= done < 32
    else:
        assert done == (4 if name == "medium" else 16)


@pytest.mark.parametrize(
    ("name", "says"), [("protected", "the drive is write protected"), ("no-fua", "the drive takes no FUA writes (DPOFUA is 0")]
)
def test_a_drive_that_can_not_do_it(seen: Seen, name: str, says: str) -> None:
    step = seen.steps[name]
    assert step.status == 1
    assert says in step.said
    assert not {kind for kind in step.commands if kind.startswith("write")}


def test_what_reaches_the_device(seen: Seen) -> None:
    """QEMU's NVMe drive hands the FUA bit on, or loses it; its SCSI disk hands it on, or flushes after the write, of syncs too."""
    few = 16  # flushes of QEMU's own, as when the guest ends
    for drive, ways in (("nvme", ["nvme", "nvme-deep"]), ("scsi", ["sg", "sd"])):
        counters = [seen.steps[f"{way}-{step}"].counter for way in ways for step in ("write", "sync")]
        writes, syncs = (sum(counter[key] for counter in counters) for key in ("writes", "syncs"))
        model = seen.models[drive]
        assert model["writes"] == writes
        assert model["fua_writes"] in (0, writes)
        flushes = syncs + (writes if drive == "scsi" and not model["fua_writes"] else 0)
        assert flushes <= model["flushes"] <= flushes + few

# SPDX-License-Identifier: GPL-2.0-only
"""How a guest can end, and what is told and kept of it: with a program in place of QEMU that says and leaves what a guest would."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from durabenchlib import environment, formats, signals
from durabenchlib.errors import Exit, Failure
from durabenchlib.formats import Repetition, Run
from durabenchlib.lab import guest, initramfs, plan, qemu
from durabenchlib.lab.kernels import Kernel
from rich.console import Console

import stages
from command import eventually, processes, start

FIO = Path(__file__).resolve().parent.parent / "scripts/data/fio-3.33-fdatasync.json"

# A guest that boots, and one repetition that goes well.
BOOTED = """
echo 'SeaBIOS'; printf 'durabench: booted 9.9.9\\r\\n'
mkdir -p results/guest/target/queue
echo 9.9.9-guest >results/guest/release; echo 'console=ttyS0' >results/guest/cmdline
echo 'MemTotal: 1000 kB' >results/guest/meminfo; echo 'model name : a CPU' >results/guest/cpuinfo
echo 'flushes_per_dsync_write 1' >results/guest/abilities
echo 65536 >results/guest/target/size; echo 'write back' >results/guest/target/queue/write_cache
echo 1 >results/guest/target/queue/fua
keep guest
"""
REPEAT = """
echo 'durabench: begin 001-seq-fua-1'
mkdir -p results/001-seq-fua-1; cd results/001-seq-fua-1
echo {status} >status; echo 2026-01-02T03:04:05Z >started; echo 1.25 >elapsed; echo x >command; echo {stderr} >stderr.txt
[ {status} = 0 ] && cp {fio} fio.json; cd ../..
keep 001-seq-fua-1
echo 'durabench: end 001-seq-fua-1 {status}'
"""
WELL = REPEAT.format(status=0, stderr="", fio=FIO)


class Silent:
    """A progress that shows nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, repetition: Repetition, total: int) -> None:
        self.seen.append(f"begin {repetition.dir} of {total}")

    def tick(self, elapsed_s: float, left_s: float | None) -> None:
        pass

    def end(self, repetition: Repetition) -> None:
        self.seen.append(f"end {repetition.dir} {repetition.status}")


Execute = Callable[..., Run]


@pytest.fixture
def execute(small: str, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: None) -> Execute:
    """execute(repeat=1) -> the run, in tmp_path/out."""
    monkeypatch.setattr(qemu, "BOOT_S", 20.0)
    monkeypatch.setattr(guest, "_fill", lambda guest, root: None)  # nothing is booted

    def run(repeat: int = 1, progress: Silent | None = None, stop: signals.Stop | None = None) -> Run:
        made = plan.make(plan.Request(small, kernel, {"seq": ["fua"]}, repeat=repeat))
        return guest.execute(made, tmp_path / "out", qemu.VIRTUAL, progress or Silent(), signals.Stop() if stop is None else stop)

    return run


def kept(tmp_path: Path) -> Run:
    return formats.read_run(tmp_path / "out")


def test_all_goes_well(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    fake_qemu(BOOTED + WELL + "echo 'durabench: done'")
    progress = Silent()
    execute(progress=progress)
    run = kept(tmp_path)
    assert (run.status, run.reason, run.label) == ("complete", None, "9.9.9-test")
    assert progress.seen == ["begin 001-seq-fua-1 of 1", "end 001-seq-fua-1 ok"]
    (repetition,) = run.repetitions
    assert (repetition.status, repetition.exit_status, repetition.elapsed_s) == ("ok", 0, 1.25)
    assert repetition.started == "2026-01-02T03:04:05Z"
    about = run.environment
    assert (about.kernel, about.cmdline, about.memory_bytes, about.cpu_model) == ("9.9.9-guest", "console=ttyS0", 1024000, "a CPU")
    assert about.lab
    assert about.lab.abilities == {"flushes_per_dsync_write": 1.0}
    assert (about.lab.clock, about.lab.accelerator, about.lab.qemu) == ("virtual", "TCG, counted instructions", "1.2.3")
    assert about.lab.devices[0].startswith("null_blk nullb0 size=32m memory_backed=1")
    assert (run.target.size_bytes, run.target.write_cache, run.target.fua) == (512 * 65536, "write back", True)
    assert sorted(path.name for path in (tmp_path / "out/001-seq-fua-1").iterdir()) == ["fio.json", "stderr.txt"]
    assert "SeaBIOS" in (tmp_path / "out/console.log").read_text()


def test_no_room_for_the_files_of_a_guest(execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(root: Path, file: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/lib/libc.so.6")

    monkeypatch.setattr(initramfs, "archive", full)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(Failure, match=f"^{tmp_path}: No space left on device: .*TMPDIR"):
        execute()
    assert not list(tmp_path.glob("durabench-lab-*"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "echo '[ 1.0] Kernel panic - not syncing: VFS: Unable to mount root fs'",
            "kernel panicked: VFS: Unable to mount root fs",
        ),
        ("echo 'durabench: error nbd-client: nbd0 is not there'", "the guest gave up: nbd-client: nbd0 is not there"),
        ("echo 'qemu: no such kernel' >&2; exit 3", "ended with status 3: qemu: no such kernel"),
        ("echo 'qemu: initrd is too large, cannot support.(max: 1, need 2)' >&2; exit 1", "--memory SIZE gives it more"),
        ("echo 'durabench: done'", "left out a part of its plan"),
        ("exit 0", "ended before its plan did: the last it said was 'end'"),
    ],
    ids=["panic", "error", "qemu", "memory", "gap", "early"],
)
def test_an_end_before_its_time(
    execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path, text: str, says: str
) -> None:
    fake_qemu(BOOTED + WELL + "\n" + text)
    with pytest.raises(Failure, match=says) as caught:
        execute(repeat=2)
    assert caught.value.status == Exit.FAILED
    assert str(tmp_path / "out/console.log") in str(caught.value)
    run = kept(tmp_path)
    # What ended before is kept, and what did not run says so.
    assert (run.status, [each.status for each in run.repetitions]) == ("failed", ["ok", "pending"])
    assert says in (run.reason or "")
    assert run.environment.kernel == "9.9.9-guest"


def test_nothing_at_all(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    fake_qemu("echo 'failed to find romfile' >&2; exit 1")
    with pytest.raises(Failure, match="status 1: failed to find romfile"):
        execute()
    assert "romfile" in (tmp_path / "out/console.log.qemu").read_text()
    assert kept(tmp_path).status == "failed"


def test_no_qemu(execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "PROGRAM", "qemu-system-none")
    with pytest.raises(Failure, match="qemu-system-none is not there: install the package qemu-system-x86") as caught:
        execute()
    assert caught.value.status == Exit.MISSING
    assert kept(tmp_path).status == "failed"


def test_a_guest_that_does_not_boot(
    execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu, "BOOT_S", 1.0)
    fake_qemu("exec sleep 600")
    with pytest.raises(Failure, match="the guest hangs: it did not boot"):
        execute()
    assert not processes(tmp_path / "out")
    assert eventually(lambda: not processes(f"{tmp_path}/bin/qemu"))


def test_a_guest_that_hangs(
    execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Silent):
        def begin(self, repetition: Repetition, total: int) -> None:
            monkeypatch.setattr(qemu, "BOOT_S", 1.0)
            monkeypatch.setitem(guest.SLOWEST, "virtual", 0.0)

    fake_qemu(BOOTED + "echo 'durabench: begin 001-seq-fua-1'; echo 'durabench: filled 001-seq-fua-1'\nexec sleep 600")
    with pytest.raises(Failure, match="the guest hangs: .*'filled' 001-seq-fua-1"):
        execute(progress=Impatient())
    assert not processes(tmp_path / "out")
    assert eventually(lambda: not processes(f"{tmp_path}/bin/qemu"))


@pytest.mark.parametrize("last", ["done", "error there is no disk"])
def test_a_guest_that_does_not_switch_itself_off_is_not_waited_for(last: str) -> None:
    console = qemu.Console(lambda word, rest: 1000.0, lambda word, rest: None)
    console.feed(b"durabench: begin x\n")
    assert console.deadline > time.monotonic() + qemu.END_S
    console.feed(f"durabench: {last}\n".encode())
    assert console.deadline <= time.monotonic() + qemu.END_S


def test_a_job_that_fails(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    said = "'fio-fua-dsync: /dev/nullb0: strategy=fua needs io_uring'"
    fake_qemu(BOOTED + REPEAT.format(status=1, stderr=said, fio=FIO) + "echo 'durabench: done'")
    with pytest.raises(Failure, match="001-seq-fua-1: fio-fua-dsync: /dev/nullb0: strategy=fua needs io_uring"):
        execute()
    assert [each.status for each in kept(tmp_path).repetitions] == ["failed"]


def test_a_guest_without_memory(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    oom = "echo '[9.1] Out of memory: Killed process 77 (fio) total-vm:1kB'\n"
    fake_qemu(BOOTED + oom + REPEAT.format(status=137, stderr="", fio=FIO) + "echo 'durabench: done'")
    with pytest.raises(Failure, match="ran out of memory and ended fio; --memory SIZE gives it more"):
        execute()


@pytest.mark.parametrize("kills", [0, 1])
def test_a_host_without_memory(
    execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    """QEMU is the largest, so what the kernel kills first."""
    fake_qemu(BOOTED + "kill -9 $$")
    counted = iter([5, 5 + kills])
    monkeypatch.setattr(environment, "oom_kills", lambda: next(counted))
    said = ["qemu-system-x86_64 was killed (SIGKILL)", ": out of memory, this machine's or its cgroup's"][: 1 + kills]
    with pytest.raises(Failure, match=re.escape("".join(said)) + " \\(see"):
        execute()
    assert kept(tmp_path).status == "failed"


def test_a_repetition_over_its_time(execute: Execute, fake_qemu: Callable[[str], None]) -> None:
    fake_qemu(BOOTED + REPEAT.format(status=124, stderr="", fio=FIO) + "echo 'durabench: done'")
    with pytest.raises(Failure, match="ended after 61 s, its time limit"):
        execute()


def test_a_stop_ends_the_guest(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    stop = signals.Stop()

    class Stopped(Silent):
        def begin(self, repetition: Repetition, total: int) -> None:
            if repetition.round == 2:
                stop.note(signal.SIGTERM)

    fake_qemu(BOOTED + WELL + "echo 'durabench: begin 002-seq-fua-2'; exec sleep 600")
    with pytest.raises(Failure, match="stopped by SIGTERM") as caught:
        execute(repeat=2, progress=Stopped(), stop=stop)
    assert caught.value.status == Exit.SIGTERM
    run = kept(tmp_path)
    assert (run.status, [each.status for each in run.repetitions]) == ("partial", ["ok", "pending"])
    assert eventually(lambda: not processes(f"{tmp_path}/bin/qemu"))


def test_the_guest_dies_with_the_command(
    small: str, own_image: Path, fake_qemu: Callable[[str], None], tmp_path: Path
) -> None:
    fake_qemu(BOOTED + 'exec -a "$disk" sleep 600')
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = start("lab", "run", small, "--kernel", own_image, "-o", tmp_path / "out", TMPDIR=temporary)
    console = tmp_path / "out/7.4.0-mine/console.log"
    assert eventually(lambda: console.exists() and "kept" in console.read_text()), command.communicate()
    (folder,) = temporary.glob("durabench-lab-*")
    assert processes(folder)
    command.kill()
    command.communicate()
    assert eventually(lambda: not processes(folder))


def test_lab_run_at_its_stages(small: str, own_image: Path, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    fake_qemu(BOOTED + WELL + "echo 'durabench: done'")
    arguments = ["lab", "run", small, "--kernel", own_image, "--case", "seq", "--strategy", "fua", "-o"]
    swept = tmp_path / "swept"
    swept.mkdir()
    stages.sweep(swept, lambda folder: [*arguments, folder / "out"], "7.4.0-mine/run.json")


def test_nothing_is_left_in_the_temporary_folder(
    execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    fake_qemu("exit 1")
    with pytest.raises(Failure):
        execute()
    assert not list((tmp_path / "temporary").iterdir())


def test_a_name_that_leads_out_is_not_followed(execute: Execute, fake_qemu: Callable[[str], None], tmp_path: Path) -> None:
    fake_qemu(
        BOOTED + WELL + "echo bad >evil; tar -cPf t -C results ../evil; dd if=t of=$disk bs=512 seek=$offset conv=notrunc status=none\n"
        "echo \"durabench: kept $((offset + 20))\"; rm evil; echo 'durabench: done'"
    )
    execute()
    assert (tmp_path / "out/001-seq-fua-1/fio.json").exists()
    assert not (tmp_path / "evil").exists()


def test_the_guest_with_the_most_to_do_is_first(small: str, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Path] = []
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(guest, "execute", lambda made, output, *rest: begun.append(output))
    plans = [(plan.make(plan.Request(small, kernel, {"seq": names})), tmp_path / "-".join(names)) for names in (["fua"], ["dsync", "fua"])]
    assert not guest.shown(plans, Console(quiet=True), signals.Stop())
    assert [path.name for path in begun] == ["dsync-fua", "fua"]


def test_kvm_is_believed_only_if_a_guest_ran(kernel: Kernel, fake_qemu: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: True)
    fake_qemu("echo 'Kernel panic - not syncing: VFS'; exit 0")
    assert qemu.kvm_error(kernel.image) is None
    assert qemu.accelerator("host", kernel.image) == qemu.KVM
    fake_qemu("echo 'error: kvm run failed Function not implemented' >&2; exit 1")
    assert qemu.kvm_error(kernel.image) == "a guest does not run with it: error: kvm run failed Function not implemented"
    assert qemu.accelerator("host", kernel.image) == qemu.TCG
    assert qemu.accelerator("virtual", kernel.image) == qemu.VIRTUAL


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("kvm_error(Path('{kernel}'))", id="tried by KVM"),
        pytest.param("interactive(Machine(Path('{kernel}'), Path('initrd'), [], TCG, '64m', 1))", id="shell"),
    ],
)
def test_a_guest_without_a_plan_dies_with_the_command(
    call: str, kernel: Kernel, fake_qemu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_qemu(f"exec -a '{tmp_path}/sleeps' sleep 600")
    program = "import os; from pathlib import Path; from durabenchlib.lab.qemu import *; os.access = lambda *_: True; "
    monkeypatch.setenv("PYTHONPATH", str(Path(qemu.__file__).parents[2]))
    command = subprocess.Popen([sys.executable, "-P", "-c", program + call.format(kernel=kernel.image)])
    sleeps = f"{tmp_path}/sleeps"
    try:
        assert eventually(lambda: processes(sleeps))
    finally:
        command.kill()
        command.wait()
    assert eventually(lambda: not processes(sleeps), seconds=5)

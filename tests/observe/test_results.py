# SPDX-License-Identifier: GPL-2.0-only
"""The samples, the summary and the text: their form, and that they agree."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Observer, Recorder

DEVICE_KEYS = {
    "name", "role", "argument", "of", "reads", "read_sectors", "read_ms", "writes", "write_sectors", "write_ms",
    "busy_ms", "discards", "flushes", "flush_ms", "write_cache", "fua", "rotational", "scheduler",
    "flushes_per_write", "requests_per_write", "gone_s",
}  # fmt: skip
SYSTEM_KEYS = {
    "dirty_peak_bytes", "writeback_peak_bytes", "dirty_writeback_peak_bytes", "cached_peak_bytes",
    "cached_start_bytes", "cached_end_bytes", "cpu_user_s", "cpu_system_s", "cpu_iowait_s", "cpu_count",
    "kswapd_cpu_s", "flusher_cpu_s", "command_cpu_s", "observer_cpu_s",
}  # fmt: skip


def a_disk() -> str:
    """Some disk of this machine; to be read of only."""
    disks = sorted(path.name for path in Path("/sys/block").iterdir())
    if not disks:
        pytest.skip("no disk in /sys/block")
    return disks[0]


def test_form_of_the_results(observer: Observer) -> None:
    disk = a_disk()
    found = observer.run("-d", disk, "-b", "4k", "-i", "20ms", "sleep", "0.3")
    summary, header = found.summary, found.header
    assert summary is not None and header is not None

    assert set(summary) == {
        "schema", "kernel", "start", "command", "exit_status", "signal", "elapsed_s", "interval_ms", "samples",
        "devices", "system",
    }  # fmt: skip
    assert summary["schema"] == "durabench-observe/1"
    assert summary["kernel"] == os.uname().release
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", summary["start"])
    assert summary["command"] == ["sleep", "0.3"]
    assert summary["interval_ms"] == 20
    assert summary["elapsed_s"] >= 0.3
    assert set(summary["system"]) == SYSTEM_KEYS
    assert summary["system"]["cpu_count"] == os.cpu_count()
    assert summary["devices"]
    for device in summary["devices"]:
        assert set(device) == DEVICE_KEYS
        assert device["gone_s"] is None
    assert summary["devices"][0]["name"] == summary["devices"][0]["argument"] == disk
    assert (summary["devices"][0]["role"], summary["devices"][0]["of"]) == ("target", [])

    assert header == {
        "schema": "durabench-samples/1",
        "interval_ms": 20,
        "start": summary["start"],
        "devices": [device["name"] for device in summary["devices"]],
    }
    for sample in found.samples:
        assert set(sample) == {"t", "dirty", "writeback", "cached", "cpu", "dev"}
        assert set(sample["cpu"]) == {"user", "system", "iowait", "kswapd", "flusher"}
        assert list(sample["dev"]) == header["devices"]
        assert all(len(counts) == 6 for counts in sample["dev"].values())


def test_summary_and_samples_agree(observer: Observer) -> None:
    write = "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=$0/written bs=1M count=8 conv=fsync status=none; done"
    found = observer.run("-d", a_disk(), "-i", "5ms", "sh", "-c", write, observer.folder)
    summary, samples = found.summary, found.samples
    assert summary is not None and found.exit_status == 0

    times = [sample["t"] for sample in samples]
    assert times[0] == 0
    assert times[-1] == summary["elapsed_s"]
    assert times == sorted(set(times))
    assert summary["samples"] == len(samples) > 2

    system = summary["system"]
    assert system["dirty_peak_bytes"] == max(sample["dirty"] for sample in samples)
    assert system["writeback_peak_bytes"] == max(sample["writeback"] for sample in samples)
    assert system["dirty_writeback_peak_bytes"] == max(sample["dirty"] + sample["writeback"] for sample in samples)
    assert system["cached_peak_bytes"] == max(sample["cached"] for sample in samples)
    assert system["cached_start_bytes"] == samples[0]["cached"]
    assert system["cached_end_bytes"] == samples[-1]["cached"]
    for name in ("user", "system", "iowait", "kswapd", "flusher"):
        assert samples[0]["cpu"][name] in (0, None)
        assert system[f"{'cpu_' if name in ('user', 'system', 'iowait') else ''}{name}{'_cpu' if name in ('kswapd', 'flusher') else ''}_s"] == samples[-1]["cpu"][name]
    fields = ("reads", "read_sectors", "writes", "write_sectors", "flushes", "flush_ms")
    for device in summary["devices"]:
        assert samples[-1]["dev"][device["name"]] == [device[field] for field in fields]
        assert all(count in (0, None) for count in samples[0]["dev"][device["name"]])
        for earlier, later in zip(samples, samples[1:]):
            counts = zip(earlier["dev"][device["name"]], later["dev"][device["name"]])
            assert all(a is None or a <= b for a, b in counts)


def test_command_that_ends_at_once_has_two_samples(observer: Observer) -> None:
    found = observer.run("-i", "3600s", "true")
    assert len(found.samples) == 2
    assert found.summary is not None and found.summary["samples"] == 2


def test_interval_units(observer: Observer) -> None:
    for text, milliseconds in (("1500us", 1.5), ("2", 2), ("2ms", 2), ("0.5s", 500), (".25s", 250)):
        found = observer.run("-i", text, "true")
        assert found.header is not None and found.header["interval_ms"] == pytest.approx(milliseconds)


def test_without_devices(observer: Observer) -> None:
    found = observer.run("true")
    assert found.summary is not None and found.summary["devices"] == []
    assert all(sample["dev"] == {} for sample in found.samples)
    assert "peak Dirty+Writeback" in found.stderr


@pytest.mark.parametrize("seed", range(4))
def test_arguments_of_any_bytes_make_valid_json(observer: Observer, seed: int) -> None:
    """Invalid UTF-8 is replaced just as Python's decoder replaces it, which is an implementation apart from ours."""
    chance = random.Random(seed)
    pieces = [bytes([byte]) for byte in range(1, 256)]
    pieces += ["é", "€", "💾", "\ud7ff", "\ue000", "\U0010ffff", '"', "\\", "\n", "\x7f"]
    pieces += [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x92"]
    encoded = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    arguments = [b"".join(chance.choices(encoded, k=chance.randrange(30))) for _ in range(1500)]
    found = observer.run("true", *arguments)
    assert found.summary is not None
    assert found.summary["command"] == ["true"] + [each.decode("utf-8", "replace") for each in arguments]


def test_results_replace_earlier_ones_when_complete(observer: Observer, recorder: Recorder, started: Any) -> None:
    for path in (*observer.results, *observer.parts):
        path.write_text("an earlier run")
    process = started(observer.start(*recorder.command(wanted=1)))
    recorder.wait_for(1)
    assert all(path.read_text() == "an earlier run" for path in observer.results)
    process.terminate()
    found = observer.end(process)
    assert found.summary is not None and found.header is not None
    assert not any(path.exists() for path in observer.parts)


def test_what_is_no_regular_file_is_written_in_place(observer: Observer) -> None:
    target, link = observer.folder / "target", observer.folder / "link"
    target.write_text("")
    link.symlink_to(target)
    done = subprocess.run(
        [observer.program, "-o", "/dev/stdout", "-j", link, "true"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[0])["schema"] == "durabench-samples/1"
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "durabench-observe/1"
    assert {path.name for path in observer.folder.iterdir()} == {"target", "link"}
    assert not Path("/dev/stdout.part").exists()


@pytest.mark.parametrize("option", ["-o", "-j"])
def test_result_that_cannot_be_made_stops_before_the_command(observer: Observer, option: str) -> None:
    other = "-j" if option == "-o" else "-o"
    command = [observer.program, other, "other", option, "no/such/folder", "touch", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=observer.folder)
    assert done.returncode == 125
    assert done.stderr == "durabench-observe: 'no/such/folder' can't be written: No such file or directory\n"
    assert not list(observer.folder.iterdir())


@pytest.mark.parametrize(("command", "status"), [("true", 125), ("exit 3", 3)])
def test_full_disk(observer: Observer, command: str, status: int) -> None:
    """The command's own failure matters more; the other result is complete."""
    arguments = ["-o", "/dev/full", "-j", observer.folder / "summary", "sh", "-c", command]
    done = subprocess.run([observer.program, *arguments], capture_output=True, text=True)
    assert done.returncode == status
    assert "durabench-observe: '/dev/full' could not be completed" in done.stderr
    assert json.loads((observer.folder / "summary").read_text())["exit_status"] == (0 if command == "true" else 3)


def test_it_sleeps_between_samples(observer: Observer) -> None:
    """One wake-up a sample and one for the command's end: no busy loop."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    log = observer.folder / "strace"
    command = ["strace", "-qq", "-e", "trace=poll", "-e", "signal=none", "-o", log]
    command += observer.command("-i", "50ms", "sleep", "1")
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # which ptrace prevents
    assert subprocess.run(command, capture_output=True, env=environment).returncode == 0
    samples = json.loads(observer.results[1].read_text())["samples"]
    polls = log.read_text().splitlines()
    assert 0 < len(polls) <= samples + 1


def test_memory_does_not_grow_with_the_samples(observer: Observer, started: Any) -> None:
    def data_pages(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[5])

    # a sanitizer keeps what was freed; let it keep little
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
    arguments = ["-i", "1ms", "-d", a_disk(), "sh", "-c", 'read line; read line']
    process = started(observer.start(*arguments, stdin=subprocess.PIPE, env=environment))
    part = observer.parts[0]
    sizes = []
    for lines in (200, 2000):
        wait = 'until [ "$(wc -l < "$0")" -ge $1 ]; do sleep 0.05; done'
        subprocess.run(["timeout", "60", "sh", "-c", wait, part, str(lines)], check=True, capture_output=True)
        sizes.append(data_pages(process.pid))
    process.stdin.close()
    process.stdin = None
    assert observer.end(process).exit_status in (0, 1)
    assert sizes[1] - sizes[0] <= 256  # 1 MiB, where 1800 samples would be some

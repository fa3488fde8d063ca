# SPDX-License-Identifier: GPL-2.0-only
"""Every strategy on old and new kernels and on all kinds of devices, in guests: `make test-lab`.

What a strategy does is told by the requests that reach the device and by what the engine counts; the times are looked at nowhere.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crowd
import pytest
from durabenchlib import formats, signals
from durabenchlib.errors import Failure
from durabenchlib.formats import LabDevice, Run
from durabenchlib.lab import guest, plan, qemu
from durabenchlib.lab.kernels import Kernel
from durabenchlib.progress import Shown
from rich.console import Console

from conftest import last_document

# What each kernel has to be found to do: whether RWF_DONTCACHE wakes the flusher, flushes of an O_DSYNC write, and of a sync of 4 targets
# on one device.
KERNELS = {
    "6.1": {"dontcache_kick": 0, "flushes_per_dsync_write": 1, "flushes_per_dm_sync": 4},
    "6.18": {"dontcache_kick": 0, "flushes_per_dsync_write": 1, "flushes_per_dm_sync": 1},
    "7.3": {"dontcache_kick": 1, "flushes_per_dsync_write": 1, "flushes_per_dm_sync": 1},
}
DEVICES = {
    "nvme": LabDevice("nvme", "64m"),
    "scsi": LabDevice("scsi", "64m"),
    "nbd": LabDevice("nbdkit", "64m", "devicemodel", {"conf": "/models/nvme.conf"}),
}
WRITES = 256
TARGETS = 16

MEASUREMENT = """
schema = "durabench-measurement/1"
name = "{name}"
title = "{name}"
engine = "{engine}"
targets = ["{target}"]
before = "{before}"
after = "{after}"
strategies = {strategies}
drop_caches = true
[variables]
[lab]
comparisons = [{{ before = "6.1:{before}", after = "7.3:{after}", cases = {cases} }}]
clock = "virtual"
memory = "1g"
[[lab.device]]
model = "null_blk"
size = "512m"
settings = {{ memory_backed = 1, cache_size = 64, irqmode = 2, completion_nsec = 500000, hw_queue_depth = 256 }}
{more}
"""
CASE = """
[[case]]
name = "{name}"
job = "{name}.fio"
metrics = [{{ name = "write.iops", better = "higher" }}]
"""
JOB = """[global]
ioengine=external:${{DURABENCH_ENGINES}}/fio-{engine}.so
strategy=${{STRATEGY}}
counters=${{COUNTERS}}
{place}=${{TARGET}}
bs=4k
{options}
[t]
"""

Boot = Callable[..., "Outcome"]


class Outcome:
    """What came out of a guest: its run, and its repetitions by case and strategy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Run = formats.read_run(folder)
        assert self.run.environment.lab
        self.abilities = self.run.environment.lab.abilities

    def repetition(self, case: str, strategy: str) -> formats.Repetition:
        (found,) = (each for each in self.run.repetitions if (each.case, each.strategy) == (case, strategy))
        return found

    def lines(self, case: str, strategy: str) -> list[dict[str, Any]]:
        """What the engine counted, of each job."""
        text = (self.folder / self.repetition(case, strategy).dir / "counters.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def jobs(self, case: str, strategy: str) -> list[dict[str, Any]]:
        """What fio says of each job."""
        document = last_document(self.folder / self.repetition(case, strategy).dir / "fio.json")
        assert document
        return document["jobs"]

    def counters(self, case: str, strategy: str) -> dict[str, int]:
        """What the engine counted, of all jobs together."""
        lines = self.lines(case, strategy)
        return {key: sum(line[key] for line in lines) for key in lines[0] if isinstance(lines[0][key], int)}

    def observed(self, case: str, strategy: str) -> dict[str, Any]:
        return json.loads((self.folder / self.repetition(case, strategy).dir / "observe.json").read_text())

    def device(self, case: str, strategy: str, name: str) -> dict[str, Any]:
        """What a device did, as the kernel counts it."""
        (found,) = (each for each in self.observed(case, strategy)["devices"] if each["name"] == name)
        return found


@pytest.fixture
def boot(tmp_path: Path, newest: Callable[[str], Kernel]) -> Boot:
    """boot(series, engine, {case: fio's options}, strategies, …) -> what came out of that kernel's guest. A repetition may fail."""

    def carry_out(
        series: str,
        engine: str,
        cases: dict[str, str],
        strategies: list[str],
        target: str = "block",
        device: LabDevice | None = None,
        more: str = "",
    ) -> Outcome:
        folder = tmp_path / "jobs" / engine
        folder.mkdir(parents=True)
        text = MEASUREMENT.format(
            name=engine,
            engine=engine,
            target=target,
            before=strategies[0],
            after=strategies[-1],
            strategies=json.dumps(strategies),
            cases=json.dumps([*cases]),
            more=more,
        )
        place = "directory" if target == "directory" else "filename"
        for name, options in cases.items():
            text += CASE.format(name=name)
            (folder / f"{name}.fio").write_text(JOB.format(engine=engine, place=place, options=options))
        (folder / "measurement.toml").write_text(text)
        kernel = newest(series)
        clock: qemu.Clock = "host" if device and device.model in ("nvme", "scsi") else "virtual"
        devices = [device] if device else []
        made = plan.make(plan.Request(str(folder), kernel, {case: strategies for case in cases}, devices=devices, clock=clock))
        # Of a failure the run tells.
        with contextlib.suppress(Failure), Shown(Console(stderr=True)) as progress:
            guest.execute(made, tmp_path / "out", qemu.accelerator(clock, kernel.image), progress, signals.Stop())
        outcome = Outcome(tmp_path / "out")
        assert all(each.status in ("ok", "failed") for each in outcome.run.repetitions), outcome.run.reason
        assert outcome.abilities == KERNELS[series]
        return outcome

    return carry_out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("series", KERNELS)
def test_durable_writes(boot: Boot, series: str, device: str) -> None:
    strategies = ["dsync", "rwf-dsync", "fua", "fua-flush", "write-flush", "none"]
    outcome = boot(series, "fua-dsync", {"seq": f"rw=write\nsize={4 * WRITES}k"}, strategies, device=DEVICES[device])
    assert outcome.run.status == "complete", outcome.run.reason
    assert (outcome.run.target.write_cache, outcome.run.target.fua) == ("write back", True)
    kernels_way = outcome.abilities["flushes_per_dsync_write"]
    per_write = {"dsync": kernels_way, "rwf-dsync": kernels_way, "fua": 0, "fua-flush": 1, "write-flush": 1, "none": 0}
    name = Path(outcome.run.target.path).name
    flushes = {each: outcome.device("seq", each, name)["flushes"] / WRITES for each in strategies}
    assert flushes == pytest.approx(per_write, abs=0.02)
    for each in strategies:
        counter = outcome.counters("seq", each)
        assert (counter["writes"], counter["durable_writes"]) == (WRITES, 0 if each == "none" else WRITES)


@pytest.mark.parametrize("series", KERNELS)
def test_a_linear_table(boot: Boot, series: str) -> None:
    strategies = ["kernel", "per-target", "per-device"]
    common = "rw=randwrite\nsize=8m\nfdatasync=1\ninvalidate=1"
    cases = {"dm": f"{common}\nnumber_ios=64", "shared": f"{common}\nnumber_ios=16\nnumjobs=16\ngroup_reporting\ncoalesce=1"}
    lines = f"for i in $(seq 0 {TARGETS - 1}); do echo $((i * 1024)) 1024 linear ${{TARGET}} $((i * 2048)); done"
    tables = "[lab.tables]\n" + "".join(f"{case} = {json.dumps(['sh', '-c', lines])}\n" for case in cases)
    outcome = boot(series, "dm-linear-flush", cases, strategies, target="dm", more=tables)
    assert outcome.run.status == "complete", outcome.run.reason

    # 4 on the probe's table of 4 targets is one for each.
    kernels_way = TARGETS if outcome.abilities["flushes_per_dm_sync"] == 4 else 1
    per_sync = {"kernel": kernels_way, "per-target": TARGETS, "per-device": 1}
    for strategy in strategies:
        counter = outcome.counters("dm", strategy)
        assert (counter["writes"], counter["syncs"]) == (64, 64 - 1)
        # Each flush counts as a write of nothing.
        requests = outcome.device("dm", strategy, "nullb0")["writes"]
        assert requests == pytest.approx(64 + per_sync[strategy] * 63, rel=0.05), strategy

        counter = outcome.counters("shared", strategy)
        calls = 1 if strategy == "kernel" else per_sync[strategy]
        assert counter["flushes_shared"] > 0
        assert counter["flush_calls"] + counter["flushes_shared"] == calls * counter["syncs"]


@pytest.mark.parametrize("series", KERNELS)
def test_many_jobs_on_one_dm_device(boot: Boot, series: str) -> None:
    """Each writes to a part of its own, syncs and verifies; two devices are below."""
    cases = {
        "processes": "numjobs=64",
        "shared": "numjobs=64\ncoalesce=1\ndirect=1",
        "threads": "numjobs=256\nthread=1\ncoalesce=1",
    }
    common = "rw=randwrite\nsize=32k\noffset_increment=32k\nfdatasync=2\nverify=crc32c\nverify_fatal=1\n"
    lines = f"for i in $(seq 0 {crowd.LINES // 2 - 1}); do for d in ${{TARGET}} ${{TARGET2}}; do " + (
        "echo $((n * 1024)) 1024 linear $d $((i * 2048)); n=$((n + 1)); done; done"
    )
    second = '[[lab.device]]\nmodel = "null_blk"\nsize = "512m"\n' + "settings = { memory_backed = 1, cache_size = 64, irqmode = 2 }\n"
    tables = "[lab.tables]\n" + "".join(f"{case} = {json.dumps(['sh', '-c', lines])}\n" for case in cases)
    strategies = ["kernel", "per-target", "per-device"]
    options = {case: common + own for case, own in cases.items()}
    outcome = boot(series, "dm-linear-flush", options, strategies, target="dm", more=second + tables)
    assert outcome.run.status == "complete", outcome.run.reason
    for case, own in cases.items():
        for strategy in strategies:
            shared = "coalesce=1" in own
            (of_a_crowd,) = (s for s in crowd.CROWDED if str(s) == f"dm-linear-flush-{strategy}" + ("-1" if shared else ""))
            jobs = int(own.split("\n")[0].partition("=")[2])
            crowd.check_counts(crowd.Case(of_a_crowd, jobs=jobs), outcome.jobs(case, strategy), outcome.lines(case, strategy))
            assert (outcome.counters(case, strategy)["flushes_shared"] > 0) == shared


@pytest.mark.parametrize("series", KERNELS)
def test_uncached_writes(boot: Boot, series: str) -> None:
    strategies = ["buffered", "dontcache", "inline", "kick", "direct"]
    size = 32 << 20
    # The guest's CPU copies faster than the device takes: what may be dirty is bounded to an eighth of the file.
    cases = {"seq": f"rw=write\nbs=128k\nsize={size}\nend_fsync=1\nkick_backlog={size // 8}"}
    outcome = boot(series, "dontcache-kick", cases, strategies, target="directory")
    for strategy in strategies:
        repetition = outcome.repetition("seq", strategy)
        if strategy == "dontcache" and series == "6.1":
            assert repetition.status == "failed"
            assert "fio-dontcache-kick: " in (repetition.reason or "")
            continue
        assert repetition.status == "ok", repetition.reason
        counter = outcome.counters("seq", strategy)
        system = outcome.observed("seq", strategy)["system"]
        kept = system["cached_end_bytes"] - system["cached_start_bytes"]
        assert counter["write_bytes"] == size
        assert outcome.device("seq", strategy, "nullb0")["write_sectors"] >= size // 512
        peak = system["dirty_writeback_peak_bytes"]
        if strategy == "buffered":
            assert kept > 0.9 * size
            assert peak > 0.2 * size
        else:
            assert kept < 0.2 * size, strategy
            # Of a kernel that wakes the flusher, nobody bounds what is dirty until it has come.
            if strategy != "dontcache" or not outcome.abilities["dontcache_kick"]:
                assert peak < 0.2 * size, strategy
        assert (counter.get("writeback_bytes", 0), counter.get("kicks", 0) > 0) == {
            "inline": (size, False),
            "kick": (size, True),
        }.get(strategy, (0, False)), strategy

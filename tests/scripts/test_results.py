# SPDX-License-Identifier: GPL-2.0-only
"""A run's folder as metrics and mechanism."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sample_run
from durabenchlib import results
from durabenchlib.errors import Exit, Failure
from sample_run import SampleRun, device, document, job, observed

pytestmark = pytest.mark.usefixtures("sample_measurement")


def one(folder: Path, *jobs: dict, **more: object) -> results.Repetition:
    """The repetition of a run with only one."""
    run = SampleRun(folder / "run")
    run.add("seq", "dsync", document(*jobs), **more)
    (found,) = results.load_run(run.write()).repetitions
    return found


def test_metrics_of_one_job(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        job(writes=[100_000] * 98 + [50_000, 9_000_000], syncs=[2_000_000] * 3, runtime_ms=500, block=2**20),
        observe=observed(dirty_mib=12.5, elapsed_s=0.5),
    )
    assert found.metric("write.iops") == 200
    assert found.metric("write.bw") == 200
    assert found.metric("write.clat.mean") == pytest.approx(188.5)
    assert found.metric("write.clat.p50") == sample_run.bucket(100_000) / 1000
    assert found.metric("write.clat.p99.9") == sample_run.bucket(9_000_000) / 1000
    assert found.metric("write.clat.max") == 9000
    assert found.metric("sync.count") == 3
    assert found.metric("sync.lat.p50") == 2000
    assert found.metric("dirty_peak") == 12.5
    assert found.metric("cpu") == 150
    assert found.metric("read.iops") is None
    assert found.metric("read.clat.p99") is None


def test_the_joint_rate_is_over_the_joint_time(tmp_path: Path) -> None:
    """As the published competing writers: the sum of two rates over different times is not the rate of both."""
    jobs = (
        job("writer_a", writes=[1000] * 100, runtime_ms=1000, block=2**20),
        job("writer_b", writes=[1000] * 100, runtime_ms=4000, block=2**20),
    )
    found = one(tmp_path, *jobs)
    assert found.metric("writer_a/write.bw") == 100
    assert found.metric("writer_b/write.bw") == 25
    assert found.metric("write.bw") == 50
    assert found.metric("nobody/write.bw") is None
    assert found.metric("writer_a/dirty_peak") is None


def test_latencies_of_jobs_are_merged(tmp_path: Path) -> None:
    found = one(tmp_path, job("a", writes=[100_000] * 99), job("b/c", writes=[9_000_000]))
    assert found.metric("write.clat.p99") == 100
    assert found.metric("write.clat.p99.9") == sample_run.bucket(9_000_000) / 1000
    assert found.metric("b/c/write.clat.p50") == 9000
    assert found.latency("write.clat").n == 100
    assert found.latency("a/write.clat").n == 99


@pytest.mark.parametrize("name", ["write.clat.p", "write.lat.p99", "clat", "sync.iops", "", "write.clat.p99us"])
def test_an_unknown_metric_is_refused(tmp_path: Path, name: str) -> None:
    found = one(tmp_path, job(writes=[1]))
    with pytest.raises(Failure, match="there is no metric"):
        found.metric(name)


def test_distributions_and_percents() -> None:
    names = ["write.clat.p99.9", "a.b/c/sync.lat.mean", "write.iops", "read.clat.max"]
    assert [results.distribution(name) for name in names] == ["write.clat", "a.b/c/sync.lat", None, "read.clat"]
    assert [results.percent(name) for name in names] == [99.9, None, None, None]


def test_units() -> None:
    names = ["write.iops", "a/read.bw", "write.clat.p99.9", "sync.lat.mean", "sync.count", "dirty_peak", "cpu"]
    assert [results.unit(name) for name in names] == ["IOPS", "MiB/s", "us", "us", "count", "MiB", "%"]


def test_mechanism(tmp_path: Path) -> None:
    """Device and engine saw 110 writes, of which fio left out 10 as ramp time; two jobs."""
    counts = {"durable_writes": 55, "writes": 55, "syncs": 5, "flush_calls": 50, "kicks": 3, "kicks_coalesced": 1}
    found = one(
        tmp_path,
        job(writes=[1000] * 60, syncs=[1000] * 4),
        job(writes=[1000] * 40, syncs=[1000] * 5),
        observe=observed(device(writes=330, flushes=220), device("sda", "below", of=["loop0"], flushes=7), dirty_mib=2),
        counters=[counts, counts],
    ).mechanism
    assert found == {
        "writes": 100,
        "syncs": 9,
        "flushes": 220,
        "flushes_per_write": 2,
        "flush_calls": 100,
        "flush_calls_per_sync": 10,
        "requests_per_write": 3,
        "durable_writes": 110,
        "kicks": 6,
        "kicks_coalesced": 2,
        "writeback_bytes": None,
        "dirty_writeback_peak_bytes": 2 * 2**20,
    }


def test_mechanism_without_observer_and_counters(tmp_path: Path) -> None:
    found = one(tmp_path, job(writes=[1000] * 60)).mechanism
    assert {key: value for key, value in found.items() if value is not None} == {"writes": 60, "syncs": 0}
    assert tuple(found) == results.MECHANISM


def test_a_kernel_that_counts_no_flushes(tmp_path: Path) -> None:
    found = one(tmp_path, job(writes=[1000]), observe=observed(device(writes=2, flushes=None))).mechanism
    assert (found["flushes"], found["flushes_per_write"], found["requests_per_write"]) == (None, None, 2)


def test_an_old_kernel_below_as_well(tmp_path: Path) -> None:
    devices = [device("loop0", writes=2, flushes=None), device("sda", "below", of=["loop0"], writes=9, flushes=None)]
    found = one(tmp_path, job(writes=[1000]), observe=observed(*devices)).mechanism
    assert (found["flushes"], found["requests_per_write"]) == (None, 2)


def test_flushes_of_a_dm_device_are_those_below_it(tmp_path: Path) -> None:
    """dm-1 over dm-0 over two disks; a dm device itself counts no flushes."""
    devices = [
        device("dm-1", flushes=None),
        device("dm-0", "below", of=["dm-1"], flushes=None),
        device("sda", "below", of=["dm-0"], flushes=3, writes=5),
        device("sdb", "below", of=["dm-0", "dm-1"], flushes=4, writes=6),
    ]
    found = one(tmp_path, job(writes=[1000]), observe=observed(*devices)).mechanism
    assert (found["flushes"], found["requests_per_write"]) == (7, 11)


def test_bandwidth_from_logs(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    folder = run.add("seq", "dsync", document(job(writes=[1], log_avg_msec="500"), job(writes=[1], log_avg_msec="500")))
    for number in (1, 2):
        (folder / f"seq_bw.{number}.log").write_text("500, 1024, 1, 0\n1000, 3072, 1, 0\n1000, 9, 0, 0\n")
        (folder / f"seq_lat.{number}.log").write_text("not read\n")
    (found,) = results.load_run(run.write()).repetitions
    time, rate = found.bandwidth("write")
    assert (time.tolist(), rate.tolist()) == ([0.5, 1.0], [2, 6])


def test_logs_of_single_ios_are_no_bandwidth(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    (run.add("seq", "dsync", document(job(writes=[1]))) / "seq_bw.1.log").write_text("5, 1024, 1, 4096\n")
    assert len(results.load_run(run.write()).repetitions[0].bandwidth("write")[0]) == 0


def samples(header: object, *lines: object) -> str:
    return "".join(json.dumps(each) + "\n" for each in (header, *lines))


def test_samples(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    folder = run.add("seq", "dsync", document(job(writes=[1])), observed(device()))
    header = {"schema": "durabench-samples/1", "interval_ms": 100, "start": "", "devices": ["loop0"]}
    lines = [
        {"t": 0.1 * i, "dirty": 100, "writeback": i, "cached": 0, "cpu": {}, "dev": {"loop0": [0, 0, 0, 0, 2 * i, 0]}}
        for i in (1, 2)
    ]
    (folder / "samples.jsonl").write_text(samples(header, *lines))
    found = results.load_run(run.write()).repetitions[0].samples
    assert found is not None
    assert (found.time.tolist(), found.dirty_writeback.tolist()) == ([0.1, 0.2], [101, 102])
    assert found.flushes["loop0"].tolist() == [2, 4]


@pytest.mark.parametrize(
    "text",
    [
        "",
        samples([]),
        samples({"schema": "durabench-samples/2"}),
        samples({"schema": "durabench-samples/1"}, {}),
        samples({"schema": "durabench-samples/1"}, {"t": "x", "dirty": 0, "writeback": 0, "dev": {"loop0": [0] * 6}}),
        samples({"schema": "durabench-samples/1"}, {"t": 0, "dirty": 0, "writeback": 0, "dev": []}),
    ],
)
def test_damaged_samples_are_refused(tmp_path: Path, text: str) -> None:
    run = SampleRun(tmp_path / "run")
    (run.add("seq", "dsync", document(job(writes=[1])), observed(device())) / "samples.jsonl").write_text(text)
    (found,) = results.load_run(run.write()).repetitions
    with pytest.raises(Failure, match=r"samples\.jsonl"):
        _ = found.samples


def test_unusable_repetitions_are_left_out_and_named(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run", status="partial", reason="stopped by SIGINT")
    good = document(job(writes=[1]))
    run.add("seq", "dsync", good)
    run.add("seq", "fua", good, status="failed", reason="fio ended with 1")
    run.add("seq", "dsync", good, status="interrupted")
    run.add("seq", "fua", good, status="pending")
    run.add("seq", "fua", document(job(writes=[1], error=5)))
    run.add("seq", "dsync", "nothing\n")
    (run.add("seq", "dsync", good) / "fio.json").unlink()
    (run.add("seq", "dsync", good) / "observe.json").write_text('{"schema": "durabench-observe/1"}')
    (run.add("seq", "dsync", good) / "counters.jsonl").write_text(
        '{"schema": "durabench-counters/1", "job": "a"}\n{"sch'
    )
    run.add("seq", "dsync", good, observed(device(writes=3, flushes=-5)))
    run.add("seq", "dsync", good, counters=[{"writes": -1}])
    found = results.load_run(run.write())
    assert [each.entry.order for each in found.repetitions] == [1]
    expected = [
        "fio ended with 1",
        "interrupted",
        "error 5",
        "no fio JSON",
        "No such file",
        "elapsed_s",
        "counters.jsonl:2",
        "observe.json: is damaged: flushes is -5",
        "counters.jsonl: is damaged: writes is -1",
    ]
    assert len(found.unusable) == len(expected)
    for text, part in zip(found.unusable, expected, strict=True):
        assert part in text


def test_a_run_without_a_usable_repetition_is_refused(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    run.add("seq", "dsync", "fio: out of memory\n")
    with pytest.raises(Failure, match="fio: out of memory") as failure:
        results.load_run(run.write())
    assert failure.value.status == Exit.INPUT
    with pytest.raises(Failure, match="None was made"):
        results.load_run(SampleRun(tmp_path / "other").write())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"run\.json"):
        results.load_run(tmp_path)
    with pytest.raises(Failure, match="no such file"):
        results.load_run(tmp_path / "none")
    (tmp_path / "run.json").write_text('{"schema": "durabench-run/9"}')
    with pytest.raises(Failure, match=r"durabench-run/9.*durabench-run/1"):
        results.load_run(tmp_path)

# SPDX-License-Identifier: GPL-2.0-only
"""`durabench compare`: the comparison, its warnings and its forms."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from pathlib import Path

import pytest
from durabenchlib import cli, compare, formats, results, tables
from durabenchlib.errors import Exit, Failure
from rich.console import Console
from sample_run import SampleRun, device, document, job, observed

pytestmark = pytest.mark.usefixtures("sample_measurement")


def add(run: SampleRun, case: str, strategy: str, writes: int, flushes: int, us: int = 100, **more: object) -> None:
    """A repetition of 1 s: this many writes of this latency, and flushes of the device."""
    run.add(
        case,
        strategy,
        document(job(writes=[us * 1000] * writes, syncs=[1_000_000] * 10, **more)),
        observed(device(writes=writes, flushes=flushes)),
        [{"writes": writes, "durable_writes": writes, "syncs": 0, "flush_calls": 0}],
    )


def sample(folder: Path, name: str = "run", factor: int = 1, **manifest: object) -> Path:
    """A run of two strategies, three times each: fua does ten times the writes of dsync."""
    run = SampleRun(folder / name, **manifest)
    for writes in (1000, 1200, 1100):
        add(run, "seq", "dsync", factor * writes, 2 * factor * writes, us=1000)
        add(run, "seq", "fua", 10 * factor * writes, 10 * factor * writes)
    return run.write()


def compared(path: Path, *strategies: str) -> formats.MeasurementComparison:
    run = results.load_run(path)
    (found,) = compare.compare_runs(run, run, *strategies).measurements
    return found


def invoke(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    compare.add_parser(parser.add_subparsers())
    given = parser.parse_args(["compare", *map(str, arguments)])
    return given.func(given)


def test_strategies_of_one_run(tmp_path: Path) -> None:
    found = compared(sample(tmp_path))
    assert (found.name, found.before, found.after) == ("sample", "dsync", "fua")
    (case,) = found.cases
    assert (case.name, case.variant, case.repetitions) == ("seq", "as-described", {"before": 3, "after": 3})
    iops, p99, dirty = case.metrics
    assert (iops.unit, iops.before, iops.after, iops.ratio) == ("IOPS", 1100, 11000, 10)
    assert iops.values == {"before": [1000, 1200, 1100], "after": [10000, 12000, 11000]}
    assert iops.published == formats.PublishedCell(100, 5000, 50, 0.2)
    assert (p99.before, p99.after, p99.ratio) == (1000, 100, 0.1)
    assert (dirty.before, dirty.published) == (1, None)
    assert case.mechanism["before"]["flushes_per_write"] == 2
    assert case.mechanism["after"]["flushes_per_write"] == 1


def test_picked_strategies_have_no_published_counterpart(tmp_path: Path) -> None:
    path = sample(tmp_path)
    assert compared(path, "fua", "dsync").cases[0].metrics[0].ratio == pytest.approx(0.1)
    assert compared(path, "fua", "dsync").cases[0].metrics[0].published is None
    assert compared(path, "dsync", "fua").cases[0].metrics[0].published is not None


def test_published_numbers_of_another_case(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    add(run, "sync", "dsync", 256, 0)
    add(run, "sync", "fua", 512, 0)
    sync, bandwidth = compared(run.write()).cases[0].metrics
    assert (sync.before, sync.published) == (1000, None)
    assert (bandwidth.before, bandwidth.after, bandwidth.published) == (1, 2, formats.PublishedCell(1, 3, 3, 2 / 3))


def test_two_runs_compare_the_same_strategies(tmp_path: Path) -> None:
    """The kernel's own way on two kernels stands for what was published, the engine's own does not."""
    before = results.load_run(sample(tmp_path, "old", label="6.18"))
    after = results.load_run(sample(tmp_path, "new", factor=3, label="7.4"))
    (found,) = compare.compare_runs(before, after).measurements
    assert (found.before, found.after) == ("6.18", "7.4")
    assert [(each.before, each.after) for each in found.cases] == [("dsync", "dsync"), ("fua", "fua")]
    assert [each.metrics[0].ratio for each in found.cases] == [3, 3]
    assert [each.metrics[0].published is None for each in found.cases] == [False, True]
    assert found.environment["before"]["label"] == "6.18"


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", "--baseline", "a/1.json", "a/1.json", "--candidate", "b"],
        ["gate", "--baseline", "b", "--candidate", "a", "a/1.json"],
        ["gate", "--baseline", "b", "--candidate", "a/1.json", "a/../link.json"],
        ["compare", "b", "linked"],
        ["calibrate", "a/1.json", "hard.json"],
        ["calibrate", "run", "run/run.json"],
        ["history", "a/1.json", "b/1.json", "a/1.json"],
        ["history", "run", "run:fua"],
        ["report", "run", "./run"],
        ["report", "a", "a/2.json"],
    ],
)
def test_a_result_named_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sample(tmp_path)
    for folder in ("a", "b", "linked"):
        Path(folder).mkdir()
        for number in (1, 2):
            Path(folder, f"{number}.json").write_text(document(job(writes=[100_000] * 100)))
    Path("link.json").symlink_to("a/1.json")
    Path("hard.json").hardlink_to("a/1.json")
    Path("linked/3.json").symlink_to("1.json")
    assert cli.main(arguments) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.endswith("; name each result once\n")


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    add(run, "seq", "dsync", 100, 200)
    with pytest.raises(Failure, match=r"dsync and fua: .*run has seq:dsync") as failure:
        compared(run.write())
    assert failure.value.status == Exit.INPUT


def test_two_measurements_are_refused(tmp_path: Path) -> None:
    one = results.load_run(sample(tmp_path))
    other = results.load_run(sample(tmp_path, "other"))
    other.manifest.measurement = "else"
    with pytest.raises(Failure, match="sample and .* else") as failure:
        compare.compare_runs(one, other)
    assert failure.value.status == Exit.USAGE


# Warnings


def warned(found: formats.MeasurementComparison, *parts: str) -> str:
    """The one warning that has all these parts."""
    matching = [warning for warning in found.warnings if all(part in warning for part in parts)]
    assert len(matching) == 1, found.warnings
    return matching[0]


def test_a_good_run_has_no_warning(tmp_path: Path) -> None:
    assert compared(sample(tmp_path)).warnings == []


def test_one_repetition(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    add(run, "seq", "dsync", 1000, 2000)
    add(run, "seq", "fua", 1000, 1000)
    found = compared(run.write())
    assert found.warnings == ["One repetition only of seq dsync, seq fua: a difference of times can't be told from chance."]
    assert "it takes 6 on each side" in found.cases[0].metrics[0].reason


def test_few_samples(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua"):
        add(run, "seq", strategy, 1000, 1000)
        add(run, "seq", strategy, 1000 if strategy == "fua" else 999, 1000)
    found = compared(run.write())
    warned(found, "Too few samples for seq write.clat.p99 (999 of 1000):")


def test_saturated(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua"):
        for _ in range(2):
            slow = 17_200_000_000 if strategy == "dsync" else 1000
            run.add("seq", strategy, document(job(writes=[slow] * 1000)), observed(device()))
    warned(compared(run.write()), "seq write.clat.p99 is 17.1 s or more")


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ({"fua": False}, "two flushes a write against one. On a device with FUA it would be one against none"),
        ({"write_cache": "write through"}, "no volatile write cache"),
        ({"filesystem": "tmpfs"}, "is on tmpfs, in memory: nothing is durable there"),
    ],
)
def test_a_device_that_cannot_show_it(tmp_path: Path, target: dict, part: str) -> None:
    path = sample(tmp_path)
    manifest = json.loads((path / "run.json").read_text())
    manifest["target"].update(target)
    (path / "run.json").write_text(json.dumps(manifest))
    found = compared(path)
    warned(found, "/dev/loop0", part)
    assert len(found.warnings) == 1


def test_what_differs_between_runs(tmp_path: Path) -> None:
    before = sample(tmp_path, "before")
    environment = {**json.loads((before / "run.json").read_text())["environment"], "kernel": "7.4.0"}
    after = sample(tmp_path, "after", environment=environment)
    (found,) = compare.compare_runs(results.load_run(before), results.load_run(after)).measurements
    warned(found, "kernel (6.18.0 before, 7.4.0 after)", "All else that was recorded is equal")
    target = {
        "kind": "block",
        "path": "/dev/sda",
        "resolved": "/dev/sda",
        "write_cache": "write back",
        "scheduler": "bfq",
    }
    other = sample(tmp_path, "other", environment={**environment, "fio": "fio-3.42"}, target=target)
    (found,) = compare.compare_runs(results.load_run(before), results.load_run(other)).measurements
    warned(found, "kernel", "fio (fio-3.33 before, fio-3.42 after)", "scheduler (none before, bfq after)", "sum of all")


def test_a_partial_run(tmp_path: Path) -> None:
    path = sample(tmp_path, status="partial", reason="stopped by SIGINT", demo=True, notes=["A file has no flushes."])
    manifest = json.loads((path / "run.json").read_text())
    manifest["repetitions"][0].update(status="interrupted", reason="SIGINT")
    (path / "run.json").write_text(json.dumps(manifest))
    found = compared(path)
    warned(found, "run is partial: stopped by SIGINT. 5 of 6")
    warned(found, "001-seq-dsync-1 is left out", "SIGINT")
    warned(found, "demonstration")
    warned(found, "A file has no flushes.")
    assert found.cases[0].repetitions == {"before": 2, "after": 3}


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    path = sample(tmp_path, status="running")
    manifest = json.loads((path / "run.json").read_text())
    manifest["repetitions"][0]["status"] = "pending"
    (path / "run.json").write_text(json.dumps(manifest))
    warned(compared(path), "is running: it goes on, or was killed. 5 of 6")
    for each in manifest["repetitions"]:
        each["status"] = "pending"
    (path / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(Failure, match="no usable repetition. The run goes on, or was killed."):
        results.load_run(path)


def test_not_durable_is_said_everywhere(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for _ in range(2):
        add(run, "seq", "fua", 1000, 1000)
        add(run, "seq", "none", 5000, 0)
    run_path = run.write()
    warned(compared(run_path, "fua", "none"), "none is not durable")
    loaded = results.load_run(run_path)
    comparison = compare.compare_runs(loaded, loaded, "fua", "none")
    for form in (tables.text(comparison), tables.markdown(comparison).replace("\\", "")):
        assert "fua -> none*" in form
        assert "* not durable" in form


def test_what_is_not_compared_is_named(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for _ in range(2):
        add(run, "seq", "dsync", 1000, 2000)
        add(run, "seq", "fua", 1000, 1000)
        add(run, "sync", "dsync", 1000, 2000)
        add(run, "gone", "fua", 1000, 2000)
    found = compared(run.write())
    assert [case.name for case in found.cases] == ["seq"]
    warned(found, "sync of run is not compared: it was measured with dsync only")
    warned(found, "gone of run is not compared: the measurement has no such case any more")


def bandwidths(folder: Path, direct: int, virtualization: str) -> formats.MeasurementComparison:
    run = SampleRun(folder / "run")
    run.manifest["environment"]["virtualization"] = virtualization
    for strategy, writes in (("buffered", 1000), ("direct", direct), ("fua", 1000)):
        for _ in range(2 if writes else 0):
            add(run, "seq", strategy, writes, 0, block=2**20)
    return compared(run.write(), "buffered", "fua")


def test_buffered_bound_by_page_allocation(tmp_path: Path) -> None:
    warned(bandwidths(tmp_path, 2000, "kvm"), "buffered wrote 1000 MiB/s where O_DIRECT reached 2000", "first touch")


def test_buffered_on_a_virtual_machine_without_direct(tmp_path: Path) -> None:
    warned(bandwidths(tmp_path, 0, "kvm"), "--strategy direct")


@pytest.mark.parametrize(("direct", "virtualization"), [(1100, "kvm"), (0, "none")])
def test_buffered_bound_by_the_device(tmp_path: Path, direct: int, virtualization: str) -> None:
    assert not [
        warning for warning in bandwidths(tmp_path, direct, virtualization).warnings if "first touch" in warning
    ]


def test_more_syncs_than_writes(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy, syncs in (("dsync", 1100), ("fua", 1001)):
        for _ in range(2):
            fio = document(job(writes=[1000] * 1000, syncs=[1000] * syncs))
            run.add("seq", strategy, fio, observed(device()))
    warned(compared(run.write()), "seq dsync: 1100 syncs for 1000 writes")


def test_without_observer_and_as_published(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "run")
    for strategy in ("dsync", "fua"):
        for _ in range(2):
            run.add("sync", strategy, document(job(writes=[1000] * 1000, syncs=[1000] * 20)))
    found = compared(run.write())
    warned(found, "Nobody watched the device during sync dsync, sync fua")
    warned(found, "sync repeats the published benchmark with its defects")


# Forms


def test_text_is_narrow_and_says_why(tmp_path: Path) -> None:
    run = results.load_run(sample(tmp_path, status="partial", reason="stopped by SIGINT"))
    text = tables.text(compare.compare_runs(run, run))
    assert all(len(line) <= tables.WIDTH for line in text.splitlines()), text
    joined = " ".join(text.split())
    assert (
        "seq: dsync 1100 IOPS, fua 11000 IOPS (10.0x, published 50.0x); dsync issued 2.00 flushes per write, fua 1.00."
        in joined
    )
    row = "write.iops IOPS 1100 11000 10.0x 100.0 5000 50.0x"
    assert f"{row} inconclusive, 8.33x..12.0x; 1000..1200 -> 10000..12000" in joined
    assert joined.count("p of 3 + 3 repetitions can't be below 0.1;") == 1
    assert "inconclusive (mechanism improved): seq: dsync 1100 IOPS" in joined
    assert "warning: The run run is partial" in joined


def test_every_form_says_the_verdict_in_words(tmp_path: Path) -> None:
    """Seven repetitions with a little noise are enough: IOPS ten times as high, the dirty pages alike."""
    run = SampleRun(tmp_path / "run")
    for writes in (1000, 1002, 1001, 1003, 1004, 1005, 1006):
        add(run, "seq", "dsync", writes, 2 * writes, us=1000)
        add(run, "seq", "fua", 10 * writes, 10 * writes)
    loaded = results.load_run(run.write())
    comparison = compare.compare_runs(loaded, loaded)
    text = tables.text(comparison)
    assert "improved: seq: dsync 1003 IOPS, fua 10030 IOPS" in text
    low, high = comparison.measurements[0].cases[0].metrics[0].interval or []
    interval = f"{tables.ratio(low)}..{tables.ratio(high)}"
    assert f"      improved, {interval}; 1000..1006 -> 10000..10060" in text
    assert "seq flushes per write: see that what has to be durable still is" in text
    assert "      no change, 1.00x..1.00x; 1.000..1.000 -> 1.000..1.000" in text
    assert "both issued" not in text and "dsync issued 2.00 flushes per write, fua 1.00" in " ".join(text.split())
    rows = tables.markdown(comparison).splitlines()
    assert any(f"| {interval} | \N{CHECK MARK} improved |" in row for row in rows)
    assert "| flushes per write | 2.00 | 1.00 | \N{CHECK MARK} improved |" in rows
    cells = {row["metric"]: row for row in csv.DictReader(io.StringIO(tables.comma_separated(comparison)))}
    assert (cells["write.iops"]["verdict"], cells["dirty_peak"]["verdict"]) == ("improved", "no change")
    assert [float(cells["write.iops"][end]) for end in ("ratio_low", "ratio_high")] == [low, high]
    assert cells["mechanism.flushes_per_write"]["verdict"] == "improved"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            {"flush_calls_per_sync": 1024, "requests_per_write": 1025},
            {"flush_calls_per_sync": 1, "requests_per_write": 2},
            "dsync made 1024 flush calls per sync, fua 1.00",
        ),
        ({"flushes_per_write": 2}, {"flushes_per_write": 0}, "dsync issued 2.00 flushes per write, fua 0.00"),
        ({"flushes_per_write": 1.01}, {"flushes_per_write": 1}, "both issued 1.00 flushes per write"),
        (
            {"flush_calls_per_sync": 1, "kicks": 0},
            {"flush_calls_per_sync": 1, "kicks": 3},
            "dsync woke the flusher 0 times, fua 3",
        ),
        (
            {"flushes_per_write": 0.01, "dirty_writeback_peak_bytes": 2**31},
            {"flushes_per_write": 0.001, "dirty_writeback_peak_bytes": 2**26},
            "dsync had up to 2048 MiB dirty or in writeback, fua 64.00",
        ),
        ({"writes": 1}, {"writes": 9}, "(10.0x, published 50.0x)"),
    ],
)
def test_the_verdict_names_what_explains(tmp_path: Path, before: dict, after: dict, sentence: str) -> None:
    (case,) = compared(sample(tmp_path)).cases
    nothing = dict.fromkeys(results.MECHANISM)
    case.mechanism = {"before": {**nothing, **before}, "after": {**nothing, **after}}
    assert tables.verdict(case).endswith(f"{sentence}.")


def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    run = results.load_run(sample(tmp_path))
    comparison = compare.compare_runs(run, run)
    comparison.measurements[0].title = "a\x1b]0;b\x07 [red]c|d"
    comparison.measurements[0].warnings = ["\x1b[2J"]
    out = io.StringIO()
    compare.print_text(comparison, Console(file=out, force_terminal=True, width=200))
    # The terminal's own sequences are those of bold and colours: they end with m.
    assert "\x1b]" not in out.getvalue() and "\x1b[2J" not in out.getvalue() and "\x07" not in out.getvalue()
    assert "[red]c|d" in out.getvalue()
    assert "\\[red\\]c\\|d" in tables.markdown(comparison)


def test_numbers() -> None:
    values = (119.7, 7497.0, 0.01234, 131072, 0, 3.14159, 99.999, None)
    assert [tables.number(value) for value in values] == [
        "119.7",
        "7497",
        "0.0123",
        "131072",
        "0",
        "3.142",
        "100.0",
        "-",
    ]
    assert [tables.ratio(value) for value in (62.63, 0.0159, 1024.2, 1.0, 0, None)] == [
        "62.6x",
        "0.0159x",
        "1024x",
        "1.00x",
        "0x",
        "-",
    ]


def test_markdown_table(tmp_path: Path) -> None:
    run = results.load_run(sample(tmp_path))
    rows = tables.markdown(compare.compare_runs(run, run)).splitlines()
    metric = "| write.iops IOPS (1000..1200 -\\> 10000..12000) | 1100 | 11000 | 10.0x | 8.33x..12.0x | ? inconclusive |"
    assert f"{metric} 100.0 | 5000 | 50.0x |" in rows
    assert "| flushes per write | 2.00 | 1.00 | \N{CHECK MARK} improved |" in rows
    # All rows of a table have as many cells as its head.
    tables_of = [row.count(" | ") for row in rows if row.startswith("| ")]
    assert set(tables_of) == {8, 3}


def test_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(sample(tmp_path), "--format=csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert None not in rows[-1] and None not in rows[-1].values()
    iops = rows[0]
    assert (iops["metric"], iops["before"], iops["after"], iops["ratio"]) == ("write.iops", "1100.0", "11000.0", "10.0")
    assert (iops["before_min"], iops["after_max"], iops["n_after"], iops["published_ratio"]) == (
        "1000.0",
        "12000.0",
        "3",
        "50.0",
    )
    (flushes,) = [row for row in rows if row["metric"] == "mechanism.flushes_per_write"]
    assert (flushes["before"], flushes["after"], flushes["unit"]) == ("2.0", "1.0", "ratio")
    assert all(row["unit"] for row in rows)


def test_json_is_what_the_format_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample(tmp_path)
    assert invoke(path, "--format=json", "--output", tmp_path / "comparison.json") == 0
    assert invoke(path, "--format=json") == 0
    text = (tmp_path / "comparison.json").read_text()
    assert text == capsys.readouterr().out
    raw = json.loads(text)
    assert raw["schema"] == "durabench-comparison/1"
    case = raw["measurements"][0]["cases"][0]
    assert case["metrics"][0]["published"] == {"before": 100.0, "after": 5000.0, "ratio": 50.0, "ratio_of_ratios": 0.2}
    assert set(case["mechanism"]["before"]) == set(results.MECHANISM)
    run = results.load_run(path)
    assert formats.read_comparison(tmp_path / "comparison.json") == compare.compare_runs(run, run)


def test_output_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "no" / "such" / "folder.txt"
    assert cli.main(["compare", str(sample(tmp_path)), "--output", str(output)]) == 1
    assert capsys.readouterr().err == f"durabench: {output}: No such file or directory\n"


def test_output_follows_a_symbolic_link(tmp_path: Path) -> None:
    path = sample(tmp_path)
    (tmp_path / "place").mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to("place/out.txt")
    # The first creates what the link names, the second replaces it.
    for form, part in (("text", "seq: dsync -> fua"), ("json", "durabench-comparison/1")):
        assert invoke(path, "--output", link, "--format", form) == 0
        assert link.is_symlink()
        assert part in (tmp_path / "place/out.txt").read_text()
    assert [each.name for each in (tmp_path / "place").iterdir()] == ["out.txt"]


def test_output_into_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Open for both, so that neither side waits; the text is less than a pipe holds.
    with open(os.open(fifo, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as end:
        assert invoke(sample(tmp_path), "--output", fifo) == 0
        assert fifo.is_fifo()
        assert b"seq: dsync -> fua" in (end.read(2**16) or b"")


def test_output_into_a_device_node(
    tmp_path: Path, full_device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(sample(tmp_path)), "--output", str(full_device)]) == 1
    assert capsys.readouterr().err == f"durabench: {full_device}: No space left on device\n"
    assert full_device.is_char_device()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample(tmp_path, "a:b")
    assert invoke(path) == 0
    assert "dsync issued 2.00 flushes" in " ".join(capsys.readouterr().out.split())
    assert invoke(f"{path}:fua", f"{path}:dsync") == 0
    assert "seq: fua -> dsync" in capsys.readouterr().out
    assert invoke(path, "--output", tmp_path / "out.txt") == 0
    assert "seq: dsync -> fua" in (tmp_path / "out.txt").read_text()
    assert capsys.readouterr().out == ""
    with pytest.raises(Failure, match="both sides"):
        invoke(f"{path}:fua", path)

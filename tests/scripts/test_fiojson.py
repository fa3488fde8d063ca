# SPDX-License-Identifier: GPL-2.0-only
"""fio's JSON as it is found in files."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import sample_run
from durabenchlib import fiojson
from durabenchlib.errors import Exit, Failure

DATA = Path(__file__).parent / "data"

ONE = sample_run.document(sample_run.job("first", writes=[100_000] * 3))
TWO = sample_run.document(sample_run.job("second", writes=[200_000] * 5))


def refused(text: str) -> str:
    with pytest.raises(Failure) as failure:
        fiojson.parse(text, "some/fio.json")
    assert failure.value.status == Exit.INPUT
    assert "some/fio.json" in str(failure.value)
    return str(failure.value)


def test_text_before_between_and_after() -> None:
    found = fiojson.parse(f"note: both iodepth >= 1\n\n{ONE}fio: pid=1, err=5\n{TWO}Disk stats {{none}}:\n", "f")
    assert [each.name for each in found.jobs] == ["second"]
    assert found.messages == ["note: both iodepth >= 1", "fio: pid=1, err=5", "Disk stats {none}:"]


@pytest.mark.parametrize("text", [ONE + TWO, ONE.rstrip() + TWO])
def test_the_last_of_several_documents_is_the_result(text: str) -> None:
    assert fiojson.parse(text, "f").jobs[0].directions["write"].total_ios == 5


def test_other_json_is_no_document() -> None:
    found = fiojson.parse(ONE + '{\n "summary" : {\n  "jobs" : 1\n }\n}\n', "f")
    assert found.jobs[0].name == "first"


def test_a_document_within_other_json() -> None:
    found = fiojson.parse(f'{{"runs": [{{"result": {ONE}}}, {{"result": {TWO}}}], "jobs": 2}}', "f")
    assert (found.jobs[0].name, found.others) == ("second", 1)


@pytest.mark.parametrize("cut", [30, len(TWO) // 2, len(TWO) - 3])
def test_a_last_document_that_is_cut_off_is_refused(cut: int) -> None:
    line = ONE.count("\n") + 1
    assert f"begins at line {line} is cut off at line " in refused(ONE + TWO[:cut])


def test_a_document_without_its_beginning_is_refused() -> None:
    assert "its beginning is missing" in refused(ONE + TWO[40:])


def test_damage_is_placed() -> None:
    message = refused(ONE.replace('"runtime": 1000,', '"runtime": 1000'))
    assert "line 25, column 9, in job 'first'" in message, message


def test_a_damaged_document_before_the_last_is_told() -> None:
    found = fiojson.parse(ONE[:300] + TWO, "f")
    assert found.jobs[0].name == "second"
    assert len(found.damaged) == 1 and "line 1 is damaged at line " in found.damaged[0]


def test_documents_of_one_run_are_told_from_those_of_others() -> None:
    """With status-interval, fio says at each what has passed since its start."""

    def at(time_s: int, elapsed_s: int, name: str = "a") -> str:
        return sample_run.document({**sample_run.job(name), "elapsed": elapsed_s}).replace(
            '"jobs"', f'"timestamp_ms": {time_s * 1000}, "jobs"'
        )

    cases = {
        at(1_700_000_010, 10) + at(1_700_000_020, 20) + at(1_700_000_025, 26): (2, 0),
        at(1_700_000_010, 10) + at(1_700_000_040, 10): (0, 1),
        at(1_700_000_010, 10, "b") + at(1_700_000_020, 20): (0, 1),
        at(1_700_000_020, 20) + at(1_700_000_010, 10): (0, 1),
        at(1_700_000_020, 20): (0, 0),
    }
    for text, (interim, others) in cases.items():
        found = fiojson.parse(text, "f")
        assert (found.interim, found.others) == (interim, others)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(text: str) -> None:
    assert "it is empty" in refused(text)


def test_output_without_json_is_refused_with_what_it_says() -> None:
    assert "fio: engine libaio not loadable" in refused("fio: engine libaio not loadable\nfio: failed to load engine\n")


@pytest.mark.parametrize(
    "text",
    [
        '{"fio version": "fio-3.33", "jobs": 3}',
        '{"fio version": "fio-3.33", "jobs": [3]}',
        '{"fio version": "fio-3.33", "jobs": []}',
        '{"fio version": "fio-3.33", "jobs": [{"error": "?"}]}',
        '{"fio version": "fio-3.33", "jobs": [{"error": -2147483648}]}',
        '{"fio version": "fio-3.33", "jobs": [{"write": 3}]}',
        '{"fio version": "fio-3.33", "jobs": [{"write": {"clat_ns": {"N": 1, "bins": {"x": 1}}}}]}',
        '{"fio version": "fio-3.33", "jobs": [{"write": {"total_ios": 1e999}}]}',
        '{"fio version": "fio-3.33", "jobs": [{"sync": {"lat_ns": {"N": -1}}}]}',
        '{"fio version": "fio-3.33", "jobs": [{"sync": {"lat_ns": {"N": null}}}]}',
        '{"fio version": "fio-3.33", ' + '"a": {' * 5000,
        "[" * 100_000,
    ],
)
def test_what_fio_does_not_write_is_refused(text: str) -> None:
    refused(text)


# Units and names of other releases


def direction(raw: str, version: str = "fio-3.33") -> fiojson.Direction:
    """The write direction of a document that has only these keys of it."""
    return fiojson.parse(
        f'{{"fio version": "{version}", "jobs": [{{"jobname": "a", "write": {{{raw}}}}}]}}', "f"
    ).jobs[0].directions["write"]


def test_old_fios_have_kib_and_microseconds() -> None:
    """2.17: what its stat.c prints for 3 writes of 4 KiB, of 5, 129 and 300 us."""
    bins = ", ".join(f'"{at}": {count}' for at, count in enumerate([0] * 5 + [1] + [0] * 122 + [1] + [0] * 74 + [1]))
    found = direction(
        f'''"io_bytes": 12, "bw": 12, "iops": 3.00, "runtime": 1000, "total_ios": 3,
        "clat": {{"min": 5, "max": 300, "mean": 144.67, "stddev": 148.1,
          "percentile": {{"50.000000": 129, "99.000000": 302, "0.00": 0, "0.00": 0}},
          "bins": {{{bins}, "FIO_IO_U_PLAT_BITS": 6, "FIO_IO_U_PLAT_VAL": 64, "FIO_IO_U_PLAT_NR": 1216}}}},
        "lat": {{"min": 6, "max": 301, "mean": 145.67, "stddev": 148.1}}''',
        "fio-2.17",
    )
    assert (found.io_bytes, found.bw_bytes, found.clat.n, found.clat.max) == (12288, 12288, 3, 300_000)
    assert (found.clat.mean, found.lat.min) == (144_670, 6000)
    assert found.clat.bins == {5_000: 1, 129_000: 1, 302_000: 1}
    assert found.clat.percentiles == {50.0: 129_000, 99.0: 302_000}
    assert found.clat.limit == 16_711_680_000


@pytest.mark.parametrize(
    ("raw", "version", "expected"),
    [
        ('"io_bytes": 4096, "io_kbytes": 4', "fio-2.21", 4096),
        ('"io_bytes": 4', "fio-2.20", 4096),
        ('"io_bytes": 4, "clat": {}', "odd", 4096),
        ('"io_bytes": 4096, "clat_ns": {}', "odd", 4096),
        ('"io_bytes": 4096', "fio-3.19", 4096),
        ('"io_kbytes": 4', "fio-3.19", 4096),
        ('"iops": 1', "fio-3.19", None),
    ],
)
def test_bytes_are_bytes(raw: str, version: str, expected: int | None) -> None:
    assert direction(raw, version).io_bytes == expected


def test_bytes_that_may_be_kib_are_refused() -> None:
    with pytest.raises(Failure, match="may be bytes or KiB"):
        direction('"io_bytes": 4096', "odd")


def test_what_is_absent_is_not_zero() -> None:
    """2.1 prints no number of I/Os, and so none of samples."""
    found = direction('"io_bytes": 12, "runtime": 1000, "clat": {"min": 5, "max": 9, "mean": 7.0, "stddev": 2.0}', "fio-2.1")
    assert (found.total_ios, found.clat.n, found.clat.max) == (None, None, 9000)
    assert fiojson.merge([found.clat, fiojson.Latency(n=3, max=1.0, mean=1.0)]).mean is None


def test_percentiles_of_the_total_latency() -> None:
    """3.1 to 3.12 print them as those of the completion latency."""
    for version, owner, other in (("fio-3.1", "lat", "clat"), ("fio-3.12", "lat", "clat"), ("fio-3.13", "clat", "lat")):
        raw = '"total_ios": 1, "clat_ns": {"max": 7, "percentile": {"50.000000": 9}}, "lat_ns": {"max": 9}'
        text = sample_run.document({"jobname": "a", "job options": {"lat_percentiles": "1"}, "write": {}}, version=version)
        found = fiojson.parse(text.replace('"write": {}', '"write": {' + raw + "}"), "f").jobs[0].directions["write"]
        assert getattr(found, owner).percentiles and not getattr(found, other).percentiles


def test_values_that_contradict_each_other_under_one_key_are_refused() -> None:
    text = ONE.replace('"total_ios": 3,', '"total_ios": 3, "total_ios": 4,')
    assert "job 1 'first': write.total_ios is there more than once" in refused(text)
    assert fiojson.parse(ONE.replace('"total_ios": 3,', '"total_ios": 3, "total_ios": 3,'), "f").jobs


def test_directions_of_a_patched_fio() -> None:
    raw = sample_run.job(writes=[1000] * 4)
    raw["ZNS Reset"] = raw.pop("write")
    (job,) = fiojson.parse(sample_run.document(raw), "f").jobs
    assert list(job.directions) == ["read", "trim", "ZNS Reset"]
    assert job.directions["ZNS Reset"].clat.n == 4


def test_control_characters_and_duplicate_keys() -> None:
    text = ONE.replace('"job options": {}', '"job options": {"filename": "a", "description": "a\tb", "filename": "b"}')
    assert fiojson.parse(text, "f").jobs[0].options == {"filename": "b", "description": "a\tb"}


def test_numbers_that_json_does_not_have() -> None:
    text = ONE.replace('"mean": 100000', '"mean": -nan').replace('"stddev": 0.0', '"stddev": inf')
    latency = fiojson.parse(text, "f").jobs[0].directions["write"].clat
    assert (latency.n, latency.mean, latency.stddev, latency.max) == (3, None, None, 100_000)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "fio.json"
    path.write_bytes(b"\xef\xbb\xbf" + ONE.replace("first", "\N{SNOWMAN}").encode() + b"\xff\xfe\n")
    assert fiojson.read(path).jobs[0].name in ("\N{SNOWMAN}", "\\u2603")


def test_a_redirection_in_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fio.json"
    path.write_bytes(ONE.replace("\n", "\r\n").encode("utf-16"))
    assert fiojson.read(path).jobs[0].name == "first"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file"):
        fiojson.read(tmp_path / "fio.json")


def test_client_mode_counts_no_client_twice() -> None:
    jobs = [
        {**sample_run.job(name, writes=[1000]), "hostname": host}
        for name, host in (("w", "a"), ("w", "b"), ("All clients", "b"))
    ]
    text = sample_run.document(*jobs).replace('"jobs"', '"client_stats"')
    text = text.replace('"fio version"', '"global options": [{"bs": "4k"}], "fio version"')
    found = fiojson.parse(text, "f")
    assert [(each.name, each.host) for each in found.jobs] == [("w", "a"), ("w", "b")]


def test_hosts_have_options_and_clocks_of_their_own() -> None:
    """Two servers on one host, started together by a third's clock: the joint time is that of the longer."""
    jobs = [
        {**sample_run.job(writes=[1000], runtime_ms=time, start_ms=start), "hostname": "h", "port": port}
        for port, time, start in ((8765, 2000, 1_000_000), (8766, 3000, 9_000_000))
    ]
    text = sample_run.document(*jobs).replace('"jobs"', '"client_stats"')
    shared = '[{"hostname": "h", "port": 8766, "bs": "8k"}, {"hostname": "h", "port": 8765, "bs": "4k"}]'
    found = fiojson.parse(text.replace('"fio version"', f'"global options": {shared}, "fio version"'), "f").jobs
    assert [(each.host, each.options) for each in found] == [("h:8765", {"bs": "4k"}), ("h:8766", {"bs": "8k"})]
    assert fiojson.joint_seconds(found, "write") == 3.0


def test_group_options_are_options_of_the_job() -> None:
    text = ONE.replace('"jobs"', '"global options": {"bs": "4k", "iodepth": "1"}, "jobs"')
    text = text.replace('"job options": {}', '"job options": {"iodepth": "8"}')
    assert fiojson.parse(text, "f").jobs[0].options == {"bs": "4k", "iodepth": "8"}


def test_errors_of_jobs() -> None:
    found = fiojson.parse(sample_run.document(sample_run.job("a"), sample_run.job("b", error=28)), "f")
    assert found.errors() == ["job 'b' ended with error 28 (No space left on device)"]


def test_a_run_that_was_stopped_has_failed() -> None:
    assert fiojson.parse(f"\nfio: terminating on signal 2\n{ONE}", "f").errors() == [
        "fio was stopped by signal 2 before its end"
    ]
    assert fiojson.parse(f"fio: pid=12, got signal=9\n{ONE}", "f").errors() == ["a job was killed by signal 9"]


def test_no_samples_have_no_percentile() -> None:
    latency = fiojson.parse(ONE, "f").jobs[0].directions["read"].clat
    assert (latency.n, latency.percentile(99), latency.mean, latency.max) == (0, None, None, None)


def test_samples_are_counted_where_fio_prints_no_number() -> None:
    """Before 3.18 latencies have no N; without measuring them all of it is 0."""
    text = ONE.replace('"N": 3,', '"percentile": {"99.000000": 99840, "0.00": 0},').replace('"bins"', '"unused"')
    latency = fiojson.parse(text, "f").jobs[0].directions["write"].clat
    assert (latency.n, latency.percentile(99.0), latency.percentile(50.0)) == (3, 100_000, None)
    assert list(latency.percentiles) == [99.0]
    off = text.replace('"max": 100000', '"max": 0').replace('"mean": 100000', '"mean": 0')
    assert fiojson.parse(off, "f").jobs[0].directions["write"].clat.n == 0


# What fio 3.33 and 3.42 wrote in truth.


def test_fdatasync_is_counted_by_its_latencies() -> None:
    """16 writes, fdatasync=1: a sync before each write but the first. sync.total_ios says 0, read.short_ios 15."""
    (job,) = fiojson.read(DATA / "fio-3.33-fdatasync.json").jobs
    assert (job.syncs, job.directions["write"].total_ios) == (15, 16)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("fio-*.json")))
def test_percentiles_are_those_that_fio_computed(name: str) -> None:
    latencies = [
        latency
        for job in fiojson.read(DATA / name).jobs
        for latency in (job.sync, *(each.clat for each in job.directions.values()))
        if latency.n
    ]
    assert latencies
    for latency in latencies:
        assert sum(latency.bins.values()) == latency.n
        assert len(latency.percentiles) == 17
        for percent, printed in latency.percentiles.items():
            assert latency.percentile(percent) == min(max(printed, latency.min), latency.max)


def test_jobs_that_start_apart_are_timed_together() -> None:
    """Two jobs of 6 and 8 ms, the second a second later: by job_start the joint time is 1.013 s."""
    jobs = fiojson.read(DATA / "fio-3.42-startdelay.json").jobs
    assert [each.directions["write"].runtime_ms for each in jobs] == [6, 8]
    assert fiojson.joint_seconds(jobs, "write") == 1.013
    assert fiojson.joint_seconds(jobs, "read") is None


def test_mixed_reporting_has_one_direction() -> None:
    (job,) = fiojson.read(DATA / "fio-3.42-tab-mixed.json").jobs
    assert list(job.directions) == ["mixed"]
    assert job.directions["mixed"].clat.n == 4
    assert job.options["description"] == "a\tb"
    assert fiojson.joint_seconds([job], "write") is None


# Joint time before fio 3.36


def joint(*jobs: dict[str, object]) -> float | None:
    return fiojson.joint_seconds(fiojson.parse(sample_run.document(*jobs), "f").jobs, "write")


def test_jobs_without_start_are_taken_as_parallel() -> None:
    job = sample_run.job
    assert joint(job(writes=[1], runtime_ms=3000), job(writes=[1], runtime_ms=5000)) == 5.0
    assert joint(job(writes=[1], runtime_ms=3000), job(reads=[1], runtime_ms=5000)) == 3.0


def test_jobs_behind_a_stonewall_follow() -> None:
    job = sample_run.job
    first = job(writes=[1], runtime_ms=3000)
    walled = [job(writes=[1], runtime_ms=time, group=1, stonewall="1") for time in (1000, 2000)]
    assert joint(first, *walled) == 5.0
    beside = job(writes=[1], runtime_ms=2000, group=1, new_group="1")
    assert joint(first, beside) == 3.0
    unsaid = job(writes=[1], runtime_ms=2000, group=1)
    assert joint(first, unsaid) is None


def test_a_delayed_start_has_no_known_joint_time() -> None:
    job = sample_run.job
    assert joint(job(writes=[1]), job(writes=[1], startdelay="5")) is None


def test_syncs_that_were_not_timed_are_not_known() -> None:
    """With gtod_reduce fio has no latencies, so the count of fdatasync calls is lost; that of fsync is not."""
    raw = sample_run.job(writes=[1] * 9, fdatasync="1", gtod_reduce="1")
    assert fiojson.parse(sample_run.document(raw), "f").jobs[0].syncs is None
    raw["sync"]["total_ios"] = 8
    assert fiojson.parse(sample_run.document(raw), "f").jobs[0].syncs == 8


# Distributions


def distribution(*samples: int) -> fiojson.Latency:
    return fiojson.parse(sample_run.document(sample_run.job(writes=samples)), "f").jobs[0].directions["write"].clat


def test_merged_percentiles_are_those_of_all_samples() -> None:
    """99 fast and 1 slow sample beside 50 slow ones: the p50s average to 5 ms, that of all is fast, the p99 slow."""
    fast, slow = distribution(*[100_000] * 99, 10_000_000), distribution(*[10_000_000] * 50)
    merged = fiojson.merge([fast, slow, fiojson.Latency()])
    assert (merged.n, merged.min, merged.max) == (150, 100_000, 10_000_000)
    assert merged.percentile(50) == 100_000
    assert merged.percentile(66.0) == 100_000
    assert merged.percentile(66.1) == 10_000_000
    samples = [100_000] * 99 + [10_000_000] * 51
    assert merged.mean == pytest.approx(statistics.mean(samples))
    assert merged.stddev == pytest.approx(statistics.stdev(samples))


def test_merging_one_keeps_it_and_none_is_empty() -> None:
    one = distribution(1000, 2000)
    assert fiojson.merge([fiojson.Latency(), one]) == one
    assert fiojson.merge([]) == fiojson.Latency()


def test_without_bins_nothing_is_merged() -> None:
    plain = fiojson.Latency(n=10, min=1, max=9, mean=5, stddev=1, percentiles={99.0: 8})
    merged = fiojson.merge([plain, distribution(1000)])
    assert (merged.n, merged.max, merged.percentile(99.0)) == (11, 1000, None)


def test_a_percentile_never_exceeds_the_maximum() -> None:
    """fio prints a bucket's midpoint, which may lie beyond the largest sample."""
    latency = distribution(1_000_001)
    assert sample_run.bucket(1_000_001) > 1_000_001
    assert latency.percentile(99.99) == 1_000_001


def test_seventeen_seconds_and_more_are_one_bucket() -> None:
    latency = fiojson.Latency(n=2, min=1e9, max=41e9, bins={1_000_000_000: 1, fiojson.SATURATED_NS: 1})
    assert (latency.saturated(50), latency.saturated(99)) == (False, True)
    assert latency.percentile(99) == fiojson.SATURATED_NS
    assert sample_run.bucket(17_179_869_183) == fiojson.SATURATED_NS

# SPDX-License-Identifier: GPL-2.0-only
"""fio's own options with every strategy: what a job file may say is carried
out, and counted as fio counts it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import ENGINES as ENGINE_FILES
from conftest import sanitizer_environment
from strategies import ENGINES, Strategy, of_engine

N = 24
BLOCK = 4096
SIZE = N * BLOCK
# A thread costs the sanitizers much.
MANY = 8 if sanitizer_environment(ENGINE_FILES / "fio-fua-dsync.so") else 64


@dataclass(frozen=True)
class Job:
    """A job, and how many bytes it writes and reads, how often it syncs; None
    where time or chance decides."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    written: int | None = SIZE
    read: int = 0
    syncs: int | None = 0


JOBS = [
    Job("plain"),
    Job("loops", {"loops": 3}, written=3 * SIZE),
    Job("sizes", {"rw": "randwrite", "bsrange": "512-8k", "bs_unaligned": 0}),
    Job("anywhere", {"rw": "randwrite", "norandommap": True}),
    Job("rate", {"rate_iops": 100}),
    Job("mixed", {"rw": "randrw", "rwmixread": 50, "verify": "crc32c"}, written=None, read=SIZE),
    Job("verified", {"rw": "randwrite", "verify": "crc32c", "verify_fatal": 1}, read=SIZE),
    Job("verified-later", {"verify": "crc32c", "verify_backlog": 4, "verify_fatal": 1}, read=SIZE),
    Job("synced", {"fsync": 4, "end_fsync": 1}, syncs=N // 4),
    Job("both-synced", {"fsync": 8, "fdatasync": 4}, syncs=N // 4 - 1),
    Job("unlaid", {"create_on_open": 1}),
    Job("unserialized", {"create_serialize": 0}),
    Job("ramp", {"ramp_time": "1s", "runtime": "1s", "time_based": True}, written=None),
    Job("late", {"startdelay": "500ms"}),
    Job("many", {"thread": 1, "numjobs": MANY, "io_size": 2 * BLOCK}, written=2 * BLOCK),
]
# Not with a table: there one job is for one mapped device.
OF_FILES = [
    Job(
        f"files-{service}",
        {"nrfiles": 3, "openfiles": 2, "file_service_type": service, "fdatasync": 6, "end_fsync": 1},
        syncs=N // 6 - 1 + 3,
    )
    for service in ("roundrobin", "random", "sequential")
]
OF_DEPTH = [
    Job("deep", {"iodepth": 16, "rw": "randwrite", "verify": "crc32c", "verify_fatal": 1}, read=SIZE),
    # How many differs with the release of fio.
    Job("deep-synced", {"iodepth": 16, "fsync": 4, "end_fsync": 1}, syncs=None),
    # Ends with I/O in flight.
    Job("deep-timed", {"iodepth": 16, "time_based": True, "runtime": "1s"}, written=None),
]


def jobs_of(strategy: Strategy) -> list[Job]:
    return JOBS + ([] if strategy.lines else OF_FILES) + (OF_DEPTH if strategy.ring else [])


def options_of(strategy: Strategy, job: Job, folder: Path) -> dict[str, Any]:
    name = f"{strategy}-{job.name}"
    options = strategy.job(folder / name, SIZE)
    if "nrfiles" in job.options:
        del options["filename"]
        options["directory"] = folder
    return {"name": name, **options, **job.options}


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as are allowed: a login's 1024 are too few for a fio with hundreds of threads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_job_file_may_say(shimmed, disk_for, engine, many_files):
    """All at the same time, but one job that waits for the others."""
    folder = disk_for(engine)
    every = [(strategy, job) for strategy in of_engine(engine) for job in jobs_of(strategy)]
    every.append((of_engine(engine)[0], Job("behind", {"stonewall": True})))
    result, _ = shimmed(engine, rw="write", bs=BLOCK, jobs=[options_of(strategy, job, folder) for strategy, job in every])
    assert result.exit_status == 0, result.stderr
    wrong = []
    for strategy, job in every:
        name = f"{strategy}-{job.name}"
        counters = [counter for counter in result.counters if counter["job"] == name]
        shown = [shown for shown in result.json["jobs"] if shown["jobname"] == name]
        assert len(counters) == len(shown) == job.options.get("numjobs", 1)
        for counter in counters:
            expected = {"write_bytes": job.written, "read_bytes": job.read, "syncs": job.syncs, "error": 0}
            seen = {key: counter[key] for key, value in expected.items() if value is not None}
            if seen != {key: value for key, value in expected.items() if value is not None}:
                wrong.append((name, seen, expected))
        if job.syncs is None and counters[0]["syncs"] != shown[0]["sync"]["lat_ns"]["N"] + 1:
            wrong.append((name, "syncs", counters[0]["syncs"], shown[0]["sync"]["lat_ns"]["N"]))
        of_fio = sum(job["write"]["io_bytes"] for job in shown)
        ours = sum(counter["write_bytes"] for counter in counters)
        # The counters are of the whole job.
        if not (ours > of_fio > 0 if "ramp_time" in job.options else ours == of_fio > 0):
            wrong.append((name, ours, of_fio))
    assert wrong == []


LOG = """fio version 2 iolog
{name} add
{name} open
{name} write 0 4096
{name} datasync 0 0
{name} write 8192 8192
{name} sync 0 0
{name} read 0 4096
{name} write 4096 4096
{name} close
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_replayed_log(shimmed, disk_for, engine):
    folder = disk_for(engine)
    strategies = of_engine(engine)
    jobs = []
    for strategy in strategies:
        job = strategy.job(folder / str(strategy), SIZE)
        log = folder / f"{strategy}.log"
        log.write_text(LOG.format(name=job.pop("filename")))
        jobs.append({"name": str(strategy), **job, "read_iolog": log, "buffer_pattern": "0xa5"})
        (folder / str(strategy)).write_bytes(bytes(SIZE))
    result, _ = shimmed(engine, jobs=jobs)
    assert result.exit_status == 0, result.stderr
    counters = {counter["job"]: counter for counter in result.counters}
    for strategy in strategies:
        counter = counters[str(strategy)]
        done = {key: counter[key] for key in ("writes", "write_bytes", "reads", "syncs", "error")}
        assert done == {"writes": 3, "write_bytes": 16384, "reads": 1, "syncs": 2, "error": 0}, strategy
        assert (folder / str(strategy)).read_bytes() == b"\xa5" * 16384 + bytes(SIZE - 16384)


@pytest.mark.parametrize("engine", ENGINES)
def test_parse_only_does_nothing(run_fio, tmp_path, engine):
    strategies = of_engine(engine)
    files = [tmp_path / str(strategy) for strategy in strategies]
    jobs = [{"name": str(strategy), **strategy.job(file, SIZE)} for strategy, file in zip(strategies, files)]
    result = run_fio(engine, rw="write", bs=BLOCK, args=["--parse-only"], jobs=jobs)
    assert result.exit_status == 0, result.stderr
    assert result.stderr == ""
    assert result.counters == []
    assert all(not file.exists() or file.read_bytes() == bytes(SIZE) for file in files)


VALUES = ["", "x" * 5000, "%s%n%5000d", "-1", "18446744073709551616", "nan", "\x1b[2J\xff"]
OPTIONS = {
    "fua-dsync": ["strategy", "counters"],
    "dontcache-kick": ["strategy", "submit", "kick_backlog"],
    "dm-linear-flush": ["strategy", "table", "coalesce"],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_option_of_any_text_is_taken_or_refused(run_fio, tmp_path, engine):
    for option in OPTIONS[engine]:
        for value in VALUES:
            given = {"rw": "write", "bs": BLOCK, "size": SIZE, "filename": tmp_path / "file", option: value}
            result = run_fio(engine, args=["--parse-only"], **given)
            assert result.exit_status in (0, 1), (option, value, result.stderr)
            assert not [line for line in result.stderr.splitlines() if line.startswith("fio-") and not line.isprintable()]

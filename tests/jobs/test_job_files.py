# SPDX-License-Identifier: GPL-2.0-only
"""The job files: fio takes them, they name no device, they say what they show,
and each of them runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ENGINES, ROOT, sanitizer_environment

JOBS = sorted((ROOT / "jobs").glob("*/*.fio"))
GIVEN = {"TARGET", "STRATEGY", "COUNTERS", "DURABENCH_ENGINES"}
# Strategies that go around the block layer, which `durabench run` observes.
BY_HAND = {"fua-dsync": ["nvme-fua", "scsi-fua"]}
HEADER = ["Shows", "Expected", "Bad", "Destructive", "Run time", "Source"]
TINY = {
    "RUNTIME": "1",
    "DEPTH": "1",
    "SPAN": "1m",
    "LOG_MSEC": "100",
    "SIZE": "4m",
    "MULTI_SIZE": "2m",
    "FILES_SIZE": "1m",
    "PAIR_SIZE": "4m",
    "READ_SIZE": "1m",
}


def measurement(job: Path) -> dict:
    return tomllib.loads((job.parent / "measurement.toml").read_text())


def cases(job: Path) -> list[dict]:
    return [case for case in measurement(job)["case"] if case["job"] == job.name]


def identity(job: Path) -> str:
    return f"{job.parent.name}/{job.stem}"


@pytest.fixture(params=JOBS, ids=identity)
def job(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def environment(job: Path, tmp_path: Path) -> dict[str, str]:
    """All that a job file may ask for, as small as it can be."""
    data = measurement(job)
    target = tmp_path / "target"
    if data["targets"] == ["directory"]:
        target.mkdir()
    table = tmp_path / "table"
    if "${TABLE}" in job.read_text():
        with table.open("wb") as file:
            make = job.parent / "make-table"
            subprocess.run([make, "--targets", "600", "--create", target], stdout=file, check=True)
    return {
        **TINY,
        "TARGET": str(target),
        "TABLE": str(table),
        "STRATEGY": cases(job)[0].get("after", data["after"]),
        "COUNTERS": str(tmp_path / "counters.jsonl"),
        "DURABENCH_ENGINES": str(ENGINES),
    }


RunJob = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def run_job(fio: Path, job: Path, tmp_path: Path) -> RunJob:
    def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
        path = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        engine = ENGINES / f"fio-{measurement(job)['engine']}.so"
        done = subprocess.run(
            ["timeout", "-k", "5", "120", fio, *arguments, job],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**path, **sanitizer_environment(engine), **environment},
        )
        assert done.returncode not in (124, 137), f"fio hung\n{done.stderr}"
        return done

    return run


def test_header(job):
    lines = job.read_text().split("[global]")[0].splitlines()
    assert lines[0] == "# SPDX-License-Identifier: GPL-2.0-only"
    assert all(line.startswith("#") for line in lines)
    found = [match[1] for line in lines if (match := re.match(r"# ([A-Z][a-z ]+):  *\S", line))]
    assert found == HEADER
    destructive = re.search(r"^# Destructive: (yes|no), ", "\n".join(lines), re.MULTILINE)[1] == "yes"
    assert destructive == measurement(job)["destructive"]
    assert all(len(line) <= 80 for line in job.read_text().splitlines())


def test_names_no_device(job):
    text = job.read_text()
    assert "/dev/" not in text
    place = "directory" if measurement(job)["targets"] == ["directory"] else "filename"
    assert re.findall(rf"^{place}=(.*)$", text, re.MULTILINE) == ["${TARGET}"]


def asked_for(job: Path) -> set[str]:
    return set(re.findall(r"\$\{(\w+)\}", job.read_text()))


def test_asks_only_for_what_is_given(job):
    data = measurement(job)
    for case in cases(job):
        assert asked_for(job) <= GIVEN | set(data["variables"]) | set(case.get("generate", {})), case["name"]


def test_every_variable_is_used():
    for folder in {job.parent for job in JOBS}:
        data = tomllib.loads((folder / "measurement.toml").read_text())
        asked = set.union(*map(asked_for, folder.glob("*.fio")), re.findall(r"\$\{(\w+)\}", str(data["case"])))
        assert set(data["variables"]) <= asked


def test_engine(job):
    data = measurement(job)
    engines = re.findall(r"^ioengine=(.*)$", job.read_text(), re.MULTILINE)
    assert engines == [f"external:${{DURABENCH_ENGINES}}/fio-{data['engine']}.so"]


@pytest.mark.parametrize("folder", sorted({job.parent for job in JOBS}), ids=lambda folder: folder.name)
def test_strategies_are_those_of_the_engine(engine_help, folder):
    data = tomllib.loads((folder / "measurement.toml").read_text())
    shown = engine_help(data["engine"], "strategy")
    offered = re.findall(r"^ +(?:valid values)?: ([\w-]+) +", shown, re.MULTILINE)
    assert sorted(offered) == sorted([*data["strategies"], *BY_HAND.get(data["engine"], ())]), shown


def test_parses(run_job, environment):
    done = run_job(environment, "--parse-only")
    assert done.returncode == 0, done.stderr


def test_is_refused_without_any_of_its_variables(run_job, environment, job):
    # fio takes an unset variable for nothing where it is a part of a value: "${TARGET}/file" would be "/file".
    for missing in asked_for(job):
        done = run_job({key: value for key, value in environment.items() if key != missing}, "--parse-only")
        assert done.returncode != 0, missing


def test_files_of_their_own_or_the_published_one(job):
    if measurement(job)["engine"] != "dontcache-kick":
        return
    text = job.read_text()
    if all(case["variant"] == "as-described" for case in cases(job)):
        assert "filename=" not in text and "filename_format=durabench-$jobname.$jobnum" in text
        assert "rw=write" not in text.replace("rw=randwrite", "rw=write") or "end_fsync=1" in text
    else:
        files = re.findall(r"^filename=(.*)$", text, re.MULTILINE)
        assert files and all(file.startswith("durabench-") for file in files) and "end_fsync=" not in text
    assert "unlink=1" in text


def test_runs(run_job, environment, job, tmp_path):
    output = tmp_path / "fio.json"
    done = run_job(environment, "--output-format=json+", f"--output={output}")
    if job.name == "dm.fio":
        # The tests make no device-mapper device; on anything else it says so.
        assert done.returncode != 0 and "device-mapper" in done.stderr
        return
    assert done.returncode == 0, done.stderr + output.read_text()
    text = output.read_text()
    result = json.loads(text[text.index("{\n") :])
    assert all(each["error"] == 0 for each in result["jobs"])
    ran = {each["jobname"] for each in result["jobs"]}
    for case in cases(job):
        for metric in case["metrics"]:
            of, _, of_job = metric["name"].rpartition("/")
            assert not of or of in ran, metric["name"]
            direction = of_job.split(".")[0]
            if direction in ("read", "write"):
                assert sum(each[direction]["total_ios"] for each in result["jobs"] if not of or each["jobname"] == of) > 0
    counters = [json.loads(line) for line in Path(environment["COUNTERS"]).read_text().splitlines()]
    assert environment["STRATEGY"] in {line["strategy"] for line in counters}
    if measurement(job)["targets"] == ["directory"]:
        assert list(Path(environment["TARGET"]).iterdir()) == []
    assert bool(re.search(r"^write_bw_log=", job.read_text(), re.MULTILINE)) == bool(list(tmp_path.glob("*_bw.*.log")))

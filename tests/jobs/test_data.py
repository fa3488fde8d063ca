# SPDX-License-Identifier: GPL-2.0-only
"""The measurements and the published numbers: their keys are the documented
ones, what they name is there, and a published change agrees with its numbers."""

from __future__ import annotations

import math
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from durabenchlib import formats

MEASUREMENTS = sorted((ROOT / "jobs").glob("*/measurement.toml"))
PUBLISHED = sorted((ROOT / "results/published").glob("*.toml"))

# The keys of docs/formats.md: True, a required one.
METRIC = {"name": True, "better": True}
CASE = {
    "name": True,
    "title": True,
    "job": True,
    "variant": True,
    "headline": False,
    "before": False,
    "after": False,
    "set": False,
    "targets": False,
    "devices": False,
    "generate": False,
    "published": False,
    "metrics": True,
}
SOURCE = {"title": True, "author": False, "url": True, "date": True, "kernel": True, "hardware": True, "note": False}
MEASUREMENT = {
    "schema": True,
    "name": True,
    "title": True,
    "summary": True,
    "engine": True,
    "targets": True,
    "destructive": True,
    "before": True,
    "after": True,
    "strategies": True,
    "published": True,
    "drop_caches": False,
    "file_size": False,
    "source": True,
    "variables": True,
    "demo": True,
    "lab": True,
    "case": True,
}
RULE = {"memory": False, "min": False, "target": False, "max": False}
LAB = {
    "comparisons": True,
    "clock": True,
    "memory": True,
    "cpus": False,
    "variables": False,
    "set": False,
    "device": True,
    "tables": False,
}
LAB_COMPARISON = {"before": True, "after": True, "cases": False}
LAB_DEVICE = {"model": True, "size": True, "plugin": False, "settings": True}
ROW = {"metric": True, "unit": True, "before": False, "after": True, "wrote": False, "stated": False, "note": False}
TABLE = {"case": True, "caption": True, "before": True, "after": True, "note": False, "rows": True}
SERIES = {
    "name": True,
    "case": True,
    "strategy": True,
    "unit": True,
    "interval_s": True,
    "values": True,
    "note": True,
    "source": True,
}
PUBLICATION = {"schema": True, "name": True, "measurement": True, "source": True, "table": True, "series": False}

LATENCIES = r"mean|p50|p90|p99|p99\.9|max"
METRIC_NAME = re.compile(
    rf"(\w+/)?((read|write)\.(iops|bw|clat\.({LATENCIES}))|sync\.count|sync\.lat\.(mean|p50|p99|p99\.9|max))|dirty_peak|cpu"
)
UNITS = {"iops": "IOPS", "bw": "MiB/s", "clat": "us", "dirty_peak": "MiB"}
SIZE = re.compile(r"[1-9][0-9]*[kmgt]")


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def check(shape: dict[str, bool], data: dict[str, Any], where: str) -> None:
    unknown = set(data) - set(shape)
    missing = {key for key, required in shape.items() if required} - set(data)
    assert not unknown and not missing, f"{where}: unknown {sorted(unknown)}, missing {sorted(missing)}"


def name(path: Path) -> str:
    return path.parent.name if path.stem == "measurement" else path.stem


@pytest.fixture(params=MEASUREMENTS, ids=name)
def measurement(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    return request.param, load(request.param)


@pytest.fixture(params=PUBLISHED, ids=name)
def published(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    return request.param, load(request.param)


def test_all_are_there():
    assert [name(path) for path in MEASUREMENTS] == ["dm-linear", "seagate-odsync", "xfs-dontcache"]
    assert {load(path)["published"] for path in MEASUREMENTS} <= {path.name for path in PUBLISHED}


def test_measurement_keys(measurement):
    path, data = measurement
    check(MEASUREMENT, data, str(path))
    check(SOURCE, data["source"], "source")
    for case in data["case"]:
        check(CASE, case, case.get("name", "case"))
        for metric in case["metrics"]:
            check(METRIC, metric, case["name"])
    check(LAB, data["lab"], "lab")
    for device in data["lab"]["device"]:
        check(LAB_DEVICE, device, "device")
    for comparison in data["lab"]["comparisons"]:
        check(LAB_COMPARISON, comparison, "comparison")
    own = data["lab"].get("set", {}).values()
    for variables in (data["variables"], data["demo"], data["lab"].get("variables", {}), *own):
        for variable, value in variables.items():
            if isinstance(value, dict):
                check(RULE, value, variable)
                assert value.get("memory") or value.get("target"), variable
                assert all(SIZE.fullmatch(value[key]) for key in ("min", "max") if key in value), variable
    assert formats.read_measurement(path).name == path.parent.name


def test_measurement_names_what_is_there(measurement):
    path, data = measurement
    strategies = data["strategies"]
    assert len(set(strategies)) == len(strategies)
    names = [case["name"] for case in data["case"]]
    assert len(set(names)) == len(names)
    assert any(case.get("headline") for case in data["case"])
    assert set(data["demo"]) <= set(data["variables"])
    for case in data["case"]:
        assert (path.parent / case["job"]).is_file(), case["job"]
        assert case["variant"] == ("as-published" if case["name"].endswith("-as-published") else "as-described")
        assert case.get("before", data["before"]) in strategies
        assert case.get("after", data["after"]) in strategies
        assert case.get("before", data["before"]) != case.get("after", data["after"])
        assert set(case.get("set", {})) <= set(data["variables"])
        assert set(case.get("targets", [])) <= set(data["targets"])
        assert case.get("devices", 1) in (1, 2)
        metrics = [metric["name"] for metric in case["metrics"]]
        assert len(set(metrics)) == len(metrics)
        for metric in case["metrics"]:
            assert METRIC_NAME.fullmatch(metric["name"]), metric["name"]
            rate = metric["name"].endswith((".iops", ".bw"))
            assert metric["better"] == ("higher" if rate else "lower"), metric["name"]
        for command in case.get("generate", {}).values():
            assert (path.parent / command[0]).stat().st_mode & 0o111, command[0]


def test_every_job_file_has_a_case(measurement):
    path, data = measurement
    assert {case["job"] for case in data["case"]} == {job.name for job in path.parent.glob("*.fio")}


def test_published_keys(published):
    path, data = published
    check(PUBLICATION, data, str(path))
    check(SOURCE, data["source"], "source")
    assert data["name"] == path.stem
    for table in data["table"]:
        check(TABLE, table, table.get("caption", "table"))
        for row in table["rows"]:
            check(ROW, row, table["caption"])
            assert len(row.get("wrote", ["", ""])) == 2
    for series in data.get("series", []):
        check(SERIES, series, series.get("name", "series"))
        assert series["interval_s"] > 0 and all(value > 0 for value in series["values"])
    assert formats.read_published(path).name == data["name"]


def test_published_belongs_to_a_case(published):
    _, data = published
    measured = load(ROOT / "jobs" / data["measurement"] / "measurement.toml")
    cases = {case["name"]: case for case in measured["case"]}
    seen = set()
    for table in data["table"]:
        for row in table["rows"]:
            if table["case"] == "" or not METRIC_NAME.fullmatch(row["metric"]):
                continue
            # A metric that is no metric of its case would be compared with nothing.
            assert row["metric"] in [metric["name"] for metric in cases[table["case"]]["metrics"]], row
            assert (table["case"], row["metric"]) not in seen, row
            seen.add((table["case"], row["metric"]))
            kind = next(part for part in re.split(r"[/.]", row["metric"]) if part in UNITS)
            assert row["unit"] == UNITS[kind], row
        assert table["case"] in ("", *cases), table["caption"]
    for series in data.get("series", []):
        assert series["case"] in cases and series["strategy"] in measured["strategies"], series["name"]


def test_a_case_stands_beside_a_published_one():
    tables = {
        (data["measurement"], table["case"]) for data in map(load, PUBLISHED) for table in data["table"] if table["case"]
    }
    for path in MEASUREMENTS:
        for case in load(path)["case"]:
            if "published" in case:
                assert (path.parent.name, case["published"]) in tables, case["name"]


def decimal(value: float) -> str:
    """A number as it is written, without the ".0" that TOML wants."""
    return format(Decimal(repr(value)).normalize(), "f")


def number(cell: str) -> Decimal:
    return Decimal(re.match(r"[\d.,]+", cell)[0].replace(",", ""))


def bounds(cell: str) -> tuple[float, float]:
    """What a number, written with so many digits, may have been before it was rounded."""
    half = Decimal(5).scaleb(number(cell).as_tuple().exponent - 1)
    return float(number(cell) - half) * factor(cell), float(number(cell) + half) * factor(cell)


def factor(text: str) -> float:
    """Of KiB/s in the unit of a row, MiB/s; other units are in proportion."""
    return 1 / 1024 if "KiB/" in text else 1000 if text.endswith("ms") else 1


def test_stated_changes_agree_with_the_numbers(published):
    _, data = published
    for table in data["table"]:
        for row in table["rows"]:
            cells = row.get("wrote") or [decimal(row[key]) for key in ("before", "after") if key in row]
            if "wrote" in row:
                for cell, key in zip(cells, ("before", "after")):
                    assert math.isclose(float(number(cell)) * factor(cell), row[key]), row
            if "stated" not in row:
                continue
            (low, high), (low2, high2) = map(bounds, cells)
            stated = Decimal(row["stated"].rstrip("%"))
            half = float(Decimal(5).scaleb(stated.as_tuple().exponent - 1))
            least, most = (low2 / high - 1) * 100 - half, (high2 / low - 1) * 100 + half
            assert least <= float(stated) <= most, (row, least, most)

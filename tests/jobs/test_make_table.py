# SPDX-License-Identifier: GPL-2.0-only
"""jobs/dm-linear/make-table: the published tables, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

MAKE_TABLE = ROOT / "jobs/dm-linear/make-table"

# The published table: 1024 targets of 8000 sectors, 16384 apart.
MAPPED = 8_192_000
BACKING = 16_768_832


def make_table(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([MAKE_TABLE, *map(str, arguments)], capture_output=True, text=True)


def lines(*arguments: object) -> list[str]:
    done = make_table(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("\n")
    return done.stdout.splitlines()


def refused(status: int, *arguments: object) -> str:
    done = make_table(*arguments)
    assert done.returncode == status, done
    assert done.stdout == ""
    assert done.stderr.startswith("make-table: ")
    return done.stderr


@pytest.fixture
def device(tmp_path: Path):
    """device(sectors, name="a", more=0) -> a file of that size, and `more` bytes."""

    def make(sectors: int, name: str = "a", more: int = 0) -> Path:
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(sectors * 512 + more)
        return path

    return make


def test_published_one_device(device):
    path = device(BACKING)
    assert lines(path) == [f"{8000 * i} 8000 linear {path} {16384 * i}" for i in range(1024)]


def test_published_two_devices(device):
    first, second = device(511 * 16384 + 8000), device(BACKING, "b")
    expected = [f"{8000 * i} 8000 linear {second if i > 511 else first} {16384 * i}" for i in range(1024)]
    assert lines(first, second) == expected


def test_published_sizes(device):
    targets = [line.split() for line in lines(device(BACKING))]
    assert sum(int(length) for _, length, *_ in targets) == MAPPED
    assert max(int(offset) + int(length) for _, length, _, _, offset in targets) == BACKING


def test_targets_follow_each_other(device):
    end = 0
    for line in lines("--targets", 7, "--length", 24, "--stride", 40, "--start", 16, device(1000)):
        start, length, *_ = line.split()
        assert int(start) == end
        end += int(length)
    assert end == 7 * 24


def test_one_sector_short(device):
    message = refused(2, device(BACKING - 1))
    assert f"has {BACKING - 1} sectors, the table needs {BACKING}" in message
    assert "--targets" in message


def test_part_of_a_sector_does_not_count(device):
    assert f"has {BACKING - 1} sectors" in refused(2, device(BACKING - 1, more=511))
    assert len(lines(device(BACKING, more=1))) == 1024


def test_second_device_one_sector_short(device):
    second = device(BACKING - 1, "b")
    assert str(second) in refused(2, device(BACKING), second)


def test_start_counts(device):
    path = device(BACKING)
    assert f"needs {BACKING + 8}" in refused(2, "--start", 8, path)


def test_odd_number_of_targets_on_two_devices(device):
    first, second = device(1000), device(1000, "b")
    table = lines("--targets", 5, "--length", 8, "--stride", 8, first, second)
    assert [line.split()[3] for line in table] == [str(first)] * 3 + [str(second)] * 2


def test_a_stride_of_the_length_has_no_gap(device):
    table = lines("--targets", 3, "--length", 8, "--stride", 8, device(24))
    assert [line.split()[4] for line in table] == ["0", "8", "16"]


def test_overlap_is_refused(device):
    assert "overlap" in refused(64, "--stride", 7999, device(BACKING))


def test_one_target_has_no_stride(device):
    path = device(8000)
    assert lines("--targets", 1, "--stride", 1, path) == [f"0 8000 linear {path} 0"]


def test_zero_target(device):
    path = device(BACKING)
    table = lines("--zero", 8000, path)
    assert table[:-1] == lines(path)
    assert table[-1] == f"{MAPPED} 8000 zero"


def test_create(tmp_path):
    path = tmp_path / "new"
    first = lines("--create", path)
    assert path.stat().st_size == BACKING * 512
    assert path.stat().st_blocks == 0
    assert lines(path) == first


def test_create_leaves_what_is_there(device):
    path = device(8)
    path.write_bytes(b"x" * 4096)
    assert "has 8 sectors" in refused(2, "--create", path)
    assert path.read_bytes() == b"x" * 4096


def test_create_makes_no_file_in_dev():
    message = refused(2, "--create", "/dev/durabench-test-no-such-device")
    assert "--create makes no file in /dev" in message
    assert not Path("/dev/durabench-test-no-such-device").exists()


def test_relative_name_becomes_absolute(device, monkeypatch):
    path = device(8000)
    monkeypatch.chdir(path.parent)
    assert lines("--targets", 1, path.name) == [f"0 8000 linear {path} 0"]


@pytest.mark.parametrize(
    ("what", "says"),
    [("absent", "is not there"), (".", "is a directory"), ("/dev/null", "neither a block device nor a regular file")],
)
def test_not_a_device(tmp_path, what, says):
    assert says in refused(2, tmp_path / what)


def test_white_space_in_a_name(device):
    assert "white space" in refused(2, device(BACKING, "a b"))


def test_the_same_device_twice(device):
    path = device(BACKING)
    other = path.with_name("link")
    other.symlink_to(path)
    assert "are the same device" in refused(2, path, other)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--targets", 0, "x"],
        ["--targets", "many", "x"],
        ["--length", -1, "x"],
        ["--start", -1, "x"],
        ["--zero", 0, "x"],
        ["--targets", 1, "x", "y"],
        ["--nonsense", "x"],
    ],
    ids=str,
)
def test_usage(arguments):
    assert "--help" in refused(64, *arguments)


def test_block_device(loop_device):
    path = loop_device("8M")
    assert lines("--targets", 1, path) == [f"0 8000 linear {path} 0"]
    assert "has 16384 sectors, the table needs 24384" in refused(2, "--targets", 2, path)

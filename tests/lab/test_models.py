# SPDX-License-Identifier: GPL-2.0-only
"""The device models as they are used: served by nbdkit to a client, and the
published measurement computed on them. What they hold to and what survives a
power cut is in tests/unit/test_model_*.c.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, ROOT, sanitizer_environment

MODELS = ROOT / "lab/model"
PLUGIN = BUILD / "lab/model/nbdkit-devicemodel-plugin.so"
HDD, NVME, NULL = (MODELS / f"{name}.conf" for name in ("st20000nm007d", "nvme", "null"))

nbd = pytest.importorskip("nbd", reason="python3-libnbd is missing")
if not shutil.which("nbdkit"):
    pytest.skip("nbdkit is missing", allow_module_level=True)
if not PLUGIN.exists():
    pytest.skip("the models are not built: nbdkit-plugin-dev or libbsd-dev is missing", allow_module_level=True)
Connect = Callable[..., Any]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """connect(conf, "NAME=VALUE", ...) -> a client of that model, whose server ends with it."""
    for name, value in sanitizer_environment(PLUGIN).items():
        monkeypatch.setenv(name, value)

    def start(*arguments: str | Path) -> Any:
        client = nbd.NBD()
        command = ["nbdkit", "--exit-with-parent", "-f", str(PLUGIN), *map(str, arguments)]
        client.connect_systemd_socket_activation(command)
        return client

    return start


def read_stats(path: Path) -> dict[str, Any]:
    """The counts, which nbdkit writes when it has noticed that the client left."""
    for _ in range(100):
        try:
            return json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.1)
    pytest.fail(f"{path}: never written")


@pytest.mark.parametrize("conf", [HDD, NVME, NULL], ids=lambda path: path.stem)
def test_it_is_a_disk_with_a_write_cache_and_fua(connect: Connect, conf: Path) -> None:
    disk = connect(conf)
    assert disk.can_flush() and disk.can_fua() and not disk.is_read_only()
    assert disk.is_rotational() == (conf == HDD)
    assert disk.get_size() == (256060514304 if conf == NVME else 20000588955648)
    assert disk.get_block_size(nbd.SIZE_MINIMUM) == 512
    assert disk.get_block_size(nbd.SIZE_PREFERRED) == 4096


def test_fua_and_flush_arrive_apart(connect: Connect, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    disk = connect(HDD, f"stats={stats}")
    disk.pwrite(bytes(8192), 0)
    for i in range(3):
        disk.pwrite(bytes(4096), i * 4096, nbd.CMD_FLAG_FUA)
    disk.pwrite(bytes(512), 1024)
    disk.flush()
    disk.flush()
    disk.pread(4096, 0)
    disk.shutdown()
    assert read_stats(stats) == {
        "schema": "durabench-device/1",
        "model": "hdd",
        "reads": 1,
        "read_bytes": 4096,
        "writes": 5,
        "write_bytes": 8192 + 4 * 4096,  # in sectors, touched as a whole
        "fua_writes": 3,
        "flushes": 2,
        "empty_flushes": 1,
        # One is safe and two are not; all neighbours.
        "destages": 2,
        "destaged_bytes": 3 * 4096,
        "cache_waits": 0,
        "retries": 0,
    }


def test_data_is_kept_in_a_sparse_file(connect: Connect, tmp_path: Path) -> None:
    image = tmp_path / "image"
    size = 1 << 40
    places = {0: b"a", 4096 * 1000 + 512: b"b", (size >> 1) + 7 * 512: b"c", size - 512: b"d"}
    disk = connect(HDD, f"capacity={size}", f"file={image}")
    for offset, byte in places.items():
        disk.pwrite(byte * 512, offset)
        assert disk.pread(512, offset) == byte * 512
    assert disk.pread(4096, 1 << 30) == bytes(4096)
    disk.shutdown()
    assert image.stat().st_size == size
    assert image.stat().st_blocks * 512 < 1 << 20

    disk = connect(NULL, f"capacity={size}", f"file={image}")
    for offset, byte in places.items():
        assert disk.pread(512, offset) == byte * 512


def test_data_is_not_kept_where_nobody_wants_it(connect: Connect) -> None:
    disk = connect(HDD, "keep=false")
    disk.pwrite(b"a" * 4096, 4096)
    assert disk.get_size() == 20000588955648
    assert disk.pread(4096, 4096) == bytes(4096)


def test_a_request_does_not_wait_for_another_s_end(connect: Connect) -> None:
    """The read is one of five stripes, each of which takes a second."""
    disk = connect(NVME, "channels=1", "read=1000000")
    read = disk.aio_pread(nbd.Buffer(5 * 16384), 1 << 20)
    write = disk.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), 0)
    while not disk.aio_command_completed(write):
        disk.poll(-1)
    assert disk.aio_in_flight() == 1
    while not disk.aio_command_completed(read):
        disk.poll(-1)


def test_an_answer_never_comes_early(connect: Connect) -> None:
    disk = connect(NVME, "command=100000")
    begun = time.monotonic()
    disk.pwrite(bytes(4096), 0)
    assert time.monotonic() - begun >= 0.1


def test_the_overhead_is_subtracted(connect: Connect) -> None:
    """Else this read of 640 stripes would take as many seconds."""
    disk = connect(NVME, "channels=1", "stripe=4", "read=1000000", "overhead=1000000000000")
    read = disk.aio_pread(nbd.Buffer(640 * 4096), 0)
    while not disk.aio_command_completed(read):
        assert disk.poll(120_000), "there is no answer"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "conf=FILE is missing, the model's parameters"),
        (["/none/such"], "/none/such: No such file or directory"),
        ([HDD, "rpm=7200"], "rpm: this model has no such parameter"),
        ([HDD, "speed=120 Hz"], "speed = 120 Hz: it has to be in rpm"),
        ([HDD, "file=/none/such"], "/none/such: No such file or directory"),
        ([HDD, "seed=x"], "seed"),
        ([HDD, "keep=perhaps"], "could not decipher boolean (perhaps)"),
        ([HDD, "keep=no", "file=image"], "file=IMAGE keeps the data, keep=false does not"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(arguments: list[str | Path], message: str, tmp_path: Path) -> None:
    sanitizer = sanitizer_environment(PLUGIN)
    if sanitizer and "No such file" in message:
        pytest.skip("with ASan, nbdkit never exits after a strerror(): libp11-kit waits for a lock of libc")
    environment = {**os.environ, **sanitizer}
    # Of a socket of its own making nbdkit would leave the folder behind.
    command = ["nbdkit", "-U", tmp_path / "socket", PLUGIN, *arguments, "--run", "true"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr


# Cells that the model has no parameter for (lab/model/README.md).
UNMET = {("seq", "after", "write.clat.p99"), ("seq", "after", "write.clat.p99.9")}


def test_the_published_cells_are_met_within_a_tenth() -> None:
    table = subprocess.run([BUILD / "lab/model/durabench-model-table", HDD], capture_output=True, text=True, check=True)
    header, *rows = (line.split("\t") for line in table.stdout.splitlines())
    modelled = {(row[0], row[1]): dict(zip(header, row)) for row in rows}

    readme = (MODELS / "README.md").read_text()
    published = tomllib.loads((ROOT / "results/published/seagate-odsync.toml").read_text())
    cells = 0
    for case in published["table"]:
        for row in case["rows"]:
            ours = modelled[case["case"], row["metric"]]
            assert ours["unit"] == row["unit"]
            numbers = f"{row['before']} | {ours['before']} | {row['after']} | {ours['after']}"
            assert f"| {case['case']} | {row['metric']} | {numbers} |" in readme
            for side in ("before", "after"):
                cell = (case["case"], side, row["metric"])
                met = 0.9 <= float(ours[side]) / row[side] <= 1.1
                assert met == (cell not in UNMET), (cell, ours[side], row[side])
                cells += 1
    assert cells == 20


class Power:
    """The power of a device, by its control socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(path))

    def say(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self._socket.recv(200).decode().strip()

    def cut(self, seed: int = 1, survive: float = 0) -> int:
        word, _, sectors = self.say(f"cut {time.monotonic_ns()} {seed} {survive}").partition(" ")
        assert word == "off"
        return int(sectors)


def powered(connect: Connect, control: Path, *settings: str) -> Any:
    """A drive with sectors of 512 bytes that empties its cache only when asked to."""
    return connect(NVME, "capacity=16777216", "sector=512", "idle=60000", f"control={control}", *settings)


def test_a_power_cut_takes_what_was_not_flushed_and_not_fua(connect: Connect, tmp_path: Path) -> None:
    disk = powered(connect, tmp_path / "control")
    disk.pwrite(b"a" * 8192, 0)
    disk.flush()
    disk.pwrite(b"b" * 4096, 4096, nbd.CMD_FLAG_FUA)
    disk.pwrite(b"c" * 4096, 0)
    power = Power(tmp_path / "control")
    assert power.cut() == 8
    for request in (lambda: disk.pread(512, 0), lambda: disk.pwrite(bytes(512), 0), disk.flush):
        with pytest.raises(nbd.Error) as raised:
            request()
        assert raised.value.errno == "EIO"
    assert power.say("on") == "on"
    assert disk.pread(8192, 0) == b"a" * 4096 + b"b" * 4096
    disk.pwrite(b"d" * 512, 0)
    assert disk.pread(512, 0) == b"d" * 512


def test_a_power_cut_tears_writes_as_its_seed_says(connect: Connect, tmp_path: Path) -> None:
    left = []
    for number, seed in enumerate((7, 7, 8)):
        control = tmp_path / str(number)
        disk = powered(connect, control)
        disk.pwrite(b"a" * 65536, 0)
        assert 0 < Power(control).cut(seed, 0.5) < 128
        Power(control).say("on")
        left.append(disk.pread(65536, 0))
    assert left[0] == left[1] != left[2]


def test_a_device_that_ignores_fua_loses_it(connect: Connect, tmp_path: Path) -> None:
    disk = powered(connect, tmp_path / "control", "ignore_fua=true")
    assert disk.can_fua()
    disk.pwrite(b"a" * 4096, 0, nbd.CMD_FLAG_FUA)
    assert Power(tmp_path / "control").cut() == 8


@pytest.mark.parametrize("setting", ["overhead=1000", "keep=false"])
def test_what_a_cut_goes_not_with_is_refused(tmp_path: Path, setting: str) -> None:
    command = ["nbdkit", "-U", "-", str(PLUGIN), str(NVME), f"control={tmp_path / 'control'}", setting, "--run", "true"]
    environment = {**os.environ, **sanitizer_environment(PLUGIN)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode != 0
    assert "control=SOCKET goes neither with" in done.stderr

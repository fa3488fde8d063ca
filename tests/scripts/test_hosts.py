# SPDX-License-Identifier: GPL-2.0-only
"""durabench run --client, for real: several fio servers on the loopback device, some of which are not as they should be."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from durabenchlib import environment as environments
from durabenchlib import formats, hosts, layout, results
from durabenchlib.errors import Failure

from command import BUILD, durabench, eventually, processes, start

TINY = """
schema = "durabench-measurement/1"
name = "tiny"
title = "a tiny measurement"
engine = "fua-dsync"
targets = ["block", "file", "directory"]
before = "dsync"
after = "fua"
strategies = ["dsync", "fua"]
[variables]
SIZE = { target = 1.0, max = "1m" }
RUNTIME = "1"
[[case]]
name = "one"
job = "one.fio"
targets = ["block", "file"]
headline = true
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "in"
job = "in.fio"
targets = ["directory"]
headline = true
metrics = [{ name = "write.iops", better = "higher" }]
[[case]]
name = "made"
job = "one.fio"
generate = { LIST = ["echo", "a"] }
metrics = [{ name = "write.iops", better = "higher" }]
"""

JOB = """
[one]
ioengine=external:${DURABENCH_ENGINES}/fio-fua-dsync.so
strategy=${STRATEGY}
counters=${COUNTERS}
bs=4k
size=${SIZE}
rw=write
numjobs=2
time_based
runtime=${RUNTIME}
"""


class Servers:
    """fio servers on this host; serve(…) starts one and gives its address, HOST:PORT."""

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __call__(self, hidden: Path | None = None) -> str:
        """Of `hidden`, a folder, the server sees nothing, which takes a mount namespace."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["timeout", "120", str(layout.fio()), f"--server=ip:127.0.0.1,{port}"]
        if hidden:
            command = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec {" ".join(command)}']
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._started[f"127.0.0.1:{port}"] = server
        listens = f":{port:04X} 00000000:0000 0A"
        assert eventually(lambda: server.poll() is not None or listens in Path("/proc/net/tcp").read_text())
        assert server.poll() is None
        return f"127.0.0.1:{port}"

    def kill(self, address: str) -> None:
        """End a server and its jobs as a crash of its host would."""
        for pid in reversed(list(_descendants(self._started[address].pid))):
            os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End all of them."""
        for address, server in self._started.items():
            server.terminate()
            server.wait()
            assert eventually(lambda address=address: not serving(address))


def _descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from _descendants(int(child))


@pytest.fixture
def serve() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.end()


def serving(address: str) -> dict[int, str]:
    """The processes of a server, those of its jobs among them."""
    return processes(f"--server=ip:{address.replace(':', ',')}")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a measurement of a second or so."""
    folder = tmp_path / "jobs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "measurement.toml").write_text(TINY)
    (folder / "one.fio").write_text(JOB + "filename=${TARGET}\n")
    (folder / "in.fio").write_text(JOB + "directory=${TARGET}\n")
    return folder


def measure(tiny: Path, target: Path | str, clients: list[str], *more: str | Path, **own: str | Path) -> subprocess.CompletedProcess[str]:
    """Measure with one strategy on hosts."""
    what = ("--client", ",".join(clients), "--set", "SIZE=1m", "--strategy", "dsync", "--repeat", "1")
    return durabench("run", tiny, "--target", target, *what, *more, **own)


@pytest.fixture
def engine_folder(tmp_path: Path) -> Path:
    """A folder of its own with the engine."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "fio-fua-dsync.so").write_bytes((BUILD / "engines/fio-fua-dsync.so").read_bytes())
    return folder


def test_three_hosts_apart_and_together(serve: Servers, tmp_path: Path) -> None:
    clients = [serve(), serve(), serve()]
    output, target = tmp_path / "output", tmp_path / "target"
    what = ("--case", "seq", "--repeat", "1", "--set", "RUNTIME=1", "--set", "SPAN=1m", "--destroy", target, "--output", output)
    done = durabench("run", "seagate-odsync", "--target", target, "--client", ",".join(clients), *what)
    assert done.returncode == 0, done.stderr
    assert f"{target} will be written over on the hosts" in done.stderr
    assert target.stat().st_size == 1 << 20
    run = results.load_run(output)
    about = run.manifest.environment
    assert [each.address for each in about.hosts] == clients
    assert {each.hostname for each in about.hosts} == {os.uname().nodename}
    assert (about.kernel, about.memory_bytes, about.cpus, run.manifest.target.device) == ("unknown", 0, 0, None)
    assert [each.entry.strategy for each in run.repetitions] == ["dsync", "fua"]
    for repetition in run.repetitions:
        jobs = repetition.fio.jobs
        assert sorted(job.host or "" for job in jobs) == sorted(clients)
        writes = [job.directions["write"].total_ios or 0 for job in jobs]
        known = {key: value for key, value in repetition.mechanism.items() if value is not None}
        assert min(writes) > 0 and known == {"writes": sum(writes), "syncs": 0}
        longest = max(job.directions["write"].runtime_ms or 0 for job in jobs)
        assert repetition.metric("write.iops") == pytest.approx(1000 * sum(writes) / longest)
    for command in ("compare", "report"):
        told = durabench(command, output, *(("--output", tmp_path / "page.html") if command == "report" else ()))
        assert told.returncode == 0, told.stderr
        text = told.stdout if command == "compare" else (tmp_path / "page.html").read_text()
        assert all(client in text for client in clients) and "mechanism is not known" in " ".join(text.split())


def test_jobs_of_a_host_are_put_together(serve: Servers, tiny: Path, tmp_path: Path) -> None:
    clients = [serve(), serve()]
    output, place = tmp_path / "output", tmp_path / "place"
    place.mkdir()
    done = measure(tiny, f"{place}/", clients, "--output", output)
    assert done.returncode == 0, done.stderr
    assert "case made is left out" not in done.stderr
    shown = json.loads(durabench("show", output, "--format", "json").stdout)["files"][0]
    ios = {client: sum(each["ios"] for each in shown["rows"] if (each["host"], each["job"]) == (client, "one")) for client in clients}
    of_host = {each["host"]: each["ios"] for each in shown["rows"] if each["job"] is None}
    assert of_host == {**ios, None: sum(ios.values())}
    # Nothing is made beside the directory, and nothing is removed from it.
    assert len(list(place.iterdir())) == 2


def test_case_with_files_of_this_host_is_left_out(serve: Servers, tiny: Path) -> None:
    done = measure(tiny, "/tmp/none/", [serve()], "--case", "all", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "case made is left out: it takes files that are made here (LIST)" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "target,more,status,message",
    [
        ("/data/file", [], 2, "/data/file lies on other hosts, where it can't be checked"),
        ("/dev/sdx", [], 2, "--destroy=/dev/sdx"),
        ("/dev/sdx", ["--destroy", "SERIAL"], 2, "--destroy=SERIAL is no target's full path"),
        ("file", [], 64, "a target needs its full path"),
        ("/data/../dev/sdx", [], 64, "without '..'"),
    ],
)
def test_what_can_not_be_checked_is_refused(tiny: Path, target: str, more: list[str], status: int, message: str) -> None:
    done = measure(tiny, target, ["127.0.0.1:1"], *more)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


@pytest.mark.parametrize("client", ["host:", "a b", "host:0", "host:65536", "::1", "--output=x"])
def test_address_that_is_none(tiny: Path, client: str) -> None:
    done = durabench("run", tiny, "--target", "/tmp/d/", f"--client={client}", "--set", "SIZE=1m")
    assert (done.returncode, f"{client!r} is not HOST or HOST:PORT" in done.stderr) == (64, True), done.stderr


@pytest.mark.parametrize("clients", ["", ",", "127.0.0.1,"])
def test_host_that_is_empty_is_not_this_one(tiny: Path, tmp_path: Path, clients: str) -> None:
    done = durabench("run", tiny, "--target", tmp_path, f"--client={clients}", "--dry-run")
    assert (done.returncode, "lacks a host" in done.stderr) == (64, True), done.stderr


def test_size_that_would_follow_a_host_is_asked_for(tiny: Path) -> None:
    done = durabench("run", tiny, "--target", "/tmp/d/", "--client", "127.0.0.1:1")
    assert (done.returncode, "give --set SIZE=SIZE" in done.stderr) == (64, True), done.stderr


def test_server_that_is_down(serve: Servers, tiny: Path, tmp_path: Path) -> None:
    done = measure(tiny, "/tmp/d/", [serve(), "127.0.0.1:1"], "--output", tmp_path / "output")
    assert done.returncode == 69
    assert "127.0.0.1:1 does not answer (fio: connect: Connection refused): start `fio --server` there" in done.stderr
    assert not (tmp_path / "output").exists()


def test_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PROBE_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Failure, match="does not answer in 1 s") as raised:
        hosts.find([f"127.0.0.1:{silent.getsockname()[1]}"], environments.collect(), "fua-dsync")
    assert raised.value.status == 69


def test_server_without_the_engine(serve: Servers, tiny: Path, engine_folder: Path, mount_namespace: None) -> None:
    lacking = serve(hidden=engine_folder)
    done = measure(tiny, "/tmp/d/", [serve(), lacking], DURABENCH_ENGINES=engine_folder)
    assert done.returncode == 69
    assert f"{lacking} has no {engine_folder}/fio-fua-dsync.so: engines must lie there at the same path" in done.stderr


@pytest.mark.parametrize(
    "client,message",
    [
        ('exec "$REAL" "$@"', "this host fio-3.99: take the same on both"),
        ("echo 'fio: client/server version mismatch (103 != 97)' >&2; exit 1", "has another fio than this host's fio-3.99"),
    ],
)
def test_server_with_another_fio(serve: Servers, tiny: Path, tmp_path: Path, client: str, message: str) -> None:
    other = tmp_path / "fio"
    other.write_text(f"#!/bin/sh\ncase $1 in --version) echo fio-3.99; exit;; --client=*) {client};; esac\n")
    other.chmod(0o755)
    done = measure(tiny, "/tmp/d/", [serve()], FIO=other, REAL=layout.fio())
    assert (done.returncode, message in done.stderr) == (69, True), done.stderr


def test_directory_that_one_host_lacks(serve: Servers, tiny: Path, tmp_path: Path, mount_namespace: None) -> None:
    place = tmp_path / "above" / "place"
    place.mkdir(parents=True)
    clients = [serve(), serve(hidden=place.parent)]
    done = measure(tiny, f"{place}/", clients, "--output", tmp_path / "output")
    assert done.returncode == 1
    run = formats.read_run(tmp_path / "output")
    assert run.status == "failed"
    assert run.repetitions[0].reason == f"1 of 2 hosts gave results: <{os.uname().nodename}> fio: {place} is not a directory"


def test_device_that_holds_something(serve: Servers, tiny: Path, tmp_path: Path, loop_device: Callable[..., str]) -> None:
    """Confirmed from afar it is refused by its own host, whose engine is heard."""
    device = loop_device("16M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    before = Path(device).read_bytes()
    done = measure(tiny, device, [serve()], "--destroy", device, "--output", tmp_path / "output")
    assert done.returncode == 1, done.stderr
    (repetition,) = formats.read_run(tmp_path / "output").repetitions
    assert "fio-fua-dsync: job one: " in (repetition.reason or "") and "holds ext4" in (repetition.reason or ""), done.stderr
    assert Path(device).read_bytes() == before


def test_server_that_dies_meanwhile(serve: Servers, tiny: Path, tmp_path: Path) -> None:
    clients = [serve(), serve()]
    target = tmp_path / "target"
    run = start_long(tiny, target, clients, tmp_path / "output", runtime="8")
    serve.kill(clients[1])
    _, said = run.communicate(timeout=100)
    assert run.returncode == 1, said
    assert (formats.read_run(tmp_path / "output").repetitions[0].reason or "").startswith("1 of 2 hosts gave results")


def test_interrupt_ends_the_jobs_of_all_hosts(serve: Servers, tiny: Path, tmp_path: Path) -> None:
    clients = [serve(), serve()]
    run = start_long(tiny, tmp_path / "target", clients, tmp_path / "output", runtime="60")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=100)
    assert run.returncode == 130, said
    assert formats.read_run(tmp_path / "output").status == "partial"
    # timeout and the server itself.
    assert eventually(lambda: all(len(serving(client)) == 2 for client in clients), 20)


def start_long(tiny: Path, target: Path, clients: list[str], output: Path, runtime: str) -> subprocess.Popen[str]:
    """Start a run, and wait until each of the servers carries it out: timeout, server, connection, its jobs."""
    what: tuple[Any, ...] = ("--strategy", "dsync", "--repeat", "1", "--destroy", target, "--output", output)
    settings = ("--set", "SIZE=1m", "--set", f"RUNTIME={runtime}")
    run = start("run", tiny, "--target", target, "--client", ",".join(clients), *settings, *what)
    assert eventually(lambda: run.poll() is not None or all(len(serving(client)) >= 6 for client in clients))
    assert run.poll() is None, run.communicate()
    return run

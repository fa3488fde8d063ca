# SPDX-License-Identifier: GPL-2.0-only
"""A guest whose kernel may be anything: what it says on its console and leaves on its disk makes files where its plan has some, or
ends in one error; it takes no more of this host's memory, disk and time than there is for it."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from durabenchlib import formats, measurement
from durabenchlib.errors import Exit, Failure
from durabenchlib.lab import guest, plan, qemu
from durabenchlib.lab.kernels import Kernel
from durabenchlib.runner import manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FUZZ = int(os.environ.get("DURABENCH_FUZZ", "0"))
MANY = settings(
    max_examples=FUZZ or 150, derandomize=not FUZZ, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
FOLDERS = {"guest", "001-seq-dsync-1"}


def archive(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def special(name: str, kind: bytes, link: str = "", size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info.tobuf(tarfile.GNU_FORMAT)


def unpacked(folder: Path, data: bytes) -> dict[str, bytes]:
    """The files made of what a guest left."""
    disk, output = folder / "disk", folder / "output"
    disk.write_bytes(data)
    output.mkdir()
    guest.unpack(disk, len(data), output, FOLDERS)
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_archives_behind_each_other(tmp_path: Path) -> None:
    long = f"001-seq-dsync-1/{'x' * 200}"
    data = archive(("guest/release", b"6.1\n"), ("guest/target/size", b"9")) + archive((long, b"y" * 3_000_000), ("guest/empty", b""))
    assert unpacked(tmp_path, data) == {
        "guest/release": b"6.1\n", "guest/target/size": b"9", long: b"y" * 3_000_000, "guest/empty": b""
    }


NAMES_OUTSIDE = [
    "../evil", "/etc/evil", "guest/../../evil", "guest/a/../../run.json", "run.json", "guest", "002-other/fio.json", "guest//evil",
    "x" * 300 + "/../../evil", "guest/" + "x" * 120 + "\0evil", "guest/.", "", "guest/",
]  # fmt: skip


def test_names_that_lead_elsewhere_are_left_out(tmp_path: Path) -> None:
    data = archive(*((name, b"x") for name in NAMES_OUTSIDE), ("guest/release", b"6.1"))
    assert unpacked(tmp_path, data) == {"guest/release": b"6.1"}
    assert {path.name for path in tmp_path.rglob("*")} == {"disk", "output", "guest", "release"}


@pytest.mark.parametrize(
    "data",
    [
        special("guest/large", tarfile.REGTYPE, size=1 << 40),
        special("guest/negative", tarfile.REGTYPE, size=-5),
        b"no archive at all" * 40,
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Failure) as caught:
        unpacked(tmp_path, data)
    assert caught.value.status == Exit.FAILED
    assert "console.log" in str(caught.value)
    assert {path.name for path in tmp_path.rglob("*")} == {"disk", "output"}


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    data = b"".join(
        [
            special("guest/link", tarfile.SYMTYPE, "/etc/passwd"),
            special("guest/hard", tarfile.LNKTYPE, "guest/link"),
            special("guest/fifo", tarfile.FIFOTYPE),
            special("guest/null", tarfile.CHRTYPE),
            special("guest/sparse", tarfile.GNUTYPE_SPARSE),
            archive(("guest/release", b"6.1")),
        ]
    )
    assert unpacked(tmp_path, data) == {"guest/release": b"6.1"}
    assert [path.name for path in (tmp_path / "output/guest").iterdir()] == ["release"]


def test_a_file_is_made_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="release"):
        unpacked(tmp_path, archive(("guest/release", b"1"), ("guest/release/x", b"2")))


seeds = st.sampled_from(
    [
        archive(("guest/release", b"6.1\n"), ("guest/target/size", b"9"))[:2048],
        archive(("001-seq-dsync-1/" + "x" * 150, b"y" * 600))[:2560],
        special("guest/link", tarfile.SYMTYPE, "/etc/passwd") + archive(("guest/link/x", b"z"))[:1024],
    ]
)


@MANY
@given(data=seeds, at=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=12)), min_size=1, max_size=4))
def test_mutants_of_archives(data: bytes, at: list[tuple[int, bytes]]) -> None:
    for place, part in at:
        place %= len(data)
        data = data[:place] + part + data[place + len(part) :]
    # A right checksum, without which a header is not looked at.
    for start in range(0, min(len(data), 1024), 512):
        block = bytearray(data[start : start + 512])
        if len(block) == 512 and block[257:262] == b"ustar":
            block[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(block))[0]
            data = data[:start] + bytes(block) + data[start + 512 :]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            unpacked(folder, data)
        except (Failure, OSError) as error:
            assert isinstance(error, OSError) or error.status == Exit.FAILED
        made = [path for path in folder.rglob("*") if path.name not in ("disk", "output")]
        assert all(path.relative_to(folder / "output").parts[0] in FOLDERS for path in made)
        assert not any(path.is_symlink() for path in made)
        assert sum(path.stat().st_size for path in made if path.is_file()) <= len(data)


@pytest.fixture(name="made")
def _made(small: str, kernel: Kernel) -> plan.GuestPlan:
    chosen = plan.chosen(measurement.find(small)[0], ["seq"], [])
    return plan.make(plan.Request(small, kernel, chosen))


class Nothing:
    """Shows no progress."""

    def begin(self, *_: object) -> None: ...
    def tick(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...


def listener(made: plan.GuestPlan) -> tuple[guest._Follower, qemu.Console]:
    follower = guest._Follower(made, manifest(made.run), Nothing())  # type: ignore[arg-type]
    return follower, qemu.Console(follower.limit_s, follower.hear)


def test_what_a_guest_says_in_order(made: plan.GuestPlan) -> None:
    follower, console = listener(made)
    words = ["booted 6.1", "kept 8"]
    for repetition in made.run.repetitions:
        words += [f"begin {repetition.dir}", f"filled {repetition.dir}", "kept 800", f"end {repetition.dir} 0"]
    console.feed("".join(f"durabench: {word}\r\n" for word in [*words, "done"]).encode())
    assert console.done and not console.error
    assert follower.kept_bytes == 800 * 512


SAID = [
    "begin nothing", "begin ", "begin ../..", "filled x", "kept -1", "kept x", "kept 1e9", "kept 99999999999999999999999999",
    "kept 2097153", "kept ٣", "end", "end a b c",
]  # fmt: skip


def test_what_is_no_part_of_its_plan_ends_it(made: plan.GuestPlan) -> None:
    for said in SAID:
        _, console = listener(made)
        console.feed(f"durabench: booted\ndurabench: {said}\n".encode())
        if not said.startswith("end"):
            assert "which is no part of its plan" in console.error, said
            assert console.deadline <= time.monotonic()

    # Nor are words without end a reason to wait.
    _, console = listener(made)
    console.feed(b"durabench: kept 1\n" * 1000)
    assert "no part of its plan" in console.error
    # Nor are repetitions that begin again and again.
    _, console = listener(made)
    name = made.run.repetitions[0].dir
    console.feed(f"durabench: begin {name}\ndurabench: end {name} 0\n".encode() * 2)
    assert "no part of its plan" in console.error


def test_it_prints_no_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "MOST_BYTES", 1 << 20)
    console = qemu.Console(lambda word, rest: 1.0, lambda word, rest: None)
    for _ in range(17):
        console.feed(b"x" * (1 << 16))
    assert "printed more than 1 MiB" in console.error
    assert len(console._rest) <= 4096


lines = st.lists(
    st.one_of(
        st.sampled_from(SAID + ["booted 6.1", "done", "error \x1b[2J", "begin 001-seq-dsync-1", "end 001-seq-dsync-1 0", "kept 8"]).map(
            lambda said: f"durabench: {said}".encode()
        ),
        st.sampled_from([b"Kernel panic - not syncing: \x1b]0;x\x07", b"Out of memory: Killed process 1 (\xff)", b"\xff\0durabench: "]),
        st.binary(max_size=50),
    ),
    max_size=12,
)


@MANY
@given(said=lines, seed=st.integers(0, 1000))
def test_any_console(made: plan.GuestPlan, said: list[bytes], seed: int) -> None:
    follower, console = listener(made)
    data = b"\n".join(said) + b"\n"
    cuts = sorted(random.Random(seed).choices(range(len(data) + 1), k=3))
    for part in (data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] : cuts[2]], data[cuts[2] :]):
        console.feed(part)
    assert 0 <= follower.kept_bytes <= guest.RESULTS_BYTES
    assert console.deadline < time.monotonic() + 10_000


TOLD = ["", "0", "-1", "x", "nan", "inf", "1e999", "1.5", "²", "٣", "9" * 5000, "\0", "2026-11-30T10:00:00Z", "a b\nc", "\xff", "0" * 100_000]


@MANY
@given(told=st.fixed_dictionaries({name: st.sampled_from(TOLD) for name in ("status", "started", "elapsed", "command", "fio.json")}))
def test_what_a_repetition_left(made: plan.GuestPlan, told: dict[str, str]) -> None:
    repetition = manifest(made.run).repetitions[0]
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        (output / repetition.dir).mkdir()
        for name, text in told.items():
            (output / repetition.dir / name).write_text(text)
        try:
            guest._judge(made, repetition, output, qemu.End())
        except Failure as failure:
            assert failure.status == Exit.FAILED and len(str(failure)) < 1000
        else:
            assert repetition.status in ("ok", "failed")


TOLD_IN = ["release", "cmdline", "meminfo", "cpuinfo", "abilities", "overhead", "mount", "target/size", "target/queue/fua", "target/queue/scheduler"]
VALUES = [*TOLD, "MemTotal: x kB", "MemTotal:", f"MemTotal: {'9' * 400} kB", "probe 1.0\nother nan", "name 1.5", "[", "a b c", "a b", "model name"]


@MANY
@given(told=st.dictionaries(st.sampled_from(TOLD_IN), st.sampled_from(VALUES)))
def test_what_a_guest_tells_of_itself(made: plan.GuestPlan, told: dict[str, str]) -> None:
    run = manifest(made.run)
    run.environment.lab = formats.Guest("virtual", "", "", ["null_blk nullb0"], {})
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for name, text in told.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            guest._describe(run, folder)
    except Failure as failure:
        assert failure.status == Exit.FAILED and len(str(failure)) < 1000
    else:
        text = formats.to_json(run)
        json.loads(text, parse_constant=lambda name: pytest.fail(name))
        assert len(text) < 300_000

# SPDX-License-Identifier: GPL-2.0-only
"""What is made for a while is gone in the end, and what a killed process left is told from what a living one uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from durabenchlib import blockdev, cli, formats, layout, leftovers
from durabenchlib.errors import Exit, Failure

from command import eventually

LEFT = "durabench-0123456789abcdef"
LIBRARY = str(Path(leftovers.__file__).parent.parent)


@pytest.fixture
def local(tmp_path: Path) -> None:
    if blockdev.filesystem_of(tmp_path) not in leftovers._LOCAL:
        pytest.skip(f"{tmp_path} is on {blockdev.filesystem_of(tmp_path)}, of which nothing is removed")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """other(STATEMENTS) -> a process that carried them out, with `place` the test's folder, and lives on."""
    made: list[subprocess.Popen[str]] = []

    def start(statements: str) -> subprocess.Popen[str]:
        program = f"import sys, contextlib; from pathlib import Path; from durabenchlib import *; place = Path({str(tmp_path)!r}); "
        program += f"stack = contextlib.ExitStack(); {statements}; print(flush=True); sys.stdin.read()"
        environment = {**os.environ, "PYTHONPATH": LIBRARY}
        command = [sys.executable, "-P", "-c", f"from durabenchlib import leftovers, formats\n{program}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        made.append(process)
        assert process.stdout and process.stdout.readline() == "\n"
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


def remover_of(process: subprocess.Popen[str]) -> int:
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


def test_a_folder_is_gone_in_the_end(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), leftovers.folder(tmp_path, "lab") as folder:
        (folder / "below").mkdir()
        assert folder.name.startswith("durabench-lab-") and list(tmp_path.iterdir()) == [folder]
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_folder_is_gone_when_its_process_is_killed(tmp_path: Path, other) -> None:
    process = other("stack.enter_context(leftovers.folder(place))")
    (folder,) = tmp_path.iterdir()
    (folder / "content").touch()
    process.kill()
    assert eventually(lambda: not folder.exists())


def test_what_a_living_process_uses_stays(tmp_path: Path, other, local: None) -> None:
    process = other("stack.enter_context(leftovers.folder(place)); f = stack.enter_context(leftovers.file(place)); f.write(b'half'); f.flush()")
    used = sorted(tmp_path.iterdir())
    assert len(used) == 2
    assert leftovers.clear([tmp_path]) == [] and sorted(tmp_path.iterdir()) == used
    # All at once, as the system's out-of-memory killer or the end of a service does.
    os.kill(remover_of(process), signal.SIGKILL)
    process.kill()
    process.wait()
    assert sorted(tmp_path.iterdir()) == used
    assert leftovers.clear([tmp_path]) == used and not list(tmp_path.iterdir())


def test_what_is_not_ours_stays(tmp_path: Path, local: None) -> None:
    for name in ("durabench-notes", "durabench-0123456789abcdeg", "durabench-lab-0123456789abcdef.old", "x-durabench-0123456789abcdef"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / LEFT).symlink_to(tmp_path / "theirs")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / LEFT).mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert leftovers.clear([tmp_path, tmp_path / "nowhere"]) == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "run"),
    [(["demo"], "runs/xfs-dontcache"), (["lab", "run", "dm-linear"], "6.12"), (["lab", "reproduce"], "dm-linear/6.12")],
    ids=["demo", "lab run", "lab reproduce"],
)
def test_what_lies_in_the_runs_of_a_command_is_found(command: list[str], run: str, tmp_path: Path, local: None, capsys) -> None:
    """By its next start with the same output, though that is refused, since it is not empty (or no kernel was fetched)."""
    repetition = tmp_path / "out" / run / "01"
    repetition.mkdir(parents=True)
    (repetition.parent / "run.json").touch()
    places = [tmp_path / "out", repetition.parent, repetition]
    for place in places:
        (place / LEFT).touch()
    assert cli.main([*command, "--output", str(tmp_path / "out")]) in (Exit.USAGE, Exit.MISSING)
    said = next(line for line in capsys.readouterr().err.splitlines() if "had left" in line)
    for place in places:
        assert str(place / LEFT) in said and not (place / LEFT).exists()


def test_another_users_stays(tmp_path: Path, local: None) -> None:
    if os.geteuid():
        pytest.skip("only root can give something to another user")
    (tmp_path / LEFT).mkdir()
    os.chown(tmp_path / LEFT, 12345, 12345)
    assert leftovers.clear([tmp_path]) == [] and (tmp_path / LEFT).exists()


def test_what_is_mounted_below_stays(tmp_path: Path, mount, local: None) -> None:
    """Somebody looks at a folder by a bind mount, or has put a disk into it."""
    theirs = mount("tmpfs", "1M")
    (theirs / "content").touch()
    point = tmp_path / LEFT / "point"
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", theirs, point], check=True)
    try:
        assert leftovers.clear([tmp_path]) == []
        assert (theirs / "content").exists()
    finally:
        subprocess.run(["umount", point], check=True)


def test_where_locks_may_not_be_seen_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LEFT).mkdir()
    for kind in ("nfs4", "9p", "fuse.sshfs", "gfs2"):
        monkeypatch.setattr(blockdev, "filesystem_of", lambda path, kind=kind: kind)
        assert leftovers.clear([tmp_path]) == []


def test_a_name_taken_for_left_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its lock another process may remove it."""
    locked, taken = leftovers._locked, []

    def late(path: Path, *arguments, **options) -> int | None:
        if not taken:
            taken.append(path)
            path.rmdir() if path.is_dir() else path.unlink()
        return locked(path, *arguments, **options)

    monkeypatch.setattr(leftovers, "_locked", late)
    with leftovers.folder(tmp_path) as folder:
        assert folder.is_dir() and folder != taken[0]
    taken.clear()
    formats.write_text(tmp_path / "out", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (tmp_path / "out").read_text() == "whole"


def test_results_are_one_commands_at_a_time(tmp_path: Path, other) -> None:
    other("(place / 'build' / 'demo').mkdir(parents=True); stack.enter_context(leftovers.held(place / 'build' / 'demo'))")
    (tmp_path / "build/demo/mine").touch()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Failure, match="build/demo is in use by another durabench"):
        patch.setattr(layout, "build", lambda: tmp_path / "build")
        with layout.output(None, "demo"):
            pass
    assert (tmp_path / "build/demo/mine").exists()


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    with pytest.raises(ZeroDivisionError), leftovers.file(tmp_path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (tmp_path / "out").read_text() == "before"

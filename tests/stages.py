# SPDX-License-Identifier: GPL-2.0-only
"""Kills or stops the durabench command at its stages: when it is about to make a folder, to rename what was written, to start a program."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from durabenchlib.errors import Exit

from command import COMMAND, PATIENCE_S, ROOT, environment, eventually, processes

STOPPING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
# How many stages a sweep tries, or `all`; and which.
SWEEP, SEED = os.environ.get("SWEEP", "3"), 6

Arguments = Sequence[str | Path]


def run(
    arguments: Arguments, stage: str = "", number: str = "SIGKILL", log: Path | None = None, under: Sequence[str] = (), **own: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run the command, to which the signal `number` comes at a stage, such as os.rename:2 (tests/stage); `under` is what it is begun by,
    `log` gets all its stages, and `own` are environment variables."""
    hook = {"PYTHONPATH": ROOT / "tests/stage", "PYTHONDONTWRITEBYTECODE": "1", "STAGE": stage, "SIGNAL": number, "STAGES": log or "/dev/null"}
    return subprocess.run(
        [*under, COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(**hook, **own),
    )


def all_of(arguments: Arguments, log: Path, **own: str | Path) -> list[str]:
    """The stages of a command that ends well."""
    done = run(arguments, log=log, **own)
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def left(folder: Path) -> set[str]:
    """What was made for a while in a folder, and is there."""
    return {str(path) for path in folder.rglob("*durabench-*") if re.search("[0-9a-f]{16}$", path.name)}


def named(said: str) -> set[str]:
    """What a start says that it removed: one line, if it did."""
    lines = [line for line in said.splitlines() if "had left" in line]
    assert len(lines) <= 1
    return set(lines[0].removeprefix("durabench: removed what a killed durabench had left: ").split(", ")) if lines else set()


def in_use(folder: Path) -> list[str]:
    """Loop devices, mounts in any namespace, and processes that have to do with a folder."""
    found = [*processes(folder).values()]
    for pattern, base in (("loop*/loop/backing_file", Path("/sys/block")), ("[0-9]*/mountinfo", Path("/proc"))):
        for path in base.glob(pattern):
            try:
                text = path.read_text(errors="replace")
            except OSError:
                continue
            found += [f"{path}: {line}" for line in text.splitlines() if str(folder) in line]
    return found


def sweep(folder: Path, arguments: Callable[[Path], Arguments], result: str, **own: str | Path) -> None:
    """Kill and stop a command at all its stages if SWEEP says so, else do either at some. `arguments` are those by which all that it
    makes is in the given folder, its results in `out`, of which the last is called `result`."""
    stages = all_of(arguments(folder / "whole"), folder / "stages", **_own(folder / "whole", own))
    shutil.rmtree(folder / "whole")
    if SWEEP == "all":
        tried = [(stage, killed) for stage in stages for killed in (True, False)]
    else:
        tried = [(stage, number % 2 == 0) for number, stage in enumerate(_some(stages, int(SWEEP)))]
    print(f"{len(stages)} stages, {len(tried)} tries")
    for number, (stage, killed) in enumerate(tried):
        place = folder / str(number)
        variables = _own(place, own)
        if killed:
            _killed(place, arguments(place), stage, variables)
        else:
            _stopped(place, arguments(place), stage, STOPPING[number // 2 % len(STOPPING)], result, variables)
        shutil.rmtree(place)


def _some(stages: list[str], number: int) -> list[str]:
    """As many of each kind, drawn by lot."""
    kinds: dict[str, list[str]] = {}
    for stage in random.Random(SEED).sample(stages, len(stages)):
        kinds.setdefault(stage.partition(":")[0], []).append(stage)
    return [stage for turn in itertools.zip_longest(*kinds.values()) for stage in turn if stage][:number]


def _own(folder: Path, own: dict[str, str | Path]) -> dict[str, str | Path]:
    """The environment of a command that has its temporary folder, and `place` as target, in a folder."""
    for name in ("tmp", "place"):
        (folder / name).mkdir(parents=True)
    return {**own, "TMPDIR": folder / "tmp"}


def _killed(place: Path, arguments: Arguments, stage: str, own: dict[str, str | Path]) -> None:
    """Nothing goes on; what lies about is removed by the next start, which is one that is refused."""
    done = run(arguments, stage, **own)
    assert done.returncode == -signal.SIGKILL, (stage, done.stderr)
    assert eventually(lambda: not in_use(place)), (stage, in_use(place))
    remains = left(place)
    (place / "out").mkdir(exist_ok=True)
    (place / "out/another").touch()
    done = run(arguments, **own)
    assert (done.returncode, named(done.stderr), left(place)) == (Exit.USAGE, remains, set()), (stage, done.stderr)


def _stopped(place: Path, arguments: Arguments, stage: str, number: str, result: str, own: dict[str, str | Path]) -> None:
    """Nothing is left; if it was done but for its last words, it may have ended well."""
    done = run(arguments, stage, number, **own)
    said = [line for line in done.stderr.splitlines() if line.startswith("durabench: ")]
    if done.returncode or not (place / "out" / result).exists():
        assert (done.returncode, said) == (Exit[number], [f"durabench: stopped by {number}"]), (stage, done.stderr)
    assert not left(place) and not list((place / "tmp").iterdir()) and not list((place / "place").iterdir()), stage
    assert eventually(lambda: not in_use(place), 10), (stage, in_use(place))

# SPDX-License-Identifier: GPL-2.0-only
"""Measuring on other hosts, by fio's own client and server: which hosts these are, whether they can do it, and what can be known of a
target that lies there.

fio's client sends a job to each server and collects their results. It replaces the variables of a job file itself, so that
engines lie at the same path everywhere. Neither kernel, device nor page cache of a server can be seen by it: no more is told of
them than fio says.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from . import leftovers
from .errors import Exit, Failure
from .formats import Environment, Host, Measurement, Rule, Target, TargetKind

# Where fio's server listens unless it is told otherwise.
PORT = 8765
# How long a server may take to carry out a job of a single I/O.
PROBE_S = 15

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
_PROBED = re.compile(r"hostname=(?P<hostname>[^,]*), be=.*, fio=(?P<fio>[^,]+)")
# Before what a server says, the client puts the name of its host.
_SAID = re.compile(r"(?:<[^>]*> )?(?P<words>fio: .*)")


def find(addresses: Sequence[str], about: Environment, engine: str) -> list[Host]:
    """The hosts, each asked; refused if one does not answer, has another fio or lacks the engine. `about` is of this host."""
    twice = [address for address, times in Counter(addresses).items() if times > 1]
    if twice:
        raise Failure(Exit.USAGE, f"--client: {twice[0]} is given twice")
    return [_ask(address, about, engine) for address in addresses]


def client_option(address: str) -> str:
    """fio's option for a server at HOST, HOST:PORT, [IPV6] or [IPV6]:PORT."""
    match = _ADDRESS.fullmatch(address)
    port = int(match["port"] or PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise Failure(Exit.USAGE, f"--client: {address!r} is not HOST or HOST:PORT (an IPv6 address in brackets)")
    return f"--client=ip6:{match['six']},{port}" if match["six"] else f"--client=ip:{match['name']},{port}"


def target(path: str, kinds: Sequence[TargetKind]) -> Target:
    """What `path` is taken to be on the hosts, by its name alone: below /dev a block device, with / at its end a directory, else a
    file. Refused if none of `kinds` will do."""
    if not path.startswith("/"):
        raise Failure(Exit.USAGE, f"--target {path}: on other hosts a target needs its full path")
    plain = PurePosixPath(path)
    if ".." in plain.parts:
        raise Failure(Exit.USAGE, f"--target {path}: on other hosts a target needs its path without '..'")
    in_dev = plain.is_relative_to("/dev") and not plain.is_relative_to("/dev/shm")
    kind: TargetKind = "directory" if path.endswith("/") else "block" if in_dev else "file"
    if kind == "block" and "block" not in kinds and "dm" in kinds:
        kind = "dm"
    if kind not in kinds:
        raise Failure(
            Exit.REFUSED,
            f"{path} is taken for a {kind} on the hosts (below /dev a block device, with / at its end a directory, else a file); this "
            f"measurement takes {' or '.join(kinds)}",
        )
    return Target(kind=kind, path=path, resolved=str(plain))


def guard(chosen: Sequence[Target], destroy: Sequence[str]) -> list[str]:
    """Refuse a target that would be written over unless it was confirmed by its path, as nothing of it can be checked. Returns a
    text on each that says what will be done."""
    for name in destroy:
        if name not in [each.resolved for each in chosen]:
            raise Failure(Exit.REFUSED, f"--destroy={name} is no target's full path. Nothing was written.")
    return [_guard(each, destroy) for each in chosen]


def _guard(target: Target, destroy: Sequence[str]) -> str:
    if target.kind == "directory":
        return f"files are made in the directory {target.path} of each host, and stay there"
    if target.resolved not in destroy:
        raise Failure(
            Exit.REFUSED,
            f"{target.path} lies on other hosts, where it can't be checked: neither whether it is in use nor whether it holds "
            f"anything, and the measurement would write over it. If it is free on each of them: --destroy={target.resolved}. "
            "Nothing was written.",
        )
    if target.kind == "file":
        return f"{target.path} will be written over on the hosts, and stays there; it was not checked whether it holds anything"
    return (
        f"{target.path} will be written over on the hosts. A host whose device is in use or holds anything refuses; "
        "what it holds has to be wiped there (`wipefs -a`)"
    )


def check_sizes(found: Measurement, shortened: Mapping[str, str | Rule], settings: Mapping[str, str]) -> None:
    """Refuse a measurement some of whose variables would follow memory and capacity of hosts that tell neither."""
    rules = {**found.variables, **shortened}
    unset = sorted(name for name, rule in rules.items() if isinstance(rule, Rule) and name not in settings)
    if unset:
        raise Failure(
            Exit.USAGE,
            f"{', '.join(unset)}: memory and capacity of other hosts can't be seen from here; give "
            f"{' '.join(f'--set {name}=SIZE' for name in unset)}",
        )


def note(found: Sequence[Host]) -> str:
    """What has to be known of numbers that were measured on these hosts."""
    names = ", ".join(each.address for each in found)
    return (
        f"Measured on {names} by fio's client and server: kernel, memory and device of a server, and what these did, can't be seen by it, so "
        "the mechanism is not known. Metrics are those of all hosts together; `durabench show` on a repetition's fio.json tells them of each."
    )


def missing(asked: Sequence[Host], told: Mapping[str | None, int]) -> str | None:
    """What is wrong if not each of the hosts gave the results of as many jobs; `told` is how many each gave."""
    if len(told) < len(asked):
        return f"{len(told)} of {len(asked)} hosts gave results"
    if len(set(told.values())) > 1:
        return f"hosts gave results of a different number of jobs: {', '.join(f'{host} {jobs}' for host, jobs in told.items())}"
    return None


def _ask(address: str, about: Environment, engine: str) -> Host:
    option = client_option(address)
    path = Path(about.engines, f"fio-{engine}.so")
    with leftovers.folder(leftovers.temporary()) as folder:
        job = folder / "probe.fio"
        # The server looks for the engine when it reads its name, and then does nothing by null.
        job.write_text(f"[probe]\nioengine=external:{path}\nioengine=null\nrw=read\nsize=4k\n", encoding="utf-8")
        command = ["timeout", "--kill-after=1", str(PROBE_S), about.fio_path, option, str(job)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    said = [match["words"] for line in (done.stderr + done.stdout).splitlines() if (match := _SAID.match(line))]
    differs = next((words for words in said if "version mismatch" in words or "bad server cmd version" in words), None)
    if differs:
        raise Failure(Exit.MISSING, f"{address} has another fio than this host's {about.fio}, which can't ask it ({differs})")
    probed = next((match for line in done.stdout.splitlines() if (match := _PROBED.match(line))), None)
    if probed is None:
        how = f"in {PROBE_S} s" if done.returncode in (124, 137, -signal.SIGKILL) else f"({said[0]})" if said else f"(status {done.returncode})"
        raise Failure(Exit.MISSING, f"{address} does not answer {how}: start `fio --server` there, and see that its port can be reached")
    if probed["fio"] != about.fio:
        raise Failure(
            Exit.MISSING, f"{address} has {probed['fio']}, this host {about.fio}: take the same on both, for which the engines are built"
        )
    if any("external ioengine" in words for words in said):
        raise Failure(
            Exit.MISSING, f"{address} has no {path}: engines must lie there at the same path as here (DURABENCH_ENGINES names it)"
        )
    if said or done.returncode:
        raise Failure(Exit.MISSING, f"{address} can't run fio's jobs: {said[0] if said else f'status {done.returncode}'}")
    return Host(address=address, hostname=probed["hostname"], fio=probed["fio"])

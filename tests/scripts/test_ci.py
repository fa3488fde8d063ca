# SPDX-License-Identifier: GPL-2.0-only
"""The examples for CI: the shell one with a small run of this host, the workflow's own step with runs that were prepared."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from sample_run import SampleRun, device, document, job, observed

from command import COMMAND, ROOT, environment

SCRIPT = ROOT / "ci/gate.sh"
WORKFLOW = yaml.safe_load((ROOT / "ci/github.yml").read_text())
STEPS = WORKFLOW["jobs"]["gate"]["steps"]


def run(*words: str | Path, timeout: float = 300, **own: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout."""
    known = {name: text for name, text in environment(**own).items() if not name.startswith("GITHUB_")}
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, env=known, cwd=ROOT)


def test_two_strategies_of_this_host(tmp_path: Path) -> None:
    """Writes that are no longer durable are a regression, however few and fast they are."""
    small = ("--case", "seq", "--set", "RUNTIME=1", "--set", "SPAN=16m")
    output = tmp_path / "out"
    done = run(SCRIPT, "host", "seagate-odsync", tmp_path / "target", "dsync", "none", *small, OUTPUT=output, REPEAT="2")
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads((output / "gate.json").read_text())
    assert "seq dsync -> none: durable_writes_per_write 1.00 -> 0.00" in found["regressions"]
    assert (output / "gate.md").read_text().startswith("### durabench gate: regression")
    assert ElementTree.parse(output / "gate.xml").getroot().get("name") == "durabench gate"
    assert (output / "run/run.json").exists()


def test_what_can_not_be_measured_is_no_pass(tmp_path: Path) -> None:
    done = run(SCRIPT, "host", "seagate-odsync", tmp_path / "no/such/folder", "dsync", "fua", OUTPUT=tmp_path / "out")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert json.loads((tmp_path / "out/gate.json").read_text())["verdict"] == "invalid"


@pytest.mark.parametrize("words", [[], ["lab", "dm-linear", "6.12"], ["host", "a", "b", "c"], ["else", "a", "b", "c", "d"]])
def test_usage(words: list[str]) -> None:
    done = run(SCRIPT, *words)
    assert (done.returncode, done.stderr.splitlines()[0][:15]) == (64, "ci/gate.sh lab ")


def test_the_workflow_is_whole() -> None:
    """Every step is one that there is, and what it runs is shell; `on` is what YAML 1.1 takes for true."""
    assert set(WORKFLOW[True]) == {"pull_request", "workflow_dispatch"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all(("run" in step) != ("uses" in step) for step in STEPS)
    for step in STEPS:
        if "run" in step:
            done = subprocess.run(["shellcheck", "-s", "sh", "-"], input=step["run"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
            for word in step["run"].split():
                assert "/" not in word or (ROOT / word).exists() or word.startswith("$"), word
    assert [step["name"] for step in STEPS if step.get("if") == "always()"] == ["Keep the results"]
    assert STEPS[-1]["with"]["path"] == WORKFLOW["jobs"]["gate"]["env"]["OUTPUT"]


def guest_run(folder: Path, flushes: int) -> Path:
    """A run of dm-linear as of a guest in virtual time, two repetitions of this many flushes a sync."""
    run = SampleRun(folder, measurement="dm-linear")
    run.manifest["environment"]["lab"] = {"clock": "virtual", "accelerator": "", "qemu": "", "devices": [], "abilities": {}}
    for _ in range(2):
        fio = document(job("dm", writes=[100_000] * 1000, syncs=[100_000 * flushes] * 1000, runtime_ms=200 * flushes))
        run.add("dm", "kernel", fio, observed(device(writes=1000, flushes=1000 * flushes)))
    return run.write()


@pytest.mark.parametrize(("candidate", "status", "verdict"), [("good", 0, "pass"), ("bad", 1, "regression"), ("none", 3, "invalid")])
def test_the_workflows_own_step(tmp_path: Path, candidate: str, status: int, verdict: str) -> None:
    """What a guest takes minutes for is prepared: the command hands it out, and does all else itself."""
    for name, flushes in (("good", 1), ("bad", 4)):
        guest_run(tmp_path / name, flushes)
    command = tmp_path / "durabench"
    command.write_text(
        "#!/bin/sh\nset -eu\n"
        f'[ "$1" = lab ] || exec {COMMAND} "$@"\n'
        '[ "$2 $4 $6 $8" = "run --kernel --repeat -o" ]\n'
        f'mkdir -p "$9" && cp -r "{tmp_path}/$5" "$9/"\n'
    )
    command.chmod(0o755)
    (step,) = [step["run"] for step in STEPS if step.get("name") == "Measure and judge"]
    output = tmp_path / "out"
    variables = {"MEASUREMENT": "dm-linear", "BASELINE": "good", "CANDIDATE": candidate, "OUTPUT": output, "DURABENCH": command}
    # GitHub runs a step by `bash -e`, in a container by `sh -e`.
    done = run("sh", "-ec", step, **variables)
    found = json.loads((output / "gate.json").read_text())
    assert (done.returncode, found["verdict"]) == (status, verdict), (done.stdout, done.stderr)

# SPDX-License-Identifier: GPL-2.0-only
"""The examples for CI: the shell one with a small run of this host, the workflow's own steps with two small guests."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from durabenchlib.errors import Failure
from durabenchlib.lab import initramfs, kernels, qemu

from command import ROOT, environment

SCRIPT = ROOT / "ci/gate.sh"
WORKFLOW = yaml.safe_load((ROOT / "ci/github.yml").read_text())
STEPS = WORKFLOW["jobs"]["gate"]["steps"]
# Two boots under an emulated CPU, on a busy machine.
LIMIT_S = 900


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


def test_the_workflows_own_step_in_guests(small: str, tmp_path: Path) -> None:
    """The same kernel twice, in virtual time: no regression."""
    try:
        qemu.program()
        for name in ("busybox", "dmsetup"):
            initramfs.tool(name)
        stock = kernels.fetched()
    except Failure as failure:
        pytest.skip(str(failure))
    if not stock:
        pytest.skip("no kernel was fetched (durabench lab fetch)")
    (step,) = [step["run"] for step in STEPS if step.get("name") == "Measure and judge"]
    kernel = stock[-1].name
    output = tmp_path / "out"
    variables = {"MEASUREMENT": small, "BASELINE": kernel, "CANDIDATE": kernel, "OUTPUT": output}
    done = run("sh", "-euc", step, timeout=LIMIT_S, **variables)
    found = json.loads((output / "gate.json").read_text())
    assert (done.returncode, found["verdict"]) == (0, "pass"), (done.stdout, done.stderr)
    (measurement,) = found["comparison"]["measurements"]
    metrics = [metric for case in measurement["cases"] for metric in case["metrics"]]
    assert metrics and {metric["verdict"] for metric in metrics} == {"no change"}
    assert {metric["reason"] for metric in metrics} == {"exact: in virtual time the repetitions agree"}

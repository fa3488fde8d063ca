# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of the command: its status, its signals, its end and the observer's."""

from __future__ import annotations

import os
import pty
import resource
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Observer, Recorder

FORWARDED = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"]


@pytest.mark.parametrize("status", [0, 1, 64, 69, 125, 127, 255])
def test_exit_status_is_the_commands(observer: Observer, status: int) -> None:
    found = observer.run("sh", "-c", f"exit {status}")
    assert found.exit_status == status
    assert found.summary is not None
    assert (found.summary["exit_status"], found.summary["signal"]) == (status, 0)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGPIPE", "SIGALRM"])
def test_death_by_signal_is_the_commands(observer: Observer, name: str) -> None:
    number = signal.Signals[name]
    found = observer.run("sh", "-c", f"kill -{number.value} $$", cwd=observer.folder)
    assert found.exit_status == -number
    assert found.summary is not None
    assert (found.summary["exit_status"], found.summary["signal"]) == (128 + number, number)


def test_death_by_signal_dumps_no_core_of_the_observer(observer: Observer) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard == 0:
        pytest.skip("core files can't be allowed here (ulimit -H -c)")
    process = observer.start(
        "sh", "-c", "ulimit -c 0; kill -SEGV $$", cwd=observer.folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )
    _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert observer.end(process).exit_status == -signal.SIGSEGV
    assert not os.WCOREDUMP(status)


def test_standard_streams_are_the_commands(observer: Observer) -> None:
    found = observer.run("sh", "-c", "cat; echo said >&2", stdin=subprocess.DEVNULL)
    assert found.stdout == ""
    assert found.stderr.startswith("said\n")
    assert "Observed 'sh -c cat; echo said >&2'" in found.stderr


def test_command_keeps_the_options_behind_it(observer: Observer) -> None:
    found = observer.run("echo", "-d", "nothing", "--help")
    assert (found.exit_status, found.stdout) == (0, "-d nothing --help\n")


def test_signal_mask_and_actions_are_as_the_observer_found_them(observer: Observer) -> None:
    def prepare() -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1])

    found = observer.run("grep", "-E", "SigBlk|SigIgn", "/proc/self/status", preexec_fn=prepare)
    masks = {line.split(":")[0]: int(line.split()[1], 16) for line in found.stdout.splitlines()}
    assert masks["SigBlk"] == 1 << signal.SIGUSR1 - 1
    assert masks["SigIgn"] & 1 << signal.SIGPIPE - 1 == 0
    assert masks["SigIgn"] & 1 << signal.SIGCHLD - 1
    assert found.exit_status == 0 and found.summary is not None


@pytest.mark.parametrize("name", FORWARDED)
def test_signal_is_passed_on_once(observer: Observer, recorder: Recorder, started: Any, name: str) -> None:
    process = started(observer.start(*recorder.command(wanted=2)))
    recorder.wait_for(1)
    process.send_signal(signal.Signals[name])
    recorder.wait_for(2)
    # one that came twice would stand before this one
    process.send_signal(signal.SIGTERM if name != "SIGTERM" else signal.SIGHUP)
    found = observer.end(process)
    assert recorder.wait_for(3) == ["ready", name, "SIGTERM" if name != "SIGTERM" else "SIGHUP"]
    assert found.exit_status == 23
    assert found.summary is not None and found.summary["exit_status"] == 23
    assert found.samples


def test_signals_that_the_command_outlives_lose_nothing(observer: Observer, recorder: Recorder, started: Any) -> None:
    process = started(observer.start(*recorder.command(wanted=5)))
    for count in range(1, 6):
        recorder.wait_for(count)
        process.send_signal(signal.SIGINT)
    found = observer.end(process)
    assert recorder.wait_for(6) == ["ready"] + 5 * ["SIGINT"]
    assert found.exit_status == 23 and found.summary is not None
    assert not any(path.exists() for path in observer.parts)


@pytest.mark.parametrize("own_group", [False, True])
def test_terminal_interrupt_arrives_once(observer: Observer, recorder: Recorder, started: Any, own_group: bool) -> None:
    """Ctrl-C goes to the foreground group: to the command directly if it is in it, else through the observer."""
    manager, terminal = pty.openpty()
    command = recorder.command(wanted=2)
    if own_group:
        command = ["setsid", *command]
    process = started(
        observer.start(
            *command, stdin=terminal, start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the controlling terminal
        )
    )
    recorder.wait_for(1)
    os.write(manager, b"\x03")
    recorder.wait_for(2)
    process.send_signal(signal.SIGHUP)
    found = observer.end(process)
    os.close(manager)
    os.close(terminal)
    assert recorder.wait_for(3) == ["ready", "SIGINT", "SIGHUP"]
    assert found.exit_status == 23 and found.summary is not None


def test_killed_observer_takes_the_command_along(observer: Observer, recorder: Recorder, started: Any) -> None:
    process = started(observer.start(*recorder.command(wanted=1)))
    recorder.wait_for(1)
    process.kill()
    process.wait()
    assert recorder.wait_for(2) == ["ready", "SIGTERM"]
    assert not any(path.exists() for path in observer.results)
    assert all(path.exists() for path in observer.parts)


PARENT = """\
import subprocess, sys, time
subprocess.Popen(sys.argv[1:])
time.sleep(600)
"""


def test_die_with_parent(observer: Observer, recorder: Recorder, started: Any) -> None:
    command = observer.command("--die-with-parent", *recorder.command(wanted=1))
    parent = started(subprocess.Popen([sys.executable, "-c", PARENT, *command], stderr=subprocess.PIPE))
    recorder.wait_for(1)
    parent.kill()
    parent.wait()
    assert recorder.wait_for(2) == ["ready", "SIGTERM"]
    assert parent.stderr is not None
    parent.stderr.read()  # to the observer's end
    assert all(path.exists() for path in observer.results)


def test_without_die_with_parent_it_stays(observer: Observer, recorder: Recorder, started: Any) -> None:
    command = observer.command(*recorder.command(wanted=2))
    parent = started(subprocess.Popen([sys.executable, "-c", PARENT, *command], stderr=subprocess.PIPE))
    recorder.wait_for(1)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    os.kill(int(children[0]), signal.SIGINT)
    assert recorder.wait_for(2) == ["ready", "SIGINT"]
    os.kill(int(children[0]), signal.SIGHUP)
    assert recorder.wait_for(3) == ["ready", "SIGINT", "SIGHUP"]
    assert parent.stderr is not None
    parent.stderr.read()
    assert all(path.exists() for path in observer.results)


def test_closed_stderr_loses_no_file(observer: Observer, started: Any) -> None:
    process = started(observer.start("sleep", "0.3"))
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(60) == 0
    assert all(path.exists() for path in observer.results)


def test_command_not_found(observer: Observer) -> None:
    found = observer.run("no-such-command-anywhere")
    assert found.exit_status == 127
    assert found.stderr == (
        "durabench-observe: 'no-such-command-anywhere' can't be run: No such file or directory\n"
    )
    assert not list(observer.folder.iterdir())


def test_command_that_is_not_executable(observer: Observer) -> None:
    found = observer.run("/etc/passwd")
    assert found.exit_status == 126
    assert found.stderr == "durabench-observe: '/etc/passwd' can't be run: Permission denied\n"
    assert not list(observer.folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command to observe"),
        (["--"], "no command to observe"),
        (["--nonsense", "true"], "unrecognized option '--nonsense'"),
        (["-d"], "option requires an argument -- 'd'"),
        (["-i", "0", "true"], "interval '0' is not from 1ms to 3600s"),
        (["-i", "999us", "true"], "interval '999us' is not from 1ms to 3600s"),
        (["-i", "3601s", "true"], "interval '3601s' is not from 1ms to 3600s"),
        (["-i", "soon", "true"], "interval 'soon' is not a number"),
        (["-i", "1h", "true"], "interval '1h' is not a number"),
        (["-i", "nan", "true"], "interval 'nan' is not a number"),
        (["-i", "-5", "true"], "interval '-5' is not a number"),
        (["-i", "", "true"], "interval '' is not a number"),
        (["-i", "1.2.3", "true"], "interval '1.2.3' is not a number"),
        (["-b", "0", "true"], "write size '0' is not a number of bytes"),
        (["-b", "4kk", "true"], "write size '4kk' is not a number of bytes"),
        (["-b", "-4", "true"], "write size '-4' is not a number of bytes"),
        (["-b", "k", "true"], "write size 'k' is not a number of bytes"),
        (["-b", "99999999999999999999", "true"], "is not a number of bytes"),
        (["-b", "99999999t", "true"], "write size '99999999t' is not a number of bytes"),
        (["-o", "same", "-j", "same", "true"], "samples and summary can't both be 'same'"),
    ],
)
def test_usage_errors(observer: Observer, arguments: list[str], message: str) -> None:
    done = subprocess.run([observer.program, *arguments], capture_output=True, text=True, cwd=observer.folder)
    assert done.returncode == 64
    assert message in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1:] == ["Try 'durabench-observe --help' for more information."]
    assert not list(observer.folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["-d", "{}", "true"], 69),
        (["-o", "{}/x", "true"], 125),
        (["-j", "{}/x", "true"], 125),
        (["-o", "{}", "-j", "{}", "true"], 64),
        (["-i", "{}", "true"], 64),
        (["-b", "{}", "true"], 64),
        (["{}"], 127),
        (["-o", "{}", "-j", "x", "true", "{}"], 0),
        (["--", "sh", "-c", ":", "{}"], 0),
    ],
)
def test_a_name_is_text_in_a_message(observer: Observer, arguments: list[str], status: int) -> None:
    name = "a\n::error::$(touch canary)%s%n\x1b[2J\r\udcff"
    words = [word.replace("{}", name) for word in arguments]
    done = subprocess.run([observer.program, *words], capture_output=True, cwd=observer.folder)
    assert done.returncode == status, done.stderr
    text = done.stderr.decode(errors="replace")
    assert all(char.isprintable() for char in text.replace("\n", "")) and not re.search("(?m)^::", text), text
    assert "a?::error::$(touch canary)%s%n?[2J?" in text or "-o" in arguments and status == 0
    assert {path.name for path in observer.folder.iterdir()} == ({name, "x"} if "-o" in arguments and status == 0 else set())


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_option(observer: Observer, option: str) -> None:
    done = subprocess.run([observer.program, option], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    page = Path(__file__).parents[2] / "observe/durabench-observe.1"
    for name in ("device", "interval", "samples", "summary", "write-size", "die-with-parent", "help", "version"):
        assert f"--{name}" in done.stdout
        assert f"Fl \\-{name}" in page.read_text()
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_version(observer: Observer) -> None:
    done = subprocess.run([observer.program, "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("durabench-observe from durabench ")

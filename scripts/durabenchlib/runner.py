# SPDX-License-Identifier: GPL-2.0-only
"""Carries out a measurement: plans the repetitions, runs each under the observer, keeps everything about it in the run's folder.

The plan is made first and reads only; nothing is written before the target was found fit. Strategies are interleaved within
a case (A B B A …), so that a drift of the device or of the machine meets both alike.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from . import __version__, environment, fiojson, formats, guard, hosts, layout, leftovers, measurement, signals, targets
from .errors import Exit, Failure
from .formats import Case, Environment, Host, Measurement, Repetition, Run, Target
from .measurement import Load
from .targets import Cleared

# What a repetition may take beyond its run time: fio's start and end, and at this speed its files or their remainder.
MARGIN_S = 60.0
SLOW_BYTES_PER_S = 8 << 20
_KILLED = re.compile(r"fio: pid=\d+, got signal=\d+")
_TIMED_OUT = "timeout: sending signal "
# How long fio may take to end after it was told to.
GRACE_S = 10


class Progress(Protocol):
    """Who is told how a run goes on. Times in seconds; `left_s` is None while there is nothing to reckon with."""

    def begin(self, repetition: Repetition, total: int) -> None:
        """A repetition begins."""

    def tick(self, elapsed_s: float, left_s: float | None) -> None:
        """It still runs; both times are for the whole run."""

    def end(self, repetition: Repetition) -> None:
        """It ended."""


@dataclass(frozen=True)
class Request:
    """What a person asks for: names and paths as they gave them. `notes` tell what the target can't show, `clients` are the addresses
    of the hosts that are to be measured in place of this one."""

    measurement: str
    targets: Sequence[str]
    strategies: Sequence[str] = ()
    cases: Sequence[str] = ()
    repeat: int = 3
    label: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    destroy: Sequence[str] = ()
    output: Path | None = None
    demo: bool = False
    keep_going: bool = False
    time_limit_s: float | None = None
    notes: Sequence[str] = ()
    clients: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """What will be done. `values` are the measurement's variables, `own_values` those of a case (CASE) or of a case with one strategy
    (CASE:STRATEGY), `loads` what each case asks of time and space, `notes` what the targets can't show, `warnings` what is left out
    and what will be written over. `cleared` are the targets where they are this host's."""

    request: Request
    measurement: Measurement
    folder: Path
    output: Path
    targets: list[Target]
    environment: Environment
    cases: list[Case]
    values: dict[str, str]
    repetitions: list[Repetition]
    loads: dict[str, Load]
    notes: list[str]
    warnings: list[str]
    own_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cleared: Cleared | None = None

    def limit_s(self, case: str) -> float:
        """Seconds after which a repetition is taken to hang."""
        if self.request.time_limit_s is not None:
            return self.request.time_limit_s
        load = self.loads[case]
        on_files = any(target.kind in ("file", "directory") for target in self.targets)
        layout_bytes = load.footprint_bytes if on_files else 0
        written = layout_bytes if load.runtime_s is not None else load.io_bytes
        return (load.runtime_s or 0.0) + MARGIN_S + written / SLOW_BYTES_PER_S

    def case(self, name: str) -> Case:
        """The case of a name."""
        return next(case for case in self.cases if case.name == name)


def plan(request: Request, stop: signals.Stop) -> Plan:
    """Read and check everything; refuses the target if it must not be written over. Writes nothing. Raises when it is to stop."""
    found, folder = measurement.find(request.measurement)
    about = environment.collect()
    layout.observer()
    file_bytes = measurement.parse_size(found.file_size or "0")
    shortened = found.demo if request.demo else {}
    if request.clients:
        chosen = [hosts.target(path, found.targets) for path in request.targets]
        hosts.check_sizes(found, shortened, request.settings)
    else:
        chosen = [targets.find(path, found.targets, file_bytes) for path in request.targets]
    if len({target.resolved for target in chosen}) < len(chosen):
        raise Failure(Exit.USAGE, f"{request.targets[0]} is given twice as target")
    cases, left_out = _fitting_cases(found, request, chosen)
    values = measurement.variables(
        found,
        request.settings,
        shortened=shortened,
        memory_bytes=about.memory_bytes,
        target_bytes=min(target.size_bytes or 0 for target in chosen),
    )
    output = request.output or _default_output(found, request)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise Failure(Exit.USAGE, f"{output} is there already and not empty; a run is never written over")
    written = hosts.guard(chosen, request.destroy) if request.clients else []
    if request.clients:
        about = _of_hosts(about, hosts.find(request.clients, about, found.engine))
    strategies = {case.name: measurement.choose_strategies(found, case, request.strategies) for case in cases}
    made = Plan(
        request=request,
        measurement=found,
        folder=folder,
        output=output.absolute(),
        targets=chosen,
        environment=about,
        cases=cases,
        values=values,
        repetitions=interleave(strategies, request.repeat),
        loads={},
        notes=[*request.notes, *([hosts.note(about.hosts)] if about.hosts else [])],
        warnings=[*left_out, *written],
    )
    paths = [target.resolved for target in chosen]
    with stop.heeded():
        _check_jobs(made, paths, stop)
    if about.hosts:
        return made
    footprint = max(load.footprint_bytes for load in made.loads.values())
    cleared = targets.clear(chosen, request.destroy, footprint)
    return replace(made, cleared=cleared, warnings=[*made.warnings, *cleared.notes])


def _of_hosts(about: Environment, found: list[Host]) -> Environment:
    """What is known of where it is measured, if that is on other hosts."""
    return replace(
        about, kernel="unknown", cmdline="", machine="", cpus=0, memory_bytes=0, virtualization="", cpu_model="", hosts=found
    )


def _check_jobs(made: Plan, paths: Sequence[str], stop: signals.Stop) -> None:
    """Make the job of each repetition, let fio read each once, and fill in the plan's loads."""
    if all(os.path.exists(path) for path in paths):
        for case in made.cases:
            if stop:
                raise stop.failure()
            _generate(made, case, paths)
    for repetition in made.repetitions:
        if stop:
            raise stop.failure()
        job = render(made, repetition, paths, planned_files(made, repetition.case))
        made.loads.setdefault(repetition.case, measurement.load_of(job))
        if repetition.round == 1:
            if made.environment.hosts:
                # A directory of theirs need not be one here, and fio looks.
                here = ["/" if target.kind == "directory" else target.resolved for target in made.targets]
                job = render(made, repetition, here, {})
            parse(made, repetition, job)


def execute(made: Plan, progress: Progress, stop: signals.Stop) -> Run:
    """Carry the plan out. Raises what ended it early, after the manifest tells so."""
    run = manifest(made)
    try:
        made.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(Exit.USAGE, f"{made.output}: {error.strerror}") from None
    signals.adopt_orphans()
    with leftovers.held(made.output), recorded(run, made.output, stop), contextlib.ExitStack() as stack:
        save(run, made.output)
        keep_definition(made, made.output)
        paths, claims = [target.resolved for target in made.targets], None
        if made.cleared:
            paths, claims = stack.enter_context(targets.held(made.cleared))
        _carry_out(made, run, paths, claims, progress, stop)
    return run


@contextlib.contextmanager
def recorded(run: Run, output: Path, stop: signals.Stop) -> Iterator[None]:
    """Carries a run out: however that ends, the manifest in `output` tells it."""
    try:
        yield
    except BaseException as error:
        run.status = "partial" if stop else "failed"
        run.reason = str(error) or type(error).__name__
        # What ended it is told, not that there is no room to write it down.
        with contextlib.suppress(OSError):
            save(run, output)
        raise
    save(run, output)


def manifest(made: Plan) -> Run:
    """What run.json says of the plan before anything was done."""
    request = made.request
    return Run(
        durabench=__version__,
        measurement=made.measurement.name,
        label=request.label,
        created=environment.now(),
        status="running",
        target=made.targets[0],
        target2=made.targets[1] if len(made.targets) > 1 else None,
        environment=made.environment,
        cases=[case.name for case in made.cases],
        strategies=list(dict.fromkeys(repetition.strategy for repetition in made.repetitions)),
        variables=made.values,
        repeat=request.repeat,
        repetitions=made.repetitions,
        demo=request.demo,
        notes=made.notes,
    )


def _carry_out(
    made: Plan, run: Run, paths: Sequence[str], claims: guard.Claims | None, progress: Progress, stop: signals.Stop
) -> None:
    files: dict[str, dict[str, str]] = {}
    clock = Clock(made)
    failed: Repetition | None = None
    for repetition in run.repetitions:
        if stop:
            raise stop.failure()
        if repetition.case not in files:
            case = made.case(repetition.case)
            files[case.name] = planned_files(made, case.name)
            for variable, text in _generate(made, case, paths).items():
                formats.write_text(Path(files[case.name][variable]), text)
        progress.begin(repetition, len(run.repetitions))
        job = render(made, repetition, paths, files[repetition.case])
        _repeat(made, repetition, job, claims, stop, functools.partial(clock.tick, progress, repetition))
        clock.end(repetition)
        save(run, made.output)
        progress.end(repetition)
        if repetition.status == "failed":
            failed = failed or repetition
            if not made.request.keep_going:
                break
    if stop:
        raise stop.failure()
    if failed:
        raise Failure(Exit.FAILED, f"{failed.dir}: {failed.reason}")
    run.status = "complete"


def _repeat(
    made: Plan, repetition: Repetition, job: str, claims: guard.Claims | None, stop: signals.Stop, tick: Callable[[float], None]
) -> None:
    """Run fio once and fill the repetition in; calls `tick` with the seconds it has run now and then."""
    folder = made.output / repetition.dir
    folder.mkdir()
    formats.write_text(folder / "job.fio", job)
    observer = layout.observer()
    words = command(made, repetition, observer)
    own = own_environment(made)
    formats.write_json(folder / "command.json", {"command": words, "environment": own})
    repetition.started = environment.now()
    start, killed_before = time.monotonic(), environment.oom_kills()

    def run(words: Sequence[str]) -> int:
        return _supervise(words, folder, own, claims, stop, lambda: tick(time.monotonic() - start))

    filling = filling_command(made, repetition, observer)
    if filling:
        # Should it fail, it will do so again.
        run(filling)
        (folder / "counters.jsonl").unlink(missing_ok=True)
    if made.measurement.drop_caches and not made.environment.hosts:
        _drop_caches()
    if not stop:
        repetition.exit_status = run(words)
    repetition.elapsed_s = round(time.monotonic() - start, 3)
    if stop:
        repetition.status, repetition.reason = "interrupted", str(stop.failure())
        return
    out_of_memory = environment.oom_kills() > killed_before
    repetition.reason = reason(made, folder, repetition.exit_status or 0, made.limit_s(repetition.case), out_of_memory)
    repetition.status = "failed" if repetition.reason else "ok"


def _supervise(
    command: Sequence[str],
    folder: Path,
    own: Mapping[str, str],
    claims: guard.Claims | None,
    stop: signals.Stop,
    tick: Callable[[], None],
) -> int:
    """Run a command in a folder to its end, or until it is to stop, and leave none of its processes; its exit status. It shares the
    claims on block devices."""
    others = signals.children()
    with open(folder / "stderr.txt", "wb") as stderr:
        # Its own session, so that Ctrl-C reaches this process alone, which then ends the command in order.
        with signals.killed_first():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd=folder,
                env={**os.environ, **own, **(claims.environment if claims else {})},
                pass_fds=claims.descriptors if claims else (),
                start_new_session=True,
            )
        try:
            while not stop and not signals.wait(process, 0.5):
                tick()
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                signals.wait(process, 2 * GRACE_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            signals.end_children(spare=others)
    return process.returncode


def command(made: Plan, repetition: Repetition, observer: Path) -> list[str]:
    """The command line of a repetition: fio with its time limit, under the observer, which watches nothing where other hosts are
    measured."""
    folder = made.output / repetition.dir
    fio = ["--output-format=json+", f"--output={folder / 'fio.json'}"]
    if made.environment.hosts:
        return _command(made, repetition, observer, [], fio)
    observe: list[str] = []
    for target in made.targets:
        observe += ["-d", target.device] if target.device else []
    observe += ["-i", "100ms", "-o", str(folder / "samples.jsonl"), "-j", str(folder / "observe.json")]
    return _command(made, repetition, observer, observe, fio)


def filling_command(made: Plan, repetition: Repetition, observer: Path) -> list[str] | None:
    """The command line that lays out, before a repetition, the files that it would fill first: that is none of what is observed. It
    leaves COUNTERS behind, which are not the repetition's. None if there is nothing to lay out, or nothing is observed."""
    if made.environment.hosts or not made.loads[repetition.case].fills or all(target.kind not in ("file", "directory") for target in made.targets):
        return None
    return _command(made, repetition, observer, [], ["--create_only=1"])


def _command(made: Plan, repetition: Repetition, observer: Path, observe: Sequence[str], fio: Sequence[str]) -> list[str]:
    """fio with a repetition's job file, that ends after some time and with its parent, under the observer."""
    limit = _limit(made.limit_s(repetition.case))
    job = str(made.output / repetition.dir / "job.fio")
    # Each server gets its job: the option and the file, in this order.
    jobs = [word for host in made.environment.hosts for word in (hosts.client_option(host.address), job)] or [job]
    return [str(observer), "--die-with-parent", *observe, "--", *limit, made.environment.fio_path, *fio, *jobs]


def _limit(seconds: float) -> list[str]:
    """What a command begins with that is to end after some time. It says so when it ends it: the status may be that of a signal, too."""
    return ["timeout", "--verbose", f"--kill-after={GRACE_S}", f"{max(seconds, 1.0):.0f}"]


def own_environment(made: Plan) -> dict[str, str]:
    """What the command line of a repetition needs of its environment."""
    return {"DURABENCH_ENGINES": made.environment.engines, "LC_ALL": "C"}


def reason(made: Plan, folder: Path, status: int, limit_s: float, out_of_memory: bool = False) -> str | None:
    """Why a repetition failed, in fio's or the engine's own words where they have some; None if it did not. `out_of_memory`: the kernel
    has ended processes for want of it meanwhile."""
    said = _lines(folder / "stderr.txt")
    if status == 124 or any(line.startswith(_TIMED_OUT) for line in said):
        return (
            f"ended after {limit_s:.0f} s, its time limit: it hangs, or the target is too slow for it; "
            "--time-limit SECONDS gives it longer"
        )
    words, killed = _why(made, folder, status, said)
    if killed and out_of_memory:
        return f"{words}: out of memory, the machine's or its cgroup's"
    return words


def _why(made: Plan, folder: Path, status: int, said: Sequence[str]) -> tuple[str | None, bool]:
    """Why a repetition failed that was not ended by its time limit, and whether fio or a job of it was killed."""
    if status in (128 + signal.SIGKILL, -signal.SIGKILL):
        return "fio was killed (SIGKILL)", True
    try:
        document = fiojson.read(folder / "fio.json")
    except Failure as error:
        return _words(made, [*said, *_lines(folder / "fio.json")]) or str(error), False
    errors = document.errors()
    if made.environment.hosts:
        # fio's client goes on without a host that it can't reach, that drops the job or that dies meanwhile, by status 0.
        lacking = hosts.missing(made.environment.hosts, Counter(job.host for job in document.jobs))
        if lacking:
            words = _words(made, [*said, *document.messages])
            return f"{lacking}: {words}" if words else lacking, False
    # Of a job that was killed, as for want of memory, fio says so and ends by status 0.
    killed = any(_KILLED.match(line) for line in (*said, *document.messages))
    if status == 0 and not errors and not killed:
        return None, False
    return _words(made, [*said, *document.messages]) or "; ".join(errors) or f"exit status {status}", killed


def _lines(path: Path) -> list[str]:
    """The lines of a text, none if it is not there."""
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def _words(made: Plan, said: Sequence[str]) -> str | None:
    """The first line by the engine, else fio's about an option, else its first, else the loader's."""
    for prefix in (f"fio-{made.measurement.engine}: ", "Bad option ", "fio: ", f"{made.environment.fio_path}: "):
        for line in said:
            # What a server says has the name of its host before it.
            if line.startswith(prefix) or (made.environment.hosts and f"> {prefix}" in line):
                return line.strip()
    return None


def render(made: Plan, repetition: Repetition, paths: Sequence[str], files: Mapping[str, str]) -> str:
    """The complete job file of a repetition on the targets at `paths`; `files` are the generated ones by variable."""
    case = made.case(repetition.case)
    folder = made.output / repetition.dir
    values = {
        **case_values(made, case, [targets.escape(path) for path in paths], repetition.strategy),
        **files,
        "STRATEGY": repetition.strategy,
        # They would be written on the hosts, where none of the run's folder is.
        "COUNTERS": "/dev/null" if made.environment.hosts else str(folder / "counters.jsonl"),
    }
    source = made.folder / case.job
    return measurement.render(source.read_text(encoding="utf-8"), values, source)


def case_values(made: Plan, case: Case, paths: Sequence[str], strategy: str = "") -> dict[str, str]:
    """Variables of a case, or of a case with a strategy; a person's own settings stand above them."""
    given = {"TARGET": paths[0], "DURABENCH_ENGINES": made.environment.engines}
    if len(paths) > 1:
        given["TARGET2"] = paths[1]
    own = {**made.own_values.get(case.name, {}), **made.own_values.get(f"{case.name}:{strategy}", {})}
    return {**made.values, **case.set, **own, **made.request.settings, **given}


def planned_files(made: Plan, case: str) -> dict[str, str]:
    """Paths of the files that a case generates, by variable."""
    return {name: str(made.output / f"{case}-{name.lower()}") for name in made.case(case).generate}


def _generate(made: Plan, case: Case, paths: Sequence[str]) -> dict[str, str]:
    """The text of each file that a case generates, by variable."""
    values = case_values(made, case, paths)
    return {name: output_of(made, f"{case.name}: {name}", words, values) for name, words in case.generate.items()}


def parse(made: Plan, repetition: Repetition, job: str) -> None:
    """Let fio read a job without running it; refuse what it does not take."""
    command = [*_limit(60), made.environment.fio_path, "--parse-only", "-"]
    done = subprocess.run(command, input=job, capture_output=True, text=True, check=False)
    endless = measurement.without_end(job)
    if not done.returncode and not endless:
        return
    case = made.case(repetition.case)
    values = " ".join(f"{name}={value}" for name, value in {**made.values, **case.set, **made.request.settings}.items())
    if not done.returncode:
        raise Failure(Exit.INPUT, f"{made.folder / case.job}: with {values} it has {endless}, which ends nothing; times are such as 30, 500ms or 2m")
    words = _words(made, done.stderr.splitlines()) or f"fio --parse-only ended with status {done.returncode}"
    # All that an engine says before it runs is that it was built for another fio.
    if words.startswith(f"fio-{made.measurement.engine}: "):
        raise Failure(Exit.MISSING, words)
    raise Failure(Exit.INPUT, f"{made.folder / case.job}: fio does not take it with {values}: {words}")


def output_of(made: Plan, what: str, words: Sequence[str], values: Mapping[str, str]) -> str:
    """What a command of the measurement prints, run in its folder; `what` names it."""
    source = f"{made.folder / 'measurement.toml'}: {what}"
    command = [measurement.substitute(word, values, source) for word in words]
    try:
        done = subprocess.run(command, cwd=made.folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failure(Exit.INPUT, f"{source}: {command[0]}: {error.strerror}") from None
    if done.returncode:
        raise Failure(Exit.REFUSED, done.stderr.strip() or f"{shlex.join(command)} failed")
    return done.stdout


def _fitting_cases(found: Measurement, request: Request, chosen: Sequence[Target]) -> tuple[list[Case], list[str]]:
    """The cases to run, and texts on those left out. A case that was asked for by name must fit the targets; of the others those
    that do are taken."""
    cases, left_out = [], []
    for case in measurement.choose_cases(found, request.cases):
        obstacle = _obstacle(case, chosen, bool(request.clients))
        if not obstacle:
            cases.append(case)
        elif case.name in request.cases:
            raise Failure(Exit.REFUSED, f"case {case.name} {obstacle}")
        else:
            left_out.append(f"case {case.name} is left out: it {obstacle}")
    if not cases:
        raise Failure(Exit.REFUSED, "; ".join(left_out))
    needed = max(case.devices for case in cases)
    if needed < len(chosen):
        raise Failure(Exit.USAGE, f"{len(chosen)} targets were given, but the cases take {needed}")
    return cases, left_out


def _obstacle(case: Case, chosen: Sequence[Target], elsewhere: bool) -> str | None:
    if case.generate and elsewhere:
        return f"takes files that are made here ({', '.join(case.generate)}), which other hosts have not"
    if case.devices > len(chosen):
        return f"needs {case.devices} targets (--target once for each)"
    for target in chosen:
        if case.targets is not None and target.kind not in case.targets:
            return f"takes {' or '.join(case.targets)}, and {target.path} is {target.kind}"
    return None


def interleave(strategies: Mapping[str, Sequence[str]], repeat: int) -> list[Repetition]:
    """The repetitions of each case with its strategies, in their order."""
    repetitions: list[Repetition] = []
    for case, chosen in strategies.items():
        for number in range(1, repeat + 1):
            for strategy in chosen if number % 2 else reversed(chosen):
                order = len(repetitions) + 1
                name = f"{order:03d}-{case}-{strategy}-{number}"
                repetitions.append(Repetition(order, case, strategy, number, name))
    return repetitions


def _default_output(found: Measurement, request: Request) -> Path:
    stamp = environment.now().replace("-", "").replace(":", "")
    return layout.results() / "-".join(part for part in (found.name, request.label, stamp) if part)


def _drop_caches() -> None:
    os.sync()
    with contextlib.suppress(PermissionError):
        Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def save(run: Run, output: Path) -> None:
    """Write the manifest of a run."""
    formats.write_json(output / "run.json", run)


def keep_definition(made: Plan, output: Path) -> None:
    """Copy the measurement's definition beside the manifest, so that the run is understood where there is no such measurement."""
    formats.write_bytes(output / "measurement.toml", (made.folder / "measurement.toml").read_bytes())


class Clock:
    """Reckons how long the rest of a run takes: from repetitions of the same case, else from what its job file says."""

    def __init__(self, made: Plan) -> None:
        self._made = made
        self._start = time.monotonic()
        self._took: dict[str, list[float]] = {}

    def end(self, repetition: Repetition) -> None:
        """A repetition ended."""
        self._took.setdefault(repetition.case, []).append(repetition.elapsed_s or 0.0)

    def tick(self, progress: Progress, repetition: Repetition, elapsed_s: float) -> None:
        """It has run that long."""
        rest = [self._expected_s(each.case) for each in self._made.repetitions[repetition.order - 1 :]]
        known = [each for each in rest if each is not None]
        left_s = max(known[0] - elapsed_s, 0.0) + sum(known[1:]) if len(known) == len(rest) else None
        progress.tick(time.monotonic() - self._start, left_s)

    def _expected_s(self, case: str) -> float | None:
        if case in self._took:
            return statistics.fmean(self._took[case])
        return self._made.loads[case].runtime_s

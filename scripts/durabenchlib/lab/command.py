# SPDX-License-Identifier: GPL-2.0-only
"""`durabench lab`: measurements in guests with other kernels."""

from __future__ import annotations

import argparse
import os
import sys
import typing
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import compare, formats, layout, leftovers, measurement, results, run, signals, tables
from ..errors import Exit, Failure
from ..formats import Comparison, LabDevice
from . import guest, initramfs, kernels, plan, powercut, qemu, reproduce


def add_parser(subparsers: Any) -> None:
    """Add `lab` to the command's parsers."""
    parser = subparsers.add_parser(
        "lab",
        help="measure in guests with other kernels",
        description="Boot stock distribution kernels, or your own, under QEMU with device models, and run measurements in them: no root, "
        "no spare disk, and in virtual time no noise.",
    )
    inner = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_fetch(inner)
    listing = inner.add_parser("list", help="the kernels that were fetched", description="List the kernels that were fetched.")
    listing.set_defaults(func=_list)
    _add_run(inner)
    reproduce.add_parser(inner)
    powercut.add_parser(inner)
    _add_shell(inner)
    doctor = inner.add_parser(
        "doctor", help="what is there, and what is missing", description="Look whether all is there that the lab needs, and try KVM."
    )
    doctor.set_defaults(func=_doctor)


def _add_fetch(inner: Any) -> None:
    parser = inner.add_parser(
        "fetch",
        help="get stock kernels",
        description="Get the newest stock Debian kernel of each series into the cache, checked by apt. Needs no root.",
    )
    parser.add_argument("series", metavar="SERIES", nargs="+", help="such as 6.12")
    parser.add_argument("--refresh", action="store_true", help="fetch the lists of packages even if they are not a day old")
    parser.set_defaults(func=_fetch, places=lambda args: [kernels.folder()])


def _add_run(inner: Any) -> None:
    parser = inner.add_parser(
        "run",
        help="run a measurement in guests",
        description="Run a measurement's cases in a guest of each kernel, on the devices of its [lab]; each further kernel is compared "
        "with the first.",
    )
    parser.add_argument("measurement", metavar="MEASUREMENT", help="its name, or the path of its folder")
    _add_kernel(parser)
    parser.add_argument("--case", metavar="NAME", action="append", default=[], help="default: those of the first comparison of its [lab]")
    parser.add_argument("--strategy", metavar="NAME", action="append", default=[], help="default: those that its [lab] compares")
    parser.add_argument("--repeat", metavar="N", type=run.count, default=1, help="repetitions of each in one guest (default: 1)")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", type=run.setting, default=[], help="set a variable of the job files"
    )
    parser.add_argument(
        "--device",
        metavar="MODEL,size=SIZE[,NAME=VALUE…]",
        action="append",
        type=_device,
        default=[],
        help="in place of the devices of its [lab]: null_blk, nbdkit (plugin=NAME), virtio, scsi or nvme, with the settings that "
        "docs/lab.md tells of",
    )
    parser.add_argument("--clock", choices=["virtual", "host"], help="the guest's (default: that of its [lab])")
    parser.add_argument("--memory", metavar="SIZE", type=_memory, help="of the guest (default: that of its [lab])")
    parser.add_argument("--time-limit", metavar="SECONDS", type=run.seconds, help="end a repetition after that time of the guest's")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="new or empty; a folder in it for each kernel")
    parser.set_defaults(func=_run, places=lambda args: [leftovers.temporary(), args.output, *leftovers.of_runs(args.output)])


def _add_shell(inner: Any) -> None:
    parser = inner.add_parser(
        "shell",
        help="a prompt in a guest",
        description="Boot a kernel with the devices of a measurement's [lab], and give a prompt. Ctrl-A X ends QEMU.",
    )
    parser.add_argument("kernel", metavar="KERNEL", help="series, release, or path of an image")
    parser.add_argument("measurement", metavar="MEASUREMENT", nargs="?", default="seagate-odsync", help="default: seagate-odsync")
    _add_modules(parser)
    parser.set_defaults(func=_shell, places=lambda args: [leftovers.temporary()])


def _add_kernel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        metavar="KERNEL",
        action="append",
        default=[],
        help="series (6.12) or release of a fetched one, or the path of an image (./arch/x86/boot/bzImage); once for each (default: "
        "those of the first comparison of its [lab])",
    )
    _add_modules(parser)


def _add_modules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--modules",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="where `make modules_install INSTALL_MOD_PATH=DIR` put the modules of kernels that are given by their path; each takes "
        "those of its release (may be given again; default: all that is needed is built in)",
    )


def _fetch(args: argparse.Namespace) -> int:
    for kernel in kernels.fetch(args.series, args.refresh):
        print(tables.printable(f"{kernel.name}  {kernel.package} {kernel.version}"))
    return Exit.OK


def _list(_args: argparse.Namespace) -> int:
    found = kernels.fetched()
    for kernel in found:
        print(tables.printable(f"{kernels.series_of(kernel.version):6} {kernel.name}  {kernel.version}"))
    if not found:
        print("none; `durabench lab fetch 6.12` gets one", file=sys.stderr)
    return Exit.OK


def _run(args: argparse.Namespace) -> int:
    console = Console(stderr=True)
    found, _ = measurement.find(args.measurement)
    strategies = plan.chosen(found, args.case, args.strategy)
    chosen = kernels.find_all(args.kernel or plan.first_kernels(found), args.modules)
    output = args.output.absolute()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise Failure(Exit.USAGE, f"{output} is there already and not empty; a run is never written over")
    requests = [
        plan.Request(
            measurement=args.measurement,
            kernel=kernel,
            strategies=strategies,
            repeat=args.repeat,
            settings=dict(args.set),
            time_limit_s=args.time_limit,
            memory=args.memory,
            devices=args.device,
            clock=args.clock,
        )
        for kernel in chosen
    ]
    with signals.caught() as stop:
        plans = [(made, output / made.kernel.name) for made in plan.all_of(requests, stop)]
        failures = guest.shown(plans, console, stop)
    for failure in failures.values():
        raise failure
    if len(plans) > 1:
        runs = [results.load_run(path) for _, path in plans]
        comparison = Comparison([each for run in runs[1:] for each in compare.compare_runs(runs[0], run).measurements])
        formats.write_json(output / "comparison.json", comparison)
        compare.print_text(comparison, Console())
    return Exit.OK


def _shell(args: argparse.Namespace) -> int:
    if not os.isatty(0):
        raise Failure(Exit.USAGE, "a prompt needs a terminal")
    # In virtual time, a guest that waits for a person lets hours pass.
    found, _ = measurement.find(args.measurement)
    kernel = kernels.find_all([args.kernel], args.modules)[0]
    made = plan.make(plan.Request(args.measurement, kernel, plan.chosen(found, [], []), clock="host"))
    with guest.prepared(made, qemu.accelerator("host", kernel.image), shell=True) as machine:
        return qemu.interactive(machine)


def _doctor(_args: argparse.Namespace) -> int:
    complete = True
    for name, find in _needed():
        try:
            print(tables.printable(f"ok       {name}: {find()}"))
        except Failure as failure:
            complete = False
            print(tables.printable(f"missing  {name}: {failure}"))
    found = kernels.fetched()
    print(f"{'ok      ' if found else 'note    '} kernels: {', '.join(each.name for each in found) or 'none was fetched (durabench lab fetch)'}")
    if found and complete:
        error = qemu.kvm_error(found[-1].image)
        print("ok       KVM: a guest runs with it" if not error else f"note     KVM: {error}; TCG is used, which is slower")
    return Exit.OK if complete else Exit.MISSING


def _needed() -> list[tuple[str, Any]]:
    tools = [(name, lambda name=name: initramfs.tool(name)) for name in initramfs.TOOLS]
    parts = [("fio", layout.fio), ("engines", layout.engines), ("device models", lambda: layout.plugin("devicemodel"))]
    return [("qemu", lambda: f"{qemu.program()} {qemu.version()}"), *tools, *parts]


def _device(text: str) -> LabDevice:
    model, *rest = text.split(",")
    settings = dict(each.partition("=")[::2] for each in rest)
    size = settings.pop("size", "")
    try:
        measurement.parse_size(size)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: size={error}") from None
    models = typing.get_args(typing.get_type_hints(LabDevice)["model"])
    if model not in models or not all(settings.values()):
        raise argparse.ArgumentTypeError(f"{text} is not MODEL,size=SIZE,NAME=VALUE… with a model of {', '.join(models)}")
    return LabDevice(typing.cast(typing.Any, model), size, settings.pop("plugin", ""), typing.cast("dict[str, str | int]", settings))


def _memory(text: str) -> str:
    try:
        measurement.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text

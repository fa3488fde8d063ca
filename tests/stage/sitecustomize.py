# SPDX-License-Identifier: GPL-2.0-only
"""Sends the durabench command a signal when it is about to do something for the Nth time: Python imports this when it starts with this
folder in PYTHONPATH, and tells each hook of what it is about to do (sys.addaudithook).

STAGE is EVENT:N, SIGNAL the signal's name; STAGES a file that gets each stage as a line.
"""

import os
import signal
import sys
from collections import Counter
from typing import Any

EVENTS = ("os.mkdir", "os.rename", "subprocess.Popen")


def watch() -> None:
    """Begin to count."""
    count: Counter[str] = Counter()

    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS:
            return
        count[event] += 1
        stage = f"{event}:{count[event]}"
        if "STAGES" in os.environ:
            with open(os.environ["STAGES"], "a", encoding="ascii") as file:
                print(stage, file=file)
        if stage == os.environ.get("STAGE"):
            os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])

    sys.addaudithook(hook)


# The shell script before it starts Python, too.
if "durabenchlib" in sys.orig_argv:
    watch()

# SPDX-License-Identifier: GPL-2.0-only
"""Entry of `scripts/durabench`."""

import signal
import sys

# Until `main` takes it: loading what is needed takes a second, in which Ctrl-C would print where it was.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from .cli import main  # noqa: E402

sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-only
"""Entry of `scripts/durabench`."""

import sys

from .cli import main

sys.exit(main())

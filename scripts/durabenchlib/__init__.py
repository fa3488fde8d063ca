# SPDX-License-Identifier: GPL-2.0-only
"""The durabench command: measure, compare and report what it costs to make data durable."""

__version__ = "0.1.0"

# SPDX-License-Identifier: GPL-2.0-only
"""The kernel lab: a measurement carried out by other kernels, in guests (docs/lab.md)."""

# SPDX-License-Identifier: GPL-2.0-only
"""Bytes in a unit, for modules that load quickly."""

MIB = 1 << 20

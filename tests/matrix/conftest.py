# SPDX-License-Identifier: GPL-2.0-only
"""Shows what became of each fio and each build of the engines as a table."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Rows are the engines' fio, columns the fio that loads them; a cell has what all of its tests say."""
    cells: dict[tuple[str, str], set[str]] = {}
    for state in ("passed", "failed"):
        for report in terminalreporter.getreports(state):
            found = dict(report.user_properties)
            if "built_for" in found:
                outcome = found.get("outcome", "?") if report.passed else "FAILS"
                cells.setdefault((found["built_for"], found["running"]), set()).add(outcome)
    if not cells:
        return
    rows, columns = (list(dict.fromkeys(pair[side] for pair in cells)) for side in (0, 1))
    table = [["built for \\ running", *columns]]
    table += [[row, *(" ".join(sorted(cells.get((row, column), {"-"}))) for column in columns)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    terminalreporter.section("engines built for a fio, loaded by a fio")
    for line in table:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

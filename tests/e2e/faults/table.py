# SPDX-License-Identifier: Apache-2.0
"""The table of faults, put together where the tests may run in several processes: rows travel with their reports."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from e2e.faults.fault import Row

PROPERTY = "fault"


class FaultTable:
    """A plug-in of pytest: prints the table at the end, and puts its rows among those in the JSON file `path`."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, dict):
                passed = report.when == "call" or (report.nodeid in self.rows and self.rows[report.nodeid].ok)
                self.rows[report.nodeid] = Row(**value | {"ok": report.passed and passed})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.rows:
            return
        rows = merged(self.rows.values())
        terminalreporter.section("faults")
        terminalreporter.write("\n".join(table(rows)) + "\n")
        if self.path:
            write(self.path, rows)


def merged(rows: Iterable[Row]) -> list[Row]:
    """One of each event: the first, with what only another has, which is the time of its warm or its fresh job."""
    found: dict[str, Row] = {}
    for row in rows:
        first = found.get(row.event, row)
        gaps = {name: value for name, value in asdict(row).items() if getattr(first, name) is None}
        found[row.event] = replace(first, **gaps, ok=first.ok and row.ok)
    return list(found.values())


def write(path: Path, rows: list[Row]) -> None:
    """Rows of other events that are there already stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {row["event"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    merged = known | {row.event: asdict(row) for row in rows}
    path.write_text(json.dumps(list(merged.values()), indent=2) + "\n")


def table(rows: list[Row]) -> Iterator[str]:
    times = f"{'told':>8} {'new round':>10} {'first step':>11} {'warm':>8}"
    yield f"{'event':26} {times} {'rounds':>8} {'lost steps':>11}  ok"
    for row in rows:
        told, new = _seconds(row.survivors_told_seconds), _seconds(row.new_round_seconds)
        step, warm = _seconds(row.first_step_seconds), _seconds(row.first_step_warm_seconds)
        lost = "-" if row.lost_work_steps is None else str(row.lost_work_steps)
        rounds = f"{row.rounds_before} to {row.rounds_after}"
        ok = "yes" if row.ok else "NO"
        times = f"{told:>8} {new:>10} {step:>11} {warm:>8}"
        yield f"{row.event:26} {times} {rounds:>8} {lost:>11}  {ok:3} {row.detail}".rstrip()


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"

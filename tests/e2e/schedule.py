# SPDX-License-Identifier: Apache-2.0
"""Which cluster tests run when, and beside which others.

Several processes test at once. A test that is `disruptive` harms a part of the cluster, and has that part to itself:

    disruptive("operator")   the operators: beside it run tests that are `patient`, to whom a new leader is a delay
    disruptive("nodes")      the worker nodes: beside it run tests whose pods are on the control plane's node
    disruptive               all of it: nothing runs beside it

The longest tests start first (durations.json, `make e2e RECORD=1`), torchrun's before the others, and what wants all of
the cluster last: nobody waits long for a turn.
"""

import fcntl
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

ALL, OPERATOR, NODES = PARTS = ("all", "operator", "nodes")
RECORD = Path(__file__).with_name("durations.json")
UNKNOWN_SECONDS = 30.0


def configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "disruptive(part): harms that part of the cluster, or all of it")
    config.addinivalue_line("markers", "patient: another operator may take over meanwhile")
    config.addinivalue_line("markers", "on_workers: its pods are on the worker nodes")
    if config.getoption("--record-durations"):
        config.pluginmanager.register(Record())


def group(items: list[pytest.Item], *, shared: bool) -> None:
    """Tests that share a job, or harm the same part of a cluster that is `shared`, run in one process."""
    for item in items:
        if shared and (part := _harmed(item)):
            item.add_marker(pytest.mark.xdist_group(f"disruptive {part}"))
        elif "module_namespace" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def longest_first(items: list[pytest.Item], *, shared: bool) -> list[pytest.Item]:
    """Of a `shared` cluster those first for which others have to wait."""
    known: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    together: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("xdist_group")
        together[marker.args[0] if marker else item.nodeid].append(item)

    def order(units: list[pytest.Item]) -> tuple[int, bool, float]:
        seconds = sum(known.get(_name(item), UNKNOWN_SECONDS) for item in units)
        if not shared:
            return 0, False, -seconds
        phase = {OPERATOR: 0, NODES: 2, ALL: 4}.get(_harmed(units[0]), 1 if _uses(units[0], NODES) else 3)
        return phase, _uses(units[0], OPERATOR), -seconds

    return [item for units in sorted(together.values(), key=order) for item in units]


def shares_its_turn(item: pytest.Item) -> bool:
    return bool(_harmed(item)) or "module_namespace" in item.fixturenames


@contextmanager
def turn(node: Any, locks: Path) -> Iterator[None]:
    """While a test, or all tests of a module, may run."""
    harmed = _harmed(node)
    with ExitStack() as held:
        for part in PARTS:  # in one order, so that nobody waits for a turn that waits for this one
            if harmed or _uses(node, part):
                held.enter_context(lock(locks / f"turn-{part}", fcntl.LOCK_EX if part == harmed else fcntl.LOCK_SH))
        yield


@contextmanager
def lock(path: Path, kind: int) -> Iterator[None]:
    """Hold the file's lock, LOCK_SH or LOCK_EX."""
    global _waited
    with path.open("w") as file:
        began = time.monotonic()
        fcntl.flock(file, kind)
        _waited += time.monotonic() - began
        yield


def take_waited() -> float:
    """The seconds that this process has waited for turns since it was last asked: no test's own."""
    global _waited
    waited, _waited = _waited, 0.0
    return waited


_waited = 0.0


def _harmed(node: Any) -> str:
    marker = node.get_closest_marker("disruptive")
    return (marker.args or (ALL,))[0] if marker else ""


def _uses(node: Any, part: str) -> bool:
    """Whether a test that harms nothing needs that part unharmed."""
    if part == OPERATOR:
        return not node.get_closest_marker("patient")
    if part == NODES:
        return any(node.get_closest_marker(marker) for marker in ("torchrun", "on_workers"))
    return True


def _name(item: pytest.Item) -> str:
    return f"{item.path.stem}::{item.name.partition('@')[0]}"


class Record:
    """A plug-in of pytest: adds up what each test took, in whatever process, and writes the record."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path, _, name = report.nodeid.partition("::")
        self._seconds[f"{Path(path).stem}::{name.rpartition('@')[0] or name}"] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput") or not self._seconds:
            return
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        rounded = {name: round(seconds, 1) for name, seconds in self._seconds.items()}
        RECORD.write_text(json.dumps(dict(sorted((known | rounded).items())), indent=1) + "\n")

# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs the tests of a choice, the nearest first, of equally near ones the quick ones, in a time.

pytest-xdist's workers take the tests in their order, so that all of them stop at about the same one.
"""

import json
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--chosen"
TOO_LONG = "takes longer than there is time"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", required=True, help="the choice, as hack/check/__main__.py writes it")


def pytest_configure(config: pytest.Config) -> None:
    path = Path(config.getoption(OPTION))
    config.pluginmanager.register(Chosen(json.loads(path.read_text())), "chosen of check")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counted(path.with_suffix(".counts")), "counts of check")


class OutOfTime(pytest.skip.Exception, SystemExit):
    """asyncio logs what a callback raises and goes on, unless it is a SystemExit."""


class Chosen:
    """`files` and `tests`: distances (hack/check/choice.py). `seconds`: of the tests whose time is known.

    `deadline`: the last test is interrupted then. `least`: so many seconds the tests have in any case, so that a slow
    machine does not run none.
    """

    def __init__(self, choice: dict[str, Any]) -> None:
        self.files: dict[str, int] = choice["files"]
        self.tests: dict[str, int | None] = choice["tests"]
        self.seconds: dict[str, float] = choice["seconds"]
        self.deadline: float = choice["deadline"]
        self.least: float = choice["least"]
        self.running = self.interrupted = False

    def _distance(self, item: pytest.Item) -> int | None:
        return self.tests.get(item.nodeid, self.files.get(item.nodeid.partition("::")[0]))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        distances = {item: self._distance(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if distances[item] is None])
        items[:] = [item for item in items if distances[item] is not None]
        self._set_deadline()
        items.sort(key=lambda item: (distances[item] or 0, self.seconds.get(item.nodeid, 0.0)))

    def _set_deadline(self) -> None:
        now = time.time()
        self.deadline = max(self.deadline, now + self.least)
        if self.deadline < float("inf") and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, max(0.001, self.deadline - now))

    def _interrupt(self, *_: object) -> None:
        if self.running:
            self.interrupted = True
            raise OutOfTime(TOO_LONG)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._skip_if_longer(0.0)
        self.running = True
        try:
            return (yield)
        finally:
            self.running = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What comes of the interruption, which a test may take for a fault, is no failure of the test."""
        report = yield
        if self.interrupted and report.failed:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {TOO_LONG}")
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """True: nothing is to be done for this test, nor for any after it."""
        return time.time() > self.deadline or None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._skip_if_longer(self.seconds.get(item.nodeid, 0.0))

    def _skip_if_longer(self, seconds: float) -> None:
        if time.time() + seconds > self.deadline:
            pytest.skip(TOO_LONG)


class Counted:
    """Notes how many tests were chosen, and how many of them ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chosen = 0
        self.begun: set[str] = set()
        self.too_long: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.chosen = max(self.chosen, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.chosen = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.begun.add(report.nodeid)
        if report.skipped and TOO_LONG in str(report.longrepr):
            self.too_long.add(report.nodeid)

    def pytest_unconfigure(self) -> None:  # after a second run of what timed out, which is a pytest of its own
        self.path.write_text(json.dumps({"chosen": self.chosen, "ran": len(self.begun - self.too_long)}))

# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that measures which test runs which lines, how long it takes, and whether it starts processes.

Each process of pytest-xdist writes a data file of coverage.py, whose contexts are the tests, and a file of the rest.
A fixture that several tests share counts for all tests of the file or folder it is shared in, and what a test file runs
when it is imported for all of its tests. What other modules run when they are imported counts for no test.
"""

import functools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import coverage
import pytest

DATA = "build/check/coverage"
TESTS = "build/check/tests"
HERE = os.path.join(os.getcwd(), "")
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}

_measured = coverage.Coverage(data_file=DATA, data_suffix=True, omit=[__file__])
_seconds: dict[str, float] = defaultdict(float)
_starts_processes: set[str] = set()
_running: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    _measured.start()
    sys.addaudithook(_hear)
    execute = SourceFileLoader.exec_module

    def exec_module(self: SourceFileLoader, module: ModuleType) -> None:
        with _context(""):
            execute(self, module)

    SourceFileLoader.exec_module = exec_module  # type: ignore[assignment,method-assign]


def _hear(event: str, _: Any) -> None:
    if event in STARTS and _running:
        _starts_processes.add(_running[-1])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    with _context(collector.nodeid if isinstance(collector, pytest.Module | pytest.Class) else ""):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _forget_results()
    with _context(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    shared = fixturedef.scope != "function"
    with _context(request.node.nodeid if shared else _running[-1]):
        return (yield)


@contextmanager
def _context(name: str) -> Iterator[None]:
    _running.append(name)
    _measured.switch_context(name)
    try:
        yield
    finally:
        _running.pop()
        _measured.switch_context(_running[-1] if _running else "")


def _forget_results() -> None:
    """A function whose result was kept from an earlier test runs again."""
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(HERE):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_unconfigure() -> None:
    _measured.stop()
    _measured.save()
    body = {"seconds": _seconds, "processes": sorted(_starts_processes)}
    Path(f"{TESTS}.{os.getpid()}.json").write_text(json.dumps(body))

# SPDX-License-Identifier: Apache-2.0
"""For every run of tests: says at the end which tests took longest, and how long each file took. If lateness is wanted,
each test's waits end late."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from support import lateness

pytest_plugins = ["support.second_run"]

TESTS, FILES = 15, 15
LEAST_SECONDS = 1.0


@pytest.fixture(autouse=lateness.is_wanted())
def late_waits(request: pytest.FixtureRequest) -> Iterator[None]:
    with lateness.late_waits(request.node.nodeid):
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                tests[report.nodeid] += report.duration
                files[report.nodeid.partition("::")[0]] += report.duration
    for title, seconds, most in (("tests", tests, TESTS), ("files", files, FILES)):
        longest = [(name, took) for name, took in seconds.most_common(most) if took >= LEAST_SECONDS]
        if longest:
            terminalreporter.section(f"slowest {title}, with what they set up")
        for name, took in longest:
            terminalreporter.write_line(f"{took:7.1f} s  {name}")

# SPDX-License-Identifier: Apache-2.0
"""Set-up of the unit tests."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.fuzzing import tried
from support.trainer_sidecar import Sidecar

settings.load_profile("short")

# Pinged for a loop before one was set, Python 3.11 makes one; pytest-asyncio asks, and nobody closes it.
asyncio.set_event_loop(None)


@pytest.fixture
def sidecar() -> Iterator[Sidecar]:
    """The sidecar's HTTP as the plug-in meets it, with answers that the test sets."""
    fake = Sidecar()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def held() -> Iterator[list[socket.socket]]:
    """Sockets that are closed when the test ends."""
    connections: list[socket.socket] = []
    yield connections
    for connection in connections:
        connection.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind, number in sorted(tried.items()):
        terminalreporter.write_line(f"fuzz: {number:,} {kind}")

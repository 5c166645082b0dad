# SPDX-License-Identifier: Apache-2.0
"""Drops groups in another thread: the end of a group waits for its collectives.

A collective may go on until its timeout although its connections are cut (`collectives`).
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_EXIT_SECONDS = 10.0

_threads: set[threading.Thread] = set()


class EndedGroup(NamedTuple):
    """The backends of a process group, and what returns once its collectives have ended."""

    backends: list[object]
    wait_until_ended: Callable[[], object]


def drop(groups: list[EndedGroup]) -> None:
    """Drop groups that have no other references, each once its collectives have ended; return at once."""

    def run() -> None:
        while groups:
            groups[-1].wait_until_ended()
            groups.pop()
        _threads.discard(thread)

    thread = threading.Thread(target=run, name="elasticjob-drop", daemon=True)
    _threads.add(thread)
    thread.start()


@atexit.register
def _wait() -> None:
    """A thread that comes back to Python while that ends would abort the process."""
    for thread in list(_threads):
        thread.join(_EXIT_SECONDS)

# SPDX-License-Identifier: Apache-2.0
"""Keeps groups that broke until none of their collectives can be under way: the end of a group waits for these.

A collective may go on until its timeout although its connections are cut. gloo reads nothing more from a connection of
which half a message has come for a collective that has failed, so another collective does not notice its end.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class BrokenGroups:
    """Groups that broke. ``timeout``: of their collectives, of which one may wait for another."""

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = 2 * timeout.total_seconds()
        self._kept: list[tuple[float, object]] = []

    def add(self, group: object) -> None:
        """Keep one, also when this process ends meanwhile."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
        self._kept.append((time.monotonic() + self._seconds, group))

    def drop_ended(self) -> None:
        """Drop those whose time is over."""
        now = time.monotonic()
        for ends, group in self._kept:
            if ends <= now:
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
        self._kept = [(ends, group) for ends, group in self._kept if ends > now]

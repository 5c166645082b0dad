# SPDX-License-Identifier: Apache-2.0
"""Times that all nodes agree on, whatever their own clocks say.

torch drops a node whose heartbeat is older than a limit by the reader's own wall clock. So times are kept in the
API server's time, which every answer tells.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

_TOLERANCE = timedelta(seconds=1.5)


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(timezone.utc)


class SharedClock:
    """The API server's time as this process knows it. Threads may share it."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def answered(self, date: str, seconds: float = 0.0) -> None:
        """Take in the ``Date`` of an answer that has just come, ``seconds`` after it was asked for.

        It was written at any time in between: a slow answer says little, and does not move the clock.
        """
        try:
            least = parsedate_to_datetime(date) - now()
        except (TypeError, ValueError):
            return
        most = least + timedelta(seconds=1 + seconds)  # the server tells whole seconds
        if not least - _TOLERANCE <= self._ahead <= most + _TOLERANCE:
            self._ahead = least + (most - least) / 2

    def to_server(self, local: datetime) -> datetime:
        """Return a time of this machine's clock as the server's clock has it."""
        return local + self._ahead

    def to_local(self, server: datetime) -> datetime:
        """Return a time of the server's clock as this machine's clock has it."""
        return server - self._ahead

# SPDX-License-Identifier: Apache-2.0
"""Times that all nodes agree on, whatever their own clocks show.

torch drops a node whose heartbeat is older than a limit by the reader's own wall clock. So times are kept in the API
server's time, which every answer includes.
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
        """Note the ``Date`` of an answer that has just come, ``seconds`` after its request.

        It was written at some time in between: the date of a slow answer is imprecise, and does not move the clock.
        """
        try:
            least = parsedate_to_datetime(date) - now()
        except (TypeError, ValueError):
            return
        most = least + timedelta(seconds=1 + seconds)  # the server's date has whole seconds
        if not least - _TOLERANCE <= self._ahead <= most + _TOLERANCE:
            self._ahead = least + (most - least) / 2

    def to_server(self, local: datetime) -> datetime:
        """Convert a time of this machine's clock to the server's clock."""
        return local + self._ahead

    def to_local(self, server: datetime) -> datetime:
        """Convert a time of the server's clock to this machine's clock."""
        return server - self._ahead

"""Times that all nodes agree on, whatever their own clocks say and however long the API server was away.

torch drops a node whose heartbeat is older than a limit by the reader's own wall clock. So times are kept in the
API server's time, which every answer tells. And a time in which nobody could write heartbeats makes nobody dead:
it is not counted.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

_TOLERANCE = timedelta(seconds=2)  # the server tells whole seconds, and its answer takes time


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(timezone.utc)


class SharedClock:
    """The API server's time as this process knows it, and its last absence. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead = timedelta(0)
        self._last_answer: datetime | None = None
        self._failed = False
        self._absence = timedelta(0)
        self._back: datetime | None = None

    def answered(self, date: str) -> None:
        """Take in the ``Date`` of an answer that has just come."""
        local = now()
        with self._lock:
            if self._failed and self._last_answer is not None:
                self._absence, self._back = local - self._last_answer, local
            self._failed, self._last_answer = False, local
            try:
                ahead = parsedate_to_datetime(date) + timedelta(seconds=0.5) - local
            except (TypeError, ValueError):
                return
            if abs(ahead - self._ahead) > _TOLERANCE:
                self._ahead = ahead

    def failed(self) -> None:
        """Take in that a call found no server."""
        with self._lock:
            self._failed = True

    def to_server(self, local: datetime) -> datetime:
        """Return a time of this machine's clock as the server's clock has it."""
        return local + self._ahead

    def to_local(self, server: datetime) -> datetime:
        """Return a time of the server's clock as this machine's clock has it."""
        return server - self._ahead

    def heartbeat_to_local(self, server: datetime) -> datetime:
        """The same for a heartbeat, later by the time of the last absence if it was sent before its end."""
        local = self.to_local(server)
        if self._back is None or local >= self._back:
            return local
        return min(local + self._absence, self._back)

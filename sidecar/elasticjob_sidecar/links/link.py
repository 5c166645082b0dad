# SPDX-License-Identifier: Apache-2.0
"""One heartbeat link between two sidecars of a round: it carries heartbeats and nothing else."""

import asyncio
from collections.abc import Callable

from elasticjob_sidecar.store.connection import Connection

HEARTBEAT = b"."


class Link(asyncio.Protocol):
    """A link over an authenticated connection. `heard` is called for each heartbeat; any other byte ends the link."""

    def __init__(self, connection: Connection, heard: Callable[[], None]) -> None:
        self._heard = heard
        self.unanswered = 0  # heartbeats sent since the last one was heard
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        connection.hand_over(self)

    def beat(self) -> None:
        self.unanswered += 1
        self._transport.write(HEARTBEAT)

    async def keep_beating(self, every: float, most: int) -> None:
        """Send a heartbeat every `every` seconds, until the link is closed or `most` of them are unanswered."""
        self._beat_again(every, most)
        try:
            await asyncio.wait({self.closed})
        finally:
            self.abort()

    def _beat_again(self, every: float, most: int) -> None:
        """Send by timer: a task that wakes for each heartbeat costs more than the heartbeat."""
        if self.unanswered >= most:
            self.abort()
        elif not self.closed.done():
            self.beat()
            asyncio.get_running_loop().call_later(every, self._beat_again, every, most)

    def abort(self) -> None:
        self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.strip(HEARTBEAT):
            self.abort()
            return
        self.unanswered = 0
        self._heard()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

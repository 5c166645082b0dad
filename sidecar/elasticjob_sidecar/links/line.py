# SPDX-License-Identifier: Apache-2.0
"""One line between two sidecars of a round: it carries signs of life, and nothing else."""

import asyncio
from collections.abc import Callable

from elasticjob_sidecar.store.connection import Connection

SIGN = b"."


class Line(asyncio.Protocol):
    """Over a connection whose other end is known. `heard` is called with each sign; other bytes end it."""

    def __init__(self, connection: Connection, heard: Callable[[], None]) -> None:
        self._heard = heard
        self.unanswered = 0  # signs given since the last was heard
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        connection.hand_over(self)

    def give_sign(self) -> None:
        self.unanswered += 1
        self._transport.write(SIGN)

    async def talk(self, every: float, most: int) -> None:
        """Give a sign `every` so many seconds, until the line is closed or has `most` signs that are not answered."""
        self._give_signs(every, most)
        try:
            await asyncio.wait({self.closed})
        finally:
            self.abort()

    def _give_signs(self, every: float, most: int) -> None:
        """By timer: a task that wakes for each sign costs more than the sign."""
        if self.unanswered >= most:
            self.abort()
        elif not self.closed.done():
            self.give_sign()
            asyncio.get_running_loop().call_later(every, self._give_signs, every, most)

    def abort(self) -> None:
        self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.strip(SIGN):
            self.abort()
            return
        self.unanswered = 0
        self._heard()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

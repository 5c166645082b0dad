# SPDX-License-Identifier: Apache-2.0
"""The loopback ports after the store's, in a pod without rank 0: each is forwarded to the same port of rank 0's pod.

A port that a process of this pod already uses stays with that process.
"""

import asyncio
import logging
from collections.abc import Callable

from elasticjob_sidecar.store.connection import Connection, listen

log = logging.getLogger(__name__)

Accepted = Callable[[Connection, int], None]  # the connection, and its port's offset from the store's


class Forwards:
    """The `count` ports after `store`. They are open only after `follow` was called with True."""

    def __init__(self, host: str, store: int, count: int, accepted: Accepted) -> None:
        self._host, self._store, self._count, self._accepted = host, store, count, accepted
        self._servers: list[asyncio.Server] = []
        self._open = False

    async def follow(self, wanted: bool) -> None:
        if wanted and not self._open:
            self._open = True
            taken = [offset for offset in range(1, self._count + 1) if not await self._listen(offset)]
            if taken:
                ports = ", ".join(str(self._store + offset) for offset in taken)
                log.info("not forwarded to rank 0's pod, as they are taken in this one: %s", ports)
        elif self._open and not wanted:
            self.close()

    async def _listen(self, offset: int) -> bool:
        try:
            server = await listen(self._host, self._store + offset, lambda one: self._accepted(one, offset))
        except OSError:
            return False
        self._servers.append(server)
        return True

    def close(self) -> None:
        self._open = False
        while self._servers:
            self._servers.pop().close()

# SPDX-License-Identifier: Apache-2.0
"""The way to a server, which can be cut: what is sent then arrives nowhere, and nothing is told of it, as where a
firewall drops the packets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Link:
    def __init__(self, target: tuple[str, int]) -> None:
        self.cut = False
        self._target = target
        self._passing: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        with contextlib.suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection(*self._target)
            self._ends.add(to_writer)
            for source, to in ((reader, to_writer), (to_reader, writer)):
                task = asyncio.create_task(self._pass_on(source, to))
                self._passing.add(task)
                task.add_done_callback(self._passing.discard)

    async def _pass_on(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not self.cut:
                    to.write(data)
        if not self.cut:
            to.close()

    async def end(self) -> None:
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()


@contextlib.asynccontextmanager
async def linked(address: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[Link]:
    """Who connects to `address` speaks with `target`."""
    link = Link(target)
    server = await asyncio.start_server(link._accept, *address)
    try:
        yield link
    finally:
        server.close()
        await link.end()

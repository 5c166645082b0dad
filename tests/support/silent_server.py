# SPDX-License-Identifier: Apache-2.0
"""An API server that falls silent: it says `answer` to each request, and then nothing more. `heard`: the last one's
first line and headers."""

import asyncio
import contextlib


class SilentServer:
    def __init__(self, answer: bytes = b"") -> None:
        self.answer, self.heard = answer, ""
        self._server: asyncio.Server
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "SilentServer":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                self.heard = (await reader.readuntil(b"\r\n\r\n")).decode()
                writer.write(self.answer)
                await reader.read()  # until the client gives up
        finally:
            writer.close()

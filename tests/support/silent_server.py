# SPDX-License-Identifier: Apache-2.0
"""An API server that falls silent: it says `answer` to each request, and then nothing more. `heard`: the last one's
first line and headers."""

import asyncio
import contextlib


class SilentServer:
    def __init__(self, answer: bytes = b"") -> None:
        self.answer, self.heard = answer, ""
        self._server: asyncio.Server

    async def __aenter__(self) -> "SilentServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            self.heard = (await reader.readuntil(b"\r\n\r\n")).decode()
            writer.write(self.answer)
            await reader.read()  # until the client gives up
        writer.close()

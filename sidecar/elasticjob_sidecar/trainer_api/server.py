"""The trainer API's port on loopback: only this pod's processes come here, and none of them can exhaust the sidecar."""

import asyncio

from aiohttp import web

CONNECTIONS = 512  # each script's stream, the agent's, and short calls
HEAD_BYTES, HEADERS = 2048, 32  # of the request's line and of a header; how many headers
IDLE_SECONDS = 60.0  # without a request, or without all of one's headers; longer than clients keep a connection


class TrainerServer:
    def __init__(self, app: web.Application) -> None:
        # handler_cancellation: a handler ends the moment its client is gone: so a killed trainer is noticed
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=HEADERS,
        )
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        await self._runner.setup()
        http = self._runner.server
        assert http is not None

        def connected() -> asyncio.BaseProtocol:
            # the newest is turned away, not the oldest: that is the agent's stream, whose end is the agent's
            return http() if len(http.connections) < CONNECTIONS else _TurnedAway()

        self._server = await asyncio.get_running_loop().create_server(connected, host, port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()

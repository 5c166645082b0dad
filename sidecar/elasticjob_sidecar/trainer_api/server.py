# SPDX-License-Identifier: Apache-2.0
"""The trainer API's port on loopback, or its socket: only this pod's processes reach it, and none can exhaust it."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from elasticjob.text import printable
from elasticjob_sidecar.log_limits import LimitedLog
from elasticjob_torch import wire

log = logging.getLogger(__name__)


class TrainerServer:
    def __init__(self, app: web.Application) -> None:
        # handler_cancellation: a handler ends as soon as its client is gone, so a killed trainer is noticed
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_logger(),
            auto_decompress=False,  # a body is JSON, uncompressed
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=wire.IDLE_SECONDS,
            max_line_size=wire.HEAD_BYTES,
            max_field_size=wire.HEAD_BYTES,
            max_headers=wire.HEADERS,
        )
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(await self._connected(), host, port)

    async def listen_at(self, path: Path) -> None:
        """Listen at a socket that the trainer can connect to, whatever its user. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(path)  # left by an earlier sidecar
        self._server = await asyncio.get_running_loop().create_unix_server(await self._connected(), path)
        os.chmod(path, 0o666)

    async def _connected(self) -> Callable[[], asyncio.BaseProtocol]:
        await self._runner.setup()
        http = self._runner.server
        assert http is not None

        def connected() -> asyncio.BaseProtocol:
            # the newest is refused, not the oldest: that is the agent's stream, whose end means the agent's end
            return http() if len(http.connections) < wire.MAX_CONNECTIONS else _TurnedAway()

        return connected

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()


def _logger() -> logging.Logger:
    """aiohttp's log: a malformed request gets one line without a traceback, and of many only the first are logged."""
    logger, limited = logging.Logger(f"{__name__}.http"), LimitedLog(log, "that were no requests")
    logger.parent = log

    def tell(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        limited.info("a caller of the trainer API sent no request: %s", printable(str(error)))
        return False

    logger.addFilter(tell)
    return logger


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()

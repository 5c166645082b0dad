# SPDX-License-Identifier: Apache-2.0
"""Callers of a port of this process, each from a loopback address of its own, as if it were another pod."""

import asyncio
import socket

from support.waiting import within


async def caller(port: int, source: str, says: bytes = b"") -> socket.socket:
    """Connect from the address `source`, send what it `says`, and return its socket. Raises OSError, TimeoutError."""
    made, loop = socket.socket(), asyncio.get_running_loop()
    made.setblocking(False)
    made.bind((source, 0))
    try:
        async with within("a connection"):
            await loop.sock_connect(made, ("127.0.0.1", port))
            await loop.sock_sendall(made, says)
    except BaseException:
        made.close()
        raise
    return made

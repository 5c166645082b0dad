# SPDX-License-Identifier: Apache-2.0
"""Forward bytes between two connections, with back-pressure, and with half-close where there is no TLS."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from elasticjob_sidecar.sockets import keep_alive

CLOSING_SECONDS = 2.0  # for TLS to close

Sent = Callable[[int], None]


class Connection(asyncio.Protocol):
    """One connection. It reads nothing until it is asked for a line or spliced to another."""

    def __init__(self, accepted: "Callable[[Connection], None] | None" = None) -> None:
        self._accepted = accepted
        self._transport: asyncio.Transport
        self._head = bytearray()  # read before the splice
        self._line: asyncio.Future[bytes] | None = None
        self._limit = 0
        self._peer: Connection | None = None
        self._sent: Sent = lambda _: None
        self._ended = False  # the other side will send no more
        self.closed = asyncio.get_running_loop().create_future()

    async def line(self, limit: int) -> bytes:
        """The first line, without its end. Raises ConnectionError if it is too long or never comes."""
        self._limit, self._line = limit, asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        return await self._line

    def peer_certificate(self) -> bytes:
        """The certificate, in DER form, whose key the other end has proved to hold."""
        certificate: bytes = self._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def splice(self, peer: "Connection", sent: Sent) -> None:
        """Forward to and from `peer` until both are closed. `sent` is called with numbers of bytes."""
        self._join(peer, sent)
        peer._join(self, sent)
        for connection in (self, peer):
            if connection.closed.done():
                connection._other().abort()
            else:
                connection._transport.resume_reading()

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Pass all further events of the connection to `protocol`."""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self.closed.done():
            protocol.connection_lost(None)
            return
        if self._head:
            asyncio.get_running_loop().call_soon(protocol.data_received, bytes(self._head))
        self._transport.resume_reading()

    def close(self) -> None:
        """Close once everything written has been sent."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()
        if (connection := transport.get_extra_info("socket")) is not None:
            keep_alive(connection)
        if self._accepted is not None:
            self._accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._peer is not None:
            self._sent(len(data))
            self._peer.write(data)
            return
        self._head += data
        end = self._head.find(b"\n")
        if 0 <= end <= self._limit:
            line = bytes(self._head[:end])
            del self._head[: end + 1]
            self._transport.pause_reading()
            self._answer(line)
        elif len(self._head) > self._limit:
            self._answer(ConnectionError(f"the first line is longer than {self._limit} bytes"))
            self.abort()

    def eof_received(self) -> bool:
        self._ended = True
        if self._peer is None:
            self._answer(ConnectionError("the connection was closed before its first line"))
            return False
        pair = (self._transport, self._peer._transport)
        if self._peer._ended or not all(transport.can_write_eof() for transport in pair):
            self._peer.close()
            return False
        self._peer._transport.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._answer(error or ConnectionError("the connection was closed"))
        if self._peer is not None:
            self._peer.abort() if error else self._peer.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._peer._transport.resume_reading()

    # --- small things

    def _join(self, peer: "Connection", sent: Sent) -> None:
        self._peer, self._sent = peer, sent
        if self._head:
            sent(len(self._head))
            peer.write(bytes(self._head))
            self._head.clear()

    def _other(self) -> "Connection":
        assert self._peer is not None
        return self._peer

    def _answer(self, line: bytes | Exception) -> None:
        if self._line is None or self._line.done():
            return
        if isinstance(line, Exception):
            self._line.set_exception(line)
        else:
            self._line.set_result(line)


async def dial(host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> Connection:
    """A new connection, not read from yet. Raises OSError."""
    closing = None if tls is None else CLOSING_SECONDS
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection, host, port, ssl=tls, server_hostname=server_name, ssl_shutdown_timeout=closing
    )
    return connection


async def secure(accepted: socket.socket, tls: ssl.SSLContext) -> Connection:
    """Upgrade an accepted connection to TLS, as the server. Raises OSError, including ssl.SSLError."""
    _, connection = await asyncio.get_running_loop().connect_accepted_socket(
        Connection, accepted, ssl=tls, ssl_shutdown_timeout=CLOSING_SECONDS
    )
    return connection


async def listen(host: str, port: int, accepted: Callable[[Connection], None]) -> asyncio.Server:
    """Pass every connection to `accepted`. Raises OSError."""
    return await asyncio.get_running_loop().create_server(lambda: Connection(accepted), host, port, backlog=1024)

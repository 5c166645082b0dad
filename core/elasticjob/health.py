# SPDX-License-Identifier: Apache-2.0
"""A server of health and metrics pages for operator and sidecar. Anyone may call it, and no caller can exhaust it.

It supports the part of HTTP that the kubelet and Prometheus need: one GET per connection, answered and closed. A caller
has five seconds, 4 KiB of headers and one of 256 slots; `ConnectionSlots` says who displaces whom. A probe that sends
its request with its connection is answered before any flood can displace it: its request is read two turns of the event
loop after it was accepted, and one turn accepts no more than 64.
"""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from elasticjob.connection_slots import ConnectionSlot, ConnectionSlots

SLOTS, AT_ONCE = 256, 64
WAITING = 1024  # connections in the kernel's backlog; a caller that finds it full retries after a second
CALL_SECONDS = 5.0
HEAD_BYTES, END = 4096, b"\r\n\r\n"
KERNEL_BYTES = 4096  # the receive buffer for a caller's request; the kernel doubles it for its own overhead
TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = TEXT

    def head(self) -> bytes:
        """The status line and headers of the response. The connection closes after the response."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
        ]
        if self.status == HTTPStatus.UNAUTHORIZED:
            lines.append("WWW-Authenticate: Bearer")
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


Pages = Mapping[str, Callable[[], Page]]


class HealthServer:
    """Serves `pages` by path. A page is made for each request, so its function has to be fast: see `kept`."""

    def __init__(self, pages: Pages) -> None:
        self.port = 0
        self.slots = ConnectionSlots(SLOTS)
        self._pages = pages
        self._calls: set[_Call] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int, host: str = "") -> None:
        """Listen on `host`, or on all addresses of both families. Port 0 takes a free port. Raises OSError."""
        opened = listener(port, host)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Call(self._pages, self.slots, self._calls), sock=opened, backlog=AT_ONCE
        )
        opened.listen(WAITING)
        self.port = opened.getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for call in list(self._calls):
            call.abort()


class _Call(asyncio.BufferedProtocol):
    """One connection. It has a small buffer of its own: asyncio would allocate 256 KiB for each read."""

    def __init__(self, pages: Pages, slots: ConnectionSlots, calls: "set[_Call]") -> None:
        self._pages, self._slots, self._calls = pages, slots, calls
        self._head, self._filled = bytearray(HEAD_BYTES + len(END)), 0
        self._transport: asyncio.Transport
        self._slot: ConnectionSlot
        self._deadline: asyncio.TimerHandle

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._calls.add(self)
        self._deadline = asyncio.get_running_loop().call_later(CALL_SECONDS, self.abort)
        peer = transport.get_extra_info("peername")
        self._slot = self._slots.take(peer[0] if peer else "", self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._head)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        end = self._head.find(END, 0, self._filled)
        if end >= 0:
            self._answer(*page_for(bytes(self._head[:end]), self._pages))
        elif self._filled > HEAD_BYTES:
            self._answer(error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._slot.release()
        self._calls.discard(self)

    def _answer(self, page: Page, with_body: bool = True) -> None:
        self._transport.pause_reading()
        self._transport.write(page.head())
        if with_body:
            self._transport.write(page.body)  # written separately, so that slow callers share one copy of a large page
        self._transport.close()  # after the data is sent; the deadline aborts it


def kept(page: Callable[[], Page], seconds: float = 1.0) -> Callable[[], Page]:
    """`page`, made at most once in `seconds`: metrics take milliseconds to make, and a flood may request them."""
    made: tuple[float, Page] | None = None

    def newest() -> Page:
        nonlocal made
        now = time.monotonic()
        if made is None or now - made[0] >= seconds:
            made = now, page()
        return made[1]

    return newest


def page_for(head: bytes, pages: Pages) -> tuple[Page, bool]:
    """The page for a request with this head, and whether to send the body."""
    asked = head.split(b"\r\n", 1)[0].split(b" ")
    if len(asked) != 3 or not asked[2].startswith(b"HTTP/1."):
        return error_page(HTTPStatus.BAD_REQUEST), True
    method, target, _ = asked
    if method not in (b"GET", b"HEAD"):
        return error_page(HTTPStatus.METHOD_NOT_ALLOWED), True
    page = pages.get(target.split(b"?", 1)[0].decode("ascii", "replace"))
    return (page() if page is not None else error_page(HTTPStatus.NOT_FOUND)), method == b"GET"


def error_page(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n".encode(), status)


def listener(port: int, host: str = "") -> socket.socket:
    """One socket for IPv6 and IPv4; for IPv4 alone if the machine has no IPv6 or `host` is an IPv4 address."""
    if host:
        return socket.create_server((host, port))
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return socket.create_server(("", port))

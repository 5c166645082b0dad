# SPDX-License-Identifier: Apache-2.0
"""The tunnel's port, which the whole cluster may reach: it bounds the cost of an unauthenticated caller.

A caller gets a socket, a task and one of 2048 slots; `ConnectionSlots` says who displaces whom. Its first bytes are
inspected in the kernel's buffer. TLS, with 128 KiB per connection, is set up only if they begin TLS and name the round
and the job that are served, and only for a few callers at a time, per address and in all. A stranger does not know
these names; but authentication is by TLS.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from elasticjob.connection_slots import ConnectionSlot, ConnectionSlots
from elasticjob.kube.retry import Backoff, RetryPolicy
from elasticjob_sidecar.store.connection import Connection, secure

log = logging.getLogger(__name__)

SLOTS, AT_ONCE = 2048, 64
HANDSHAKES, HANDSHAKES_EACH = 64, 8  # at a time: in all, and per address
HANDSHAKE_SECONDS = 5.0
WAITING = 1024  # connections in the kernel's backlog: all members of a round come at once
HELLO_BYTES = 4096  # a member's first record has a few hundred
KERNEL_BYTES, MEMBER_KERNEL_BYTES = 8192, 256 * 1024  # unread bytes; that kernel memory counts for the container
HELLO = RetryPolicy(0.02, 1.0)  # pauses before a partial record is inspected again
NO_FILES_SECONDS = 1.0

TLS_RECORD = b"\x16\x03"


class Caller:
    """An accepted connection. It is closed when its task ends, unless it has been taken over."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.address = address
        self.slot: ConnectionSlot
        self._connection: socket.socket | None = connection

    async def hello(self) -> bytes:
        """The TLS record at its beginning, which remains unread. Raises ConnectionError."""
        assert self._connection is not None
        pauses = Backoff(HELLO)
        while True:
            await _readable(self._connection)
            seen = self._connection.recv(HELLO_BYTES, socket.MSG_PEEK)
            if not seen:
                raise ConnectionError("it was closed before a word was said")
            if seen[:2] != TLS_RECORD[: len(seen)]:
                raise ConnectionError("it does not begin with TLS")
            length = 5 + int.from_bytes(seen[3:5], "big")
            if length > HELLO_BYTES:
                raise ConnectionError(f"its first record is longer than {HELLO_BYTES} bytes")
            if len(seen) >= max(length, 6):
                return seen[:length]
            await asyncio.sleep(pauses.next())

    def take(self) -> socket.socket:
        assert self._connection is not None
        taken, self._connection = self._connection, None
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEMBER_KERNEL_BYTES)
        return taken

    def close(self) -> None:
        self.slot.release()
        if self._connection is not None:
            self._connection.close()


class TunnelListener:
    """Accepts callers, and runs `receive` for each in a task. If the caller is displaced, the task is cancelled and
    `displaced` is called with its address. An authenticated caller gives its slot back: `caller.slot.release()`."""

    def __init__(self, receive: Callable[[Caller], Awaitable[None]], displaced: Callable[[str], None]) -> None:
        self.slots = ConnectionSlots(SLOTS, patient=True)
        self._receive, self._displaced = receive, displaced
        self._turns = asyncio.Semaphore(HANDSHAKES)
        self._turns_each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None

    def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=WAITING)
        self._listener.setblocking(False)
        self._open()

    def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()

    async def secure(self, caller: Caller, tls: ssl.SSLContext) -> Connection:
        """Upgrade to TLS when it is the caller's turn. Raises OSError (ssl.SSLError) or TimeoutError."""
        of_address = self._turns_each.setdefault(caller.address, asyncio.Semaphore(HANDSHAKES_EACH))
        async with of_address, self._turns, asyncio.timeout(HANDSHAKE_SECONDS):
            return await secure(caller.take(), tls)

    def _open(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of files or memory
                log.warning("the tunnel accepts nobody for %g s: %s", NO_FILES_SECONDS, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(NO_FILES_SECONDS, self._open)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
            self._admit(Caller(connection, address[0]))

    def _admit(self, caller: Caller) -> None:
        task = asyncio.ensure_future(self._receive(caller))
        self._tasks.add(task)

        def displaced() -> None:
            self._displaced(caller.address)
            task.cancel()

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            caller.close()

        task.add_done_callback(ended)
        caller.slot = self.slots.take(caller.address, displaced)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(connection, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)

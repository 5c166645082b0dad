# SPDX-License-Identifier: Apache-2.0
"""TCP between the programs of the simulation: real bytes, through real protocols, over no socket.

`Internet` takes the place of the loop's `create_connection` and `create_server`, so that the product's servers listen
and its clients connect as they always do. TLS is a stand-in: a connection shows the certificates of both ends, and
carries its bytes as they are.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from simulation.loop import PROCESS, Process, VirtualLoop

LOOPBACK = "127.0.0.1"
GONE_SECONDS = 25.0  # after which the kernel gives up a connection whose other end takes nothing (sidecar: `sockets`)
RESEND_SECONDS = 1.0
LEAST_SECONDS = 1e-6  # between what is sent and what is sent next: what is due at once has no order
HIGH_WATER = 64 * 1024  # bytes under way before a writer is asked to pause

Factory = Callable[[], asyncio.BaseProtocol]


class Program:
    """A process on a host: whose connections are whose, and what becomes of them when it ends.

    `cut`: whether nothing passes between its host and another just now.
    """

    def __init__(self, process: Process, host: str, cut: Callable[[str], bool]) -> None:
        self.process, self.host, self.cut = process, host, cut
        self.ends: dict[End, None] = {}
        self.children: list[Process] = []
        self._kill, self._thaw = process.kill, process.thaw
        process.kill, process.freeze, process.thaw = self.kill, self.freeze, self.thaw  # type: ignore[method-assign]

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        process = self.process
        process._loop.call_later(seconds, callback, *args, context=process._context)

    def freeze(self) -> None:
        """All of its container stands still."""
        for process in (self.process, *self.children):
            process.frozen = True

    def thaw(self) -> None:
        self._thaw()
        for child in self.children:
            child.thaw()

    def kill(self) -> None:
        """The kernel closes what it had, and what it had started ends with it."""
        self._kill()
        for child in self.children:
            child.kill()
        for end in list(self.ends):
            end.drop()


class Internet:
    """All hosts, and the connections between their programs."""

    def __init__(self, loop: VirtualLoop, dice: Random, slowest: float = 0.004) -> None:
        self.loop, self.dice, self.slowest = loop, dice, slowest
        self._servers: dict[tuple[str, int], Listener] = {}
        self._programs: WeakKeyDictionary[Process, Program] = WeakKeyDictionary()
        loop.create_connection = self.create_connection  # type: ignore[method-assign, assignment]
        loop.create_server = self.create_server  # type: ignore[method-assign, assignment]

    def settle(self, host: str, cut: Callable[[str], bool] = lambda _: False) -> Program:
        """The process that calls this runs on `host` from now on."""
        process = PROCESS.get()
        assert process is not None
        program = self._programs[process] = Program(process, host, cut)
        return program

    def fork(self, name: str) -> Process:
        """A child of the process that calls this: on the same host, and gone when that is."""
        parent = self._program()
        child = Process(self.loop, name, skew=parent.process.skew)
        parent.children.append(child)
        self._programs[child] = Program(child, parent.host, parent.cut)
        return child

    def _program(self) -> Program:
        process = PROCESS.get()
        assert process is not None, "only a process of the simulation has connections"
        return self._programs[process]

    # --- what the loop offers

    async def create_server(
        self, factory: Factory, host: str | None = None, port: int | None = None, *, sock: Any = None, **_: Any
    ) -> "Listener":
        program = self._program()
        address = (program.host, sock.port if sock is not None else port)
        standing = self._servers.get(address)
        if standing is not None and not (standing.closed or standing.program.process.dead):
            raise OSError(98, "Address already in use")
        server = self._servers[address] = Listener(program, factory)
        return server

    async def create_connection(
        self, factory: Factory, host: str, port: int, *, ssl: Any = None, server_hostname: str | None = None, **_: Any
    ) -> tuple["End", asyncio.BaseProtocol]:
        program = self._program()
        host = program.host if host == LOOPBACK else host
        await asyncio.sleep(self.way())
        server = self._servers.get((host, port))
        if server is not None and _separated(program, server.program):
            await asyncio.sleep(GONE_SECONDS)
            raise TimeoutError(110, "Connection timed out")
        if server is None or server.closed or server.program.process.dead:
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        ours, theirs = End(self, program), End(self, server.program)
        ours.other, theirs.other = theirs, ours
        if ssl is not None:
            theirs.shown, theirs.asked = ssl.certificate, server_hostname or ""
            ours.secured = self.loop.create_future()
        server.program.later(self.way(), theirs.made, server.factory)
        if ours.secured is not None:
            try:
                await ours.secured
            except BaseException:
                ours.abort()
                raise
        ours.made(factory)
        return ours, ours.protocol

    def way(self) -> float:
        return self.slowest * self.dice.random() ** 3 + 0.00005


class Listener:
    def __init__(self, program: Program, factory: Factory) -> None:
        self.program, self.factory = program, factory
        self.closed = False
        self.sockets = ()

    def close(self) -> None:
        self.closed = True

    def is_serving(self) -> bool:
        return not self.closed

    async def wait_closed(self) -> None:
        pass


class End(asyncio.Transport):
    """One end of a connection, as asyncio's transports are: its callbacks run in its program, or wait until that
    is woken; a program that was killed has none."""

    def __init__(self, internet: Internet, program: Program) -> None:
        super().__init__()
        self.internet, self.program = internet, program
        self.other: End
        self.protocol: asyncio.BaseProtocol
        self.shown: bytes | None = None  # the certificate of the other end
        self.asked = ""  # the server's name that it was called by
        self.secured: asyncio.Future[None] | None = None  # until the server's TLS has let this one in
        self._open = self._closing = self._paused = self._lost = self._stopped = False
        self._unread: list[bytes | None] = []
        self._held: list[bytes | None] = []
        self._under_way = 0
        self._arrives_at = 0.0
        program.ends[self] = None

    # --- as asyncio has it

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in ("peername", "sockname"):
            return ((self.other if name == "peername" else self).program.host, 1)
        return self if name == "ssl_object" and self.shown is not None else default

    def getpeercert(self, binary_form: bool) -> bytes | None:
        return self.shown

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def write(self, data: Any) -> None:
        if self.is_closing() or not data:
            return
        self._under_way += len(data)
        self._send(bytes(data))
        if self._under_way > HIGH_WATER and not self._stopped:
            self._stopped = True
            self.protocol.pause_writing()  # type: ignore[attr-defined]

    def write_eof(self) -> None:
        self._send(None)

    def can_write_eof(self) -> bool:
        return self.shown is None and self.other.shown is None

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self.program.later(0, self._read)

    def is_reading(self) -> bool:
        return not self._paused

    def close(self) -> None:
        if not self.is_closing():
            self._closing = True
            self._send(None)
            self.program.later(0, self.lose, None)

    abort = close

    # --- below

    def made(self, factory: Factory) -> None:
        """The connection stands, for this end's program."""
        if self._lost:
            return
        if not hasattr(self, "protocol"):
            self.protocol = factory()
        self._open = True
        self.protocol.connection_made(self)
        self._read()

    def drop(self) -> None:
        """The program is gone: its kernel closes what it had."""
        if not self._lost:
            self._lost = True
            self._send(None)
        self.program.ends.pop(self, None)

    def lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self.program.ends.pop(self, None)
        if self.secured is not None and not self.secured.done():
            self.secured.set_exception(error or ConnectionResetError(104, "Connection reset by peer"))
        if self._open:
            self.protocol.connection_lost(error)

    def _send(self, item: bytes | None) -> None:
        loop = self.internet.loop
        self._arrives_at = max(self._arrives_at + LEAST_SECONDS, loop.time() + self.internet.way())
        self.other.program.later(self._arrives_at - loop.time(), self.other._take, item)

    def _take(self, item: bytes | None) -> None:
        if self._held or _separated(self.program, self.other.program):
            self._hold(item)
        elif self._lost or self._closing:
            if item is not None:
                self.other.program.later(0, self.other.lose, ConnectionResetError(104, "Connection reset by peer"))
        else:
            self._unread.append(item)
            self._read()

    def _hold(self, item: bytes | None) -> None:
        """It is sent again and again, until it arrives, or the kernel of each end gives up."""
        loop = self.internet.loop
        if not self._held:
            self.program.later(RESEND_SECONDS, self._again, loop.time() + GONE_SECONDS)
        self._held.append(item)

    def _again(self, deadline: float) -> None:
        if not _separated(self.program, self.other.program):
            held, self._held = self._held, []
            for item in held:
                self._take(item)
        elif self.internet.loop.time() < deadline:
            self.program.later(RESEND_SECONDS, self._again, deadline)
        else:
            for end in (self, self.other):
                end.program.later(0, end.lose, TimeoutError(110, "Connection timed out"))

    def _read(self) -> None:
        while self._unread and not self._paused and not self._closing:
            if not self._open:
                if self._unread[0] is None:
                    self.lose(None)
                return
            item = self._unread.pop(0)
            if item is not None:
                self.other._was_read(len(item))
                self.protocol.data_received(item)  # type: ignore[attr-defined]
            elif not self.protocol.eof_received():  # type: ignore[attr-defined]
                self.close()

    def _was_read(self, size: int) -> None:
        self._under_way -= size
        if self._stopped and self._under_way <= HIGH_WATER // 2 and not self.is_closing():
            self._stopped = False
            self.program.later(0, self.protocol.resume_writing)  # type: ignore[attr-defined]


def _separated(one: Program, other: Program) -> bool:
    return one.host != other.host and (one.cut(other.host) or other.cut(one.host))

"""TCP between the programs of the simulation: real bytes, through real protocols, over no socket.

`Internet` takes the place of the loop's `create_connection` and `create_server`, so that the product's servers listen
and its clients connect as they always do. TLS is a stand-in: a connection shows the certificates of both ends, and
carries its bytes as they are.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from simulation.loop import PROCESS, Process, VirtualLoop

LOOPBACK = "127.0.0.1"
GONE_SECONDS = 25.0  # after which the kernel gives up a connection whose other end takes nothing (sidecar: `sockets`)
HIGH_WATER = 64 * 1024  # bytes under way before a writer is asked to pause

Factory = Callable[[], asyncio.BaseProtocol]


class Program(Process):
    """A process on a host, whose connections its kernel closes when it ends."""

    def __init__(self, loop: VirtualLoop, name: str, host: str, *, skew: float = 0.0) -> None:
        super().__init__(loop, name, skew=skew)
        self.host = host
        self.ends: set[End] = set()

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback, *args, context=self._context)

    def kill(self) -> None:
        super().kill()
        for end in sorted(self.ends, key=lambda end: end.number):
            end.drop()


class Internet:
    """All hosts. A host that is cut off reaches no other, but itself."""

    def __init__(self, loop: VirtualLoop, dice: Random, slowest: float = 0.004) -> None:
        self.loop, self.dice, self.slowest = loop, dice, slowest
        self.connections = 0
        self._servers: dict[tuple[str, int], Server] = {}
        self._cut: dict[str, float] = {}
        self._held: list[tuple[End, bytes | None]] = []
        loop.create_connection = self.create_connection  # type: ignore[method-assign, assignment]
        loop.create_server = self.create_server  # type: ignore[method-assign, assignment]

    # --- what the loop offers

    async def create_server(
        self, factory: Factory, host: str | None = None, port: int | None = None, *, sock: Any = None, **_: Any
    ) -> "Server":
        program = _program()
        address = (program.host, sock.port if sock is not None else port)
        standing = self._servers.get(address)
        if standing is not None and not (standing.closed or standing.program.dead):
            raise OSError(98, "Address already in use")
        server = self._servers[address] = Server(program, factory)
        return server

    async def create_connection(
        self, factory: Factory, host: str, port: int, *, ssl: Any = None, server_hostname: str | None = None, **_: Any
    ) -> tuple["End", asyncio.BaseProtocol]:
        program = _program()
        host = program.host if host == LOOPBACK else host
        await asyncio.sleep(self.way())
        if self.separated(program.host, host):
            await asyncio.get_running_loop().create_future()  # for ever: the caller has a deadline
        server = self._servers.get((host, port))
        if server is None or server.closed or server.program.dead:
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

    # --- faults

    def cut(self, host: str) -> None:
        self._cut[host] = self.loop.time()

    def heal(self, host: str) -> None:
        self._cut.pop(host, None)
        held, self._held = self._held, []
        for end, item in held:
            end.arrive(item)

    def separated(self, one: str, other: str) -> bool:
        return one != other and (one in self._cut or other in self._cut)

    def hold(self, end: "End", item: bytes | None) -> None:
        """It is sent again and again, until the host is back, or the kernel of each end gives up."""
        if not any(held is end for held, _ in self._held):
            for each in (end, end.other):
                self.loop.call_outside(GONE_SECONDS, self._give_up, each)
        self._held.append((end, item))

    def _give_up(self, end: "End") -> None:
        if any(held in (end, end.other) for held, _ in self._held):
            end.program.later(0, end.lose, TimeoutError(110, "Connection timed out"))

    def way(self) -> float:
        return self.slowest * self.dice.random() ** 3 + 0.00005


class Server:
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
        internet.connections += 1
        self.number = internet.connections
        self.internet, self.program = internet, program
        self.other: End
        self.protocol: asyncio.BaseProtocol
        self.shown: bytes | None = None  # the certificate of the other end
        self.asked = ""  # the server's name that it was called by
        self.secured: asyncio.Future[None] | None = None  # until the server's TLS has let this one in
        self._open = self._closing = self._paused = self._lost = self._stopped = False
        self._unread: list[bytes | None] = []
        self._under_way = 0
        self._arrives_at = 0.0
        program.ends.add(self)

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
        self.program.ends.discard(self)

    def arrive(self, item: bytes | None) -> None:
        """Something comes for this end; the program may be frozen or gone."""
        self.program.later(0, self._take, item)

    def lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self.program.ends.discard(self)
        if self.secured is not None and not self.secured.done():
            self.secured.set_exception(error or ConnectionResetError(104, "Connection reset by peer"))
        if self._open:
            self.protocol.connection_lost(error)

    def _send(self, item: bytes | None) -> None:
        loop = self.internet.loop
        self._arrives_at = max(self._arrives_at, loop.time() + self.internet.way())
        other, wait = self.other, self._arrives_at - loop.time()
        loop.call_later(wait, other._take, item, context=other.program._context)

    def _take(self, item: bytes | None) -> None:
        if self.internet.separated(self.program.host, self.other.program.host):
            self.internet.hold(self, item)
        elif self._lost or self._closing:
            if item is not None:
                self.other.program.later(0, self.other.lose, ConnectionResetError(104, "Connection reset by peer"))
        else:
            self._unread.append(item)
            self._read()

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


def _program() -> Program:
    program = PROCESS.get()
    assert isinstance(program, Program), "only a program of the simulation has connections"
    return program

"""The real sidecar in a container of the simulation: its parts as `app` wires them, from the variables of the pod.

Stand-ins are TLS (`pipes`), the sockets below `Door` and the health server, and the file that counts the starts. All
that they carry or decide is real.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp

from elasticjob import health
from elasticjob.api import HEALTH_PORT
from elasticjob.certificates import der_of
from elasticjob_sidecar.app import Sidecar
from elasticjob_sidecar.config import Config
from elasticjob_sidecar.kubernetes.client import Kube
from elasticjob_sidecar.kubernetes.in_cluster import InCluster
from elasticjob_sidecar.store import transport
from elasticjob_sidecar.store.certificate import make
from elasticjob_sidecar.store.credentials import END_OF_CERTIFICATE, Credentials
from elasticjob_sidecar.store.forward import End
from simulation import pipes
from simulation.loop import VirtualLoop
from simulation.network import Network, Response, Session
from simulation.pipes import Internet, Program

CERTIFICATES = 64  # more than a life has incarnations at a time
HANDSHAKE_SECONDS = 5.0


class SidecarContainer:
    """One start of it.

    Args:
        env: the container's variables, those from the pod's fields among them.
        starts: how often it was started before in this pod; the pod's volume keeps that.
        network: its way to the API server; it has one of its own.
        token: a file with what it shows to the API server.
    """

    def __init__(
        self, loop: VirtualLoop, internet: Internet, network: Network, env: Mapping[str, str], starts: int, token: Path
    ) -> None:
        self.loop, self.network = loop, network
        self.config = Config.from_env(env)
        self.id = f"{self.config.batch}.{starts}"
        self.program = Program(loop, f"{self.config.pod_name}/sidecar.{starts}", str(self.config.pod_ip))
        self.credentials = next_credentials()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.sidecar: Sidecar | None = None
        self.failure: BaseException | None = None
        self._token = token
        self._stop = asyncio.Event()

    def start(self) -> None:
        self.program.start(self._run())

    def stop(self) -> None:
        """SIGTERM: it says goodbye and exits; whoever has no patience kills it then."""
        self.program.call(self._stop.set)

    def kill(self, code: int = 137) -> None:
        self.program.kill()
        self.network.close()
        if not self.exited.done():
            self.exited.set_result(code)

    def freeze(self) -> None:
        self.program.freeze()

    def thaw(self) -> None:
        self.program.thaw()

    @property
    def ready(self) -> bool:
        """What a readiness probe would be told; to a frozen one nobody answers."""
        return self.program.runs and self.sidecar is not None and self.sidecar.driver.ready

    async def probe(self, path: str, seconds: float) -> bool:
        """As the kubelet does: to be called in a program of the same host."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await open_connection(self.program.host, HEALTH_PORT)
                writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
                line = await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in line

    async def _run(self) -> None:
        code = 1
        try:
            server = InCluster("api", 443, token=self._token)
            kube = Kube(self.config.namespace, server, cast("aiohttp.ClientSession", TimedSession(self.network)))
            self.sidecar = Sidecar(self.config, self.id, kube, self.credentials)
            try:
                await self.sidecar.serve()
                await self.sidecar.run(self._stop)
                code = 0
            finally:
                await self.sidecar.close()
                await kube.close()
        except OSError as error:
            self.failure = error
        except Exception as error:  # in a part: the process ends with a traceback
            self.failure = error
            raise
        finally:
            self.loop.call_outside(0, self.kill, code)


async def open_connection(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    way, _ = await loop.create_connection(lambda: protocol, host, port)
    return reader, asyncio.StreamWriter(way, protocol, reader, loop)


class TimedSession(Session):
    """Holds the body of a watch to the request's whole time, as aiohttp does."""

    async def request(
        self, method: str, url: str, *, timeout: aiohttp.ClientTimeout | float | None = None, **more: Any
    ) -> Response:
        began = asyncio.get_running_loop().time()
        response = await super().request(method, url, timeout=timeout, **more)
        seconds = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
        if response.content is not None and seconds is not None:
            response.content = cast("Any", _TimedBody(response.content, began + seconds))
        return response


class _TimedBody:
    def __init__(self, stream: Any, until: float) -> None:
        self._stream, self._until = stream, until

    async def readline(self) -> bytes:
        async with asyncio.timeout_at(self._until):
            line: bytes = await self._stream.readline()
            return line

    def close(self) -> None:
        self._stream.close()


# --- TLS, and the sockets below


@dataclass(frozen=True)
class Tls:
    """In the place of `ssl.SSLContext`."""

    certificate: bytes
    trusted: frozenset[bytes] = frozenset()
    is_expected: Callable[[str | None], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class ShownCredentials(Credentials):
    der: bytes = field(default=b"", repr=False)

    def client_context(self) -> ssl.SSLContext:
        return cast("ssl.SSLContext", Tls(self.der))

    def server_context(self, trusted: Iterable[bytes], is_expected: Callable[[str | None], bool]) -> ssl.SSLContext:
        return cast("ssl.SSLContext", Tls(self.der, frozenset(trusted), is_expected))


@cache
def certificates() -> list[ShownCredentials]:
    made = []
    for _ in range(CERTIFICATES):
        certificate, end, key = make().decode().partition(END_OF_CERTIFICATE)
        made.append(ShownCredentials(certificate + end, key, der_of(certificate + end)))
    return made


_used = 0


def next_credentials() -> ShownCredentials:
    global _used
    _used += 1
    return certificates()[_used % CERTIFICATES]


class Caller:
    """In the place of `door.Caller`: a connection whose first bytes have come, and no TLS yet."""

    def __init__(self, end: pipes.End) -> None:
        self.end = end
        self.address = end.other.program.host
        self.place = SimpleNamespace(release=lambda: None)
        self.taken = False

    async def hello(self) -> bytes:
        return b"\x16\x03" + self.end.asked.encode()


class Door:
    """In the place of `door.Door`: no crowd comes here, so nobody is displaced."""

    def __init__(self, receive: Callable[[Caller], Awaitable[None]], displaced: Callable[[str], None]) -> None:
        self._receive = receive
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listening: asyncio.Task[asyncio.Server] | None = None

    def listen(self, host: str, port: int) -> None:
        self._listening = asyncio.ensure_future(asyncio.get_running_loop().create_server(self._greeter, host, port))

    def close(self) -> None:
        if self._listening is not None and self._listening.done():
            self._listening.result().close()
        for task in self._tasks:
            task.cancel()

    async def secure(self, caller: Caller, tls: Tls) -> End:
        other = caller.end.other
        if not tls.is_expected(caller.end.asked) or caller.end.shown not in tls.trusted:
            raise ssl.SSLError(1, "certificate verify failed")
        caller.taken = True
        end = End()
        caller.end.set_protocol(end)
        end.connection_made(caller.end)
        other.shown = tls.certificate
        if other.secured is not None and not other.secured.done():
            other.secured.set_result(None)
        return end

    def _greeter(self) -> asyncio.Protocol:
        return _Greeter(self._admit)

    def _admit(self, end: pipes.End) -> None:
        caller = Caller(end)
        task = asyncio.ensure_future(self._receive(caller))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not caller.taken:
                end.abort()

        task.add_done_callback(ended)


class _Greeter(asyncio.Protocol):
    def __init__(self, admit: Callable[[pipes.End], None]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.pause_reading()  # type: ignore[attr-defined]
        self._admit(cast("pipes.End", transport))


def _listener(port: int) -> Any:
    """In the place of a socket that listens."""
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    return SimpleNamespace(port=port, setsockopt=nothing, listen=nothing, getsockname=lambda: ("", port))


@contextmanager
def stand_ins() -> Iterator[None]:
    """What would open sockets below asyncio opens none."""
    kept = transport.Door, health._listener
    transport.Door, health._listener = Door, _listener  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        transport.Door, health._listener = kept  # type: ignore[misc]

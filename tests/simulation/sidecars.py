# SPDX-License-Identifier: Apache-2.0
"""The real sidecar in a container of the simulation: its parts as `app` wires them, from the variables of the pod.

Stand-ins are TLS (`pipes`), the sockets below `TunnelListener` and the health server, and the file that counts the
starts. All that they carry or decide is real.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from elasticjob import health
from elasticjob.certificates import der_of
from elasticjob_operator.objects.pods import SIDECAR
from elasticjob_sidecar.app import Ports, Sidecar
from elasticjob_sidecar.config import Config
from elasticjob_sidecar.store import transport
from elasticjob_sidecar.store.certificate import make
from elasticjob_sidecar.store.connection import Connection
from elasticjob_sidecar.store.credentials import END_OF_CERTIFICATE, Credentials
from simulation import pipes
from simulation.clients import sidecar_client
from simulation.containers import Sandbox
from simulation.loop import Process
from simulation.pipes import Internet

CERTIFICATES = 64  # more than a life has incarnations at a time
CRASHED = 139


class SidecarProgram:
    """The sidecar's process, from its start to its end."""

    def __init__(self, pod: Sandbox, internet: Internet) -> None:
        self._pod, self._internet = pod, internet
        self._stop = asyncio.Event()
        self._credentials = next_credentials()
        self.sidecar: Sidecar | None = None
        self.process: Process | None = None
        self.id, self.began = "", 0.0

    def terminate(self) -> None:
        self._stop.set()

    async def run(self) -> int:
        pod = self._pod
        self.process = self._internet.settle(pod.ip, pod.network.is_parted_from).process
        starts = pod.files["starts"] = pod.files.get("starts", -1) + 1
        pod.files["sidecar"] = self
        self.began = asyncio.get_running_loop().time()
        work = asyncio.create_task(self._serve(starts))
        if pod.dice.random() >= pod.plan.sidecar_crashes:
            return await work
        await asyncio.wait({work}, timeout=pod.dice.uniform(0.1, 60))
        return work.result() if work.done() else CRASHED

    async def _serve(self, starts: int) -> int:
        pod = self._pod
        config = Config.from_env(pod.env(SIDECAR))
        kube = sidecar_client(config.namespace, pod.network)
        self.id = f"{config.batch}.{starts}"
        self.sidecar = sidecar = Sidecar(config, self.id, kube, self._credentials, Ports(forwarded=2))
        try:
            await sidecar.serve()
            await sidecar.run(self._stop)
        finally:
            await sidecar.close()
            await kube.close()
        return 0


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
    """In the place of `listener.Caller`: a connection whose first bytes have come, and no TLS yet."""

    def __init__(self, end: pipes.End) -> None:
        self.end = end
        self.address = end.other.program.host
        self.slot = SimpleNamespace(release=lambda: None)
        self.taken = False

    async def hello(self) -> bytes:
        return b"\x16\x03" + self.end.asked.encode()


class TunnelListener:
    """In the place of `listener.TunnelListener`: no crowd comes here, so nobody is displaced."""

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

    async def secure(self, caller: Caller, tls: Tls) -> Connection:
        other = caller.end.other
        if not tls.is_expected(caller.end.asked) or caller.end.shown not in tls.trusted:
            raise ssl.SSLError(1, "certificate verify failed")
        caller.taken = True
        connection = Connection()
        caller.end.set_protocol(connection)
        connection.connection_made(caller.end)
        other.shown = tls.certificate
        if other.secured is not None and not other.secured.done():
            other.secured.set_result(None)
        return connection

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


def _listener(port: int, host: str = "") -> Any:
    """In the place of a socket that listens."""
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    return SimpleNamespace(port=port, setsockopt=nothing, listen=nothing, getsockname=lambda: ("", port))


@contextmanager
def stand_ins() -> Iterator[None]:
    """What would open sockets below asyncio opens none."""
    kept = transport.TunnelListener, health.listener
    transport.TunnelListener, health.listener = TunnelListener, _listener  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        transport.TunnelListener, health.listener = kept  # type: ignore[misc]

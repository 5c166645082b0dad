# SPDX-License-Identifier: Apache-2.0
"""What lies between one client and the API server: time, loss, and connections that end in one way or another. Also
which other hosts it does not reach.

`Session` stands in the place of `aiohttp.ClientSession`, the lowest level that the clients of this project use: all
that is above it is the real code.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self

import aiohttp

from simulation.api_server import ApiServer
from simulation.calls import Reply
from simulation.loop import NOBODY, PROCESS
from simulation.watches import Watch

REFUSED = 111


@dataclass(slots=True)
class Weather:
    """How often what happens, of 1; the same for all clients of a world, and all 0 once faults are over."""

    lost: float = 0.0  # a request that never arrives
    unanswered: float = 0.0  # an answer that never arrives: what was asked for has happened
    late: float = 0.0  # a request that arrives when its sender has long given up
    reset: float = 0.0  # a connection that breaks, before or after
    errors: float = 0.0  # 429, 500, 503, 504
    silent_watch: float = 0.0  # a watch that stands open and says nothing more, for each event
    broken_watch: float = 0.0  # a watch that breaks off, for each event
    slowest: float = 0.05  # seconds of one way
    quickest: float = 0.0005


class Network:
    """One client's way to the API server."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: ApiServer, client: str, dice: Random, weather: Weather
    ) -> None:
        self.loop, self.server, self.client, self.dice, self.weather = loop, server, client, dice, weather
        self.cut = False
        self.parted: set[str] = set()  # hosts that it alone does not reach, nor they it
        self.refusing = False
        self._streams: dict[Stream, None] = {}
        self.uses: dict[str, int] = {}

    def partition(self) -> None:
        """Nothing passes any more; streams that are open stay so and are silent."""
        self.cut = True
        for stream in list(self._streams):
            stream.silence()

    def heal(self) -> None:
        self.cut = False
        self.parted.clear()

    def is_parted_from(self, host: str) -> bool:
        return self.cut or host in self.parted

    def close(self) -> None:
        """The client's process has ended: the server sees its connections close."""
        for stream in list(self._streams):
            stream.close()

    async def request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], seconds: float | None
    ) -> "Response":
        """Raises TimeoutError after `seconds`, and aiohttp.ClientError."""
        answer: asyncio.Future[Response] = self.loop.create_future()
        path = "/" + url.split("://", 1)[-1].split("/", 1)[1] if "://" in url else url
        sender = PROCESS.get()
        if self.refusing or self.server.down:
            await asyncio.sleep(self._way())
            raise aiohttp.ClientOSError(REFUSED, "Connection refused")
        exchange = Exchange(self, method, path, body, headers, answer, sender.name if sender else "")
        exchange.send()
        async with asyncio.timeout(seconds):
            response = await answer
        if response.content is not None and seconds is not None:
            response.content.until = exchange.sent_at + seconds  # reading it counts too
        return response

    def happens(self, what: str, chance: float) -> bool:
        if chance <= 0 or self.dice.random() >= chance:
            return False
        self.uses[what] = self.uses.get(what, 0) + 1
        return True

    def _way(self) -> float:
        # mostly quick, at times slow
        return self.weather.slowest * self.dice.random() ** 3 + self.weather.quickest

    way = _way

    def later(self, delay: float, what: Callable[..., object], *args: Any) -> None:
        """Whatever becomes of the process that asks for it."""
        self.loop.call_later(delay, what, *args, context=NOBODY)

    def opened(self, stream: "Stream") -> None:
        self._streams[stream] = None

    def closed(self, stream: "Stream") -> None:
        self._streams.pop(stream, None)


class Exchange:
    """One request on its way, and its answer on its way back."""

    def __init__(
        self,
        network: Network,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        answer: "asyncio.Future[Response]",
        sender: str,
    ) -> None:
        self.network, self.method, self.path, self.body, self.headers = network, method, path, body, headers
        self.answer, self.sender = answer, sender
        self.sent_at = network.loop.time()

    def send(self) -> None:
        network, weather = self.network, self.network.weather
        if network.cut or network.happens("request lost", weather.lost):
            return
        if network.happens("connection reset", weather.reset / 2):
            network.later(network.way(), self._fail)
            return
        way = network.way()
        if network.happens("request late", weather.late):
            way += network.dice.uniform(1, 20)
        network.later(way, self._arrive)

    def _arrive(self) -> None:
        network, weather = self.network, self.network.weather
        if network.cut:
            return
        if network.server.down:
            self._fail()
            return
        if network.happens("server error", weather.errors):
            status, why = network.dice.choice(ERRORS)
            if network.dice.random() < 0.3:  # and yet it was done
                network.server.handle(network.client, self.method, self.path, self.body, self.headers, self.sent_at)
            self._return(Reply.failure(status, why))
            return
        reply = network.server.handle(network.client, self.method, self.path, self.body, self.headers, self.sent_at)
        self._return(reply)

    def _return(self, reply: Reply) -> None:
        network, weather = self.network, self.network.weather
        if network.cut or network.happens("answer lost", weather.unanswered):
            if reply.watch is not None:
                reply.watch.stop()
            return
        then = self._deliver if not network.happens("connection reset", weather.reset / 2) else self._fail
        network.later(reply.after + network.way(), then, *((reply,) if then == self._deliver else ()))

    def _deliver(self, reply: Reply) -> None:
        if self.answer.done() or self.network.cut:
            if reply.watch is not None:
                reply.watch.stop()
            return
        self.answer.set_result(Response(self.network, reply))

    def _fail(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(aiohttp.ClientOSError(104, "Connection reset by peer"))


ERRORS = (
    (429, "too many requests, please try again later"),
    (500, "etcdserver: leader changed"),
    (503, "apiserver is shutting down"),
    (504, "the server was unable to return a response in the time allotted"),
)


class Stream:
    """The body of a watch's answer, a line for each event."""

    def __init__(self, network: Network, watch: Watch) -> None:
        self._network, self._watch = network, watch
        self._lines: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended: str = ""
        self._silent = False
        self._arrives_at = 0.0
        self.until: float | None = None
        network.opened(self)
        watch.start(self.send, self.end)

    def send(self, line: bytes) -> None:
        """One more event sets out; none overtakes another."""
        network, weather = self._network, self._network.weather
        if self._silent:
            return
        if network.happens("watch silent", weather.silent_watch):
            self.silence()
            return
        if network.happens("watch broken", weather.broken_watch):
            self.end("broken" if network.dice.random() < 0.5 else "closed")
            return
        self._later(self._take, line)

    def end(self, how: str = "closed") -> None:
        """The server has closed the connection."""
        if not self._silent:
            self._later(self._end, how)

    def silence(self) -> None:
        self._silent = True
        self._watch.stop()
        self._network.closed(self)

    def close(self) -> None:
        """The client closes it."""
        self._ended = self._ended or "closed"
        self._watch.stop()
        self._network.closed(self)

    async def readline(self) -> bytes:
        while not self._lines:
            if self._ended == "broken":
                raise aiohttp.ClientPayloadError("Response payload is not completed")
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            async with asyncio.timeout_at(self.until):
                await self._waiter
        return self._lines.pop(0)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        while line := await self.readline():
            yield line

    def _later(self, what: Any, *args: Any) -> None:
        loop = self._network.loop
        self._arrives_at = max(self._arrives_at, loop.time() + self._network.way() + self._watch.lag())
        self._network.later(self._arrives_at - loop.time(), what, *args)

    def _take(self, line: bytes) -> None:
        if not (self._silent or self._ended):
            self._lines.append(line)
            self._wake()

    def _end(self, how: str) -> None:
        if not self._silent:
            self._ended = self._ended or how
            self._watch.stop()
            self._network.closed(self)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Response:
    """As much of `aiohttp.ClientResponse` as the clients use."""

    def __init__(self, network: Network, reply: Reply) -> None:
        self.status, self.reason, self.headers = reply.status, "", {}
        self._body = reply.body
        self.content = Stream(network, reply.watch) if reply.watch is not None else None

    @property
    def ok(self) -> bool:
        return self.status < 400

    async def read(self) -> bytes:
        return self._body

    async def text(self) -> str:
        return self._body.decode()

    async def json(self, **_: Any) -> Any:
        return json.loads(self._body)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise aiohttp.ClientResponseError(None, (), status=self.status)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.content is not None:
            self.content.close()

    release = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()


class Session:
    """As much of `aiohttp.ClientSession` as the clients use; `network` is its whole world."""

    closed = False

    def __init__(self, network: Network) -> None:
        self._network = network

    async def request(
        self,
        method: str,
        url: str,
        *,
        data: str | bytes | None = None,
        json: Any = None,
        headers: dict[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | float | None = None,
        **_: Any,
    ) -> Response:
        body = data.encode() if isinstance(data, str) else data
        if json is not None:
            body = _dumped(json)
        seconds = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
        return await self._network.request(method.upper(), url, body, dict(headers or {}), seconds)

    async def close(self) -> None:
        self._network.close()


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()

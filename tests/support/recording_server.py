# SPDX-License-Identifier: Apache-2.0
"""The simulated API server as tests of one part use it: its answers come at once, and it records what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from random import Random
from typing import Any
from uuid import uuid4

from aiohttp import web

from elasticjob_operator.cluster.client import Kube
from simulation.api_server import ApiServer
from simulation.calls import Call
from simulation.clients import operator_client
from simulation.clocks import Clock
from simulation.network import Network, Response, Weather
from simulation.store import Name, Object, Store
from simulation.validity import Refusal


class RecordingServer(ApiServer):
    """`asked`: calls in turn, as "PUT roles" or "PATCH pods/status". `refuses`: the answer to all such calls.

    To be made in the event loop of its clients."""

    def __init__(self, namespace: str = "ml") -> None:
        loop, dice = asyncio.get_running_loop(), Random(0)
        super().__init__(loop, dice, Clock(loop, dice))
        self.objects, self.of_cluster = Objects(self.store, namespace), Objects(self.store, "")
        self.network = Gate(loop, self, "client", dice, Weather(slowest=0, quickest=0))
        self.calls: list[Call] = []
        self.refuses: dict[str, Refusal] = {}
        self.on_call.append(self._record)

    def client(self) -> Kube:
        return operator_client(self.network)

    @property
    def asked(self) -> list[str]:
        return [_words(call) for call in self.calls]

    def writes(self) -> list[str]:
        return [one for one in self.asked if not one.startswith("GET")]

    def _record(self, call: Call) -> None:
        self.calls.append(call)
        if refusal := self.refuses.get(_words(call)):
            raise refusal

    @asynccontextmanager
    async def over_http(self) -> AsyncIterator[str]:
        """Its URL, for clients that bring their own HTTP."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body, headers = await request.read(), dict(request.headers)
        reply = self.handle("client", request.method, request.path_qs, body, headers, self.loop.time())
        if reply.watch is None:
            return web.Response(status=reply.status, body=reply.body, content_type="application/json")
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        response = web.StreamResponse()
        await response.prepare(request)
        reply.watch.start(lines.put_nowait, lambda _: lines.put_nowait(b""))
        try:
            while line := await lines.get():
                await response.write(line)
        finally:
            reply.watch.stop()
        return response


class Gate(Network):
    """A network without delays, whose requests wait for as long as it is not `open`. `fails`: how the next ones do."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.open = asyncio.Event()
        self.open.set()
        self.fails: list[Exception] = []
        self.under_way = self.most_under_way = 0

    async def request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], seconds: float | None
    ) -> Response:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with asyncio.timeout(seconds):
                await self.open.wait()
            if self.fails:
                raise self.fails.pop(0)
            return await super().request(method, url, body, headers, seconds)
        finally:
            self.under_way -= 1


class Objects(MutableMapping[str, Object]):
    """What is stored in a namespace, as "roles/digits-worker", or of one kind by name alone: copies. What is put here
    no rule of the API is asked."""

    def __init__(self, store: Store, namespace: str, plural: str = "") -> None:
        self._store, self._namespace, self._plural = store, namespace, plural

    def _place(self, key: str) -> tuple[str, Name]:
        plural, _, name = (self._plural, "", key) if self._plural else key.partition("/")
        return plural, (self._namespace, name)

    def __getitem__(self, key: str) -> Object:
        if (found := self._store.find(*self._place(key))) is None:
            raise KeyError(key)
        return deepcopy(found.body)

    def __setitem__(self, key: str, body: Object) -> None:
        plural, (namespace, name) = self._place(key)
        meta = {"uid": str(uuid4()), **body.get("metadata", {}), "name": name, "namespace": namespace}
        self._store.put(plural, {**deepcopy(body), "metadata": meta}, "test", 0.0)

    def __delitem__(self, key: str) -> None:
        self._store.remove(*self._place(key), "test", 0.0)

    def __iter__(self) -> Iterator[str]:
        for plural, found in self._store.everything():
            meta = found.body["metadata"]
            if meta["namespace"] == self._namespace and self._plural in ("", plural):
                yield meta["name"] if self._plural else f"{plural}/{meta['name']}"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @contextmanager
    def edited(self, key: str, body: Object | None = None) -> Iterator[Object]:
        body = body or self[key]
        yield body
        self[key] = body

    def all_edited(self) -> Iterator[Object]:
        """Each, to be changed until the next one is asked for."""
        for key in list(self):
            with self.edited(key) as body:
                yield body


class Announcements(list[str]):
    """In the place of the operator's Announcer: "Warning AccessRefused: why"."""

    def announce(self, _: Object, reason: str, message: str, *, warning: bool = False, cause: str = "") -> None:
        self.append(f"{'Warning ' if warning else ''}{reason}: {message}")


def _words(call: Call) -> str:
    return f"{call.method} {call.plural}" + (f"/{call.sub}" if call.sub else "")

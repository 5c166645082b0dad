# SPDX-License-Identifier: Apache-2.0
"""The sidecar's own client over the simulated API server, whose calls a test may fail, hold and lose."""

import asyncio
from collections import defaultdict
from copy import deepcopy
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import aiohttp

from elasticjob.kube.errors import ApiError, Unavailable
from elasticjob_http.transport import Transport
from elasticjob_sidecar.api_server.client import KubeApi
from simulation.api_server import merge
from simulation.clients import SERVER, authorization
from simulation.network import Session
from support.recording_server import Objects, RecordingServer

Json = dict[str, Any]
JOB_UID = "11111111-1111-1111-1111-111111111111"
WRITES = {"POST": "create", "PUT": "replace", "PATCH": "patch"}


class FaultyKube(KubeApi):
    """One namespace with one job. `fail[operation]` holds what its next calls raise; `lose[operation]` counts the next
    calls that are carried out but whose answer is lost. To be made in the event loop."""

    def __init__(self) -> None:
        self.server = RecordingServer("default")
        super().__init__("default", FaultyTransport(self))
        self.workers = Objects(self.server.store, "default", "elasticworkers")
        self.calls: list[tuple[str, Json | None]] = []
        self.times: list[float] = []
        self.fail: defaultdict[str, list[ApiError]] = defaultdict(list)
        self.lose: defaultdict[str, int] = defaultdict(int)
        self.away = False
        self.open = asyncio.Event()
        self.open.set()

    # --- what a test does

    def set_job(
        self, rendezvous: Json | None = None, *, uid: str = JOB_UID, replacements: str = "", **status: Any
    ) -> None:
        job: Json = {"metadata": {"uid": uid}}
        if rendezvous is not None:
            job["status"] = {"rendezvous": rendezvous, "replacements": replacements, **status}
        self.server.objects["elasticjobs/job"] = job

    def patch(self, name: str, body: Json) -> Json:
        """Somebody changes a record, whatever it says by then."""
        self.workers[name] = merge(self.workers[name], body)
        return self.workers[name]

    def bookmark(self) -> None:
        for watch in list(self.server.watches):
            watch.bookmark()

    def end_watches(self) -> None:
        for watch in list(self.server.watches):
            watch.finish()

    def request(self, name: str) -> Json | None:
        request: Json | None = self.workers.get(name, {}).get("spec", {}).get("request")
        return request

    def count(self, operation: str) -> int:
        return sum(called == operation for called, _ in self.calls)


class FaultyTransport(Transport):
    def __init__(self, kube: FaultyKube) -> None:
        super().__init__("sidecar", SERVER, cast("Any", Session(kube.server.network)), authorization)
        self._kube = kube

    async def _send(self, method: str, url: str, seconds: float, body: Json | None = None) -> aiohttp.ClientResponse:
        kube, (operation, asked) = self._kube, _operation(method, url)
        kube.calls.append((operation, asked or deepcopy(body)))
        kube.times.append(asyncio.get_running_loop().time())
        await kube.open.wait()
        if kube.away:
            raise Unavailable("the API server did not answer in time")
        if kube.fail[operation]:
            raise kube.fail[operation].pop(0)
        response = await super()._send(method, url, seconds, body)
        if kube.lose[operation]:
            kube.lose[operation] -= 1
            raise Unavailable("the connection to the API server broke off")
        return response


def _operation(method: str, url: str) -> tuple[str, Json | None]:
    """What a test calls it, and what of the query it may want to know."""
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.path.endswith("/status"):
        return "status", None
    if method in WRITES:
        return WRITES[method], None
    if query.get("watch"):
        return "watch", {"from": query["resourceVersion"]}
    if selector := query.get("labelSelector"):
        _, _, indices = selector.partition(" in (")
        return "list workers", {"indices": [int(index) for index in indices.rstrip(")").split(",") if index]}
    return ("list" if query else "get"), None

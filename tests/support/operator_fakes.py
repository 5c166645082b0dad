"""What the operator meets, as far as it asks: a Lease, and an API server that lists and watches."""

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

from elasticjob_operator.cluster.client import Conflict, NotFound
from elasticjob_operator.objects.paths import CUSTOM

Object = dict[str, Any]


class Leases:
    """A Lease that nobody else holds; `stuck` are the kinds of calls that are not answered."""

    def __init__(self) -> None:
        self.lease_: Object = {}
        self.stuck: set[str] = set()
        self.fails: list[Exception] = []
        self.released = False

    async def lease(self, namespace: str, name: str, seconds: float) -> Object:
        await self._called("read", seconds)
        if not self.lease_:
            raise NotFound(404, "no lease")
        return self.lease_

    async def write_lease(self, lease: Object, seconds: float) -> Object:
        await self._called("write", seconds)
        if lease["metadata"].get("resourceVersion") != self.lease_.get("metadata", {}).get("resourceVersion"):
            raise Conflict(409, "the object has been modified")
        self.released = not lease["spec"]["holderIdentity"]
        version = int(lease["metadata"].get("resourceVersion", 0)) + 1
        self.lease_ = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(version)}}
        return self.lease_

    async def close(self) -> None: ...

    async def _called(self, what: str, seconds: float) -> None:
        if self.fails:
            raise self.fails.pop(0)
        if what in self.stuck:
            await asyncio.sleep(seconds)
            raise TimeoutError


class ListingServer:
    """The API server as far as kopf asks: what there is, empty lists, and watches that say nothing."""

    def __init__(self) -> None:
        self.watches: Counter[str] = Counter()
        self.seconds: set[str] = set()
        self.kinds = ["elasticjobs", "elasticworkers"]
        self.url = ""

    def app(self) -> web.Application:
        made = web.Application()
        made.router.add_get("/{path:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        known = {
            "/api": {"versions": ["v1"]},
            "/api/v1": _resources("pods", "namespaces", "nodes"),
            "/apis": {"groups": [_group("elasticjob.io", "v1alpha1")]},
            CUSTOM: _resources(*self.kinds),
        }
        if request.path == CUSTOM and not self.kinds:
            return web.json_response({"message": "not found"}, status=404)
        if "watch" not in request.query:
            return web.json_response(known.get(request.path, {"items": [], "metadata": {"resourceVersion": "5"}}))
        self.watches[request.path] += 1
        self.seconds.add(request.query["timeoutSeconds"])
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(3600)
        return response


def _resources(*names: str) -> Object:
    verbs = ["get", "list", "watch"]
    return {
        "resources": [
            {"name": name, "singularName": name[:-1], "kind": name[:-1], "namespaced": True, "verbs": verbs}
            for name in names
        ]
    }


def _group(name: str, version: str) -> Object:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}

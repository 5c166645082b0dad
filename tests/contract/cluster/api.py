"""The administrator's calls to the API server."""

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp

Object = dict[str, Any]

CORE = "/api/v1/namespaces/default"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticworkers"
REQUEST_SECONDS = 10.0
WATCH_SECONDS = 300


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """To be made inside of the event loop, and closed."""

    def __init__(self, server: str, authority: str, token: str) -> None:
        tls = ssl.create_default_context(cafile=authority)
        self._http = aiohttp.ClientSession(
            server, headers={"Authorization": f"Bearer {token}"}, connector=aiohttp.TCPConnector(ssl=tls, limit=0)
        )

    async def close(self) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        data = None if body is None else json.dumps(body)
        limit = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with self._http.request(method, path, data=data, headers={"Content-Type": kind}, timeout=limit) as answer:
            text = await answer.text()
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {answer.status}: {text}")
        return dict(json.loads(text))

    async def patch(self, path: str, body: Object) -> Object:
        return await self.call("PATCH", path, body, "application/merge-patch+json")

    async def watch(self, path: str, seen: Callable[[str, Object], None]) -> None:
        """Tell `seen` each change of each object at `path` ("ADDED", "MODIFIED", "DELETED"), for ever."""
        listing = await self.call("GET", path)
        for item in listing["items"]:
            seen("ADDED", item)
        version = listing["metadata"]["resourceVersion"]
        limit = aiohttp.ClientTimeout(total=WATCH_SECONDS + REQUEST_SECONDS)
        while True:
            query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
            async with self._http.get(path, params=query, timeout=limit) as answer:
                while line := await answer.content.readline():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 500), f"watch of {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    seen(event["type"], event["object"])
            await asyncio.sleep(0)

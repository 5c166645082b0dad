# SPDX-License-Identifier: Apache-2.0
"""Calls to an API server from asyncio, for what is no test of a client."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from elasticjob.kube import errors

Object = dict[str, Any]

MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server said no; `status` is its HTTP status, and `kind` what the product makes of `body`."""

    def __init__(self, status: int, message: str, body: str = "") -> None:
        super().__init__(message)
        self.status, self.kind = status, type(errors.error_of(status, body.encode()))


class ApiClient:
    """To be made inside of the event loop, and closed. Calls raise ApiError, aiohttp.ClientError and TimeoutError."""

    def __init__(self, server: str, tls: ssl.SSLContext, token: str = "", request_seconds: float = 10.0) -> None:
        """`token` says who asks, where no client certificate of `tls` does."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._seconds = request_seconds
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._http = aiohttp.ClientSession(server, headers=headers, connector=connector)

    async def close(self) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        return dict(json.loads(await self.text(method, path, body, kind)))

    async def text(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> str:
        data = None if body is None else json.dumps(body)
        limit = aiohttp.ClientTimeout(total=self._seconds)
        async with self._http.request(method, path, data=data, headers={"Content-Type": kind}, timeout=limit) as answer:
            text = await answer.text()
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {answer.status}: {text}", text)
        return text

    async def patch(self, path: str, body: Object) -> Object:
        return await self.call("PATCH", path, body, MERGE)

    async def watch(
        self, path: str, opened: Callable[[], None] = lambda: None, *, seconds: int = 3600, **query: str
    ) -> AsyncIterator[Object]:
        """The events of one watch, which the server ends after `seconds`; `opened` is called when it has begun."""
        query = {"watch": "true", "timeoutSeconds": str(seconds), **query}
        limit = aiohttp.ClientTimeout(total=seconds + self._seconds)
        async with self._http.get(path, params=query, timeout=limit) as answer:
            if answer.status != 200:
                raise ApiError(answer.status, f"watch of {path}: {answer.status}: {await answer.text()}")
            opened()
            while line := await answer.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), f"watch of {path}: {event['object']}")
                yield event

# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server over HTTP. Each has a deadline, and every failure is an `ApiError`. Retries nothing.

It must not know whose the API server is, nor how one authenticates there: operator and sidecar find that out.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import aiohttp
from pydantic_core import from_json

from elasticjob.kube.errors import ApiError, NoConnection, TimedOut, Unavailable, Untrusted, error_of
from elasticjob.kube.names import field_manager, user_agent
from elasticjob.kube.paths import WRITES, path_of, verb_of
from elasticjob.objects import Object

CONNECT_SECONDS = 3.0  # the kernel repeats an attempt ever more rarely, so a longer one is of no use
EVENT_BYTES = 2 * 1024 * 1024  # no object is larger, and thus no line of a watch
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"

# of OpenSSL, X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
TIME_ERRORS = frozenset({9, 10})

FAILURES = (aiohttp.ClientError, OSError, ValueError)  # all that aiohttp raises; a TimeoutError is an OSError

T = TypeVar("T")


class Transport:
    """One pool of connections. `http`: its session, which is closed with it. `authorization`: returns the value of that
    header, None for none. `named`: the sentence of a failure begins with the request; otherwise it has the status, and
    is the same for requests of several objects. `server_hostname`: in the API server's certificate, if not in its
    address."""

    def __init__(
        self,
        part: str,
        server: str,
        http: aiohttp.ClientSession,
        authorization: Callable[[], Awaitable[str | None]],
        *,
        named: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self._server, self._http, self._authorization = server, http, authorization
        self._named, self._server_hostname = named, server_hostname
        self._owner = {"fieldManager": field_manager(part)}
        self._headers = {"Accept": JSON, "User-Agent": user_agent(part)}
        self.ended: Callable[[str, int], None] = lambda _, __: None  # called with verb and status, 0: no answer

    async def close(self) -> None:
        await self._http.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        seconds: float,
    ) -> Object:
        """The JSON of the answer, which has to be complete within `seconds`. Raises ApiError."""
        asked = {**(query or {}), **(self._owner if method in WRITES else {})}
        verb, before = verb_of(method, path, asked), f"{method} {path}: " if self._named else ""
        try:
            async with await self._send(method, path_of(path, asked), seconds, body) as response:
                read = await response.read()
        except FAILURES as error:
            self.ended(verb, 0)
            raise self._unanswered(error, _late(seconds), before) from None
        self.ended(verb, response.status)
        self._check(response.status, read)
        try:
            answer: Object = from_json(read)  # in two thirds of the time that json takes
        except ValueError as error:
            raise self._unanswered(error, "", before) from None
        return answer

    async def watch(
        self, path: str, query: Mapping[str, str], seconds: int, answer_seconds: float, opened: Callable[[], None]
    ) -> AsyncIterator[Object]:
        """The events of a watch that the API server ends after `seconds`; it has `answer_seconds` to begin, and as many
        for the end. Raises ApiError."""
        late, silent = _late(answer_seconds), f"the API server did not end a watch of {seconds} s in time"
        url = path_of(path, {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)})
        response = await self._answered(within(answer_seconds, self._send("GET", url, seconds + answer_seconds)), late)
        try:
            self.ended("watch", response.status)
            if response.status != 200:
                self._check(response.status, await self._answered(within(answer_seconds, response.read()), late))
            opened()
            while line := await self._answered(response.content.readline(), silent):
                yield json.loads(line)
        finally:
            response.close()

    async def _send(self, method: str, url: str, seconds: float, body: Object | None = None) -> aiohttp.ClientResponse:
        headers, data = dict(self._headers), None
        if (authorization := await self._authorization()) is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else JSON
            data = json.dumps(body).encode()
        more: dict[str, Any] = {"server_hostname": self._server_hostname} if self._server_hostname else {}
        return await self._http.request(
            method,
            self._server + url,
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            allow_redirects=False,
            **more,
        )

    def _check(self, status: int, body: bytes) -> None:
        if not 200 <= status < 300:
            raise error_of(status, body, with_status=not self._named)

    async def _answered(self, call: Awaitable[T], late: str) -> T:
        try:
            return await call
        except FAILURES as error:
            raise self._unanswered(error, late) from None

    def _unanswered(self, error: Exception, late: str, before: str = "") -> ApiError:
        if isinstance(error, aiohttp.ClientSSLError):
            return _untrusted(error, f"{before}no trusted connection to {self._server}")
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return NoConnection(
                f"{before}no connection to the API server at {self._server} within {CONNECT_SECONDS:g} s"
            )
        if isinstance(error, TimeoutError):
            return TimedOut(before + late)
        if isinstance(error, aiohttp.ClientPayloadError):
            return Unavailable(f"{before}the connection to the API server broke off")
        if isinstance(error, aiohttp.ClientConnectorError):
            why = error.strerror or error
            return NoConnection(f"{before}no connection to the API server at {self._server}: {why}")
        return Unavailable(f"{before}the API server does not answer: {str(error) or type(error).__name__}")


def _late(seconds: float) -> str:
    return f"the API server did not answer within {seconds:g} s"


def _untrusted(error: aiohttp.ClientSSLError, what: str) -> Untrusted:
    cause = getattr(error, "certificate_error", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = f"its certificate is refused: {cause.verify_message}"
        return Untrusted(f"{what}: {why}", speaks_of_time=cause.verify_code in TIME_ERRORS)
    return Untrusted(f"{what}: {error}", speaks_of_time=False)


async def within(seconds: float, call: Awaitable[T]) -> T:
    """The result of `call`. Raises TimeoutError. Before Python 3.12 asyncio.wait_for may swallow a cancellation."""
    async with asyncio.timeout(seconds):
        return await call

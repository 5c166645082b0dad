# SPDX-License-Identifier: Apache-2.0
"""The few requests that the sidecar makes to the Kubernetes API. All fail with an `ApiError`.

Even the smallest part of a Kubernetes library would cost each worker 13 MiB, for eight requests.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from urllib.parse import urlencode

import aiohttp

from elasticjob.api import INDEX_LABEL, JOB_LABEL
from elasticjob.kube.errors import ApiError, Denied, NoConnection, NotFound, Unavailable, Untrusted, error_of
from elasticjob.kube.names import field_manager, user_agent
from elasticjob.kube.paths import JOBS, WORKERS, WRITES
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.in_cluster import InCluster, Token
from elasticjob_sidecar.sockets import keep_alive

CONNECT_SECONDS = 3.0  # the kernel repeats an attempt ever more rarely, so a longer one is of no use
REQUEST_SECONDS = 5.0
IDLE_SECONDS = 75.0  # between heartbeats with 3600 workers; the API server closes a connection after 90
EVENT_BYTES = 2 * 1024 * 1024  # no object is larger
LATE = f"the API server did not answer within {REQUEST_SECONDS:g} s"

PART = "sidecar"
OWNER = urlencode({"fieldManager": field_manager(PART)})
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"

# of OpenSSL, X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
TIME_ERRORS = frozenset({9, 10})

T = TypeVar("T")


# these concern this sidecar alone; an unavailable API server concerns all
REFUSALS = (Denied, NotFound, Untrusted)


class KubeApi(Protocol):
    """The requests that the sidecar makes to the API server; tests replace it with a fake."""

    async def get_worker(self, name: str) -> Object: ...
    async def create_worker(self, body: Object) -> Object: ...
    async def replace_worker(self, name: str, body: Object) -> Object: ...
    async def patch_worker(self, name: str, body: Object) -> Object: ...
    async def patch_worker_status(self, name: str, body: Object) -> Object: ...
    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Object]: ...
    async def list_job(self, name: str) -> Object: ...
    def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Object]: ...


class Kube:
    """KubeApi over HTTP. Make it inside the event loop, and close it."""

    def __init__(self, namespace: str, server: InCluster, http: aiohttp.ClientSession | None = None) -> None:
        """Raises ConfigError."""
        self._token, self._server = Token(server.token), server.url
        self._workers, self._jobs = server.url + WORKERS.all(namespace), server.url + JOBS.all(namespace)
        self._http = _session(server) if http is None else http

    async def close(self) -> None:
        await self._http.close()

    async def get_worker(self, name: str) -> Object:
        return await self._call("GET", f"{self._workers}/{name}")

    async def create_worker(self, body: Object) -> Object:
        return await self._call("POST", self._workers, body, JSON)

    async def replace_worker(self, name: str, body: Object) -> Object:
        return await self._call("PUT", f"{self._workers}/{name}", body, JSON)

    async def patch_worker(self, name: str, body: Object) -> Object:
        return await self._call("PATCH", f"{self._workers}/{name}", body, MERGE_PATCH)

    async def patch_worker_status(self, name: str, body: Object) -> Object:
        return await self._call("PATCH", f"{self._workers}/{name}/status", body, MERGE_PATCH)

    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Object]:
        """The job's workers, or only those of `indices` if any are given."""
        these = f",{INDEX_LABEL} in ({','.join(map(str, indices))})" if indices else ""
        query = urlencode({"labelSelector": f"{JOB_LABEL}={job}{these}"})
        listed = await self._call("GET", f"{self._workers}?{query}")
        items: list[Object] = listed["items"]
        return items

    async def list_job(self, name: str) -> Object:
        query = urlencode({"fieldSelector": f"metadata.name={name}"})
        return await self._call("GET", f"{self._jobs}?{query}")

    async def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Object]:
        """Events of one job after `resource_version`, including bookmarks and errors, until the server ends the
        stream."""
        asked = {
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": resource_version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        url = f"{self._jobs}?{urlencode(asked)}"
        silent = f"the API server did not end a watch of {seconds} s in time"
        response = await self._answered(_soon(self._send("GET", url, seconds + REQUEST_SECONDS)))
        try:
            if response.status != 200:
                raise self._failure(response.status, await self._answered(_soon(response.read())))
            opened()
            while line := await self._answered(response.content.readline(), silent):
                yield json.loads(line)
        finally:
            response.close()

    async def _call(self, method: str, url: str, body: Object | None = None, kind: str = "") -> Object:
        return await self._answered(self._answer(method, url, body, kind))

    async def _answer(self, method: str, url: str, body: Object | None, kind: str) -> Object:
        if method in WRITES:
            url = f"{url}?{OWNER}"
        async with await self._send(method, url, REQUEST_SECONDS, body, kind) as response:
            read = await response.read()
        if not 200 <= response.status < 300:
            raise self._failure(response.status, read)
        answer: Object = json.loads(read)
        return answer

    async def _send(
        self, method: str, url: str, seconds: float, body: Object | None = None, kind: str = ""
    ) -> aiohttp.ClientResponse:
        """Send a request. An attempt to connect is short, and a connection whose other end is gone ends within 25
        seconds."""
        headers = {"Authorization": f"Bearer {self._token.value}"}
        data = None
        if body is not None:
            headers["Content-Type"], data = kind, json.dumps(body).encode()
        limits = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)
        return await self._http.request(method, url, data=data, headers=headers, timeout=limits, allow_redirects=False)

    async def _answered(self, call: Awaitable[T], late: str = LATE) -> T:
        try:
            return await call
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(error, late, self._server) from None

    def _failure(self, status: int, body: bytes) -> ApiError:
        if status == 401:
            self._token.refused()
        return error_of(status, body, f"the API server answered {status}: ")


def _session(server: InCluster) -> aiohttp.ClientSession:
    # trust_env would look for a .netrc in a thread before each request, and could route requests through a proxy
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=server.tls(), socket_factory=_socket, keepalive_timeout=IDLE_SECONDS),
        headers={"Accept": JSON, "User-Agent": user_agent(PART)},
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=EVENT_BYTES,
        trust_env=False,
    )


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, type_, proto, _, _ = info
    made = socket.socket(family, type_, proto)
    made.setblocking(False)
    keep_alive(made)
    return made


async def _soon(call: Awaitable[T]) -> T:
    async with asyncio.timeout(REQUEST_SECONDS):  # before Python 3.12 asyncio.wait_for may swallow a cancellation
        return await call


def _unreachable(error: Exception, late: str, server: str) -> Unavailable:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NoConnection(f"no connection to the API server at {server} within {CONNECT_SECONDS:g} s")
    if isinstance(error, TimeoutError):
        return Unavailable(late)
    if isinstance(error, aiohttp.ClientPayloadError):
        return Unavailable("the connection to the API server broke off")
    if isinstance(error, aiohttp.ClientSSLError):
        return _untrusted(error, server)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NoConnection(f"no connection to the API server at {server}: {error.strerror or error}")
    return Unavailable(f"the API server does not answer: {str(error) or type(error).__name__}")


def _untrusted(error: aiohttp.ClientSSLError, server: str) -> Untrusted:
    cause = getattr(error, "certificate_error", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = f"its certificate is refused: {cause.verify_message}"
        return Untrusted(f"no trusted connection to {server}: {why}", speaks_of_time=cause.verify_code in TIME_ERRORS)
    return Untrusted(f"no trusted connection to {server}: {error}", speaks_of_time=False)

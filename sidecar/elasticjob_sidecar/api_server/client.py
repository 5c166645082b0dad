# SPDX-License-Identifier: Apache-2.0
"""The few requests that the sidecar makes to the Kubernetes API. All fail with an `ApiError`.

Even the smallest part of a Kubernetes library would cost each worker 13 MiB, for eight requests.
"""

import socket
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp

from elasticjob.api import INDEX_LABEL, JOB_LABEL
from elasticjob.kube.errors import Denied, NotFound, Untrusted
from elasticjob.kube.paths import JOBS, WORKERS
from elasticjob.objects import Object
from elasticjob_http.transport import EVENT_BYTES, Transport
from elasticjob_sidecar.api_server.in_cluster import InCluster, Token
from elasticjob_sidecar.sockets import keep_alive

REQUEST_SECONDS = 5.0
IDLE_SECONDS = 75.0  # between heartbeats with 3600 workers; the API server closes a connection after 90
PART = "sidecar"

# these concern this sidecar alone; an unavailable API server concerns all
REFUSALS = (Denied, NotFound, Untrusted)


class KubeApi:
    """The requests that the sidecar makes, in its namespace."""

    def __init__(self, namespace: str, transport: Transport) -> None:
        self._namespace, self._transport = namespace, transport

    async def close(self) -> None:
        await self._transport.close()

    async def get_worker(self, name: str) -> Object:
        return await self._call("GET", WORKERS.one(name, self._namespace))

    async def create_worker(self, body: Object) -> Object:
        return await self._call("POST", WORKERS.all(self._namespace), body)

    async def replace_worker(self, name: str, body: Object) -> Object:
        return await self._call("PUT", WORKERS.one(name, self._namespace), body)

    async def patch_worker(self, name: str, body: Object) -> Object:
        return await self._call("PATCH", WORKERS.one(name, self._namespace), body)

    async def patch_worker_status(self, name: str, body: Object) -> Object:
        return await self._call("PATCH", WORKERS.one(name, self._namespace, "status"), body)

    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Object]:
        """The job's workers, or only those of `indices` if any are given."""
        these = f",{INDEX_LABEL} in ({','.join(map(str, indices))})" if indices else ""
        selector = {"labelSelector": f"{JOB_LABEL}={job}{these}"}
        items: list[Object] = (await self._call("GET", WORKERS.all(self._namespace), query=selector))["items"]
        return items

    async def list_job(self, name: str) -> Object:
        return await self._call("GET", JOBS.all(self._namespace), query=_only(name))

    def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Object]:
        """Events of one job after `resource_version`, including bookmarks and errors, until the server ends the
        stream."""
        query = {**_only(name), "resourceVersion": resource_version}
        return self._transport.watch(JOBS.all(self._namespace), query, seconds, REQUEST_SECONDS, opened)

    async def _call(
        self, method: str, path: str, body: Object | None = None, query: dict[str, str] | None = None
    ) -> Object:
        return await self._transport.request(method, path, body, query, seconds=REQUEST_SECONDS)


def connected(server: InCluster, http: aiohttp.ClientSession | None = None) -> Transport:
    """The API server, with the pod's token. Call it inside the event loop. Raises ConfigError."""
    token = Token(server.token)
    transport = Transport(PART, server.url, http or _session(server), token.header)
    transport.ended = token.answered
    return transport


def _session(server: InCluster) -> aiohttp.ClientSession:
    # trust_env would look for a .netrc in a thread before each request, and could route requests through a proxy
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=server.tls(), socket_factory=_socket, keepalive_timeout=IDLE_SECONDS),
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


def _only(job: str) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={job}"}

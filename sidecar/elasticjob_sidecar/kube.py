"""The few calls that the sidecar makes to the Kubernetes API, and their failures as one tree.

    ApiFailure              `str()` is one sentence
    |-- Unreachable         no answer, or 429 or 5xx: nobody knows whether a write was made; try again
    |-- Denied              401, 403, 400, 422: somebody has to mend something; try again, slowly
    |-- Missing             404
    |-- Conflict            409: the object is newer than we thought, or exists already
    `-- Gone                410: this resourceVersion is too old to watch from

Only CustomObjectsApi is imported: another API class costs 25 MiB. Only the in-cluster configuration is known.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration, CustomObjectsApi
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config

from elasticjob.api import GROUP, INDEX_LABEL, JOB_LABEL, JOBS, VERSION, WORKERS
from elasticjob_sidecar.config import HINT, ConfigError
from elasticjob_sidecar.sockets import keep_alive

CONNECT_SECONDS = 3.0  # a connection tried for longer would be tried ever more seldom by the kernel
REQUEST_SECONDS = 5.0
LATE = f"the API server did not answer within {REQUEST_SECONDS:g} s"

Json = dict[str, Any]


class ApiFailure(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(ApiFailure): ...


class Denied(ApiFailure): ...


class Missing(ApiFailure): ...


class Conflict(ApiFailure): ...


class Gone(ApiFailure): ...


BY_STATUS: dict[int, type[ApiFailure]] = {
    400: Denied, 401: Denied, 403: Denied, 404: Missing, 409: Conflict, 410: Gone, 422: Denied,
}  # fmt: skip


class KubeApi(Protocol):
    """What the sidecar needs of the API server; tests put a fake in its place."""

    async def get_worker(self, name: str) -> Json: ...
    async def create_worker(self, body: Json) -> Json: ...
    async def patch_worker(self, name: str, body: Json) -> Json: ...
    async def patch_worker_status(self, name: str, body: Json) -> Json: ...
    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Json]: ...
    async def list_job(self, name: str) -> Json: ...
    def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Json]: ...


class Kube:
    """KubeApi over `kubernetes.aio`. To be made inside the event loop, and closed."""

    def __init__(self, namespace: str) -> None:
        # trust_env: else a thread looks for a .netrc before each request, and a proxy may be put in between
        configuration = Configuration(client_session_kwargs={"trust_env": False})
        try:
            load_incluster_config(configuration)
        except ConfigException as error:
            raise ConfigError(f"no access to the Kubernetes API ({str(error).rstrip('.')}): {HINT}.") from None
        self._client = ApiClient(configuration)
        self._client.rest_client = _Rest(configuration)
        self._api = CustomObjectsApi(self._client)
        place = {
            "group": GROUP,
            "version": VERSION,
            "namespace": namespace,
            "_request_timeout": REQUEST_SECONDS,
        }
        self._worker: Json = {**place, "plural": WORKERS}
        self._job: Json = {**place, "plural": JOBS}

    async def close(self) -> None:
        await self._client.close()

    async def get_worker(self, name: str) -> Json:
        return await _answer(self._api.get_namespaced_custom_object(**self._worker, name=name))

    async def create_worker(self, body: Json) -> Json:
        return await _answer(self._api.create_namespaced_custom_object(**self._worker, body=body))

    async def patch_worker(self, name: str, body: Json) -> Json:
        return await _answer(self._api.patch_namespaced_custom_object(**self._worker, name=name, body=body))

    async def patch_worker_status(self, name: str, body: Json) -> Json:
        call = self._api.patch_namespaced_custom_object_status
        return await _answer(call(**self._worker, name=name, body=body))

    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Json]:
        """The job's; only those of `indices`, if any are given."""
        call = self._api.list_namespaced_custom_object
        these = f",{INDEX_LABEL} in ({','.join(map(str, indices))})" if indices else ""
        listed = await _answer(call(**self._worker, label_selector=f"{JOB_LABEL}={job}{these}"))
        items: list[Json] = listed["items"]
        return items

    async def list_job(self, name: str) -> Json:
        call = self._api.list_namespaced_custom_object
        return await _answer(call(**self._job, field_selector=f"metadata.name={name}"))

    async def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Json]:
        """Events of one job after `resource_version`, bookmarks too, until the server ends the stream."""
        call = self._api.list_namespaced_custom_object_without_preload_content
        watch = {"watch": True, "allow_watch_bookmarks": True, "resource_version": resource_version}
        limits = {"timeout_seconds": seconds, "_request_timeout": seconds + REQUEST_SECONDS}
        silent = f"the API server did not end a watch of {seconds} s in time"
        opening = call(**{**self._job, **watch, **limits}, field_selector=f"metadata.name={name}")
        response: aiohttp.ClientResponse = await _answered(_soon(opening))
        try:
            if response.status != 200:
                raise _failure(response.status, await _answered(_soon(response.text())))
            opened()
            while line := await _answered(response.content.readline(), silent):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _failure(event["object"].get("code", 500), json.dumps(event["object"]))
                yield event
        finally:
            response.close()


class _Rest(RESTClientObject):
    """The client's transport: no attempt to connect lasts long, and a connection to nowhere ends in 25 seconds."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=self.ssl_context, socket_factory=_socket)

    async def request(
        self,
        method: Any,
        url: Any,
        headers: Any = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> Any:
        limits = aiohttp.ClientTimeout(total=_request_timeout, connect=CONNECT_SECONDS)
        send: Any = super().request  # has no types
        return await send(method, url, headers, body, post_params, limits)


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, type_, proto, _, _ = info
    made = socket.socket(family, type_, proto)
    made.setblocking(False)
    keep_alive(made)
    return made


async def _soon(call: Awaitable[Any]) -> Any:
    async with asyncio.timeout(REQUEST_SECONDS):  # asyncio.wait_for may pass over a cancellation before Python 3.12
        return await call


async def _answer(call: Awaitable[Any]) -> Json:
    answer: Json = await _answered(call)
    return answer


async def _answered(call: Awaitable[Any], late: str = LATE) -> Any:
    try:
        return await call
    except ApiException as error:
        raise _failure(error.status or 500, error.body or "") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unreachable(error, late) from None


def _unreachable(error: Exception, late: str) -> Unreachable:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable(f"no connection to the API server within {CONNECT_SECONDS:g} s")
    if isinstance(error, TimeoutError):
        return Unreachable(late)
    if isinstance(error, aiohttp.ClientPayloadError):
        return Unreachable("the connection to the API server broke off")
    return Unreachable(f"the API server does not answer: {str(error) or type(error).__name__}")


def _failure(status: int, body: str) -> ApiFailure:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:256]
    return BY_STATUS.get(status, Unreachable)(f"the API server answered {status}: {message}", status)

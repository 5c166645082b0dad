# SPDX-License-Identifier: Apache-2.0
"""The calls to the API server that the operator makes, as plain JSON. Retries nothing: the queue does that."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from elasticjob.api import API_VERSION, JOB_LABEL
from elasticjob.kube.errors import ApiError, Busy, Conflict, Invalid, NotFound, Terminating, TimedOut
from elasticjob.kube.paths import JOBS, LEASES, NODES, POD_TEMPLATES, PODS, WORKERS, WORKLOADS
from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record
from elasticjob_http.transport import Transport

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 10.0
WORKLOADS_SECONDS = 3.0
ADMISSION_SECONDS = 15.0  # by default the API server waits 10 s for a webhook, and then names it
PART = "operator"
# to compress an answer costs the API server more than the cluster's network does
UNCOMPRESSED = {"Accept-Encoding": "identity"}
PAGE = 100  # objects in one page of a listing; for pods 1 MB on the wire, and 6 MB as Python objects


class Listing(NamedTuple, Generic[T]):
    """The result of a list request, and the resourceVersion of that state."""

    items: list[T]
    version: str


def _as_it_came(body: Object) -> Any:
    return body


def _without_templates(workload: Object) -> Object:
    """The Workload without its pod templates: they are most of it, and nobody reads them."""
    for pod_set in workload["spec"].get("podSets") or ():
        pod_set.pop("template", None)
    workload["metadata"].pop("managedFields", None)
    return workload


class Kube:
    """One connection pool to the API server. All calls raise ApiError."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @classmethod
    async def connect(cls) -> Self:
        """Connects by the in-cluster configuration if there is one, otherwise by the kubeconfig. Raises
        `config.ConfigException`."""
        configuration = Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)
        return cls.of(configuration)

    @classmethod
    def of(cls, configuration: Configuration) -> Self:
        """Connects as `configuration` says: address, TLS, proxy and authentication."""
        tls = RESTClientObject(configuration).ssl_context
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls), headers=UNCOMPRESSED, proxy=configuration.proxy, trust_env=True
        )
        token = partial(configuration.get_api_key_with_prefix, "BearerToken", alias="authorization")
        name = configuration.tls_server_name
        return cls(Transport(PART, configuration.host, http, token, named=True, server_hostname=name))

    async def close(self) -> None:
        await self.transport.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Object:
        """One request. Returns the answer's JSON, within `seconds`."""
        return await self.transport.request(method, path, body, query, seconds=seconds)

    async def unserved(self) -> set[str]:
        """The project's kinds that the API server does not serve, because their CRDs are not installed, or not yet."""
        try:
            served = await self.request("GET", JOBS.root)
        except NotFound:
            return {JOBS.plural, WORKERS.plural}
        return {JOBS.plural, WORKERS.plural} - {resource["name"] for resource in served["resources"]}

    async def job(self, namespace: str, name: str) -> Object:
        return await self.request("GET", JOBS.one(name, namespace))

    async def replace_job_status(self, job: Object, status: Object) -> Object:
        """Writes `status` if the job has not changed since `job` was read. Raises Conflict otherwise."""
        meta = job["metadata"]
        path = JOBS.one(meta["name"], meta["namespace"], "status")
        return await self.request(
            "PUT", path, {**job, "apiVersion": API_VERSION, "kind": "ElasticJob", "status": status}
        )

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(JOBS.one(name, namespace), uid)

    async def jobs(self, namespace: str | None) -> Listing[Object]:
        """The jobs in `namespace`, None for all. The next two methods take the same argument."""
        return await self._list(JOBS.all(namespace))

    async def pods(self, namespace: str | None, selector: str) -> Listing[Pod]:
        return await self._list(PODS.all(namespace), selector, read=Pod.read)

    async def workers(self, namespace: str | None, selector: str) -> Listing[Record]:
        return await self._list(WORKERS.all(namespace), selector, read=Record.read)

    async def nodes(self) -> Listing[Node]:
        return await self._list(NODES.all(), read=Node.read)

    async def workloads(self, namespace: str | None) -> Listing[Object]:
        """Kueue's Workloads of all jobs, without their pod templates. Raises NotFound without Kueue, and TimedOut if
        a page takes long, because a job's step waits for it."""
        path = WORKLOADS.all(namespace)
        return await self._list(path, JOB_LABEL, read=_without_templates, seconds=WORKLOADS_SECONDS)

    async def create_pod(self, pod: Object) -> Object:
        path = PODS.all(pod["metadata"]["namespace"])
        return await self.request("POST", path, pod, seconds=ADMISSION_SECONDS)

    async def set_deadline(self, pod: Pod, seconds: int) -> Object | None:
        """Lets the pod run for `seconds` from its start. Returns None if this pod no longer exists."""
        path = PODS.one(pod.name, pod.namespace)
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": seconds}}
        with suppress(NotFound, Conflict):
            return await self.request("PATCH", path, patch)
        return None

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.request("GET", PODS.one(name, namespace))

    async def try_template(self, namespace: str, template: Object) -> str | None:
        """What is wrong with the form of the pod template `template`, including unknown fields; None if nothing is, or
        if the API server could not check it. Raises Busy, Terminating.

        It is tried as a PodTemplate. What the cluster allows of pods at the moment, by quotas, limits, policies and
        webhooks, is a separate question, answered when a pod is made.
        """
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "tried"}, "template": template}
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            await self.request("POST", POD_TEMPLATES.all(namespace), body, query, ADMISSION_SECONDS)
        except Invalid as error:
            return str(error)
        except (Busy, Terminating):
            raise
        except ApiError as error:
            if not (error.status or isinstance(error, TimedOut)):  # nobody was asked
                raise
            log.warning("%s: the form of a pod template could not be tried: %s", namespace, error)
        return None

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(PODS.one(name, namespace), uid)

    async def delete(self, path: str, uid: str) -> None:
        """Deletes the object at `path` if it has `uid`. If it is gone, or another by now, that is no error."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with suppress(NotFound, Conflict):
            await self.request("DELETE", path, options)

    async def lease(self, namespace: str, name: str, seconds: float) -> Object:
        path = LEASES.one(name, namespace)
        return await self.request("GET", path, seconds=seconds)

    async def write_lease(self, lease: Object, seconds: float) -> Object:
        """Creates or replaces a Lease, guarded by its resourceVersion. Raises Conflict."""
        meta = lease["metadata"]
        if "resourceVersion" not in meta:
            return await self.request("POST", LEASES.all(meta["namespace"]), lease, seconds=seconds)
        return await self.request("PUT", LEASES.one(meta["name"], meta["namespace"]), lease, seconds=seconds)

    async def _list(
        self,
        path: str,
        selector: str = "",
        *,
        read: Callable[[Object], T] = _as_it_came,
        seconds: float = REQUEST_SECONDS,
    ) -> Listing[T]:
        """Lists in pages, all of which show the state at the first request. Each page is read before the next, and has
        to arrive within `seconds`."""
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        answer = await self.request("GET", path, query=query, seconds=seconds)
        version, items = answer["metadata"]["resourceVersion"], list(map(read, answer["items"]))
        while after := answer["metadata"].get("continue"):
            answer = await self.request("GET", path, query={**query, "continue": after}, seconds=seconds)
            items += map(read, answer["items"])
        return Listing(items, version)

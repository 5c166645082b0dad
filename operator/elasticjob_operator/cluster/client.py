# SPDX-License-Identifier: Apache-2.0
"""The few calls to the API server that the operator makes, as plain JSON. Retries nothing: that is the queue's work."""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob.api import API_VERSION, JOB_LABEL
from elasticjob.kube.errors import ApiError, Busy, Conflict, Invalid, NotFound, Terminating, error_of
from elasticjob.kube.names import field_manager, user_agent
from elasticjob.kube.paths import JOBS, LEASES, NODES, POD_TEMPLATES, PODS, WORKERS, WORKLOADS, WRITES, verb_of
from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 10.0
WORKLOADS_SECONDS = 3.0
ADMISSION_SECONDS = 15.0  # the API server waits 10 for a webhook unless it was set otherwise, and then names it
PART = "operator"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
PAGE = 100  # objects in one answer of a listing: of pods it is a megabyte as it comes, and six as Python reads it


# whatever a request can end with but an answer; a TimeoutError is an OSError
FAILURES = (ApiError, OSError, aiohttp.ClientError)


class Listing(NamedTuple, Generic[T]):
    """What a list request found, and the resourceVersion at which it looked."""

    items: list[T]
    version: str


def _as_it_came(body: Object) -> Any:
    return body


def _without_templates(workload: Object) -> Object:
    """They are nearly all of it, and nobody reads them."""
    for pod_set in workload["spec"].get("podSets") or ():
        pod_set.pop("template", None)
    workload["metadata"].pop("managedFields", None)
    return workload


class Kube:
    """One connection pool to the API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        client.user_agent = user_agent(PART)
        self.ended: Callable[[str, int], None] = lambda _, __: None  # told each request's verb and code, 0: no answer

    @classmethod
    async def connect(cls) -> Self:
        """In-cluster configuration where there is one, else the kubeconfig. Raises `config.ConfigException`."""
        configuration = Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)
        return cls(ApiClient(configuration))

    async def close(self) -> None:
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Object:
        """One request; returns the answer's JSON, within `seconds`. Raises FAILURES."""
        asked = dict(query or ()) | ({"fieldManager": field_manager(PART)} if method in WRITES else {})
        url, verb = f"{path}?{urlencode(asked)}" if asked else path, verb_of(method, path, asked)
        parts = await self._client.param_serialize(
            method,
            url,
            body=body,
            auth_settings=["BearerToken"],
            query_params=[],
            header_params={"Accept": "application/json", **(MERGE_PATCH if method == "PATCH" else {})},
        )
        try:
            response = await self._client.call_api(*parts, _request_timeout=seconds)
            text = await response.read()
        except TimeoutError:
            self.ended(verb, 0)
            message = f"{method} {path}: no answer from the API server within {seconds:g} s"
            raise TimeoutError(message) from None
        except (OSError, aiohttp.ClientError):
            self.ended(verb, 0)
            raise
        self.ended(verb, response.status)
        if response.status >= 400:
            raise error_of(response.status, text)
        answer: Object = json.loads(text)
        return answer

    async def unserved(self) -> set[str]:
        """The kinds of this project that the API server does not serve: their CRDs are not there, or not yet."""
        try:
            served = await self.request("GET", JOBS.root)
        except NotFound:
            return {JOBS.plural, WORKERS.plural}
        return {JOBS.plural, WORKERS.plural} - {resource["name"] for resource in served["resources"]}

    async def job(self, namespace: str, name: str) -> Object:
        return await self.request("GET", JOBS.one(name, namespace))

    async def replace_job_status(self, job: Object, status: Object) -> Object:
        """Writes `status` if the job is still the one that `job` was read as. Raises Conflict otherwise."""
        meta = job["metadata"]
        path = JOBS.one(meta["name"], meta["namespace"], "status")
        return await self.request(
            "PUT", path, {**job, "apiVersion": API_VERSION, "kind": "ElasticJob", "status": status}
        )

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(JOBS.one(name, namespace), uid)

    async def jobs(self, namespace: str | None) -> Listing[Object]:
        """In one namespace, or in all where none is named; so do the next two."""
        return await self._list(JOBS.all(namespace))

    async def pods(self, namespace: str | None, selector: str) -> Listing[Pod]:
        return await self._list(PODS.all(namespace), selector, read=Pod.read)

    async def workers(self, namespace: str | None, selector: str) -> Listing[Record]:
        return await self._list(WORKERS.all(namespace), selector, read=Record.read)

    async def nodes(self) -> Listing[Node]:
        return await self._list(NODES.all(), read=Node.read)

    async def workloads(self, namespace: str | None) -> Listing[Object]:
        """Kueue's, of all jobs, without their pod templates. Raises NotFound where there is no Kueue, TimeoutError with
        a page of it that takes long: a step of a job waits for it."""
        path = WORKLOADS.all(namespace)
        return await self._list(path, JOB_LABEL, read=_without_templates, seconds=WORKLOADS_SECONDS)

    async def create_pod(self, pod: Object) -> Object:
        path = PODS.all(pod["metadata"]["namespace"])
        return await self.request("POST", path, pod, seconds=ADMISSION_SECONDS)

    async def set_deadline(self, pod: Pod, seconds: int) -> Object | None:
        """The pod may run for `seconds` from its start; None when exactly this one is there no more."""
        path = PODS.one(pod.name, pod.namespace)
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": seconds}}
        with suppress(NotFound, Conflict):
            return await self.request("PATCH", path, patch)
        return None

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.request("GET", PODS.one(name, namespace))

    async def try_template(self, namespace: str, template: Object) -> str | None:
        """What is wrong with the form of pod template `template`, an unknown field included. Raises Busy,
        Terminating.

        It is tried as a PodTemplate: what the cluster allows of pods now, by quotas, limits, policies and webhooks, is
        another question, and answered when one is made.
        """
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "tried"}, "template": template}
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            await self.request("POST", POD_TEMPLATES.all(namespace), body, query, ADMISSION_SECONDS)
        except Invalid as error:
            return str(error)
        except (Busy, Terminating):
            raise
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer within {ADMISSION_SECONDS:g} s"
            log.warning("%s: the form of a pod template could not be tried: %s", namespace, why)
        return None

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(PODS.one(name, namespace), uid)

    async def delete(self, path: str, uid: str) -> None:
        """Deletes exactly the object at `path` with `uid`; one that is gone, or another by now, is no error."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with suppress(NotFound, Conflict):
            await self.request("DELETE", path, options)

    async def lease(self, namespace: str, name: str, seconds: float) -> Object:
        path = LEASES.one(name, namespace)
        return await self.request("GET", path, seconds=seconds)

    async def write_lease(self, lease: Object, seconds: float) -> Object:
        """Creates or replaces a Lease; its resourceVersion guards it. Raises Conflict."""
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
        """In pages, all of which show what there was when the first was asked for; each is read before the next, and
        comes within `seconds`."""
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        answer = await self.request("GET", path, query=query, seconds=seconds)
        version, items = answer["metadata"]["resourceVersion"], list(map(read, answer["items"]))
        while after := answer["metadata"].get("continue"):
            answer = await self.request("GET", path, query={**query, "continue": after}, seconds=seconds)
            items += map(read, answer["items"])
        return Listing(items, version)

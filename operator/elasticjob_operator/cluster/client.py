"""The few calls to the API server that the operator makes, as plain JSON. Retries nothing: that is the queue's work."""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob.api import API_VERSION, JOB_LABEL, JOBS, WORKERS
from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record
from elasticjob.text import printable
from elasticjob_operator.objects.paths import COORDINATION, CORE, CUSTOM, QUEUES

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 10.0
WORKLOADS_SECONDS = 3.0
ADMISSION_SECONDS = 15.0  # the API server waits 10 for a webhook unless it was set otherwise, and then names it
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
PAGE = 100  # objects in one answer of a listing: of pods it is a megabyte as it comes, and six as Python reads it


class ApiError(Exception):
    """The API server refused a request.

    ApiError
     + Conflict   409: the object has changed, or exists already
     + NotFound   404
     + Invalid    400, 422: asking again without a change is of no use
     + Forbidden  403, or what else a webhook or policy answers: rights, quotas and rules, which may change
         + Terminating  the namespace is being deleted: nothing can be made in it any more
     + Busy       429, 503, 504: the server cannot answer now
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Conflict(ApiError):
    pass


class NotFound(ApiError):
    pass


class Invalid(ApiError):
    pass


class Forbidden(ApiError):
    pass


class Terminating(Forbidden):
    pass


class Busy(ApiError):
    pass


# whatever a request can end with but an answer; a TimeoutError is an OSError
FAILURES = (ApiError, OSError, aiohttp.ClientError)

KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: Busy,
    503: Busy,
    504: Busy,
}
TERMINATING = "NamespaceTerminating"
# the refusals of an admission webhook, which choose the status, and of a ValidatingAdmissionPolicy, which have 422
DENIED = re.compile(r"^admission webhook .* denied the request|ValidatingAdmissionPolicy '.*' denied request: ")


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
        self.failed: Callable[[int], None] = lambda _: None  # told the code of each refusal, 0 where no answer came

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
        url = f"{path}?{urlencode(query)}" if query else path
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
            self.failed(0)
            message = f"{method} {path}: no answer from the API server within {seconds:g} s"
            raise TimeoutError(message) from None
        except (OSError, aiohttp.ClientError):
            self.failed(0)
            raise
        if response.status >= 400:
            self.failed(response.status)
            raise error_of(response.status, message_of(text), causes_of(text))
        answer: Object = json.loads(text)
        return answer

    async def unserved(self) -> set[str]:
        """The kinds of this project that the API server does not serve: their CRDs are not there, or not yet."""
        try:
            served = await self.request("GET", CUSTOM)
        except NotFound:
            return {JOBS, WORKERS}
        return {JOBS, WORKERS} - {resource["name"] for resource in served["resources"]}

    async def job(self, namespace: str, name: str) -> Object:
        return await self.request("GET", f"{CUSTOM}/namespaces/{namespace}/{JOBS}/{name}")

    async def replace_job_status(self, job: Object, status: Object) -> Object:
        """Writes `status` if the job is still the one that `job` was read as. Raises Conflict otherwise."""
        meta = job["metadata"]
        path = f"{CUSTOM}/namespaces/{meta['namespace']}/{JOBS}/{meta['name']}/status"
        return await self.request(
            "PUT", path, {**job, "apiVersion": API_VERSION, "kind": "ElasticJob", "status": status}
        )

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(f"{CUSTOM}/namespaces/{namespace}/{JOBS}/{name}", uid)

    async def jobs(self, namespace: str | None) -> Listing[Object]:
        """In one namespace, or in all where none is named; so do the next two."""
        return await self._list(f"{CUSTOM}{_inside(namespace)}/{JOBS}")

    async def pods(self, namespace: str | None, selector: str) -> Listing[Pod]:
        return await self._list(f"{CORE}{_inside(namespace)}/pods", selector, read=Pod.read)

    async def workers(self, namespace: str | None, selector: str) -> Listing[Record]:
        return await self._list(f"{CUSTOM}{_inside(namespace)}/{WORKERS}", selector, read=Record.read)

    async def nodes(self) -> Listing[Node]:
        return await self._list(f"{CORE}/nodes", read=Node.read)

    async def workloads(self, namespace: str | None) -> Listing[Object]:
        """Kueue's, of all jobs, without their pod templates. Raises NotFound where there is no Kueue, TimeoutError with
        a page of it that takes long: a step of a job waits for it."""
        path = f"{QUEUES}{_inside(namespace)}/workloads"
        return await self._list(path, JOB_LABEL, read=_without_templates, seconds=WORKLOADS_SECONDS)

    async def create_pod(self, pod: Object) -> Object:
        path = f"{CORE}/namespaces/{pod['metadata']['namespace']}/pods"
        return await self.request("POST", path, pod, seconds=ADMISSION_SECONDS)

    async def set_deadline(self, pod: Pod, seconds: int) -> Object | None:
        """The pod may run for `seconds` from its start; None when exactly this one is there no more."""
        path = f"{CORE}/namespaces/{pod.namespace}/pods/{pod.name}"
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": seconds}}
        with suppress(NotFound, Conflict):
            return await self.request("PATCH", path, patch)
        return None

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.request("GET", f"{CORE}/namespaces/{namespace}/pods/{name}")

    async def try_template(self, namespace: str, template: Object) -> str | None:
        """What is wrong with the form of pod template `template`, an unknown field included. Raises Busy,
        Terminating.

        It is tried as a PodTemplate: what the cluster allows of pods now, by quotas, limits, policies and webhooks, is
        another question, and answered when one is made.
        """
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "tried"}, "template": template}
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            await self.request("POST", f"{CORE}/namespaces/{namespace}/podtemplates", body, query, ADMISSION_SECONDS)
        except Invalid as error:
            return str(error)
        except (Busy, Terminating):
            raise
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer within {ADMISSION_SECONDS:g} s"
            log.warning("%s: the form of a pod template could not be tried: %s", namespace, why)
        return None

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        await self.delete(f"{CORE}/namespaces/{namespace}/pods/{name}", uid)

    async def delete(self, path: str, uid: str) -> None:
        """Deletes exactly the object at `path` with `uid`; one that is gone, or another by now, is no error."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with suppress(NotFound, Conflict):
            await self.request("DELETE", path, options)

    async def lease(self, namespace: str, name: str, seconds: float) -> Object:
        path = f"{COORDINATION}/namespaces/{namespace}/leases/{name}"
        return await self.request("GET", path, seconds=seconds)

    async def write_lease(self, lease: Object, seconds: float) -> Object:
        """Creates or replaces a Lease; its resourceVersion guards it. Raises Conflict."""
        path = f"{COORDINATION}/namespaces/{lease['metadata']['namespace']}/leases"
        if "resourceVersion" not in lease["metadata"]:
            return await self.request("POST", path, lease, seconds=seconds)
        return await self.request("PUT", f"{path}/{lease['metadata']['name']}", lease, seconds=seconds)

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


def _inside(namespace: str | None) -> str:
    return f"/namespaces/{namespace}" if namespace else ""


def error_of(status: int, message: str, causes: Collection[str] = ()) -> ApiError:
    if TERMINATING in causes:
        return Terminating(status, message)
    kind = Forbidden if DENIED.search(message) else KINDS.get(status, ApiError)
    return kind(status, message)


def causes_of(text: bytes) -> frozenset[str]:
    """The words by which an answer of the API server names the causes of a refusal; of anything else none."""
    try:
        return frozenset(str(cause["reason"]) for cause in json.loads(text)["details"]["causes"])
    except (ValueError, KeyError, TypeError):
        return frozenset()


def message_of(text: bytes) -> str:
    """The sentence in an answer of the API server, which may be a webhook's; the beginning of anything else."""
    try:
        return printable(str(json.loads(text)["message"]))
    except (ValueError, KeyError, TypeError):
        return printable(text[:256].decode(errors="replace"))

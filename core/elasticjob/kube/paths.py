# SPDX-License-Identifier: Apache-2.0
"""The paths of the objects that this project reads or writes at the API server."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from elasticjob import api

WRITES = frozenset({"POST", "PUT", "PATCH"})  # the methods that take a field manager
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Resource(NamedTuple):
    """One kind of object. `group` is empty for the core group."""

    plural: str
    group: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def all(self, namespace: str | None = None) -> str:
        """The path of the collection in `namespace`, or in the whole cluster."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{self.root}{inside}/{self.plural}"

    def one(self, name: str, namespace: str | None = None, subresource: str = "") -> str:
        """The path of one object, or of a subresource of it, such as "status"."""
        path = f"{self.all(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


JOBS = Resource(api.JOBS, api.GROUP, api.VERSION)
WORKERS = Resource(api.WORKERS, api.GROUP, api.VERSION)

CLAIMS = Resource("persistentvolumeclaims")
EVENTS = Resource("events")
NODES = Resource("nodes")
PODS = Resource("pods")
POD_TEMPLATES = Resource("podtemplates")
SERVICE_ACCOUNTS = Resource("serviceaccounts")

BUDGETS = Resource("poddisruptionbudgets", "policy")
LEASES = Resource("leases", "coordination.k8s.io")
NETWORK_POLICIES = Resource("networkpolicies", "networking.k8s.io")
ROLES = Resource("roles", "rbac.authorization.k8s.io")
ROLE_BINDINGS = Resource("rolebindings", "rbac.authorization.k8s.io")

ACCESS_REVIEWS = Resource("subjectaccessreviews", "authorization.k8s.io")
TOKEN_REVIEWS = Resource("tokenreviews", "authentication.k8s.io")

WORKLOADS = Resource("workloads", "kueue.x-k8s.io", "v1beta2")
WORKLOAD_PRIORITIES = Resource("workloadpriorityclasses", "kueue.x-k8s.io", "v1beta2")
FLAVORS = Resource("resourceflavors", "kueue.x-k8s.io", "v1beta2")
PRIORITIES = Resource("priorityclasses", "scheduling.k8s.io")


def path_of(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def verb_of(method: str, path: str, query: Mapping[str, str]) -> str:
    """The verb of a request, as RBAC, audit logs and metrics name it."""
    if method != "GET":
        return VERBS[method]
    if "watch" in query:
        return "watch"
    _, kind, *parts = path.split("/")
    inside = parts[1:] if kind == "api" else parts[2:]
    if inside[:1] == ["namespaces"] and len(inside) > 2:
        inside = inside[2:]
    return "list" if len(inside) == 1 else "get"

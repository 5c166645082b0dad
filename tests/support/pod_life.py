# SPDX-License-Identifier: Apache-2.0
"""What a kubelet does for a worker's pod, for pods that no kubelet has: variables, token, certificate."""

from collections.abc import Mapping
from typing import Any, Protocol

from elasticjob_sidecar.store.certificate import make
from elasticjob_sidecar.store.credentials import END_OF_CERTIFICATE, Credentials

Object = dict[str, Any]


def new_credentials() -> Credentials:
    """A sidecar's certificate and key."""
    certificate, end, key = make().decode().partition(END_OF_CERTIFICATE)
    return Credentials(certificate + end, key)


class Calls(Protocol):
    """An API server, as `ApiClient` calls it."""

    async def call(self, method: str, path: str, body: Object | None = None) -> Object: ...


async def new_token(api: Calls, pod: Object, seconds: int) -> str:
    """A token of the pod's service account that is good for so many seconds, while the pod is there."""
    metadata, account = pod["metadata"], pod["spec"]["serviceAccountName"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    request = {"spec": {"boundObjectRef": bound, "expirationSeconds": seconds}}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    answer = await api.call("POST", path, request)
    return str(answer["status"]["token"])


def environment(container: Object, pod: Object, address: str, node: str) -> dict[str, str]:
    """The variables of one of the pod's containers."""
    fields = {
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.name": pod["metadata"]["name"],
        "metadata.uid": pod["metadata"]["uid"],
        "status.podIP": address,
        "spec.nodeName": node,
    }
    return {one["name"]: _value(one, fields) for one in container.get("env", ())}


def _value(variable: Object, fields: Mapping[str, str]) -> str:
    source = variable.get("valueFrom")
    return str(variable.get("value", "") if source is None else fields[source["fieldRef"]["fieldPath"]])

# SPDX-License-Identifier: Apache-2.0
"""The API server as a pod's token meets it: plain HTTPS, since kubectl would use the administrator's certificate."""

import json
import weakref
from typing import Any, NamedTuple, Self

from e2e import api
from e2e.kube import Namespace, Object
from support.waiting import Deadline

GROUP = "/apis/elasticjob.io/v1alpha1"
MERGE = "application/merge-patch+json"
ANSWER_SECONDS = 60.0


class Answer(NamedTuple):
    status: int
    said: str


class Caller:
    """Whoever holds `token`; without one, anybody."""

    def __init__(self, token: str | None, *, administrator: bool = False) -> None:
        self._connection = api.connect(ANSWER_SECONDS, administrator=administrator)
        weakref.finalize(self, self._connection.close)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @classmethod
    def administrator(cls) -> Self:
        """Whom the kubeconfig names."""
        return cls(api.token(), administrator=True)

    def call(self, method: str, path: str, body: Object | None = None) -> Answer:
        kind = MERGE if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        headers = {**self._headers, "Content-Type": kind}
        try:
            status, said = api.exchange(self._connection, method, path, data, headers)
        except TimeoutError as error:
            raise Deadline(f"an answer to {method} {path}", ANSWER_SECONDS) from error
        return Answer(status, said if status < 400 else json.loads(said)["message"])

    def try_out(self, method: str, path: str, body: Object) -> Object | None:
        """The object as it would be kept; None if it is refused."""
        answer = self.call(method, f"{path}?dryRun=All", body)
        assert answer.status < 500, answer
        kept: Object | None = json.loads(answer.said) if answer.status < 300 else None
        return kept

    def create(self, namespace: Namespace, record: Object) -> Answer:
        return self.call("POST", path("elasticworkers", namespace), record)

    def patch(self, namespace: Namespace, name: str, body: Object, part: str = "") -> Answer:
        return self.call("PATCH", path("elasticworkers", namespace, name, part), body)


def path(kind: str, namespace: Namespace, *rest: str) -> str:
    return "/".join([GROUP, "namespaces", namespace.name, kind, *filter(None, rest)])


def token(namespace: Namespace, account: str, pod: Object | None = None) -> str:
    """As the kubelet asks for it when it is bound to `pod`."""
    bound = []
    if pod is not None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}"]
    return namespace.kubectl("create", "token", account, *bound).strip()


def idle_pod(name: str, account: str) -> Object:
    """A pod that is never run: its token is what it is made for."""
    containers = [{"name": "trainer", "image": "none"}]
    spec = {"serviceAccountName": account, "nodeSelector": {"no": "such-node"}, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def record_of(pod: Object, **spec: Any) -> Object:
    """The ElasticWorker that the pod's sidecar would write."""
    job, index, _ = pod["metadata"]["name"].rsplit("-", 2)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    told = {"job": job, "index": int(index), "id": "0" * 32, "certificate": "PEM", "address": "10.0.0.1:27601", **spec}
    return {
        "apiVersion": "elasticjob.io/v1alpha1",
        "kind": "ElasticWorker",
        "metadata": {
            "name": pod["metadata"]["name"],
            "labels": {"elasticjob.io/job": told["job"], "elasticjob.io/index": str(told["index"])},
            "ownerReferences": [owner],
        },
        "spec": told,
    }

# SPDX-License-Identifier: Apache-2.0
"""The owner of a worker's record, as the object states it: the pod and this incarnation of its sidecar.

Also its request to the operator, as a patch of the record and in words for the log.
"""

from dataclasses import dataclass

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL, WorkerRequest
from elasticjob.objects import Object

# Makes the API server drop its record of managed fields, which takes two fifths of the cost of a write. Only the
# sidecar writes a record. In a write of the status it has no effect.
UNMANAGED: list[Object] = [{}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    pod_name: str
    pod_uid: str
    job: str
    index: int
    id: str
    certificate: str
    address: str
    node: str = ""

    def created(self, request: WorkerRequest | None) -> Object:
        asked = {} if request is None else {"request": request.dump()}
        return _worker(self._metadata(), self._spec() | asked)

    def taken_over(self, request: WorkerRequest | None, version: str) -> Object:
        """A merge patch that makes the object of `version` this incarnation's."""
        metadata = self._metadata() | {"resourceVersion": version, "managedFields": UNMANAGED}
        return _worker(metadata, self._spec() | {"request": replacing(request)})

    def is_of(self, stored: Object) -> bool:
        """Whether the object is this incarnation's, and has the labels and the owner by which the operator recognizes
        it."""
        labels = stored["metadata"].get("labels", {})
        marked = self._labels().items() <= labels.items() and self.owns(stored)
        return marked and stored["spec"].get("id") == self.id

    def owns(self, stored: Object) -> bool:
        """Whether this pod is its only owner."""
        return [one["uid"] for one in stored["metadata"].get("ownerReferences", [])] == [self.pod_uid]

    def _labels(self) -> dict[str, str]:
        return {JOB_LABEL: self.job, INDEX_LABEL: str(self.index)}

    def _metadata(self) -> Object:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.pod_name,
            "uid": self.pod_uid,
            "blockOwnerDeletion": False,
        }
        return {"name": self.pod_name, "labels": self._labels(), "ownerReferences": [owner]}

    def _spec(self) -> Object:
        return {
            "job": self.job,
            "index": self.index,
            "id": self.id,
            "certificate": self.certificate,
            "address": self.address,
            "node": self.node,
        }


def asking(stored: Object, request: WorkerRequest | None) -> Object:
    """The whole object as last seen, with `request`: a full update is cheaper for the API server than a patch.

    A change by another writer since then makes it a conflict, so it is never undone.
    """
    spec = {key: value for key, value in stored["spec"].items() if key != "request"}
    if request is not None:
        spec["request"] = request.dump()
    return _worker({**stored["metadata"], "managedFields": UNMANAGED}, spec)


def _worker(metadata: Object, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": metadata, "spec": spec}


def replacing(request: WorkerRequest | None) -> Object | None:
    """`request` for a merge patch: absent fields are null, as those of the last request would stay otherwise."""
    return None if request is None else request.model_dump(mode="json", by_alias=True)


def in_words(request: WorkerRequest | None) -> str:
    if request is None:
        return "nothing"
    after = "" if request.after is None else f" after round {request.after}"
    round_ = "" if request.round is None else f" round {request.round}"
    return f"{request.type}{after}{round_}" + (f" ({request.cause})" if request.cause else "")

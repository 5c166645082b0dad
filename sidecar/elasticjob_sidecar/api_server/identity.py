# SPDX-License-Identifier: Apache-2.0
"""Whose a worker's record is: the pod and this incarnation of its sidecar, as they stand in the object itself."""

from dataclasses import dataclass

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL, WorkerRequest
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.requests import replacing

# The API server forgets who manages which field, and keeps no more account of it, which is two fifths of what a write
# costs it. A record is written by its sidecar alone. In a write of the status it has no effect.
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
        """The object as it is to be created."""
        asked = {} if request is None else {"request": request.dump()}
        return _worker(self._metadata(), self._spec() | asked)

    def taken_over(self, request: WorkerRequest | None, version: str) -> Object:
        """A merge patch that makes the object of `version` this incarnation's."""
        metadata = self._metadata() | {"resourceVersion": version, "managedFields": UNMANAGED}
        return _worker(metadata, self._spec() | {"request": replacing(request)})

    def is_of(self, stored: Object) -> bool:
        """The object is this incarnation's, and known as its pod's to everybody: without its labels and its owner the
        operator would not know it."""
        labels = stored["metadata"].get("labels", {})
        marked = self._labels().items() <= labels.items() and self.owns(stored)
        return marked and stored["spec"].get("id") == self.id

    def owns(self, stored: Object) -> bool:
        """This pod alone does."""
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
    """The whole object, as it was last seen, with this request: the API server has less to do than for a patch.

    What others have changed since makes it a conflict, and so is never undone.
    """
    spec = {key: value for key, value in stored["spec"].items() if key != "request"}
    if request is not None:
        spec["request"] = request.dump()
    return _worker({**stored["metadata"], "managedFields": UNMANAGED}, spec)


def _worker(metadata: Object, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": metadata, "spec": spec}

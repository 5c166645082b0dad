"""What the operator last saw of jobs, pods and workers, from watches and from its own writes. Decides nothing."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticjob.api import JOB_LABEL
from elasticjob_operator.kube import Object


class Key(NamedTuple):
    """Names one ElasticJob."""

    namespace: str
    name: str


@dataclass(slots=True)
class JobView:
    """The newest known form of a job and of what belongs to it, by name."""

    job: Object | None = None
    pods: dict[str, Object] = field(default_factory=dict)
    workers: dict[str, Object] = field(default_factory=dict)


class Cache:
    def __init__(self) -> None:
        self._views: dict[Key, JobView] = defaultdict(JobView)

    def view(self, key: Key) -> JobView:
        return self._views[key]

    def forget(self, key: Key) -> None:
        self._views.pop(key, None)

    def __len__(self) -> int:
        return len(self._views)

    def note_job(self, job: Object, *, deleted: bool = False) -> Key:
        key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
        view = self._views[key]
        if deleted:
            if view.job is not None and view.job["metadata"]["uid"] == job["metadata"]["uid"]:
                view.job = None
        elif is_newer(job, view.job):
            view.job = job
        return key

    def note_pod(self, pod: Object, *, deleted: bool = False) -> Key:
        key = owner_key(pod)
        _note(self._views[key].pods, pod, deleted)
        return key

    def note_worker(self, worker: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Also whether more than the heartbeat has changed."""
        key = owner_key(worker)
        workers = self._views[key].workers
        before = workers.get(worker["metadata"]["name"])
        _note(workers, worker, deleted)
        asks = deleted or before is None or before["spec"] != worker["spec"]
        return key, asks

    def replace(self, key: Key, job: Object, pods: Iterable[Object], workers: Iterable[Object]) -> None:
        """A fresh listing: what is not in it exists no more."""
        view = self._views[key]
        view.job = job
        view.pods = {pod["metadata"]["name"]: pod for pod in pods}
        view.workers = {worker["metadata"]["name"]: worker for worker in workers}


def owner_key(body: Object) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][JOB_LABEL])


def is_newer(body: Object, known: Object | None) -> bool:
    """Whether `body` is a later form of the object; watch and own writes may arrive in any order."""
    if known is None:
        return True
    return int(body["metadata"]["resourceVersion"]) >= int(known["metadata"]["resourceVersion"])


def _note(objects: dict[str, Object], body: Object, deleted: bool) -> None:
    name = body["metadata"]["name"]
    known = objects.get(name)
    if deleted:
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del objects[name]
    elif is_newer(body, known):
        objects[name] = body

"""What the operator last saw of jobs, pods and workers, from watches and from its own writes. Decides nothing."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from elasticjob.api import JOB_LABEL
from elasticjob.objects import Object
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.job.drain import Taint, taints_of
from elasticjob_operator.job.topology import Labels, labels_of
from elasticjob_operator.job.view import JobView


class Key(NamedTuple):
    """Names one ElasticJob."""

    namespace: str
    name: str


class Cache:
    def __init__(self) -> None:
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._labels: dict[str, Labels] = {}
        self._views: dict[Key, JobView] = defaultdict(lambda: JobView(taints=self._taints, labels=self._labels))

    def view(self, key: Key) -> JobView:
        return self._views[key]

    def forget(self, key: Key) -> None:
        self._views.pop(key, None)

    def jobs(self) -> Iterator[Object]:
        return (view.job for view in self._views.values() if view.job is not None)

    def note_job(self, job: Object, *, deleted: bool = False) -> Key:
        key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
        view = self._views[key]
        if deleted:
            view.gone.add(job["metadata"]["uid"])
            if view.job is not None and view.job["metadata"]["uid"] == job["metadata"]["uid"]:
                view.job = None
        elif _is_news(view, job):
            if view.job is None or view.job["metadata"].get("generation") != job["metadata"].get("generation"):
                _heard(view)
            view.job = job
        return key

    def note_pod(self, pod: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Also returns whether it is news: the watch repeats what was listed or made."""
        key = owner_key(pod)
        view = self._views[key]
        before = view.pods.get(pod["metadata"]["name"])
        _note(view, view.pods, pod, deleted)
        is_news = (
            deleted or before is None or before["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]
        )
        if is_news:
            _heard(view)
        return key, is_news

    def note_worker(self, worker: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Also returns whether more has changed than the heartbeat and what the script reports."""
        key = owner_key(worker)
        view = self._views[key]
        before = view.workers.get(worker["metadata"]["name"])
        _note(view, view.workers, worker, deleted)
        is_news = deleted or before is None or _words(before) != _words(worker)
        if is_news:
            _heard(view)
        return key, is_news

    def note_node(self, node: Object, *, deleted: bool = False) -> list[Key]:
        """Returns the jobs with pods there, if its taints have changed: all else of a node changes often, or waits for
        the next round."""
        name, taints = node["metadata"]["name"], () if deleted else taints_of(node)
        if deleted:
            self._labels.pop(name, None)
        else:
            self._labels[name] = labels_of(node)
        if self._taints.get(name, ()) == taints:
            return []
        if taints:
            self._taints[name] = taints
        else:
            del self._taints[name]
        return [key for key, view in self._views.items() if any(_is_on(name, pod) for pod in view.pods.values())]

    def note_unknown_nodes(self, nodes: Listing) -> None:
        for node in nodes.items:
            if node["metadata"]["name"] not in self._labels:
                self.note_node(node)

    def begin_listing(self, key: Key) -> None:
        """To be called before a listing is asked for: what ends meanwhile may still be in it."""
        self._views[key].gone.clear()

    def replace(self, key: Key, job: Object, pods: Listing, workers: Listing) -> None:
        """A fresh listing: what is not in it exists no more, unless the watch has shown something newer."""
        view = self._views[key]
        view.job = job if _is_news(view, job) else view.job
        view.pods = _merge(view.pods, pods, view.gone)
        view.workers = _merge(view.workers, workers, view.gone)


def _is_news(view: JobView, job: Object) -> bool:
    """A job that was deleted may still be in an answer that was on its way."""
    return job["metadata"]["uid"] not in view.gone and is_newer(job, view.job)


def _words(worker: Object) -> tuple[object, ...]:
    """What the operator goes by: the request, and what is said of other sidecars and to a challenge."""
    status = worker.get("status", {})
    return worker["spec"], status.get("doubts"), status.get("answer")


def _is_on(node: str, pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") == node)


def owner_key(body: Object) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][JOB_LABEL])


def _heard(view: JobView) -> None:
    view.heard = time.monotonic() if view.heard is None else view.heard


def is_newer(body: Object, known: Object | None) -> bool:
    """Whether `body` is a later form of the object; watch and own writes may arrive in any order."""
    if known is None:
        return True
    return int(body["metadata"]["resourceVersion"]) >= int(known["metadata"]["resourceVersion"])


def _merge(known: dict[str, Object], listing: Listing, gone: set[str]) -> dict[str, Object]:
    present = [_slim(item) for item in listing.items if item["metadata"]["uid"] not in gone]
    listed = {item["metadata"]["name"]: item for item in present}
    newer = {
        name: body
        for name, body in known.items()
        if int(body["metadata"]["resourceVersion"]) > int(listing.version) or not is_newer(listed.get(name, body), body)
    }
    return {**listed, **newer}


def _note(view: JobView, objects: dict[str, Object], body: Object, deleted: bool) -> None:
    name = body["metadata"]["name"]
    known = objects.get(name)
    if deleted:
        view.gone.add(body["metadata"]["uid"])
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del objects[name]
    elif body["metadata"]["uid"] not in view.gone and is_newer(body, known):  # an answer may come after the end
        objects[name] = _slim(body)


def _slim(body: Object) -> Object:
    """Without what nobody here reads, and what is half of a pod: who wrote which field."""
    return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "managedFields"}}

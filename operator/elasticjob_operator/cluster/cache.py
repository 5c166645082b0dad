"""What the operator last saw of jobs, pods and workers, from watches and from its own writes. Decides nothing."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from elasticjob.api import JOB_LABEL
from elasticjob.objects import Object
from elasticjob.reading import Labels, Node, Pod, Record, Taint
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.job.view import JobView

T = TypeVar("T", Pod, Record)


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

    def note_pod(self, body: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Also returns whether it is news: the watch repeats what was listed or made."""
        pod = Pod.read(body)
        key = key_of(pod)
        view = self._views[key]
        before = view.pods.get(pod.name)
        _note(view, view.pods, pod, deleted)
        is_news = deleted or before is None or before.version != pod.version
        if is_news:
            _heard(view)
        return key, is_news

    def note_worker(self, body: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Also returns whether more has changed than the heartbeat and what the script reports."""
        key = owner_key(body)
        view = self._views[key]
        before = view.workers.get(body["metadata"]["name"])
        record = Record.read(body, before)
        _note(view, view.workers, record, deleted)
        is_news = deleted or before is None or _words(before) != _words(record)
        if is_news:
            _heard(view)
        return key, is_news

    def note_node(self, node: Node, *, deleted: bool = False) -> list[Key]:
        """Returns the jobs with pods there, if its taints have changed: all else of a node changes often, or waits for
        the next round."""
        name, taints = node.name, () if deleted else node.taints
        if deleted:
            self._labels.pop(name, None)
        else:
            self._labels[name] = node.labels
        if self._taints.get(name, ()) == taints:
            return []
        if taints:
            self._taints[name] = taints
        else:
            del self._taints[name]
        return [key for key, view in self._views.items() if any(pod.node == name for pod in view.pods.values())]

    def note_unknown_nodes(self, nodes: Listing[Node]) -> None:
        for node in nodes.items:
            if node.name not in self._labels:
                self.note_node(node)

    def begin_listing(self, key: Key) -> None:
        """To be called before a listing is asked for: what ends meanwhile may still be in it."""
        self._views[key].gone.clear()

    def replace(self, key: Key, job: Object, pods: Listing[Pod], workers: Listing[Record]) -> None:
        """A fresh listing: what is not in it exists no more, unless the watch has shown something newer."""
        view = self._views[key]
        view.job = job if _is_news(view, job) else view.job
        view.pods = _merge(view.pods, pods, view.gone)
        view.workers = _merge(view.workers, workers, view.gone)


def _is_news(view: JobView, job: Object) -> bool:
    """A job that was deleted may still be in an answer that was on its way."""
    return job["metadata"]["uid"] not in view.gone and is_newer(job, view.job)


def _words(record: Record) -> tuple[object, ...]:
    """What the operator goes by: the request, and what is said of other sidecars and to a challenge."""
    said = record.said
    return record.uid, record.generation, record.problem, said and said.status.doubts, said and said.status.answer


def owner_key(body: Object) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][JOB_LABEL])


def key_of(one: Pod | Record) -> Key:
    return Key(one.namespace, one.job)


def _heard(view: JobView) -> None:
    view.heard = time.monotonic() if view.heard is None else view.heard


def is_newer(body: Object, known: Object | None) -> bool:
    """Whether `body` is a later form of the job; watch and own writes may arrive in any order."""
    if known is None:
        return True
    return int(body["metadata"]["resourceVersion"]) >= int(known["metadata"]["resourceVersion"])


def _merge(known: dict[str, T], listing: Listing[T], gone: set[str]) -> dict[str, T]:
    listed = {one.name: one for one in listing.items if one.uid not in gone}
    newer = {
        name: one
        for name, one in known.items()
        if one.version > int(listing.version) or (name in listed and listed[name].version < one.version)
    }
    return {**listed, **newer}


def _note(view: JobView, objects: dict[str, T], one: T, deleted: bool) -> None:
    known = objects.get(one.name)
    if deleted:
        view.gone.add(one.uid)
        if known is not None and known.uid == one.uid:
            del objects[one.name]
    elif known is None or one.version >= known.version:
        objects[one.name] = one

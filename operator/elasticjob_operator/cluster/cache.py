# SPDX-License-Identifier: Apache-2.0
"""What the operator last saw of jobs, pods and workers, from watches and from its own writes. Decides nothing."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

from elasticjob.api import JOB_LABEL
from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record
from elasticjob.spec import CONTROLLER
from elasticjob.terms import RequestType
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.job.view import JobView

GONE_SECONDS = 60.0  # for so long a late answer may still contain a deleted object
MOST_GONE = 20_000  # above which old entries are removed

T = TypeVar("T", Pod, Record)


class Key(NamedTuple):
    """Names one ElasticJob."""

    namespace: str
    name: str

    @classmethod
    def of(cls, job: Object) -> "Key":
        return cls(job["metadata"]["namespace"], job["metadata"]["name"])


class RecordUpdate(Enum):
    """What is new in a form of a record: something that the operator acts on, a join while the round awaits others,
    only the heartbeat and the script's report, or anything else."""

    URGENT = "urgent"
    JOIN = "join"
    REPORT = "report"
    OTHER = "other"


class JobsByNode:
    """Each node with the jobs of its pods: an event of a node concerns few of the pods that there may be. A job is
    there once for each of its pods, so that the last one ends it."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Key, ...]] = {}  # of which most have one: a tuple takes the least memory

    def move(self, job: Key, before: str, now: str) -> None:
        """A pod of `job` was on the node `before`, and is on `now`; empty for none."""
        if before == now:
            return
        if before:
            left = list(self._jobs[before])
            left.remove(job)
            self._jobs[before] = tuple(left)
            if not left:
                del self._jobs[before]
        if now:
            self._jobs[now] = (*self._jobs.get(now, ()), job)

    def on(self, nodes: Iterable[str]) -> set[Key]:
        return {job for node in nodes for job in self._jobs.get(node, ())}


class Deleted(NamedTuple):
    """The version in which an object was seen deleted, and when, in monotonic seconds."""

    version: int
    at: float


class Cache:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._views: dict[Key, JobView] = defaultdict(lambda: JobView(nodes=self._nodes))
        self._by_node = JobsByNode()
        self._gone: dict[str, Deleted] = {}  # by uid
        self._most_gone = MOST_GONE

    def __len__(self) -> int:
        """The number of known jobs."""
        return len(self._views)

    def view(self, key: Key) -> JobView:
        return self._views[key]

    def forget(self, key: Key) -> None:
        """Forgets the job, unless some of its objects remain: they may be in the way of the next job of that name."""
        view = self._views.get(key)
        if view is not None and not (view.job or view.pods or view.workers):
            del self._views[key]

    def jobs(self) -> Iterator[Object]:
        return (view.job for view in self._views.values() if view.job is not None)

    def note_job(self, job: Object, *, deleted: bool = False) -> Key:
        key = Key.of(job)
        view, uid = self._views[key], job["metadata"]["uid"]
        if deleted:
            self._note_gone(uid, _version_of(job))
            if view.job is not None and view.job["metadata"]["uid"] == uid:
                view.job = None
        elif uid not in self._gone and is_newer(job, view.job):  # a late answer may still contain a deleted job
            if view.job is None or view.job["metadata"].get("generation") != job["metadata"].get("generation"):
                _heard(view)
            if view.job is None or _version_of(view.job) != _version_of(job):
                view.shows = view.job is not None and _is_same_but_for_progress(view.job, job)
            view.job = None if _is_anothers(job) else _slim(job)
        return key

    def note_progress(self, job: Object) -> bool:
        """Notes the job and returns True, if only its status's progress is newer than in the form before: nothing
        follows from that. Otherwise notes nothing and returns False. `job` may be the form that is known already, from
        the answer to the write."""
        view = self._views.get(Key.of(job))
        if view is None or view.job is None:
            return False
        if _version_of(view.job) == _version_of(job):
            return view.shows
        if not (is_newer(job, view.job) and _is_same_but_for_progress(view.job, job)):
            return False
        self.note_job(job)
        return True

    def note_pod(self, body: Object, *, deleted: bool = False) -> tuple[Key, bool]:
        """Notes the pod. Returns its job, and whether it is new: the watch repeats what was listed or made."""
        pod = Pod.read(body)
        key = key_of(pod)
        view = self._views[key]
        before = view.pods.get(pod.name)
        self._note(view.pods, pod, deleted)
        self._by_node.move(key, _node_of(before), _node_of(view.pods.get(pod.name)))
        is_new = deleted or before is None or before.version != pod.version
        if is_new:
            _heard(view)
        return key, is_new

    def note_worker(self, body: Object, *, deleted: bool = False) -> tuple[Key, RecordUpdate]:
        """Notes the record. Returns its job, and what is new."""
        key = owner_key(body)
        view = self._views[key]
        before = view.workers.get(body["metadata"]["name"])
        record = Record.read(body, before)
        self._note(view.workers, record, deleted)
        if deleted or before is None or _urgent_parts(before) != _urgent_parts(record):
            _heard(view)
            if not deleted and before is not None and _only_joins(before, record):
                view.awaited -= 1
                return key, RecordUpdate.JOIN if view.awaited > 0 else RecordUpdate.URGENT
            return key, RecordUpdate.URGENT
        return key, RecordUpdate.REPORT if record.only_reports(before) else RecordUpdate.OTHER

    def knows_worker(self, body: Object) -> bool:
        view = self._views.get(owner_key(body))
        return view is not None and body["metadata"]["name"] in view.workers

    def note_node(self, node: Node, *, deleted: bool = False) -> list[Key]:
        """Notes the node. Returns the jobs with pods on it if its taints have changed: its other fields change often,
        or matter only for the next round."""
        return self._jobs_on({node.name}) if self._note_node(node, deleted=deleted) else []

    def begin_listing(self) -> None:
        """To be called before a list request: objects deleted meanwhile may still be in the answer."""
        now = time.monotonic()
        self._gone = {uid: one for uid, one in self._gone.items() if now - one.at < GONE_SECONDS}
        self._most_gone = max(MOST_GONE, 2 * len(self._gone))

    def replace_jobs(self, namespace: str | None, listing: Listing[Object]) -> list[Key]:
        """Takes a fresh listing of `namespace`, None for all. A job that is not in it no longer exists, unless the
        watch has shown something newer. Returns the jobs about which the listing brought news; so do the next three
        methods."""
        there = dict.fromkeys(self.note_job(job) for job in listing.items)
        for key, view in self._views.items():
            is_older = view.job is not None and _version_of(view.job) <= int(listing.version)
            if namespace in (None, key.namespace) and key not in there and is_older:
                view.job = None
                there[key] = None
        return list(there)

    def replace_pods(self, namespace: str | None, listing: Listing[Pod]) -> list[Key]:
        before = {key: [pod.node for pod in self._views[key].pods.values()] for key in self._keys_in(namespace)}
        keys = self._replace(namespace, listing, lambda view: view.pods)
        for key in keys:
            for node in before.get(key, ()):
                self._by_node.move(key, node, "")
            for pod in self._views[key].pods.values():
                self._by_node.move(key, "", pod.node)
        return keys

    def replace_workers(self, namespace: str | None, listing: Listing[Record]) -> list[Key]:
        return self._replace(namespace, listing, lambda view: view.workers)

    def replace_nodes(self, listing: Listing[Node]) -> list[Key]:
        there = {node.name for node in listing.items}
        left = [one for one in self._nodes.values() if one.name not in there and one.version <= int(listing.version)]
        changed = {node.name for node in listing.items if self._note_node(node)}
        changed |= {node.name for node in left if self._note_node(node, deleted=True)}
        return self._jobs_on(changed)

    def _note_node(self, node: Node, *, deleted: bool = False) -> bool:
        """Notes the node. Returns whether its taints have changed."""
        before = self._nodes.pop(node.name, None) if deleted else self._nodes.get(node.name)
        if not deleted and (before is None or before.version <= node.version):
            self._nodes[node.name] = node
        now = self._nodes.get(node.name)
        return (before.taints if before else ()) != (now.taints if now else ())

    def _jobs_on(self, nodes: Collection[str]) -> list[Key]:
        """The jobs with pods on any of these nodes, in the order in which they became known."""
        found = self._by_node.on(nodes)
        return [key for key in self._views if key in found] if len(found) > 1 else [*found]

    def _keys_in(self, namespace: str | None) -> list[Key]:
        return [key for key in self._views if namespace in (None, key.namespace)]

    def _replace(
        self, namespace: str | None, listing: Listing[T], kept: Callable[[JobView], dict[str, T]]
    ) -> list[Key]:
        listed: defaultdict[Key, dict[str, T]] = defaultdict(dict)
        for one in listing.items:
            if not self._is_gone(one.uid, one.version):
                listed[key_of(one)][one.name] = one
        keys, version = dict.fromkeys([*self._keys_in(namespace), *listed]), int(listing.version)
        return [key for key in keys if self._merge(key, kept(self._views[key]), listed[key], version)]

    def _merge(self, key: Key, known: dict[str, T], listed: dict[str, T], version: int) -> bool:
        """Makes `known` equal to `listed`, except for newer objects. Returns whether anything changed."""
        vanished = [name for name, one in known.items() if name not in listed and one.version <= version]
        newer = [one for name, one in listed.items() if name not in known or known[name].version < one.version]
        for name in vanished:
            del known[name]
        known.update((one.name, one) for one in newer)
        if vanished or newer:
            _heard(self._views[key])
        return bool(vanished or newer)

    def _note(self, known: dict[str, T], one: T, deleted: bool) -> None:
        before = known.get(one.name)
        if deleted:
            self._note_gone(one.uid, one.version)
            if before is not None and before.uid == one.uid:
                del known[one.name]
        elif not self._is_gone(one.uid, one.version) and (before is None or one.version >= before.version):
            known[one.name] = one

    def _is_gone(self, uid: str, version: int) -> bool:
        """Whether this form of an object is older than its deletion. An object that had only lost its label comes back
        in a later form."""
        return uid in self._gone and version <= self._gone[uid].version

    def _note_gone(self, uid: str, version: int) -> None:
        self._gone[uid] = Deleted(version, time.monotonic())
        if len(self._gone) > self._most_gone:
            self.begin_listing()


def _is_anothers(job: Object) -> bool:
    """Whether the user has given the job to another controller. This operator then ignores it."""
    spec = job.get("spec") or {}
    return spec.get("managedBy", CONTROLLER) not in (None, CONTROLLER)


def _slim(job: Object) -> Object:
    """The job without managedFields, half of it, which nobody reads here. The API server keeps them if a write omits
    them."""
    return {**job, "metadata": {key: value for key, value in job["metadata"].items() if key != "managedFields"}}


def _is_same_but_for_progress(before: Object, after: Object) -> bool:
    return _without_progress(before) == _without_progress(after)


def _without_progress(job: Object) -> Object:
    meta = {key: value for key, value in job["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    status = {key: value for key, value in (job.get("status") or {}).items() if key != "progress"}
    return {**job, "metadata": meta, "status": status}


def _urgent_parts(record: Record) -> tuple[object, ...]:
    """The fields that the operator acts on. A new request shows as a new generation."""
    return (record.generation, *_parts_beside_request(record))


def _parts_beside_request(record: Record) -> tuple[object, ...]:
    content = record.content
    return (record.uid, record.problem, content and content.status.suspects, content and content.status.ack)


def _only_joins(before: Record, record: Record) -> bool:
    request = record.content and record.content.request
    joins = bool(request and request.type is RequestType.JOIN)
    return joins and _parts_beside_request(before) == _parts_beside_request(record)


def _node_of(pod: Pod | None) -> str:
    return pod.node if pod else ""


def owner_key(body: Object) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][JOB_LABEL])


def key_of(one: Pod | Record) -> Key:
    return Key(one.namespace, one.job)


def _heard(view: JobView) -> None:
    view.heard = time.monotonic() if view.heard is None else view.heard


def is_newer(body: Object, known: Object | None) -> bool:
    """Whether `body` is not older than `known`. Watch events and the answers to own writes may arrive in any order."""
    if known is None:
        return True
    return _version_of(body) >= _version_of(known)


def _version_of(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])

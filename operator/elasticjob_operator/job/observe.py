"""Reads pods and ElasticWorkers into what the state machine is given. Pure; `records` says which to believe."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.api import DETAIL_LENGTH, ElasticWorkerStatus, PodFailurePolicy, WorkerRequest
from elasticjob.fields import WORD_LENGTH
from elasticjob.objects import Object
from elasticjob.pods import pod_key_of
from elasticjob.reading import Pod, Record, Said, Taint
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import Cause, RequestType
from elasticjob.text import plain
from elasticjob_operator.job.drain import draining_by, is_going
from elasticjob_operator.job.failure_policy import matched_rule
from elasticjob_operator.job.records import Reading, judge, problems_among
from elasticjob_operator.job.topology import topology_of
from elasticjob_operator.job.view import JobView
from elasticjob_operator.job.waiting import KINDS, Reason, Wait, exit_of, joined, wait_of

Nodes = defaultdict[str, set[str]]

# whose conditions say why the worker was lost
OUT = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.OOM_KILLED, PodState.CRASH_LOOP})


class ObservedPod(NamedTuple):
    """A pod with its record, the taints of its `node` and where that is, and what was read of them; no worker where the
    pod is none of the job's. `wait`: why it is not there yet, or is not to stay."""

    pod: Pod
    record: Record | None
    node: tuple[tuple[Taint, ...], tuple[str, ...]]
    reading: Reading
    worker: Worker | None
    wait: Wait | None = None


class Observer:
    """Observes one job, whose trainer container is named `trainer` and whose pods are made from what has the hash
    `made_from`; `hint` says what is odd about its command, `drained` are the taints of nodes that are about to go,
    `policy` says what failures mean, and ranks are laid out by the labels `topology_keys` of nodes. Reads again only
    what has changed: what is in a view is replaced, never changed."""

    def __init__(
        self,
        trainer: str,
        made_from: str = "",
        *,
        hint: str = "",
        drained: tuple[str, ...] = (),
        policy: PodFailurePolicy | None = None,
        topology_keys: tuple[str, ...] = (),
    ) -> None:
        self.trainer, self.made_from, self.hint = trainer, made_from, hint
        self.drained, self.policy, self.topology_keys = drained, policy, topology_keys
        self._seen: dict[str, ObservedPod] = {}

    @property
    def pods(self) -> Mapping[PodKey, Pod]:
        """Those of the workers that were seen last."""
        return {one.worker.pod_key: one.pod for one in self._seen.values() if one.worker}

    @property
    def waits(self) -> Mapping[PodKey, Wait]:
        """Why those of the workers that were seen last are not there yet, or are not to stay."""
        return {one.worker.pod_key: one.wait for one in self._seen.values() if one.worker and one.wait}

    @property
    def started(self) -> Mapping[PodKey, str]:
        """Since when the trainers of the workers that were seen last run, as far as they do."""
        found = {one.worker.pod_key: one.pod.container(self.trainer) for one in self._seen.values() if one.worker}
        return {key: container.since for key, container in found.items() if container.since}

    @property
    def going(self) -> frozenset[PodKey]:
        """Those of the workers that were seen last that run where the node is about to go, whatever they tolerate."""
        there = (one.worker for one in self._seen.values() if one.worker and is_going(one.node[0], self.drained))
        return frozenset(worker.pod_key for worker in there if not (worker.deleting or worker.pod in OUT))

    @property
    def said(self) -> Mapping[PodKey, ElasticWorkerStatus]:
        """What the records of the workers that were seen last say of how they are."""
        seen = ((one.worker, one.reading.said) for one in self._seen.values())
        return {worker.pod_key: said.status for worker, said in seen if worker and said}

    @property
    def imports(self) -> str:
        """What the script imports, by the worker that has learned most of it, among those that were seen last; else
        empty. One that has just started knows less than the others."""
        learned = {
            one.worker.index: one.reading.said.status.imports or ""
            for one in self._seen.values()
            if one.worker and not one.worker.outdated and one.reading.said
        }
        # the lowest of those that know as much, so that pods made one after the other are told the same
        known = (imports for _, imports in sorted(learned.items()) if imports)
        return max(known, key=lambda imports: imports.count(","), default="")

    def observe(self, view: JobView) -> tuple[tuple[Worker, ...], frozenset[PodKey]]:
        """The workers of the job in `view`, and those whose pods are ready."""
        if view.job is None:
            return (), frozenset()
        self._seen = {name: self._look(name, pod, view) for name, pod in view.pods.items()}
        seen = {name: one.worker for name, one in self._seen.items() if one.worker is not None}
        records = {name: said for name in seen if (said := self._seen[name].reading.said) is not None}
        for name, problem in problems_among(view.job, records).items():
            seen[name] = _unbelieved(seen[name], problem)
        return tuple(seen.values()), frozenset(seen[name].pod_key for name in seen if self._seen[name].pod.is_ready)

    def _look(self, name: str, pod: Pod, view: JobView) -> ObservedPod:
        record, known = view.workers.get(name), self._seen.get(name)
        on = view.nodes.get(pod.node)
        taints = on.taints if on else ()
        topology = topology_of(pod.node, on.labels if on else {}, self.topology_keys)
        node = taints, topology
        if known is not None and known.pod is pod and known.record is record and known.node == node:
            return known
        assert view.job is not None
        job = view.job["metadata"]
        pod_key = pod_key_of(job["name"], name)
        if pod_key is None or not is_made_for(pod, view.job):
            return ObservedPod(pod, record, node, Reading(), None)
        reading = judge(record, pod, pod_key[0], job["name"])
        asked = reading.said is not None and reading.said.request is not None
        wait = wait_of(pod, self.trainer, asked=asked)
        if wait and wait.reason is Reason.TRAINER_CRASHES and not asked and self.hint:
            wait = wait._replace(said=f"{wait.said}; {self.hint}")
        worker = worker_of(pod, pod_key, reading, self.trainer, self.made_from, wait, self.policy)
        if taint := draining_by(taints, pod, self.drained):
            worker = replace(worker, draining=True)
            wait = wait or Wait(Reason.NODE_DRAINING, f"its node {pod.node} is about to go ({taint})")
        worker = replace(worker, topology=topology) if topology else worker
        return ObservedPod(pod, record, node, reading, worker, wait)


def is_made_for(pod: Pod, job: Object) -> bool:
    """Whether the pod is one of the job's, by all that the operator gives it: one alone can be claimed."""
    uid = job["metadata"]["uid"]
    return pod.job == job["metadata"]["name"] and uid in pod.owners and pod.job_uid == uid


def nodes_of_indices(view: JobView, rejecting: Mapping[int, Collection[str]] = MappingProxyType({})) -> Nodes:
    """By index, where its older pods still are: a pod that cannot be got rid of is on a node that is lost. And which
    nodes have rejected one."""
    found: Nodes = defaultdict(set, {str(index): set(nodes) for index, nodes in rejecting.items()})
    for pod in view.pods.values():
        if pod.node:
            found[pod.index].add(pod.node)
    return found


def worker_of(
    pod: Pod,
    pod_key: PodKey,
    reading: Reading,
    trainer: str,
    made_from: str,
    wait: Wait | None,
    policy: PodFailurePolicy | None = None,
) -> Worker:
    """One pod and what its record says."""
    said = reading.said
    state, crashes, detail = pod_state(pod, trainer, wait)
    deleting, asked = bool(pod.deleting), said.request if said else None
    request = _request(asked, said.node) if said and asked else None
    is_out = deleting or state in OUT
    disrupted = pod.disruption
    detail = detail or plain(disrupted.message if disrupted else "", DETAIL_LENGTH)
    went_on = request is not None and (request.cause == Cause.STARTED or request.type is RequestType.FINISH)
    if not detail and went_on:  # any other request has its own reason
        detail = exit_of(pod.container(trainer).crashed_before)
    return Worker(
        index=pod_key[0],
        replacement=pod_key[1],
        pod=state,
        deleting=deleting,
        crashes=crashes,
        id=said.id if said else None,
        address=store_of(said) if said else "",
        request=request,
        heartbeat=reading.signs,
        detail=detail,
        invalid=reading.problem,
        doubts=tuple(said.status.doubts) if said else (),
        answer=_answer(said.status) if said else 0,
        disrupted=disrupted is not None,
        rejected=pod.was_rejected and not disrupted,
        unready=pod.is_unheard_of,
        outdated=pod.made_from not in (None, made_from),
        matched=matched_rule(policy, pod, trainer, pod_key[0], asked, request.detail if request else "", is_out=is_out),
    )


def store_of(said: Said) -> str:
    """Where the round's store is if this worker is its rank 0, and by which certificate it is known."""
    return f"{said.address}/{said.fingerprint}"


def _unbelieved(worker: Worker, problem: str) -> Worker:
    return replace(
        worker, id=None, address="", request=None, heartbeat=None, doubts=(), answer=0, invalid=problem, matched=None
    )


def _answer(said: ElasticWorkerStatus) -> int | None:
    """A sidecar that writes a heartbeat and no number of a challenge knows of none."""
    return 0 if said.answer is None and said.heartbeat is None else said.answer


def _request(said: WorkerRequest, node: str) -> Request:
    return Request(
        type=said.type,
        after=said.after or 0,
        round=said.round or 0,
        stage=said.stage or 1,
        script=plain(said.script or "", WORD_LENGTH),
        cause=said.cause or "",
        detail=_failure(said, node),
        last_call=said.last_call_seconds,
        worker_lost=said.worker_lost_seconds,
    )


def _failure(said: WorkerRequest, node: str) -> str:
    """What failed, and where; also of one that its peers' failure, which may come of it, has reached before."""
    detail = plain(said.detail or "", DETAIL_LENGTH)
    if said.cause != Cause.WORKER_FAILED and not (said.cause == Cause.MEMBERSHIP_CHANGED and detail):
        return ""
    where = f"on {plain(node, WORD_LENGTH)}" if node else ""
    return ": ".join(part for part in (where, detail) if part)


def pod_state(pod: Pod, trainer: str, wait: Wait | None) -> tuple[PodState, int, str]:
    """State of the trainer container, how often it was started again, and what is wrong.

    The container's status, not the pod's phase: the phase follows seconds later (measured: 3 s).
    """
    found = pod.container(trainer)
    crashes, end = found.restarts, found.ended
    if pod.phase == "Failed":
        return PodState.FAILED, crashes, joined(pod.reason, pod.message) or exit_of(end)
    if end and end.code == 0 and end.reason == "OOMKilled":
        return PodState.OOM_KILLED, crashes, "OOMKilled"
    if pod.phase == "Succeeded" or (end and end.code == 0):
        return PodState.SUCCEEDED, crashes, ""
    if wait is None or (found.has_started and wait.reason in (Reason.SIDECAR_CRASHES, Reason.TRAINER_CRASHES)):
        return PodState.RUNNING, crashes, exit_of(end)
    return KINDS[wait.reason].state, wait.crashes or crashes, wait.said if wait.is_news else ""

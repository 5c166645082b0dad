# SPDX-License-Identifier: Apache-2.0
"""Reads pods and ElasticWorkers into the workers that the state machine is given. Pure. `records` decides which records
are valid."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.api import ElasticWorkerStatus, PodFailurePolicy
from elasticjob.blocker_reasons import Reason
from elasticjob.objects import Object
from elasticjob.pods import pod_key_of
from elasticjob.reading import Labels, Pod, Record, Taint, WorkerContent
from elasticjob.reading.validity import Reading, judge, problems_among
from elasticjob.reading.waits import Wait, wait_of
from elasticjob.reading.workers import worker_of
from elasticjob.rendezvous import PodState, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.drain import drain_of, is_draining
from elasticjob_operator.job.failure_policy import matched_rule
from elasticjob_operator.job.view import JobView

Nodes = defaultdict[str, set[str]]

# pods whose conditions say why the worker was lost
OUT = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.OOM_KILLED, PodState.CRASH_LOOP})


class ObservedPod(NamedTuple):
    """A pod and what was read of it. `node`: the taints and the topology of its node. `worker`: None if the pod is not
    the job's. `wait`: why the worker is not there yet, or is not to stay."""

    pod: Pod
    record: Record | None
    node: tuple[tuple[Taint, ...], tuple[str, ...]]
    reading: Reading
    worker: Worker | None
    wait: Wait | None = None


class Observer:
    """Observes one job, and reads again only what has changed: an object in a view is replaced, never modified. What is
    asked of all workers of the last view is made once for that view.

    `trainer`: the name of the trainer's container. `made_from`: the hash of what the job's pods are made from. `hint`:
    what is unusual about the trainer's command. `drained`: the keys of the taints that mark a node as draining.
    `devices`: whether a worker with an unhealthy device drains. `policy`: what failures mean. `topology_keys`: the node
    labels by which ranks are ordered.
    """

    def __init__(
        self,
        trainer: str,
        made_from: str = "",
        *,
        hint: str = "",
        drained: tuple[str, ...] = (),
        devices: bool = False,
        policy: PodFailurePolicy | None = None,
        topology_keys: tuple[str, ...] = (),
    ) -> None:
        self.trainer, self.made_from, self.hint = trainer, made_from, hint
        self.drained, self.devices, self.policy, self.topology_keys = drained, devices, policy, topology_keys
        self._seen: dict[str, ObservedPod] = {}

    @cached_property
    def pods(self) -> Mapping[PodKey, Pod]:
        """The pods of the workers of the last view."""
        return {one.worker.pod_key: one.pod for one in self._seen.values() if one.worker}

    @cached_property
    def waits(self) -> Mapping[PodKey, Wait]:
        """Why workers of the last view are not there yet, or are not to stay."""
        return {one.worker.pod_key: one.wait for one in self._seen.values() if one.worker and one.wait}

    @cached_property
    def started(self) -> Mapping[PodKey, str]:
        """The start time of each running trainer of the last view."""
        found = {one.worker.pod_key: one.pod.container(self.trainer) for one in self._seen.values() if one.worker}
        return {key: container.since for key, container in found.items() if container.since}

    @cached_property
    def draining(self) -> frozenset[PodKey]:
        """The workers of the last view that run on a draining node, even if their pods tolerate its taint."""
        there = (one.worker for one in self._seen.values() if one.worker and is_draining(one.node[0], self.drained))
        return frozenset(worker.pod_key for worker in there if not (worker.deleting or worker.pod in OUT))

    @cached_property
    def statuses(self) -> Mapping[PodKey, ElasticWorkerStatus]:
        """The statuses in the records of the workers of the last view."""
        seen = ((one.worker, one.reading.content) for one in self._seen.values())
        return {worker.pod_key: content.status for worker, content in seen if worker and content}

    @cached_property
    def imports(self) -> str:
        """What the script imports, as reported by the worker of the last view that has learned most; empty if none has.
        A worker that has just started knows less than the others."""
        learned = {
            one.worker.index: one.reading.content.status.imports or ""
            for one in self._seen.values()
            if one.worker and not one.worker.outdated and one.reading.content
        }
        # the lowest index among equals, so that pods made one after the other are told the same
        known = (imports for _, imports in sorted(learned.items()) if imports)
        return max(known, key=lambda imports: imports.count(","), default="")

    def observe(self, view: JobView) -> tuple[tuple[Worker, ...], frozenset[PodKey]]:
        """The workers of the job in `view`, and the keys of the pods that are ready."""
        if view.job is None:
            return (), frozenset()
        self._seen = {name: self._look(name, pod, view) for name, pod in view.pods.items()}
        for name, one in vars(Observer).items():
            if isinstance(one, cached_property):
                vars(self).pop(name, None)
        seen = {name: one.worker for name, one in self._seen.items() if one.worker is not None}
        records = {name: content for name in seen if (content := self._seen[name].reading.content) is not None}
        for name, problem in problems_among(view.job, records).items():
            seen[name] = _unbelieved(seen[name], problem)
        return tuple(seen.values()), frozenset(seen[name].pod_key for name in seen if self._seen[name].pod.is_ready)

    def _look(self, name: str, pod: Pod, view: JobView) -> ObservedPod:
        record, known = view.workers.get(name), self._seen.get(name)
        on = view.nodes.get(pod.node)
        taints = on.taints if on else ()
        topology = topology_of(pod.node, on.labels if on else {}, self.topology_keys)
        node = taints, topology
        if known is not None and known.pod is pod and known.node == node and (same := _goes_on(known, record)):
            return same
        assert view.job is not None
        job = view.job["metadata"]
        pod_key = pod_key_of(job["name"], name)
        if pod_key is None or not is_made_for(pod, view.job):
            return ObservedPod(pod, record, node, Reading(), None)
        reading = judge(record, pod, pod_key[0], job["name"])
        asked = reading.content is not None and reading.content.request is not None
        wait = wait_of(pod, self.trainer, asked=asked)
        if wait and wait.reason is Reason.TRAINER_CRASHES and not asked and self.hint:
            wait = wait._replace(message=f"{wait.message}; {self.hint}")
        worker = self._judged(worker_of(pod, pod_key, reading, self.trainer, self.made_from, wait), pod, reading)
        if drain := drain_of(taints, pod, self.drained, devices=self.devices):
            worker = replace(worker, draining=True, unhealthy=drain.reason is Reason.DEVICE_UNHEALTHY)
            wait = wait or drain
        worker = replace(worker, topology=topology) if topology else worker
        return ObservedPod(pod, record, node, reading, worker, wait)

    def _judged(self, worker: Worker, pod: Pod, reading: Reading) -> Worker:
        """The worker with the address of its store, and with the rule of the failure policy that matches it."""
        if reading.content:
            worker = replace(worker, address=store_of(reading.content))
        if self.policy is None:
            return worker
        asked = reading.content.request if reading.content else None
        detail, is_out = worker.request.detail if worker.request else "", worker.deleting or worker.pod in OUT
        matched = matched_rule(self.policy, pod, self.trainer, worker.index, asked, detail, is_out=is_out)
        return replace(worker, matched=matched)


def _goes_on(known: ObservedPod, record: Record | None) -> ObservedPod | None:
    """`known` with the heartbeat and the report of `record`; None if more than these has changed. Of a job that trains
    most records that are new to a step are heartbeats."""
    if record is known.record:
        return known
    if record is None or known.record is None or not record.only_reports(known.record):
        return None
    if known.worker is None or known.reading.content is None:
        return None
    reading = known.reading._replace(content=record.content, writes=record.writes)
    return known._replace(record=record, reading=reading, worker=replace(known.worker, heartbeat=record.writes))


def store_of(content: WorkerContent) -> str:
    """The address of the round's store if this worker is rank 0, and the fingerprint of its certificate."""
    return f"{content.address}/{content.fingerprint}"


def is_made_for(pod: Pod, job: Object) -> bool:
    """Whether the pod is the job's, by its label, owner and uid together: any single one can be claimed."""
    uid = job["metadata"]["uid"]
    return pod.job == job["metadata"]["name"] and uid in pod.owners and pod.job_uid == uid


def nodes_of_indices(view: JobView, rejecting: Mapping[int, Collection[str]] = MappingProxyType({})) -> Nodes:
    """The nodes that a new pod should avoid, by index: those of older pods, since a pod that cannot be deleted is on a
    lost node, and those that have rejected its pods."""
    found: Nodes = defaultdict(set, {str(index): set(nodes) for index, nodes in rejecting.items()})
    for pod in view.pods.values():
        if pod.node:
            found[pod.index].add(pod.node)
    return found


def _unbelieved(worker: Worker, problem: str) -> Worker:
    return replace(
        worker, id=None, address="", request=None, heartbeat=None, suspects=(), ack=0, invalid=problem, matched=None
    )


def topology_of(node: str, labels: Labels, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The node's values for `keys`, followed by its name; empty if there are no keys."""
    return (*(labels.get(key, "") for key in keys), node) if keys else ()

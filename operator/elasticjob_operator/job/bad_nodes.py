# SPDX-License-Identifier: Apache-2.0
"""The nodes on which a job's workers have failed, and those that its next pods avoid (`spec.avoidNodes`). Pure.

The record is in the job's status, and is written with the decision that found the failures. An operator that takes over
finds both or neither. A failure is identified by its node and its round: within one round, and while the next one
forms, all failures on a node are taken to have one cause. The only further failure counted there is that of the failed
pod's own replacement.

Wall-clock times are compared, because the record outlives every other clock. They have whole seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from elasticjob.api import AvoidNodesSpec, ElasticJobSpec, ElasticJobStatus, NodeFailures
from elasticjob.blocker_reasons import Reason
from elasticjob.fields import MAX_NODE_FAILURES
from elasticjob.pods import pod_key_of, pod_name
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Event, Worker
from elasticjob.rendezvous.words import first_few
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

TIME = "%Y-%m-%dT%H:%M:%SZ"


class BadNodesFound(NamedTuple):
    """What one step finds. `record`: the record of failures. `rejecting`: the nodes that have rejected pods, by
    index."""

    record: tuple[NodeFailures, ...] = ()
    rejecting: Mapping[int, frozenset[str]] = MappingProxyType({})

    @property
    def avoided(self) -> frozenset[str]:
        """The nodes that new pods avoid."""
        return avoided(self.record)


class BadNodes(Concern):
    """The nodes on which workers of one job have failed, or that have rejected its pods."""

    def __init__(self) -> None:
        self._rejecting: Mapping[int, frozenset[str]] = {}

    def see(self, report: Report) -> Report:
        return report._replace(workers=freed(report))

    def judge(self, report: Report) -> Report:
        return report.noting(BadNodesFound(noted(report), rejecting(report, self._rejecting)))

    def after(self, report: Report) -> Iterator[Event]:
        self._rejecting = report.of(BadNodesFound).rejecting
        return events(report.before, report.of(BadNodesFound).record)

    def again(self, report: Report, now: float) -> float | None:
        ended = report.decision.state.ended
        return None if ended else forgotten_in(report.spec, report.of(BadNodesFound).record, report.now)


def noted(report: Report) -> tuple[NodeFailures, ...]:
    """The record after the decision, with the last failure at the end."""
    spec, before, decision, now = report.spec, report.before, report.decision, report.now
    if spec.avoid_nodes is None:
        return ()
    job, round, pods = report.job["metadata"]["name"], _last_formed(before), report.observer.pods
    known = {one.node: one for one in _remembered(spec.avoid_nodes, before, now)}
    for pod_key, judged in decision.failed:
        failed = pods.get(pod_key)
        if failed is None or not (node := failed.node):
            continue
        if not judged:  # only one failure waits at a time; another worker may turn out to be its cause
            known = {name: _changed(other, suspect="") for name, other in known.items()}
        one, pod = known.pop(node, NodeFailures(node=node, time=now)), pod_name(job, *pod_key)
        known[node] = _after(job, one, pod, round, now) if judged else _changed(one, suspect=pod)
    if not decision.state.failure:
        counted = decision.state.restarts > before.restarts
        known = {node: _judged(job, one, round, now, counted=counted) for node, one in known.items()}
    found = (_until(spec.avoid_nodes, one) for one in known.values() if one.failures or one.suspect)
    return tuple(found)[-MAX_NODE_FAILURES:]


def avoided(record: Iterable[NodeFailures]) -> frozenset[str]:
    """The nodes that new pods avoid."""
    return frozenset(one.node for one in record if one.avoided_until is not None)


def rejecting(report: Report, known: Mapping[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """The nodes that have rejected pods, by the worker's index, until that worker is in a round. The next pod may find
    another node: the scheduler does not know what is wrong with this one."""
    found, pods = dict(known), report.observer.pods
    for worker in report.workers:
        node = pods[worker.pod_key].node if worker.rejected else ""
        if node:
            found[worker.index] = found.get(worker.index, frozenset()) | {node}
    return {index: nodes for index, nodes in found.items() if index in report.decision.state.clocks.failures}


def events(before: ElasticJobStatus, record: Iterable[NodeFailures]) -> Iterator[Event]:
    """The events to announce: one for each node that is avoided from now on."""
    known = avoided(before.node_failures)
    for one in record:
        if one.avoided_until is not None and one.node not in known:
            failures = f"{one.failures} failure{'s' * (one.failures > 1)} of workers on it, the last in pod {one.pod}"
            yield Event(
                "NodeAvoided", f"node {one.node} is avoided until {one.avoided_until}: {failures}", warning=True
            )


def forgotten_in(spec: ElasticJobSpec, record: Iterable[NodeFailures], now: str) -> float | None:
    """Seconds until the first failure of the record is forgotten; None if there is none."""
    if spec.avoid_nodes is None:
        return None
    seconds = spec.avoid_nodes.for_seconds
    return min((seconds - _age(one, now) for one in record if one.failures), default=None)


def freed(report: Report) -> tuple[Worker, ...]:
    """The workers as the rules are to see them. A pod is outdated if it fits nowhere and its affinity excludes a node
    that is no longer avoided: a pod's affinity cannot be changed. A pod that waits for quota keeps its place in the
    queue, because the scheduler has not looked for a node yet."""
    waits, pods = report.observer.waits, report.observer.pods
    stuck = [one for one, wait in waits.items() if wait.reason is Reason.UNSCHEDULABLE and pods[one].avoided_nodes]
    if not stuck:
        return report.workers
    limits = report.spec.avoid_nodes
    still = avoided(_remembered(limits, report.before, report.now)) if limits and limits.required else frozenset()
    late = {pod_key for pod_key in stuck if not pods[pod_key].avoided_nodes <= still}
    return tuple(replace(one, outdated=True) if one.pod_key in late else one for one in report.workers)


def explained(waits: Mapping[int, Wait], spec: ElasticJobSpec, record: Iterable[NodeFailures]) -> dict[int, Wait]:
    """The waits by index. Those of unschedulable pods also name the avoided nodes, which may be part of the cause."""
    nodes = sorted(avoided(record)) if spec.avoid_nodes and spec.avoid_nodes.required else []
    if not nodes:
        return dict(waits)
    message = f"spec.avoidNodes.required keeps it off {first_few(nodes)}"
    return {
        index: wait._replace(message=f"{wait.message}; {message}") if wait.reason is Reason.UNSCHEDULABLE else wait
        for index, wait in waits.items()
    }


def _remembered(limits: AvoidNodesSpec, before: ElasticJobStatus, now: str) -> Iterator[NodeFailures]:
    for one in before.node_failures:
        if _age(one, now) < limits.for_seconds:
            yield one
        elif one.suspect:
            yield NodeFailures(node=one.node, time=one.time, suspect=one.suspect)


def _after(job: str, one: NodeFailures, pod: str, round: int, now: str) -> NodeFailures:
    """The entry after `pod` has failed on the node. It stays the same if that failure is already counted."""
    if one.failures and one.round == round and not _replaces(job, pod, one.pod):
        return one
    return _changed(one, failures=one.failures + 1, round=round, pod=pod, time=now)


def _judged(job: str, one: NodeFailures, round: int, now: str, *, counted: bool) -> NodeFailures:
    """The entry once it is decided whether the suspect's failure counts."""
    if not one.suspect:
        return one
    cleared = _changed(one, suspect="")
    return _after(job, cleared, one.suspect, round, now) if counted else cleared


def _replaces(job: str, pod: str, earlier: str) -> bool:
    later, known = pod_key_of(job, pod), pod_key_of(job, earlier)
    return later is not None and known is not None and later[0] == known[0] and later[1] > known[1]


def _until(limits: AvoidNodesSpec, one: NodeFailures) -> NodeFailures:
    end = datetime.fromisoformat(one.time) + timedelta(seconds=limits.for_seconds)
    return _changed(one, avoided_until=end.strftime(TIME) if one.failures >= limits.failures else None)


def _last_formed(before: ElasticJobStatus) -> int:
    agreed = before.rendezvous
    return agreed.round if agreed.phase is not RendezvousPhase.FORMING else max(1, agreed.round) - 1


def _age(one: NodeFailures, now: str) -> float:
    """The age in seconds. A time in the future counts as the same age in the past, because a clock may have been
    wrong."""
    return abs((datetime.fromisoformat(now) - datetime.fromisoformat(one.time)).total_seconds())


def _changed(one: NodeFailures, **changes: Any) -> NodeFailures:
    return one.model_copy(update=changes)

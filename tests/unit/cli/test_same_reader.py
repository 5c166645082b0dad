# SPDX-License-Identifier: Apache-2.0
"""The tool names whom the operator names: both are given the same pods, records and nodes, with drains and spares."""

import re
from typing import Any

import pytest

from elasticjob.blocker_reasons import Reason
from elasticjob.objects import Object
from elasticjob.pods import TEMPLATE_HASH
from elasticjob.reading import Node, Taint
from elasticjob.reading.node import CORDONED
from elasticjob.rendezvous import Member, State
from elasticjob.spec import DRAIN_TAINTS
from elasticjob.terms import RendezvousPhase
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.members import members_of
from elasticjob_cli.reading.scene import Scene
from elasticjob_cli.why.answer import answer
from elasticjob_cli.why.rows import LocalReason
from elasticjob_operator.job.absent import waits_of
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.quota import UNLIMITED, Allowance
from elasticjob_operator.job.status import status_of
from support.cli_jobs import LEADER, NOW
from support.operator_objects import ID, job, pod, record, trainer, view_of
from support.statuses import CLOCKS, report
from support.waiting_pods import CAUSES

FORMED = State(
    clocks=CLOCKS,
    round=3,
    phase=RendezvousPhase.FORMED,
    participants=(Member(0, ID), Member(1, ID)),
    replicas=2,
    reason="first formation",
    cause="FirstFormation",
)
JOINS = {"type": "Join", "after": 3, "cause": "Started"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def runs(index: int, node: str = "") -> Object:
    body = pod(index, phase="Running", containerStatuses=[trainer(running={"startedAt": "2026-11-22T11:59:00Z"})])
    body["spec"]["nodeName"] = node or f"node-{index}"
    return body


def stuck(index: int) -> Object:
    return pod(index, phase="Pending", conditions=[UNSCHEDULABLE])


def no_image(index: int) -> Object:
    waits = trainer(waiting={"reason": "ErrImagePull", "message": "nowhere/x"})
    return pod(index, phase="Pending", containerStatuses=[waits])


def starts(index: int) -> Object:
    return pod(index, phase="Pending", containerStatuses=[trainer(waiting={"reason": "ContainerCreating"})])


def of_another_template(body: Object) -> Object:
    body["metadata"]["annotations"] = {TEMPLATE_HASH: "another"}
    return body


Named = dict[int, bool]  # whether it is a spare, by index


def both(
    spec: Object,
    others: list[Object],
    joined: tuple[int, ...],
    drains: tuple[str, ...],
    allowance: Allowance = UNLIMITED,
) -> tuple[Named, Look]:
    """Whom the operator names, and what the tool reads of the status that it writes."""
    pods = [runs(0), runs(1), *others]
    asked = {0: {"type": "Join", "after": 2}, 1: {"type": "Join", "after": 2}, **dict.fromkeys(joined, JOINS)}
    records = [record(index, request=request) for index, request in asked.items()]
    found = report(FORMED, spec=spec, facts=[allowance])
    by_name = [{one["metadata"]["name"]: one for one in there} for there in (pods, records)]
    nodes = {name: Node(name, 1, {}, (Taint(CORDONED, "", "NoSchedule"),)) for name in drains}
    view = view_of({**job(**spec), "status": status_of(found).dump()}, *by_name, nodes=nodes)
    observer = Observer("trainer", found.spec.template_hash, drained=DRAIN_TAINTS)
    workers, _ = observer.observe(view)
    waits = waits_of(found.bounds, FORMED, workers, observer.waits)
    status = status_of(found._replace(workers=workers, waits=waits)).dump()
    body: Any = {**view.job, "status": status}
    body["metadata"] |= {"creationTimestamp": "2026-11-22T11:00:00Z"}
    seen = look(Scene(job=body, pods=tuple(pods), records=tuple(records), leader=LEADER, now=NOW))
    assert not any(one.invalid for one in workers)
    members = {one.index for one in workers if one.member in FORMED.participants}
    return {index: wait.spare for index, wait in waits.items() if index not in members}, seen


CASES: dict[str, tuple[Object, list[Object], tuple[int, ...], tuple[str, ...], Named]] = {
    "a drain, and who comes runs": ({}, [runs(2)], (), ("node-1",), {2: False}),
    "a drain, and who comes starts": ({}, [starts(2)], (), ("node-1",), {2: False}),
    "a drain, and nobody is there yet": ({}, [], (), ("node-1",), {2: False}),
    "a drain of both": ({}, [runs(2), starts(3)], (), ("node-0", "node-1"), {2: False, 3: False}),
    "a drain with a spare": ({"spareReplicas": 1}, [runs(2), starts(3)], (2,), ("node-1",), {3: True}),
    "a pod for which there is no node beside a spare": (
        {"replicas": 3, "spareReplicas": 1},
        [stuck(2), starts(3)],
        (),
        (),
        {2: True, 3: False},
    ),
    "an image that cannot be had beside a spare": (
        {"replicas": 3, "spareReplicas": 1},
        [no_image(2), runs(3)],
        (),
        (),
        {2: True, 3: False},
    ),
    "a spare that runs and has not joined": ({"spareReplicas": 1}, [runs(2)], (), (), {2: True}),
    "a worker that runs and has not joined": ({"replicas": 3}, [runs(2)], (), (), {2: False}),
    "a spare without a pod": ({"spareReplicas": 1}, [], (), (), {2: True}),
    "a pod of another template": ({"replicas": 3}, [of_another_template(runs(2))], (), (), {2: False}),
}


def test_a_record_that_the_operator_does_not_believe_counts_for_nobody_however_many_there_are() -> None:
    spec, pods = {"replicas": 5, "minReplicas": 5}, [runs(index) for index in range(5)]
    records = [record(index, request={"type": "Join", "after": 0, "cause": "Started"}) for index in range(5)]
    for body in records:
        body["spec"]["address"] = "10.255.255.1:27601"
    for one in pods:
        one["status"]["podIP"] = "10.244.0.7"
    found = report(State(clocks=CLOCKS), spec=spec)
    view = view_of(job(**spec), *({one["metadata"]["name"]: one for one in there} for there in (pods, records)))
    workers, _ = Observer("trainer", found.spec.template_hash).observe(view)
    assert all(one.invalid for one in workers)
    body: Any = {**view.job, "status": status_of(found._replace(workers=workers)).dump()}
    seen = look(Scene(job=body, pods=tuple(pods), records=tuple(records), leader=LEADER, now=NOW))
    assert not seen.joined
    assert [one.invalid for one in seen.missing] == [one.invalid for one in workers]


@pytest.mark.parametrize(("spec", "others", "joined", "drains", "absent"), CASES.values(), ids=CASES)
def test_the_tool_names_whom_the_operator_names(
    spec: Object, others: list[Object], joined: tuple[int, ...], drains: tuple[str, ...], absent: Named
) -> None:
    by_operator, seen = both({"maxReplicas": 4, **spec}, others, joined, drains)
    by_tool = {one.index: False for one in seen.missing} | {one.index: True for one in seen.absent_spares}
    assert by_operator == by_tool == absent
    assert seen.status.reason != ""
    states = {one.worker: one.state for one in members_of(seen, {})}
    paragraph = answer(seen).paragraph
    for index in absent:
        assert states[index] not in ("leaves", "waits for a place", "trains")
        assert re.search(rf"\bworkers? [^:]*\b{index}\b", paragraph)


GANG = {"replicas": 4, "maxReplicas": 4, "minReplicas": 2, "spareReplicas": 1, "quotaAdmission": "Gang"}


@pytest.mark.parametrize(
    ("allowance", "absent"),
    [
        (Allowance(2, 0, message="3 of 5 workers wait for quota"), {}),
        (Allowance(3, 0, message="2 of 5 workers wait for quota"), {2: False}),
        (Allowance(4, 1), {2: False, 3: False, 4: True}),
    ],
    ids=["its members", "one more", "all of it"],
)
def test_of_a_gang_the_tool_misses_no_worker_that_has_no_quota(allowance: Allowance, absent: Named) -> None:
    by_operator, seen = both(GANG, [], (), (), allowance)
    by_tool = {one.index: False for one in seen.missing} | {one.index: True for one in seen.absent_spares}
    assert by_operator == by_tool == absent
    assert not answer(seen).full


def test_of_a_gang_without_quota_all_workers_are_counted_and_none_is_named() -> None:
    body = job(**GANG)
    found = report(
        State(clocks=CLOCKS), spec=GANG, facts=[Allowance(suspends=True, message="5 workers wait for quota")]
    )
    body["metadata"] |= {"creationTimestamp": "2026-11-22T11:00:00Z"}
    seen = look(Scene(job={**body, "status": status_of(found).dump()}, leader=LEADER, now=NOW))
    assert not seen.missing
    assert "0 of 4 workers have joined" in answer(seen).paragraph


FINER = {Reason.POD_STARTING: (LocalReason.NO_SCHEDULER,), Reason.TRAINER_CRASHES: (Reason.CONTAINER_ERROR,)}


@pytest.mark.parametrize(("status", "reason"), [(status, reason) for status, reason, _ in CAUSES])
def test_the_tool_finds_for_a_pod_the_cause_that_the_operator_finds(status: Object, reason: Reason) -> None:
    """What only the tool sees, as a registry's refusal, may say more of it."""
    body = pod(0, phase="Pending", **status)
    body["spec"]["containers"] = [{"name": "trainer"}]
    found = report(State(clocks=CLOCKS), spec={"replicas": 1})
    view = view_of(job(replicas=1), {body["metadata"]["name"]: body}, {})
    observer = Observer("trainer", found.spec.template_hash)
    workers, _ = observer.observe(view)
    waits = waits_of(found.bounds, found.decision.state, workers, observer.waits)
    assert [wait.reason for wait in waits.values()] == [reason]
    made: Any = {**view.job, "status": status_of(found._replace(workers=workers, waits=waits)).dump()}
    made["metadata"] |= {"creationTimestamp": "2026-11-22T11:00:00Z"}
    (told,) = answer(look(Scene(job=made, pods=(body,), leader=LEADER, now=NOW))).causes
    assert told.reason in {reason, *FINER.get(reason, ())}

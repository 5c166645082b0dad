# SPDX-License-Identifier: Apache-2.0
"""The nodes on which a job's workers have failed, step by step, as the status keeps them."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from elasticjob.api import ElasticJobSpec, ElasticJobStatus, NodeFailures
from elasticjob.blocker_reasons import Reason
from elasticjob.fields import MAX_NODE_FAILURES
from elasticjob.pods import AVOIDED_NODES
from elasticjob.reading import Pod
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Clocks, Decision, Failed, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job import bad_nodes
from elasticjob_operator.job.bad_nodes import BadNodesFound
from elasticjob_operator.job.report import Report
from support.operator_objects import job, pod
from support.statuses import report, status

FORMING, FORMED, CLOSED = RendezvousPhase
A, B = "node-a", "node-b"


class Record:
    """A job's record of failures, carried from one status to the next as the API server keeps it. Workers 0 and 2 are
    on node A, and worker 1 on node B, with all their replacements."""

    def __init__(self, **limits: Any) -> None:
        self.spec = ElasticJobSpec.parse(job(avoidNodes=limits)["spec"])
        self.state = State(clocks=Clocks(opened=0, formed=0))
        self.before = ElasticJobStatus()
        self.second = 0
        self.told: list[str] = []

    @property
    def now(self) -> str:
        return f"2026-01-02T{self.second // 3600:02}:{self.second // 60 % 60:02}:{self.second % 60:02}Z"

    def step(self, *failed: tuple[PodKey, bool], **changes: Any) -> tuple[NodeFailures, ...]:
        self.state = replace(self.state, **changes)
        decision = Decision(self.state, failed=tuple(Failed(pod_key, judged) for pod_key, judged in failed))
        found = bad_nodes.noted(self.report(decision, pods()))
        self.told += [event.message for event in bad_nodes.events(self.before, found)]
        self.before = ElasticJobStatus.parse(status(self.state, self.before, facts=[BadNodesFound(found)]).dump())
        return found

    def form(self, round: int, **changes: Any) -> None:
        self.step(phase=FORMED, round=round, failure="", **changes)

    def lose(self, index: int, number: int = 0) -> None:
        """Its pod fails in the formed round, or while one forms."""
        round = self.state.round + (self.state.phase is FORMED)
        self.step(((index, number), True), phase=FORMING, round=round)

    def fail(self, index: int) -> None:
        """The round ends by its failure, which is yet to be judged."""
        self.step(((index, 0), False), phase=FORMING, round=self.state.round + 1, failure=f"worker {index} failed")

    def report(self, decision: Decision, pods: Mapping[PodKey, Pod], **more: Any) -> Report:
        observer, spec = SimpleNamespace(pods=pods, waits=more.pop("waits", {})), self.spec.dump()
        return report(self.state, self.before, decision=decision, spec=spec, observer=observer, now=self.now, **more)

    @property
    def counts(self) -> dict[str, int]:
        return {one.node: one.failures for one in self.before.node_failures}

    @property
    def avoided(self) -> frozenset[str]:
        return bad_nodes.avoided(self.before.node_failures)


def pods() -> dict[PodKey, Pod]:
    made = {(index, number): pod(index, number) for index in (0, 1, 2) for number in range(4)}
    for pod_key, body in made.items():
        body["spec"]["nodeName"] = B if pod_key[0] == 1 else A
    return {pod_key: Pod.read(body) for pod_key, body in made.items()}


def formed(**limits: Any) -> Record:
    record = Record(**limits)
    record.form(1)
    return record


def test_a_node_is_avoided_after_as_many_failures_and_told_once() -> None:
    record = formed(failures=2, forSeconds=600)
    record.lose(0)
    assert (record.counts, record.avoided) == ({A: 1}, frozenset())
    record.form(2)
    record.second = 30
    record.lose(0, 1)
    assert (record.counts, record.avoided) == ({A: 2}, {A})
    (one,) = record.before.node_failures
    assert (one.avoided_until, one.pod, one.round) == ("2026-01-02T00:10:30Z", "digits-0-1", 2)
    record.form(3)
    record.lose(2)
    assert record.counts == {A: 3}
    assert record.told == [
        f"node {A} is avoided until 2026-01-02T00:10:30Z: 2 failures of workers on it, the last in pod digits-0-1"
    ]


def test_the_failures_of_one_node_are_not_another_s() -> None:
    record = formed(failures=2)
    record.lose(0)
    record.form(2)
    record.lose(1)
    assert (record.counts, record.avoided) == ({A: 1, B: 1}, frozenset())


def test_all_that_is_lost_with_a_node_is_one_failure() -> None:
    record = formed(failures=2)
    record.step(((0, 0), True), ((2, 0), True), phase=FORMING, round=2)
    assert record.counts == {A: 1}


def test_a_replacement_that_fails_there_while_no_round_is_formed_is_another() -> None:
    record = Record(failures=2)
    for number in range(2):
        record.lose(0, number)
        record.lose(2, 0)
    assert record.counts == {A: 2}


def test_a_step_that_is_taken_again_counts_nothing_twice() -> None:
    """As by a leader that follows one whose pods' deletion was not seen."""
    record = formed()
    for _ in range(3):
        record.lose(0)
    assert record.counts == {A: 1}


def test_a_failure_in_place_counts_once_it_counts_against_the_restarts() -> None:
    record = formed(failures=1)
    record.fail(0)
    (one,) = record.before.node_failures
    assert (one.failures, one.suspect, record.avoided) == (0, "digits-0-0", frozenset())
    record.form(2, restarts=1)
    (one,) = record.before.node_failures
    assert (one.failures, one.suspect, one.pod, record.avoided) == (1, "", "digits-0-0", {A})


def test_one_that_something_else_explains_leaves_nothing() -> None:
    """A node is lost, and the workers of others fail by that first."""
    record = formed(failures=1)
    record.fail(0)
    record.step(((1, 0), True), failure="")
    assert (record.counts, record.avoided) == ({B: 1}, {B})
    record.form(2)
    assert record.counts == {B: 1}


def test_one_that_is_judged_in_the_same_step_counts_as_well() -> None:
    record = formed()
    record.step(((0, 0), False), round=2, phase=FORMED, restarts=1)
    assert record.counts == {A: 1}


def test_one_by_which_the_pod_is_lost_in_the_end_counts_once() -> None:
    """Its trainer has left, and then its container does not come up again."""
    record = formed(failures=2)
    record.fail(0)
    record.lose(0)
    assert record.counts == {A: 1}
    record.form(2, restarts=1)
    assert (record.counts, record.before.node_failures[0].suspect) == ({A: 1}, "")


def test_only_the_node_of_the_worker_that_turns_out_to_be_the_cause_counts() -> None:
    """Its peers, whose connections broke, were heard of before."""
    record = formed(failures=1)
    record.fail(0)
    record.step(((1, 0), False), failure="worker 1's processes failed")
    record.form(2, restarts=1)
    assert record.counts == {B: 1}


def test_failures_are_forgotten_after_that_time() -> None:
    record = formed(failures=1, forSeconds=60)
    record.lose(0)
    assert bad_nodes.forgotten_in(record.spec, record.before.node_failures, record.now) == 60
    record.second = 59
    record.step()
    assert record.avoided == {A}
    assert bad_nodes.forgotten_in(record.spec, record.before.node_failures, record.now) == 1
    record.second = 60
    assert record.step() == ()
    assert bad_nodes.forgotten_in(record.spec, (), record.now) is None


def test_a_failure_that_waits_for_its_judgement_outlives_what_is_forgotten() -> None:
    record = formed(failures=2, forSeconds=60)
    record.lose(0)
    record.form(2)
    record.fail(0)
    record.second = 61
    record.step()
    record.form(3, restarts=1)
    assert record.counts == {A: 1}
    record.second = 121
    assert record.step() == ()


def test_a_clock_that_was_wrong_keeps_no_node_away_for_longer() -> None:
    record = formed(failures=1, forSeconds=60)
    record.second = 3600
    record.lose(0)
    record.second = 0
    assert record.step() == ()


def test_without_the_field_nothing_is_kept() -> None:
    record = formed(failures=1)
    record.lose(0)
    record.spec = ElasticJobSpec.parse(job()["spec"])
    assert record.step(((1, 0), True)) == ()


def test_a_change_of_the_number_counts_for_what_is_known() -> None:
    record = formed(failures=3)
    record.lose(0)
    record.spec = ElasticJobSpec.parse(job(avoidNodes={"failures": 1})["spec"])
    record.step()
    assert record.avoided == {A}
    assert len(record.told) == 1


def test_a_pod_without_a_node_says_nothing_of_any() -> None:
    decision = Decision(State(clocks=Clocks(opened=0, formed=0)), failed=(Failed((0, 0), True), Failed((7, 0), True)))
    assert bad_nodes.noted(Record().report(decision, {(0, 0): Pod.read(pod(0))})) == ()


def test_as_many_nodes_are_kept_as_fit_the_last_ones() -> None:
    record = formed()
    names = [f"node-{number}" for number in range(MAX_NODE_FAILURES)]
    known = tuple(NodeFailures(node=name, failures=1, time=record.now) for name in names)
    record.before = record.before.model_copy(update={"node_failures": known})
    found = record.step(((0, 0), True), phase=FORMING, round=2)
    assert [one.node for one in found] == [*names[1:], A]


def avoided_nodes(*nodes: str) -> Pod:
    body = pod(0)
    body["metadata"]["annotations"] = {AVOIDED_NODES: ",".join(nodes)}
    return Pod.read(body)


@pytest.mark.parametrize(
    ("waits", "annotated", "required", "outdated"),
    [
        (Reason.UNSCHEDULABLE, [A], True, False),
        (Reason.UNSCHEDULABLE, [A, B], True, True),
        (Reason.UNSCHEDULABLE, [A], False, True),
        (None, [B], True, False),
        (Reason.UNSCHEDULABLE, [], True, False),
        (Reason.QUOTA_PENDING, [B], True, False),
        (Reason.SCHEDULING_GATED, [B], False, False),
        (Reason.CLAIM_NOT_READY, [B], True, False),
    ],
    ids=[
        *("its node is avoided", "one is not any more", "none is forbidden any more", "it runs", "none was forbidden"),
        *("it waits for quota", "it is gated", "it waits for a volume"),
    ],
)
def test_a_pod_that_waits_for_what_is_allowed_by_now_is_outdated(
    waits: Reason | None, annotated: list[str], required: bool, outdated: bool
) -> None:
    record = formed(failures=1, required=required)
    record.lose(0)
    worker, pods = Worker(index=0), {(0, 0): avoided_nodes(*annotated)}
    told = {(0, 0): Wait(waits, "")} if waits else {}
    (found,) = bad_nodes.freed(record.report(Decision(record.state), pods, workers=(worker,), waits=told))
    assert found.outdated is outdated


def test_what_waits_for_room_is_told_which_nodes_it_may_not_use() -> None:
    record = formed(failures=1, required=True)
    record.lose(0)
    record.lose(1)
    waits = {0: Wait(Reason.UNSCHEDULABLE, "0/3 nodes are available"), 1: Wait(Reason.IMAGE_PULL, "no such image")}
    found = bad_nodes.explained(waits, record.spec, record.before.node_failures)
    assert found[0].message == f"0/3 nodes are available; spec.avoidNodes.required keeps it off {A}, {B}"
    assert found[1] == waits[1]
    preferred = ElasticJobSpec.parse(job(avoidNodes={"failures": 1})["spec"])
    assert bad_nodes.explained(waits, preferred, record.before.node_failures) == waits

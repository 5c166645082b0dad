# SPDX-License-Identifier: Apache-2.0
"""Which sidecars the operator asks what keeps them from joining, and what it makes of their answers."""

from datetime import datetime
from typing import Any

import pytest

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.blocker_reasons import Reason
from elasticjob.reading import Pod
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import PodState, Request, State, Worker
from elasticjob.terms import Outcome, RequestType
from elasticjob_operator.job.absent import waits_of
from elasticjob_operator.job.sidecars import NO_ANSWER, marked, to_ask, troubles
from support.job_on_paper import JobOnPaper
from support.operator_objects import job, pod
from support.statuses import CLOCKS, FORMED, status

SINCE = "2026-01-02T03:00:00Z"
FORMING = State(clocks=CLOCKS)
SPEC = ElasticJobSpec.parse(job()["spec"])
JOIN = Request(type=RequestType.JOIN)
KEY = (0, 0)


def a_pod(*, ready: bool, runs: bool = True, address: str = "10.0.0.7") -> Pod:
    state = {"running": {"startedAt": SINCE}} if runs else {"waiting": {}}
    made = pod(0, podIP=address) if address else pod(0)
    made["status"]["initContainerStatuses"] = [{"name": "elasticjob-sidecar", "ready": ready, "state": state}]
    return Pod.read(made)


@pytest.mark.parametrize(
    ("made", "worker", "due"),
    [
        (a_pod(ready=False), Worker(index=0), "03:00:10"),
        (a_pod(ready=False), Worker(index=0, id="a", request=JOIN), "03:00:10"),  # it had a record, and lost it
        (a_pod(ready=True), Worker(index=0, id="a"), "03:00:30"),  # it is ready, and may have no access any more
        (a_pod(ready=True), Worker(index=0, id="a", request=JOIN), None),
        (a_pod(ready=False, runs=False), Worker(index=0, pod=PodState.PENDING), None),
        (a_pod(ready=False, address=""), Worker(index=0), None),
        (a_pod(ready=False), Worker(index=0, deleting=True), None),
    ],
    ids=["no record", "a record that was lost", "silent", "joined", "not started", "no address", "on its way out"],
)
def test_a_sidecar_is_asked_once_it_should_have_been_heard_of(made: Pod, worker: Worker, due: str | None) -> None:
    asked = to_ask(SPEC, FORMING, [worker], {KEY: made})
    assert [(one.address, f"{one.at:%H:%M:%S}") for one in asked] == ([("10.0.0.7", due)] if due else [])


def test_those_that_are_not_ready_are_asked_first() -> None:
    workers = [Worker(index=index) for index in range(2)]
    pods = {(0, 0): a_pod(ready=True), (1, 0): a_pod(ready=False)}
    assert [one.pod_key for one in to_ask(SPEC, FORMING, workers, pods)] == [(1, 0), (0, 0)]


@pytest.mark.parametrize(
    ("said", "ready", "told"),
    [
        ({KEY: "its ElasticWorker cannot be written: x"}, False, "its ElasticWorker cannot be written: x"),
        ({KEY: "its ElasticWorker cannot be written: x"}, True, "its ElasticWorker cannot be written: x"),
        ({KEY: None}, False, NO_ANSWER.format(port=27602)),
        ({KEY: None}, True, None),  # nobody has said that anything is wrong with it
        ({KEY: ""}, False, None),
        ({}, False, None),
    ],
)
def test_what_a_sidecar_says_is_told(said: dict[Any, str | None], *, ready: bool, told: str | None) -> None:
    asked = to_ask(SPEC, FORMING, [Worker(index=0)], {KEY: a_pod(ready=ready)})
    assert troubles(asked, said) == ({KEY: Wait(Reason.SIDECAR_NOT_READY, told)} if told else {})


@pytest.mark.parametrize("state", [FORMING, FORMED], ids=["while a round forms", "while one stands"])
def test_it_is_in_a_condition_of_its_own_and_in_the_reason(state: State) -> None:
    quota = Wait(Reason.SIDECAR_NOT_READY, "its ElasticWorker cannot be written: exceeded quota: records")
    silent = tuple(Worker(index=index, id=f"{index}") for index in (4, 5))
    found = status(state, workers=silent, waits={4: quota, 5: quota}, spec={"replicas": 4, "minReplicas": 2})
    told = {one.type: one for one in found.conditions}
    sentence = "workers 4, 5: its ElasticWorker cannot be written: exceeded quota: records"
    assert found.reason == "SidecarNotReady"
    assert (told["SidecarsReady"].status, told["SidecarsReady"].message) == ("False", sentence)
    assert told["Rendezvoused"].message.endswith(f"; {sentence}")
    assert "torchrun" not in told["Rendezvoused"].message  # what a sidecar cannot write says nothing of it
    after = status(state, before=found, spec={"replicas": 4})
    assert next(one.status for one in after.conditions if one.type == "SidecarsReady") == "True"


def test_a_member_of_a_round_that_stands_is_among_those_that_are_told() -> None:
    """It has joined, and is missed by nobody: but nobody reaches the store that it is to serve, or it hears no news."""
    worker = Worker(index=0, id="a", request=JOIN)
    refused = Wait(Reason.SIDECAR_NOT_READY, "not all members of round 3 can be let in to its store: 403")
    spec = rendezvous_spec(SPEC)
    for state, told in ((FORMED, {0: refused}), (FORMING, {})):
        found = waits_of(spec, state, [worker], {KEY: refused})
        assert {index: wait for index, wait in found.items() if wait.reason is Reason.SIDECAR_NOT_READY} == told


def test_a_job_that_ends_as_workers_have_not_joined_repeats_what_keeps_them() -> None:
    """The condition that says so is of the past by then, and its pods are gone."""
    job = JobOnPaper(replicas=4, min_replicas=4, start_timeout=100)
    job.up(0)
    job.start(1, 2, 3)
    quota = Wait(Reason.SIDECAR_NOT_READY, "its ElasticWorker cannot be written: exceeded quota")
    of = {(0, 0): quota._replace(message="not told, as it has joined"), (2, 0): quota, (3, 0): quota}
    job.workers = {worker.pod_key: worker for worker in marked(tuple(job.workers.values()), of)}
    job.wait(100, living=(0, 1, 2, 3))
    assert job.state.outcome is Outcome.TIMEOUT
    assert job.state.reason.endswith(f"and at least 4 must; worker 2: {quota.message}")


def test_in_its_nodes_network_it_is_asked_at_the_port_that_the_job_names() -> None:
    spec = ElasticJobSpec.parse(job(hostNetwork={"acknowledged": True, "healthPort": 30602})["spec"])
    asked = to_ask(spec, FORMING, [Worker(index=0)], {KEY: a_pod(ready=False)})
    assert [one.port for one in asked] == [30602]
    assert "at port 30602 of its pod" in troubles(asked, {KEY: None})[KEY].message


def test_the_moments_are_those_of_a_wall_clock() -> None:
    (asked,) = to_ask(SPEC, FORMING, [Worker(index=0)], {KEY: a_pod(ready=False)})
    assert (asked.at - datetime.fromisoformat(SINCE)).total_seconds() == 10

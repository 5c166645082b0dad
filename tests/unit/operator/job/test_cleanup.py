# SPDX-License-Identifier: Apache-2.0
"""What becomes of pods that have served: deleted, ended with their logs kept, or left alone."""

from typing import Any

import pytest

from elasticjob.reading import Pod
from elasticjob.rendezvous import Clocks, Member, PodState, Spec, State, Worker, pods_to_delete
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.cleanup import DEADLINE_SECONDS, cleanup
from support.operator_objects import Object, pod, trainer

RUNS = {"phase": "Running", "containerStatuses": [trainer(running={})]}
LOOPS = {"phase": "Running", "containerStatuses": [trainer(4, waiting={"reason": "CrashLoopBackOff"})]}
PENDING = {"phase": "Pending", "containerStatuses": [trainer(waiting={"reason": "PodInitializing"})]}
DONE = {"phase": "Running", "containerStatuses": [trainer(terminated={"exitCode": 0})]}
LINGERS = {**DONE, "containerStatuses": [*DONE["containerStatuses"], {"name": "mesh", "state": {"running": {}}}]}
SPENT = {**DONE, "containerStatuses": [*DONE["containerStatuses"], {"name": "mesh", "state": {"terminated": {}}}]}
FAILED = {"phase": "Failed"}

KINDS: dict[int, tuple[PodState, dict[str, Any]]] = {
    0: (PodState.RUNNING, RUNS),
    1: (PodState.CRASH_LOOP, LOOPS),
    2: (PodState.PENDING, PENDING),
    3: (PodState.SUCCEEDED, DONE),
    4: (PodState.SUCCEEDED, LINGERS),
    5: (PodState.SUCCEEDED, SPENT),
    6: (PodState.FAILED, FAILED),
    9: (PodState.CRASH_LOOP, LOOPS),  # it had finished, and its container ended with another exit code
}
UNPLACED = (2, 0)
FINISHED = tuple(Member(index, "a") for index in (3, 4, 5, 9))
FORMED = State(clocks=Clocks(opened=0, formed=0), phase=RendezvousPhase.FORMED, finished=FINISHED, replacements={7: 1})
ENDED = State(
    clocks=Clocks(opened=0, formed=0),
    phase=RendezvousPhase.CLOSED,
    outcome=Outcome.FAILED,
    finished=FINISHED,
    replacements={7: 1},
)


def swept(policy: str, state: State, changed: Object | None = None) -> tuple[list[int], list[int]]:
    """Indices of the pods that are deleted, and of those that are ended; worker 7's pod was replaced."""
    pods = {(index, 0): pod(index, **status) for index, (_, status) in KINDS.items()} | {(7, 0): pod(7, **RUNS)}
    for pod_key, body in pods.items():
        body["spec"] = {"nodeName": "node-a"} if pod_key != UNPLACED else {}
    pods |= {(0, 0): changed} if changed else {}
    workers = [Worker(index=index, pod=kind, id="a") for index, (kind, _) in KINDS.items()]
    workers += [Worker(index=7, id="a"), Worker(index=8, deleting=True)]
    served = pods_to_delete(Spec(replicas=8), state, workers, 0)
    read = {pod_key: Pod.read(body) for pod_key, body in pods.items()}
    found = cleanup(policy, state, workers, served, read, "trainer")
    return sorted(one.index for one in found.delete), sorted(one.index for one in found.end)


@pytest.mark.parametrize(
    ("policy", "deleted", "ended"),
    [("Running", [2, 7], [0, 1, 4, 9]), ("All", [0, 1, 2, 3, 4, 5, 6, 7, 9], []), ("None", [], [])],
)
def test_when_the_job_has_ended_its_policy_says_which_pods_stay(
    policy: str, deleted: list[int], ended: list[int]
) -> None:
    assert swept(policy, ENDED) == (deleted, ended)


@pytest.mark.parametrize(("policy", "ended"), [("Running", [4]), ("All", [4]), ("None", [])])
def test_while_the_job_runs_what_goes_on_beside_a_finished_trainer_is_ended(policy: str, ended: list[int]) -> None:
    assert swept(policy, FORMED) == ([7], ended)


def test_a_pod_is_ended_once() -> None:
    body = pod(0, **RUNS) | {"spec": {"nodeName": "node-a", "activeDeadlineSeconds": DEADLINE_SECONDS}}
    assert swept("Running", ENDED, body) == ([2, 7], [1, 4, 9])

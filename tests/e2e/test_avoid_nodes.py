# SPDX-License-Identifier: Apache-2.0
"""A node on which workers fail: their replacements keep off it, until it is forgotten."""

import shlex
from typing import Any

import pytest

from e2e.disruption import CONTROL_PLANE, signal_worker_process
from e2e.job import AGENT, TOLD_SECONDS, TRAINER, Job, status_of
from e2e.kube import Object, wait_until

# a shell that swallows the exit code: once its agent is killed the pod has failed, and is replaced
TRAINER_THAT_FAILS_ITS_POD = {"command": ["sh", "-c", f"{shlex.join(AGENT)}; exit 0"]}
FOR_SECONDS = 30


@pytest.mark.on_workers
def test_a_replacement_runs_elsewhere_and_the_node_is_forgotten_in_time(job: Job) -> None:
    avoid = {"failures": 1, "forSeconds": FOR_SECONDS}
    job.apply(node=None, replicas=2, avoidNodes=avoid, trainer=TRAINER_THAT_FAILS_ITS_POD)
    first = job.wait_for_round(2)
    lost = job.member_pods()[1]
    node, index = lost["spec"]["nodeName"], first.members[1]
    signal_worker_process(lost, TRAINER)

    noted = job.until("the node to be avoided", lambda: avoided(job), TOLD_SECONDS)
    assert (noted["node"], noted["failures"], noted["pod"]) == (node, 1, lost["metadata"]["name"])
    event = job.wait_for_event("NodeAvoided", f"node {node} is avoided until {noted['avoidedUntil']}: 1 failure of")
    assert event["type"] == "Warning"
    second = job.wait_for_round(2, after=first)
    replacement = job.member_pods()[second.members.index(index)]
    assert replacement["metadata"]["name"] != lost["metadata"]["name"]
    assert replacement["spec"]["nodeName"] != node

    forgotten = FOR_SECONDS + TOLD_SECONDS
    wait_until("the node to be forgotten", lambda: not job.status.get("nodeFailures"), forgotten, lambda: job.status)
    assert job.rounds()[-1] == second, "running workers stay as they are"


@pytest.mark.extended
def test_where_other_nodes_are_required_a_pod_waits_for_one_and_is_made_anew_when_its_own_will_do(job: Job) -> None:
    """Its template allows one node only."""
    avoid = {"failures": 1, "forSeconds": FOR_SECONDS, "required": True}
    job.apply(replicas=1, node=CONTROL_PLANE, avoidNodes=avoid, trainer=TRAINER_THAT_FAILS_ITS_POD)
    first = job.wait_for_round(1)
    lost = job.member_pods()[0]
    signal_worker_process(lost, TRAINER)

    said = f"spec.avoidNodes.required keeps it off {lost['spec']['nodeName']}"
    job.until("the nodes to be told", lambda: said in " ".join(told(job)), TOLD_SECONDS)
    job.wait_for_event("Unschedulable", said)
    second = job.wait_for_round(1, after=first, seconds=FOR_SECONDS + 2 * TOLD_SECONDS)
    assert second.members == (0,)
    job.wait_for_pod("train-0-2")
    pods = {sighting.name for sighting in job.pod_states.sightings}
    assert pods == {"train-0-0", "train-0-1", "train-0-2"}, "one failed, one may not go there, and one may again"
    assert job.restarts == 1


def avoided(job: Job) -> Object | None:
    """The first node that was, whether or not it still is."""
    records = (one for sighting in job.jobs.of(job.name) for one in status_of(sighting).get("nodeFailures", ()))
    found: Any = next((one for one in records if "avoidedUntil" in one), None)
    return found


def told(job: Job) -> list[str]:
    """All messages of the condition Rendezvoused that were seen."""
    conditions = (one for sighting in job.jobs.of(job.name) for one in status_of(sighting).get("conditions", ()))
    return [one["message"] for one in conditions if one["type"] == "Rendezvoused"]

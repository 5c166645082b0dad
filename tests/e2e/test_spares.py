# SPDX-License-Identifier: Apache-2.0
"""A spare waits beside the members: it takes a lost one's rank, and a scale-up takes it first."""

import json
import time

import pytest

from e2e.cli_cases import SLOW
from e2e.disruption import touch
from e2e.job import ROUND_SECONDS, STARTED_SECONDS, TOLD_SECONDS, TRAINER, Job, restarts
from e2e.kube import wait_until
from elasticjob_cli.why.answer import why
from support.waiting import settled

SHORT_SECONDS = 5


def test_a_spare_takes_the_rank_of_a_lost_member_and_then_of_a_scale_up(job: Job) -> None:
    job.apply(replicas=2, maxReplicas=3, spareReplicas=1)
    formed, training = job.wait_for_round(2), job.wait_for_training(2)
    job.wait_for_spare()
    assert settled(job.status["replicas"], "written with the spares") == 2
    wide = job.namespace.kubectl("get", "elasticjob", job.name, "--output=wide", "--no-headers=false")
    assert "SPARES" in wide.splitlines()[0].split()

    first, second, spare = formed.members[0], formed.members[1], ({0, 1, 2} - set(formed.members)).pop()
    job.delete_pod(job.pod(first))
    formed = job.wait_for_round(2, after=formed)
    assert formed.members == (spare, second), "the survivor keeps its rank"
    assert formed.reason == f"worker {first} lost: its pod was deleted; spare {spare} takes rank 0"
    training = job.wait_for_training(2, other_than=training)
    job.wait_for_spare()
    job.wait_for_pod(f"train-{first}-1")
    assert job.rounds()[-1] == formed, "a spare that joins ends no round"

    job.scale(3)
    formed = job.wait_for_round(3, after=formed)
    assert (formed.members, formed.reason) == ((spare, second, first), "scaled from 2 to 3")
    training = job.wait_for_training(3, other_than=training)
    job.wait_for_spare()
    waiting = job.pod(3)

    job.scale(2)
    formed = job.wait_for_round(2, after=formed)
    assert formed.members == (spare, second)
    job.wait_for_training(2, other_than=training)
    assert job.pod(3)["metadata"]["uid"] == waiting["metadata"]["uid"], "no spare goes for a scale-down"


def test_a_spare_whose_trainer_runs_and_does_not_join_is_named(job: Job) -> None:
    job.apply(replicas=1, spareReplicas=1, trainer={"command": ["sh", "-c", SLOW]})
    job.wait_for_round(1)
    told = "spare 1: its trainer runs, and no torchrun has spoken to its sidecar"

    def named() -> bool:
        return job.status.get("reason", "") == "NotJoined" and told in job.condition("Rendezvoused")["message"]

    job.until("the spare to be named", named, STARTED_SECONDS)
    missing = "A spare is missing: worker 1, whose trainer has run for "

    def explained() -> bool:
        answer = why(job.scene())
        return answer.full and missing in answer.paragraph

    wait_until("`why` to name the spare", explained, TOLD_SECONDS, lambda: why(job.scene()).paragraph)


@pytest.mark.on_workers
def test_more_spares_than_there_is_room_for_end_no_job(job: Job) -> None:
    """Each node takes one of its pods, so most spares never have a node; no timeout of the rendezvous counts them."""
    body = job.manifest(node=None, replicas=1, spareReplicas=4)
    alone = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"elasticjob.io/job": job.name}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}}
    body["spec"]["template"]["spec"]["affinity"] = affinity
    job.namespace.apply(body)
    formed, training = job.wait_for_round(1), job.wait_for_training(1)
    job.wait_for_spare()
    job.until("REASON", lambda: job.status.get("reason") == "Unschedulable", TOLD_SECONDS)

    set_timeouts(job, SHORT_SECONDS)
    time.sleep(2 * SHORT_SECONDS)  # either of them is over by then, whenever it has begun
    job.wait_for_steps(training, 5)
    assert job.rounds() == [formed]
    set_timeouts(job, STARTED_SECONDS)

    job.delete_pod(job.member_pods()[0])
    after = job.wait_for_round(1, after=formed)
    assert "takes rank 0" in after.reason
    job.wait_for_training(1, other_than=training)
    touch(job.member_pods()[0], TRAINER, "/tmp/finish")
    job.wait_for_condition("Complete")
    assert job.restarts == 0


def set_timeouts(job: Job, seconds: int) -> None:
    times = {"joinTimeoutSeconds": seconds, "startTimeoutSeconds": seconds}
    job.patch(json.dumps({"spec": {"rendezvous": times}}))


@pytest.mark.on_workers
def test_a_spare_is_on_another_node_and_its_failure_breaks_nothing(job: Job) -> None:
    job.apply(node=None, replicas=1)
    formed, training = job.wait_for_round(1), job.wait_for_training(1)
    job.patch('{"spec": {"spareReplicas": 1}}')
    job.wait_for_spare()
    nodes = {job.pod(index)["spec"]["nodeName"] for index in (0, 1)}
    assert len(nodes) == 2, "its pod was made when the member was there"

    job.kill_trainer(job.pod(1))
    wait_until("the spare to be started again", lambda: restarts(job.pod(1)) == 1, TOLD_SECONDS, job.pods)
    job.wait_for_spare()
    job.delete_pod(job.pod(1))

    def replaced() -> bool:
        return 1 in job.pods() and job.pods()[1]["metadata"]["name"] == "train-1-1"

    wait_until("another spare", replaced, ROUND_SECONDS, job.pods)
    job.wait_for_spare()
    job.wait_for_steps(training, 5)
    assert job.rounds() == [formed]
    assert job.restarts == 0

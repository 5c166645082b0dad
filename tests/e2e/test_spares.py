"""A spare waits beside the members: it takes a lost one's rank, and a scale-up takes it first."""

from e2e.job import STARTED_SECONDS, Job
from e2e.kube import wait_until


def test_a_spare_takes_the_rank_of_a_lost_member_and_then_of_a_scale_up(job: Job) -> None:
    job.apply(replicas=2, maxReplicas=3, spareReplicas=1)
    formed, training = job.wait_for_round(2), job.wait_for_training(2)
    wait_for_spare(job)
    assert job.status["replicas"] == 2
    wide = job.namespace.kubectl("get", "elasticjob", job.name, "--output=wide", "--no-headers=false")
    assert "SPARES" in wide.splitlines()[0].split()

    first, second, spare = formed.members[0], formed.members[1], ({0, 1, 2} - set(formed.members)).pop()
    job.delete_pod(job.pods()[first])
    formed = job.wait_for_round(2, after=formed)
    assert formed.members == (spare, second), "the survivor keeps its rank"
    assert formed.reason == f"worker {first} lost: its pod was deleted; spare {spare} takes rank 0"
    training = job.wait_for_training(2, other_than=training)
    wait_for_spare(job)
    assert job.pods()[first]["metadata"]["name"] == f"train-{first}-1"
    assert job.rounds()[-1] == formed, "a spare that joins ends no round"

    job.scale(3)
    formed = job.wait_for_round(3, after=formed)
    assert (formed.members, formed.reason) == ((spare, second, first), "scaled from 2 to 3")
    training = job.wait_for_training(3, other_than=training)
    wait_for_spare(job)

    job.scale(2)
    formed = job.wait_for_round(2, after=formed)
    assert formed.members == (spare, second)
    job.wait_for_training(2, other_than=training)
    assert 3 in job.pods(), "no spare goes for a scale-down"


def wait_for_spare(job: Job) -> None:
    wait_until("the spare to wait", lambda: job.status.get("spares") == 1, STARTED_SECONDS, job.summary)

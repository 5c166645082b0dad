"""The operator is lost in the middle of a training, which does not notice; another one goes on with the job."""

import time
from collections.abc import Callable

from e2e.job import Job, kill_container
from e2e.kube import Namespace, wait_until
from e2e.timings import Timings

LEASE = "elasticjob-operator"


def test_training_goes_on_while_another_operator_takes_over(job: Job, operator: Namespace, timings: Timings) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    training = job.wait_for_training(2)
    # the job fills its namespace: a new leader must not take that for a fault of the template
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "2"}}}
    job.namespace.apply(quota)

    stopped = take_over(job, operator, stop)
    killed = take_over(job, operator, kill)
    timings.note("kubectl delete pod of the leader to the next one's first write", stopped)
    timings.note("kill -9 of the leader to the next one's first write", killed)
    job.wait_for_steps(training, 5)
    assert job.rounds() == [first], "no round was lost, none formed twice"

    assert job.condition("TemplateValid")["status"] == "True", job.condition("TemplateValid")["message"]

    job.namespace.kubectl("delete", "resourcequota", "full")
    job.scale(3)
    second = job.wait_for_round(3, after=first)
    assert second.number == first.number + 1
    assert second.reason == "scaled from 2 to 3"
    job.wait_for_training(3, other_than=training)


def test_a_deleted_lease_is_outgrown(job: Job, operator: Namespace) -> None:
    """Its count of terms begins anew, and the terms in the statuses must not: they fence an old leader."""
    job.apply(replicas=1)
    first = job.wait_for_round(1)
    take_over(job, operator, lambda namespace, _: namespace.kubectl("delete", "lease", LEASE))
    assert job.rounds() == [first]
    job.scale(2)
    job.wait_for_round(2, after=first)


def stop(operator: Namespace, leader: str) -> None:
    operator.kubectl("delete", "pod", leader, "--wait=false")


def kill(operator: Namespace, leader: str) -> None:
    kill_container(operator.get("pod", leader), "operator")


def take_over(job: Job, operator: Namespace, lose: Callable[[Namespace, str], object]) -> float:
    """Lose the leader; return the seconds until the next one has taken the job over."""
    operator.kubectl("rollout", "status", "deployment/elasticjob-operator", "--timeout=60s")
    term, leader = job.status["term"], str(operator.get("lease", LEASE)["spec"]["holderIdentity"])
    lost = time.monotonic()
    lose(operator, leader)
    wait_until("a new term in the job's status", lambda: job.status["term"] > term, 60, job.summary)
    taken = next(one.at for one in job.jobs.of(job.name) if one.body.get("status", {}).get("term", 0) > term)
    return taken - lost

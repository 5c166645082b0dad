"""The operator is replaced in the middle of a training, which does not notice."""

import time

from e2e.job import Job
from e2e.kube import Namespace, wait_until
from e2e.timings import Timings


def leader(operator: Namespace) -> str:
    """The pod that leads; empty when nobody does."""
    return str(operator.get("lease", "elasticjob-operator")["spec"].get("holderIdentity") or "")


def test_training_goes_on_while_another_operator_takes_over(job: Job, operator: Namespace, timings: Timings) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    training = job.wait_for_training(2)
    term = job.status["term"]

    old = leader(operator)
    deleted = time.monotonic()
    operator.kubectl("delete", "pod", old, "--wait=false")
    new = wait_until("another leader", lambda: leader(operator).replace(old, ""), 60, lambda: leader(operator))
    timings.note("kubectl delete pod of the leader to the next one", time.monotonic() - deleted)
    wait_until("the new leader's term in the status", lambda: job.status["term"] > term, 60, job.summary)
    job.wait_for_steps(training, 5)
    assert new != old
    assert job.rounds() == [first], "no round was lost, none formed twice"

    job.scale(3)
    second = job.wait_for_round(3, after=first)
    assert second.number == first.number + 1
    assert second.reason == "scaled from 2 to 3"
    job.wait_for_training(3, other_than=training)
    operator.kubectl("rollout", "status", "deployment/elasticjob-operator", "--timeout=60s")

# SPDX-License-Identifier: Apache-2.0
"""A job's PodDisruptionBudget: nobody is evicted who is not to be, and no alert of the cluster's own is met."""

import time
from collections.abc import Callable

from e2e.disruption import freeze_container, wake_container
from e2e.job import SIDECAR, STARTED_SECONDS, Job
from e2e.kube import wait_until
from e2e.test_drain import evicted
from elasticjob_operator.job.evictions import SETTLE_SECONDS
from support.stock_alerts import of_budgets, of_pods
from support.waiting import settled

SEEN_SECONDS = 60  # by when what a job's start or a pod's loss brings about is over; each alert waits 15 minutes
REST_SECONDS = 3  # for which no alert's condition is met; a probe of a busy machine may fail before
FROZEN_SECONDS = 9  # less than the probes that a kubelet waits for, and more than one may take
REFUSED = "429 TooManyRequests"


def alerts(job: Job) -> list[tuple[str, str]]:
    """The stock alerts whose condition is met now."""
    return [*of_pods(job.namespace.list("pods")), *of_budgets(job.namespace.list("poddisruptionbudgets"))]


def wait_for_peace(job: Job, seconds: float = 0) -> None:
    """Until no alert's condition has been met for so long."""
    since = time.monotonic()

    def is_at_peace() -> bool:
        nonlocal since
        now = time.monotonic()
        if alerts(job):
            since = now
            return False
        return now - since >= seconds

    wait_until("no alert's condition to be met", is_at_peace, SEEN_SECONDS, lambda: alerts(job))


def test_no_alert_of_the_clusters_own_is_met_by_a_job_that_starts_trains_loses_a_pod_and_ends(job: Job) -> None:
    job.apply(replicas=2, spareReplicas=1)
    job.wait_for_round(2)
    job.wait_for_spare()
    job.wait_for_protection(3)
    wait_for_peace(job, REST_SECONDS)
    last = job.rounds()[-1]
    job.delete_pod(job.member_pods()[1])  # any two of the three may be members
    job.wait_for_round(2, after=last)
    job.wait_for_spare()
    job.wait_for_protection(3)
    wait_for_peace(job)
    job.finish_training()
    job.wait_for_condition("Complete")
    job.wait_for_the_end_of_all_pods()
    wait_for_peace(job)


def test_nobody_is_evicted_while_the_budget_follows_the_pods(job: Job) -> None:
    """Neither members nor spares, while pods come and go; and a while later it keeps no more than there are."""
    job.apply(replicas=2, spareReplicas=1)
    job.wait_for_round(2)
    job.wait_for_spare()
    job.wait_for_protection(3)
    pods = settled(job.pods(), "all are there, and stay").values()
    assert [evicted(job, pod) for pod in pods] == [REFUSED] * 3
    stays, goes = job.member_pods()

    def all_refused(until: Callable[[], bool], seconds: float) -> None:
        """Whichever pod is tried, the same number is asked."""

        def met() -> bool:
            assert evicted(job, stays) == REFUSED
            return until()

        wait_until("the budget to follow", met, seconds, job.budget)

    job.scale(3)
    all_refused(lambda: minimum(job) >= 4, STARTED_SECONDS)
    job.delete_pod(goes)
    job.scale(2)
    all_refused(lambda: minimum(job) == 3, 2 * SETTLE_SECONDS + STARTED_SECONDS)


def test_a_sidecar_that_does_not_answer_for_seconds_costs_its_pod_no_protection(job: Job) -> None:
    """An unready pod may be evicted whatever the budget says, and a kubelet calls it so after fifteen probes."""
    job.apply(replicas=2)
    job.wait_for_round(2)
    job.wait_for_protection(2)
    pod, said = job.member_pods()[1], []
    freeze_container(pod, SIDECAR)
    frozen = time.monotonic()
    try:
        while time.monotonic() - frozen < FROZEN_SECONDS:
            said.append(evicted(job, pod))
            time.sleep(0.5)
    finally:
        wake_container(pod, SIDECAR)
    assert set(said) == {REFUSED}, said


def minimum(job: Job) -> int:
    return int(job.budget()["spec"]["minAvailable"])

# SPDX-License-Identifier: Apache-2.0
"""The operators of the installed release: which one leads, and for how long another needs to take over."""

import time
from collections.abc import Callable
from contextlib import suppress

from e2e.api import Refused
from e2e.job import Job, restarts
from e2e.kube import Namespace, Object, wait_until
from elasticjob.reading import Pod

LEASE, CONTAINER = "elasticjob-operator", "operator"
LEADER_SECONDS = 120  # until another one leads, and all are ready


def leader(operator: Namespace) -> Object:
    """The pod of the operator that leads, once all of them are ready.

    One that the kubelet holds back, as it was killed again and again, makes room for a new pod.
    """
    died = (pod for pod in operator.list("pods") if Pod.read(pod).container(CONTAINER).restarts)
    held_back = [pod for pod in died if not Pod.read(pod).is_ready]
    for pod in held_back:
        with suppress(Refused):  # it is gone already
            operator.delete("pod", pod["metadata"]["name"])
    operator.kubectl("rollout", "status", "deployment/elasticjob-operator", "--timeout=150s")

    def leading() -> Object | None:
        staying = (pod for pod in operator.list("pods") if "deletionTimestamp" not in pod["metadata"])
        return next((pod for pod in staying if pod["metadata"]["name"] == holder(operator)), None)

    return wait_until("the Lease to name one of the operators", leading, 60)


def holder(operator: Namespace) -> str:
    """The name of the leader's pod, as the Lease has it; empty while nobody leads."""
    return str(operator.get("lease", LEASE)["spec"].get("holderIdentity", ""))


def lead_from_elsewhere(operator: Namespace, node: str) -> None:
    """Delete the leader while it is on this node."""

    def elsewhere() -> bool:
        found = leader(operator)
        here = bool(found["spec"]["nodeName"] == node)
        if here:
            operator.delete("pod", found["metadata"]["name"])
        return not here

    wait_until(f"an operator to lead that is not on {node}", elsewhere, LEADER_SECONDS)


def restarted(operator: Namespace, pod: Object) -> bool:
    """Whether the container of an operator's pod, or the pod itself, is another than it was."""
    now = {one["metadata"]["uid"]: one for one in operator.list("pods")}.get(pod["metadata"]["uid"])
    return now is None or restarts(now, CONTAINER) > restarts(pod, CONTAINER)


def stood_down(operator: Namespace, pod: Object) -> bool:
    """Whether one that led has ended all of its term's work, or has itself ended."""
    if restarted(operator, pod):
        return True
    log = operator.kubectl("logs", pod["metadata"]["name"], "--container", CONTAINER, "--tail=20")
    return "standing by again" in log


def take_over(job: Job, operator: Namespace, lose: Callable[[Object], object]) -> float:
    """Lose the leader; return the seconds until the next one has taken the job over."""
    lost_leader, term = leader(operator), job.status["term"]
    lost = time.monotonic()
    lose(lost_leader)
    job.edit()
    job.until("a new term in the job's status", lambda: job.status["term"] > term, 60)
    taken = next(one.at for one in job.jobs.of(job.name) if one.body.get("status", {}).get("term", 0) > term)
    return taken - lost

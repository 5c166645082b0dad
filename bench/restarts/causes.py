"""What happens to a job that trains."""

import time
from collections.abc import Callable
from typing import NamedTuple

from cluster_rounds.digits import Training

from e2e.disruption import kill_worker_process
from e2e.job import TRAINER


class Strike(NamedTuple):
    """When it happened, in seconds since the epoch, and to which pod if it is none of the next group."""

    at: float
    lost: str = ""


class Cause(NamedTuple):
    """The workers before and after, and what does it."""

    before: int
    after: int
    strike: Callable[[Training], Strike]


def scale(replicas: int) -> Callable[[Training], Strike]:
    def strike(training: Training) -> Strike:
        return kubectl(training, training.scale(replicas))

    return strike


def kill_process(training: Training) -> Strike:
    """Not rank 0's."""
    return Strike(kill_worker_process(training.namespace, training.another(), TRAINER))


def delete_pod(training: Training) -> Strike:
    """Not rank 0's."""
    lost = training.another()["metadata"]["name"]
    return kubectl(training, ["delete", "pod", lost, "--wait=false"])._replace(lost=lost)


def kubectl(training: Training, command: list[str]) -> Strike:
    at = time.time()
    training.namespace.kubectl(*command)
    return Strike(at)


# in an order that brings the job back to where it began
CAUSES = {
    "scale-down": Cause(4, 3, scale(3)),
    "process-killed": Cause(3, 3, kill_process),
    "pod-deleted": Cause(3, 3, delete_pod),
    "scale-up": Cause(3, 4, scale(4)),
}

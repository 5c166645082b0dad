# SPDX-License-Identifier: Apache-2.0
"""Of how many pods a job's PodDisruptionBudget says that they have to stay. Pure.

The cluster lets as many pods be evicted as are ready beyond `minAvailable`. So it is never less than the pods that can
be ready: it grows before a pod is made, and falls only when fewer have been there for so long that the disruption
controller has seen the others go. A number far above all pods would do as well, and is what monitoring calls a budget
without enough healthy pods.
"""

from collections.abc import Iterable
from typing import NamedTuple

from elasticjob.reading import Pod

SETTLE_SECONDS = 60.0


class MinAvailable(NamedTuple):
    """`pods`: the number. `since`: up to when so many were there or about to be made, in the caller's seconds."""

    pods: int = 0
    since: float = 0.0

    def following(self, there: int, now: float) -> "MinAvailable":
        """What it is to be with so many pods `there`, those among them that are about to be made."""
        if there >= self.pods or now - self.since >= SETTLE_SECONDS:
            return MinAvailable(there, now)
        return self

    def settles_in(self, there: int, now: float) -> float | None:
        """In how many seconds it is to fall; None where it is not."""
        return self.since + SETTLE_SECONDS - now if there < self.pods else None


def that_may_be_ready(pods: Iterable[Pod], uid: str) -> int:
    """How many of `pods` the budget of the job with that uid counts once they are ready, whoever owns them."""
    return sum(pod.job_uid == uid and not (pod.is_over or pod.deleting) for pod in pods)

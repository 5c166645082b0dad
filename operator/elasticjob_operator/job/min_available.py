# SPDX-License-Identifier: Apache-2.0
"""`minAvailable` of a job's PodDisruptionBudget. Pure.

The cluster allows the eviction of as many pods as are ready beyond `minAvailable`. So the number is never less than the
pods that can be ready. It grows before a pod is made. It falls only after fewer pods have existed for long enough that
the disruption controller has seen the others go. A number far above all pods would protect them too, but monitoring
would report a budget without enough healthy pods.
"""

from collections.abc import Iterable
from typing import NamedTuple

from elasticjob.reading import Pod

SETTLE_SECONDS = 60.0


class MinAvailable(NamedTuple):
    """`pods`: the number. `since`: when that many pods last existed or were about to be made, in the caller's
    seconds."""

    pods: int = 0
    since: float = 0.0

    def following(self, there: int, now: float) -> "MinAvailable":
        """The next value. `there`: how many pods exist or are about to be made."""
        if there >= self.pods or now - self.since >= SETTLE_SECONDS:
            return MinAvailable(there, now)
        return self

    def resumed(self, found: int, now: float) -> "MinAvailable":
        """The next value if the budget was found with a larger number than this, by an operator that has just begun.
        The number may be the previous operator's, and nobody knows since when fewer pods exist."""
        return MinAvailable(found, now) if found > self.pods else self

    def settles_in(self, there: int, now: float) -> float | None:
        """Seconds until the number falls; None if it is not going to."""
        return self.since + SETTLE_SECONDS - now if there < self.pods else None


def that_may_be_ready(pods: Iterable[Pod], uid: str) -> int:
    """How many of `pods` the budget of the job with that uid counts once they are ready, whoever their owner is."""
    return sum(pod.job_uid == uid and not (pod.is_over or pod.deleting) for pod in pods)

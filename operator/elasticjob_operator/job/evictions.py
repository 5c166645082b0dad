# SPDX-License-Identifier: Apache-2.0
"""What a job's PodDisruptionBudget allows: of which pods the eviction, and down to which number of ready ones. Pure.

The cluster allows the eviction of as many pods as are ready beyond `minAvailable`. So the number is never less than the
pods that can be ready. It grows before a pod is made. It falls only after fewer pods have existed for long enough that
the disruption controller has seen the others go. A number far above all pods would protect them too, but monitoring
would report a budget without enough healthy pods.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.blocker_reasons import Reason
from elasticjob.rendezvous import Event
from elasticjob.rendezvous.model import PodKey
from elasticjob.spec import DrainSpec
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

SETTLE_SECONDS = 60.0  # until `minAvailable` falls


class Budget(Enum):
    """Which of a job's pods its PodDisruptionBudget lets others evict."""

    CLOSED = "none"
    OPEN = "all"
    NONE = "there is no budget, or the user's own"


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


class Protection(NamedTuple):
    """What one step finds. `draining`: since when pods have been seen on draining nodes."""

    budget: Budget = Budget.CLOSED
    draining: Mapping[PodKey, float] = MappingProxyType({})


class Evictions(Concern):
    """The protection of one job's pods from eviction. `min_available`: that of a closed budget."""

    def __init__(self, *, watched: bool) -> None:
        """`watched`: whether nodes are watched."""
        self._watched, self._is_open = watched, False
        self._draining: Mapping[PodKey, float] = {}
        self.min_available = MinAvailable()

    def judge(self, report: Report) -> Report:
        self._draining = still_there(self._draining, report.observer.draining, report.at)
        suspended, spec = report.suspended, report.spec.drain
        idle = report.decision.state.ended or (suspended and all(worker.deleting for worker in report.workers))
        budget = budget_of(spec, self._draining, report.at, watched=self._watched, idle=idle)
        return report.noting(Protection(budget, self._draining))

    def after(self, report: Report) -> tuple[Event, ...]:
        was_open, self._is_open = self._is_open, report.of(Protection).budget is Budget.OPEN
        opens = self._is_open and not was_open
        return (Event(Reason.DRAIN_GRACE_OVER, grace_over(report.spec.drain), warning=True),) if opens else ()

    def follow(self, report: Report, due: int, now: float) -> None:
        """Has `min_available` follow the pods that exist, and those that are `due`."""
        self.min_available = self.min_available.following(_there(report) + due, now)

    def resume(self, found: int, now: float) -> None:
        """Has `min_available` begin with the number of the budget, which the previous operator may have set."""
        self.min_available = self.min_available.resumed(found, now)

    def again(self, report: Report, now: float) -> float | None:
        found = report.of(Protection)
        if found.budget is not Budget.CLOSED:
            return None
        ends = (since + report.spec.drain.grace_seconds - now for since in found.draining.values())
        settles = self.min_available.settles_in(_there(report), now)
        moments = [left for left in ends if left > 0] + ([] if settles is None else [settles])
        return min(moments, default=None)


def _there(report: Report) -> int:
    """How many pods the job's budget counts once they are ready, whoever their owner is."""
    uid = report.job["metadata"]["uid"]
    return sum(pod.job_uid == uid and not (pod.is_over or pod.deleting) for pod in report.view.pods.values())


def still_there(known: Mapping[PodKey, float], draining: Iterable[PodKey], now: float) -> dict[PodKey, float]:
    """For each of the pods `draining`, since when it has been seen on a draining node."""
    return {pod_key: known.get(pod_key, now) for pod_key in draining}


def budget_of(
    spec: DrainSpec, since: Mapping[PodKey, float], now: float, *, watched: bool, idle: bool = False
) -> Budget:
    """The budget of a job. `since`: the result of `still_there`. `watched`: whether nodes are watched. `idle`: whether
    no pod of the job is to stay, in which case the cluster would warn of a budget without pods.

    A drain that cannot be seen must not be blocked, and no drain may be blocked for longer than the grace period.
    """
    if idle or not (watched and spec.taints and spec.grace_seconds):
        return Budget.NONE
    is_over = any(now - one >= spec.grace_seconds for one in since.values())
    return Budget.OPEN if is_over else Budget.CLOSED


def grace_over(spec: DrainSpec) -> str:
    """The sentence for a drain whose grace period has expired."""
    return f"its pods may be evicted: a draining node has used up spec.drain.graceSeconds, {spec.grace_seconds} s"

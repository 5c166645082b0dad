# SPDX-License-Identifier: Apache-2.0
"""Which workers are on nodes that are about to go, and how long that protects their pods from eviction. Pure."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from elasticjob.reading import Pod, Taint
from elasticjob.rendezvous.model import PodKey
from elasticjob.spec import DrainSpec


class Budget(Enum):
    """Which of a job's pods its PodDisruptionBudget lets others evict."""

    CLOSED = "none"
    OPEN = "all"
    NONE = "there is no budget, or the user's own"


def is_going(taints: Iterable[Taint], keys: Collection[str]) -> bool:
    """Whether one of `taints`, with a key among `keys`, says that the node is about to go. kubectl drain also evicts
    pods that tolerate the taint."""
    return any(one.key in keys for one in taints)


def draining_by(taints: Iterable[Taint], pod: Pod, keys: Collection[str]) -> str | None:
    """The key among `keys` of a taint that says that the node of `pod` is about to go. A taint that the pod tolerates
    does not count."""
    told = (one.key for one in taints if one.key in keys and not any(by.covers(one) for by in pod.tolerations))
    return next(told, None)


def still_there(known: Mapping[PodKey, float], going: Iterable[PodKey], now: float) -> dict[PodKey, float]:
    """For each of the pods `going`, since when it has been seen on a node that is about to go."""
    return {pod_key: known.get(pod_key, now) for pod_key in going}


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

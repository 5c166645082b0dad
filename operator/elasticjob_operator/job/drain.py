# SPDX-License-Identifier: Apache-2.0
"""Which workers' nodes are about to go, and for how long that keeps others from evicting them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from elasticjob.reading import Pod, Taint
from elasticjob.rendezvous.model import PodKey
from elasticjob.spec import DrainSpec


class Budget(Enum):
    """What of a job's pods its PodDisruptionBudget lets others evict."""

    CLOSED = "none"
    OPEN = "all"
    NONE = "there is no budget, or the user's own"


def is_going(taints: Iterable[Taint], keys: Collection[str]) -> bool:
    """Whether one among `keys` says that the node is about to go. Who drains it evicts who tolerates that, too."""
    return any(one.key in keys for one in taints)


def draining_by(taints: Iterable[Taint], pod: Pod, keys: Collection[str]) -> str | None:
    """The taint among `keys` that says that the node of `pod` is about to go; what the pod tolerates says nothing."""
    told = (one.key for one in taints if one.key in keys and not any(by.covers(one) for by in pod.tolerations))
    return next(told, None)


def still_there(known: Mapping[PodKey, float], going: Iterable[PodKey], now: float) -> dict[PodKey, float]:
    """Since when each of the pods `going` has been seen to be on a node that is about to go."""
    return {pod_key: known.get(pod_key, now) for pod_key in going}


def budget_of(
    spec: DrainSpec, since: Mapping[PodKey, float], now: float, *, watched: bool, idle: bool = False
) -> Budget:
    """`since`: of `still_there`. `watched`: the nodes are. `idle`: no pod of the job is there to stay, and the cluster
    warns of a budget that finds none. Nobody is to wait for a drain that cannot be seen, or longer than the grace for
    any."""
    if idle or not (watched and spec.taints and spec.grace_seconds):
        return Budget.NONE
    is_over = any(now - one >= spec.grace_seconds for one in since.values())
    return Budget.OPEN if is_over else Budget.CLOSED

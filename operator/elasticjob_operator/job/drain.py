"""Which workers' nodes are about to go, and for how long that keeps others from evicting them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from elasticjob.objects import Object
from elasticjob.rendezvous import Worker
from elasticjob.rendezvous.model import PodKey

CORDONED = "node.kubernetes.io/unschedulable"
KEEP_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """What keeps pods away from a node."""

    key: str
    value: str
    effect: str


def taints_of(node: Object) -> tuple[Taint, ...]:
    """Also the one that the cluster adds to a cordoned node a little later."""
    spec = node.get("spec", {})
    found = {
        Taint(one["key"], one.get("value", ""), one["effect"])
        for one in spec.get("taints") or ()
        if one["effect"] in KEEP_AWAY
    }
    if spec.get("unschedulable"):
        found.add(Taint(CORDONED, "", "NoSchedule"))
    return tuple(sorted(found))


def draining_by(taints: Iterable[Taint], pod: Object, keys: Collection[str]) -> str | None:
    """The taint among `keys` that says that the node of `pod` is about to go; what the pod tolerates says nothing."""
    tolerations = pod["spec"].get("tolerations") or ()
    told = (one.key for one in taints if one.key in keys and not any(_tolerates(by, one) for by in tolerations))
    return next(told, None)


def _tolerates(toleration: Object, taint: Taint) -> bool:
    """As the scheduler judges it; a toleration that ends only puts off the eviction."""
    if toleration.get("effect", "") not in ("", taint.effect) or toleration.get("tolerationSeconds") is not None:
        return False
    if toleration.get("key", "") not in ("", taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value


def still_draining(known: Mapping[PodKey, float], workers: Iterable[Worker], now: float) -> dict[PodKey, float]:
    """Since when each has been seen to be on a node that is about to go."""
    return {one.pod_key: known.get(one.pod_key, now) for one in workers if one.draining and not one.deleting}


def is_over(since: Mapping[PodKey, float], grace: float, now: float) -> bool:
    """Whether others may evict the workers: somebody has been there for so long and was not relieved, or no grace is
    given at all."""
    return grace == 0 or any(now - one >= grace for one in since.values())

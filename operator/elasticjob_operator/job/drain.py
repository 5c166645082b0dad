# SPDX-License-Identifier: Apache-2.0
"""Which workers are on nodes that are about to go, by the nodes' taints. Pure."""

from collections.abc import Collection, Iterable

from elasticjob.reading import Pod, Taint


def is_going(taints: Iterable[Taint], keys: Collection[str]) -> bool:
    """Whether one of `taints`, with a key among `keys`, says that the node is about to go. kubectl drain also evicts
    pods that tolerate the taint."""
    return any(one.key in keys for one in taints)


def draining_by(taints: Iterable[Taint], pod: Pod, keys: Collection[str]) -> str | None:
    """The key among `keys` of a taint that says that the node of `pod` is about to go. A taint that the pod tolerates
    does not count."""
    told = (one.key for one in taints if one.key in keys and not any(by.covers(one) for by in pod.tolerations))
    return next(told, None)

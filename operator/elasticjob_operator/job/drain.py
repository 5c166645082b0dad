# SPDX-License-Identifier: Apache-2.0
"""Which workers others are to take over from: by the taints of draining nodes, and by unhealthy devices. Pure."""

from collections.abc import Collection, Iterable

from elasticjob.blocker_reasons import Reason
from elasticjob.reading import Device, Pod, Taint
from elasticjob.reading.waits import Wait, joined


def is_draining(taints: Iterable[Taint], keys: Collection[str]) -> bool:
    """Whether one of `taints`, with a key among `keys`, says that the node is draining. kubectl drain also evicts
    pods that tolerate the taint."""
    return any(one.key in keys for one in taints)


def drain_of(taints: Iterable[Taint], pod: Pod, keys: Collection[str], *, devices: bool) -> Wait | None:
    """Why another worker is to take over from that of `pod`; None if none is. `keys`: of the taints that count.
    `devices`: whether unhealthy devices count."""
    if taint := draining_by(taints, pod, keys):
        message = f"its node {pod.node} is draining ({taint})"
        return Wait(Reason.NODE_DRAINING, message, object=f"Node/{pod.node}")
    if devices and pod.unhealthy:
        return Wait(Reason.DEVICE_UNHEALTHY, sentence_of(pod.unhealthy, pod.node), object=f"Node/{pod.node}")
    return None


def draining_by(taints: Iterable[Taint], pod: Pod, keys: Collection[str]) -> str | None:
    """The key among `keys` of a taint that says that the node of `pod` is draining. A taint that the pod tolerates
    does not count."""
    found = (one.key for one in taints if one.key in keys and not any(by.covers(one) for by in pod.tolerations))
    return next(found, None)


def sentence_of(devices: Collection[Device], node: str) -> str:
    """The sentence for unhealthy devices, which are at least one."""
    names = ", ".join(f"{one.resource} {one.id}" for one in devices)
    sentence = (
        f"its device{'s' * (len(devices) > 1)} {names} on node {node} {'are' if len(devices) > 1 else 'is'} unhealthy"
    )
    return joined(sentence, next((one.message for one in devices if one.message), ""))

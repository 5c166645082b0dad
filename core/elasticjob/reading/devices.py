# SPDX-License-Identifier: Apache-2.0
"""The devices of a pod, such as GPUs, that its kubelet reports as unhealthy. Pure.

Kubernetes 1.36 and newer report the health of devices by default, in each container's `allocatedResourcesStatus`. Older
API servers drop that field.
"""

from collections.abc import Iterator
from typing import NamedTuple

from elasticjob.objects import Object
from elasticjob.reading.shared import shared, word
from elasticjob.text import plain

UNHEALTHY = "Unhealthy"  # a device may also be Healthy or Unknown
MAX_DEVICES = 3  # kept of one pod
NAME_LENGTH, MESSAGE_LENGTH = 100, 200


class Device(NamedTuple):
    """An unhealthy device. `resource`: what the container asked for, such as nvidia.com/gpu, or claim:NAME/REQUEST for
    a ResourceClaim. `id`: the driver's name for the device. `message`: the driver's words, often empty."""

    resource: str
    id: str
    message: str = ""


def unhealthy_devices(status: Object) -> tuple[Device, ...]:
    """The unhealthy devices of a pod with this `status`, by resource and id; the first `MAX_DEVICES` of them. A device
    that several containers share counts once."""
    found = {(one.resource, one.id): one for one in _unhealthy(status)}
    return shared(tuple(sorted(found.values())[:MAX_DEVICES]))


def _unhealthy(status: Object) -> Iterator[Device]:
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    for resource in (one for container in containers for one in container.get("allocatedResourcesStatus") or ()):
        for body in resource.get("resources") or ():
            if body.get("health") == UNHEALTHY:
                name, id = (word(plain(text, NAME_LENGTH)) for text in (resource["name"], body["resourceID"]))
                yield Device(name, id, plain(body.get("message") or "", MESSAGE_LENGTH))

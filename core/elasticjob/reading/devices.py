# SPDX-License-Identifier: Apache-2.0
"""The devices of a pod, such as GPUs, that its kubelet reports as unhealthy. Pure.

Kubernetes 1.36 and newer report the health of devices by default, in each container's `allocatedResourcesStatus`. Older
API servers drop that field.
"""

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
    found: dict[tuple[str, str], Device] = {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            for resource in container.get("allocatedResourcesStatus") or ():
                for one in resource.get("resources") or ():
                    if one.get("health") == UNHEALTHY:
                        device = _device(resource, one)
                        found.setdefault(device[:2], device)
    return shared(tuple(sorted(found.values())[:MAX_DEVICES]))


def _device(resource: Object, body: Object) -> Device:
    name, id = (word(plain(text or "", NAME_LENGTH)) for text in (resource.get("name"), body.get("resourceID")))
    return Device(name, id, plain(body.get("message") or "", MESSAGE_LENGTH))

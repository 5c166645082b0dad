# SPDX-License-Identifier: Apache-2.0
"""Deletes the Workloads of jobs that were deleted with `--cascade=orphan`.

Such Workloads have no owner, and Kueue counts their quota until they are deleted. The job's pods remain too and use
that quota. So the Workloads are deleted when none of these pods runs.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from math import inf

from elasticjob.kube.errors import ApiError, Forbidden, NotFound
from elasticjob.objects import Object
from elasticjob_operator.cluster.cache import Key, owner_key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.objects.pods import selector
from elasticjob_operator.objects.workloads import LEAST, collection

LOOK_SECONDS = 10.0


class LeftoverWorkloads:
    """The leftover Workloads. `namespaces`: those that this operator serves; empty for all."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._unlisted: set[str | None] = set(namespaces) or {None}
        self._look_at = -inf
        self._expected: set[Key] = set()

    def expect(self, key: Key) -> None:
        """Notes that the job was a gang and is being deleted: it may leave Workloads."""
        self._expected.add(key)

    def may_be_of(self, key: Key) -> bool:
        """Whether an earlier job of this name may have left Workloads."""
        return key in self._expected or bool(self._unlisted)

    async def take_over(self) -> None:
        """Finds the Workloads left while no operator led. Namespaces that cannot be listed are retried after a
        while."""
        if not self._unlisted or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        for namespace in tuple(self._unlisted):
            with suppress(ApiError):
                await self._take_over(namespace)

    async def _take_over(self, namespace: str | None) -> None:
        """Raises ApiError."""
        found: list[Object] = []
        with suppress(NotFound, Forbidden):  # no Kueue, or no right to list its Workloads
            found = (await self._kube.workloads(namespace)).items
        self._unlisted.discard(namespace)
        for key in dict.fromkeys(owner_key(one) for one in found if is_left(one)):
            self.expect(key)
            await self.release(key)

    async def release(self, key: Key) -> float | None:
        """Deletes the Workloads of a job that does not exist. Returns the seconds until the next look. Raises
        ApiError."""
        await self.take_over()
        if key not in self._expected:
            return LOOK_SECONDS if self._unlisted else None
        with suppress(NotFound, Forbidden):  # no Kueue, or no right to list its Workloads
            there = (await self._kube.workloads(key.namespace)).items
            of_job = [one for one in there if owner_key(one) == key]
            if any(not is_left(one) for one in of_job) or not await delete_left(self._kube, key, of_job):
                return LOOK_SECONDS
        self._expected.discard(key)
        return None


def is_left(workload: Object) -> bool:
    """Whether an operator has made the Workload, and it has no owner any more."""
    meta = workload["metadata"]
    return LEAST in (meta.get("annotations") or {}) and not meta.get("ownerReferences")


async def delete_left(kube: Kube, key: Key, workloads: Iterable[Object]) -> bool:
    """Deletes the leftover ones of `workloads`. False while leftover pods run. Raises ApiError."""
    left = [one["metadata"] for one in workloads if is_left(one)]
    if not left:
        return True
    pods = await kube.pods(key.namespace, selector(key.name))
    if any(not (pod.owners or pod.is_over) for pod in pods.items):
        return False
    for meta in left:
        with suppress(NotFound):
            await kube.delete(f"{collection(key.namespace)}/{meta['name']}", meta["uid"])
    return True

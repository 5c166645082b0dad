"""Kueue's Workloads of all jobs, by one listing for all that ask at about the same time.

Nobody watches them: kopf would look for them in clusters that have none.
"""

import asyncio
import time
from collections import defaultdict

from elasticjob.objects import Object
from elasticjob_operator.cluster.cache import Key, owner_key
from elasticjob_operator.cluster.client import FAILURES, Kube

LIST_SECONDS = 3.0  # a step of a job waits for it

Found = defaultdict[Key, list[Object]]


class Workloads:
    """`by_namespace`: the operator may not list those of all namespaces."""

    def __init__(self, kube: Kube, *, by_namespace: bool) -> None:
        self._kube, self._by_namespace = kube, by_namespace
        self._looking: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[str | None, tuple[float, Found | Exception]] = {}

    async def of(self, key: Key, after: float) -> list[Object]:
        """Those with the job's label, by a listing that began later than `after`, in monotonic seconds. Raises
        FAILURES, also of a listing that was for others."""
        namespace = key.namespace if self._by_namespace else None
        async with self._looking[namespace]:
            began, answer = self._answers.get(namespace, (after, Found(list)))
            if began <= after:
                began, answer = time.monotonic(), await self._list(namespace)
                self._answers[namespace] = began, answer
        if isinstance(answer, Exception):
            raise answer
        return answer.get(key, [])

    async def _list(self, namespace: str | None) -> Found | Exception:
        found: Found = defaultdict(list)
        try:
            async with asyncio.timeout(LIST_SECONDS):
                listing = await self._kube.workloads(namespace)
        except FAILURES as error:
            return error
        for workload in listing.items:
            found[owner_key(workload)].append(workload)
        return found

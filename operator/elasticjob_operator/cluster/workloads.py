# SPDX-License-Identifier: Apache-2.0
"""Kueue's Workloads of all jobs, by one listing for all callers of about the same time, and the flavors that they name.

They are not watched: kopf would look for them in clusters that have none.
"""

import asyncio
import time
from collections import defaultdict
from typing import NamedTuple

from elasticjob.kube.errors import ApiError
from elasticjob.kube.paths import FLAVORS
from elasticjob.objects import Object
from elasticjob_operator.cluster.cache import Key, owner_key
from elasticjob_operator.cluster.client import Kube

FLAVOR_SECONDS = 60.0  # for so long a flavor is kept: its node labels hardly ever change
TIMES_AS_LONG = 20.0  # a listing is used at least, as it took: listings use at most a twentieth of a core

Found = defaultdict[Key, list[Object]]


class TimedListing(NamedTuple):
    """One listing. `began`: its begin, in monotonic seconds. `took`: its duration in seconds. `found`: its result or
    error."""

    began: float
    took: float
    found: Found | ApiError


class Workloads:
    """Lists Workloads for all jobs. `by_namespace`: the operator may not list those of all namespaces."""

    def __init__(self, kube: Kube, *, by_namespace: bool) -> None:
        self._kube, self._by_namespace = kube, by_namespace
        self._looking: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[str | None, TimedListing] = {}
        self._flavors: dict[str, tuple[float, Object]] = {}  # when it was read, and its spec

    async def of(self, key: Key, changed_at: float, within: float) -> list[Object]:
        """The Workloads of job `key`, by a listing that began after `changed_at`, in monotonic seconds, and no longer
        ago than `within` seconds or `TIMES_AS_LONG` times its duration, whichever is more. Raises ApiError, also those
        of a listing made for another caller."""
        namespace = key.namespace if self._by_namespace else None
        async with self._looking[namespace]:
            answer, now = self._answers.get(namespace), time.monotonic()
            if answer is None or not changed_at < answer.began > now - max(within, TIMES_AS_LONG * answer.took):
                found = await self._list(namespace)
                answer = self._answers[namespace] = TimedListing(now, time.monotonic() - now, found)
        if isinstance(answer.found, ApiError):
            raise answer.found
        return answer.found.get(key, [])

    async def flavor(self, name: str) -> Object:
        """The spec of the ResourceFlavor `name`. Raises ApiError."""
        known = self._flavors.get(name)
        if known is not None and time.monotonic() - known[0] < FLAVOR_SECONDS:
            return known[1]
        found = await self._kube.request("GET", FLAVORS.one(name))
        spec: Object = found.get("spec") or {}
        self._flavors[name] = time.monotonic(), spec
        return spec

    async def _list(self, namespace: str | None) -> Found | ApiError:
        found: Found = defaultdict(list)
        try:
            listing = await self._kube.workloads(namespace)
        except ApiError as error:
            return error
        for workload in listing.items:
            found[owner_key(workload)].append(workload)
        return found

"""Fills the cache with what the API server has now: of all jobs at once when a leader begins, of a single one later.

Three answers for each of a leader's jobs would keep them waiting for as long as three for all take.
"""

import asyncio
import logging
from collections import defaultdict

from elasticjob.api import JOB_LABEL
from elasticjob_operator.cluster.cache import Cache, Key, T, key_of
from elasticjob_operator.cluster.client import Forbidden, Kube, Listing, NotFound
from elasticjob_operator.objects.pods import selector

REMEDY = "make it again and its role binding, as helm upgrade does, or leave it out of --namespaces"

log = logging.getLogger(__name__)


class Lister:
    """`namespaces`: those that this operator serves; none stands for all of them."""

    def __init__(self, kube: Kube, cache: Cache, namespaces: tuple[str, ...] = ()) -> None:
        self._kube, self._cache = kube, cache
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)

    async def list_all(self) -> list[Key]:
        """Read all jobs and what belongs to them; returns their keys. To be called before any `list_one`.

        A named namespace that is not there, or not open to this operator, does not hold up the others.
        """
        keys = []
        for namespace in self._namespaces:
            try:
                keys += await self._list_in(namespace)
            except (Forbidden, NotFound) as error:
                if namespace is None:
                    raise
                log.warning("no job of the namespace %s is looked after: %s; %s", namespace, error, REMEDY)
        return keys

    async def list_nodes(self) -> None:
        """Those that no watch has shown yet: it may know something newer of the others."""
        self._cache.note_unknown_nodes(await self._kube.nodes())

    async def list_one(self, key: Key) -> bool:
        """Read the job and all that belongs to it anew; False when it is gone."""
        wanted = selector(key.name)
        self._cache.begin_listing(key)
        try:
            job, pods, workers = await asyncio.gather(
                self._kube.job(*key),
                self._kube.pods(key.namespace, wanted),
                self._kube.workers(key.namespace, wanted),
            )
        except NotFound:
            self._cache.view(key).job = None
            return False
        self._cache.replace(key, job, pods, workers)
        return self._cache.view(key).job is not None

    async def _list_in(self, namespace: str | None) -> list[Key]:
        """What ends meanwhile is in the views' `gone`, as nothing was listed before."""
        jobs, pods, workers = await asyncio.gather(
            self._kube.jobs(namespace),
            self._kube.pods(namespace, JOB_LABEL),
            self._kube.workers(namespace, JOB_LABEL),
        )
        pods_of, workers_of, keys = _by_job(pods), _by_job(workers), []
        for job in jobs.items:
            key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
            self._cache.replace(key, job, pods_of[key], workers_of[key])
            keys.append(key)
        return keys


def _by_job(listing: Listing[T]) -> defaultdict[Key, Listing[T]]:
    found: defaultdict[Key, Listing[T]] = defaultdict(lambda: Listing([], listing.version))
    for one in listing.items:
        found[key_of(one)].items.append(one)
    return found

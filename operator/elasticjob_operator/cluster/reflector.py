# SPDX-License-Identifier: Apache-2.0
"""Lists each kind into the cache and lets kopf watch from there on, as client-go's reflector does.

By itself, kopf handles a listing as events, with one task for each object. It does not report objects that vanished
while a watch was interrupted, and it ends the operator if a watch reports an error. So this module replaces kopf's
generator of events: it makes the listings itself, and leaves the watch to kopf. Nothing is lost in between, because the
watch begins at the version of the listing and continues from the last version seen.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import kopf
from kopf._cogs.clients import errors, watching

from elasticjob.api import JOB_LABEL, JOBS, WORKERS
from elasticjob.kube.errors import ApiError, Forbidden, Gone, NotFound, kind_of, with_its_status
from elasticjob.kube.watch import ListAndWatch
from elasticjob.objects import Object
from elasticjob.text import printable
from elasticjob_operator.cluster.cache import Cache, Key, RecordUpdate
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.watch_times import WatchTimes
from elasticjob_operator.job.debounce import JOINS_SECONDS, SOON_SECONDS, report_seconds

NODES, PODS = "nodes", "pods"
AGAIN_SECONDS, GONE_SECONDS = 1.0, 10.0
REMEDY = "make it again and its role binding, as helm upgrade does, or leave it out of --namespaces"

SECONDS = {RecordUpdate.URGENT: 0.0, RecordUpdate.JOIN: JOINS_SECONDS, RecordUpdate.OTHER: SOON_SECONDS}

Source = tuple[str, str | None]  # the plural of a kind, and the namespace, None for all

log = logging.getLogger(__name__)


def step_seconds(cache: Cache, key: Key, update: RecordUpdate) -> float:
    """Seconds within which a step has to read an update of a record."""
    if update is RecordUpdate.REPORT:
        return report_seconds(cache.view(key).job, len(cache))
    return SECONDS[update]


class Reflector:
    """The lists and watches of one term. `namespaces`: those that this operator serves; empty for all. `nodes`: whether
    the cluster's nodes are included. `wake`: called for each job with news, with the seconds within which to look at
    it."""

    def __init__(self, kube: Kube, cache: Cache, namespaces: tuple[str, ...] = (), *, nodes: bool = False) -> None:
        self._kube, self._cache = kube, cache
        of_jobs = [(kind, namespace) for namespace in namespaces or (None,) for kind in (JOBS, PODS, WORKERS)]
        self._sources: tuple[Source, ...] = (*(((NODES, None),) if nodes else ()), *of_jobs)
        self._looking: defaultdict[Source, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listed: set[Source] = set()
        self._watched: set[Source] = set()
        self._versions: dict[Source, str] = {}  # of listings from which no watch has begun yet
        self._refused: set[Source] = set()  # and logged
        self.listed_jobs: set[Key] = set()  # that existed before; each is removed once it is handled
        self.wake: Callable[[Key, float], None] = lambda _, __: None

    async def list_all(self, *, anew: bool = False) -> None:
        """Returns once each kind has been listed; with `anew`, since this call. Raises ApiError.

        A named namespace that does not exist, or that this operator may not read, does not delay the others.
        """
        if anew:
            self._listed.clear()
        await asyncio.gather(*map(self._ensure, self._sources))

    async def begin(self, source: Source) -> str:
        """The version to watch from. Raises ApiError."""
        async with self._looking[source]:
            version = self._versions.pop(source, None) or await self._list(source)
            self._watched.add(source)
        self._refused.discard(source)
        return version

    def refused(self, source: Source, error: Exception) -> None:
        """Notes that the source does not exist or may not be listed. This is logged once, however often it is tried."""
        if source not in self._refused:
            self._refused.add(source)
            kind, namespace = source
            remedy = f"; {REMEDY}" if namespace else ""
            log.warning("%s in %s are not watched: %s%s", kind, namespace or "all namespaces", error, remedy)

    async def _ensure(self, source: Source) -> None:
        async with self._looking[source]:
            if source in self._listed:
                return
            try:
                version = await self._list(source)
            except (Forbidden, NotFound):
                if source[1] is None:
                    raise
                self._listed.add(source)
                return
            if source not in self._watched:
                self._versions[source] = version

    async def _list(self, source: Source) -> str:
        """Lists the source into the cache. Returns the version. Raises ApiError."""
        kind, namespace = source
        self._cache.begin_listing()
        if kind == NODES:
            nodes = await self._kube.nodes()
            version, changed = nodes.version, self._cache.replace_nodes(nodes)
        elif kind == JOBS:
            jobs = await self._kube.jobs(namespace)
            version, changed = jobs.version, self._cache.replace_jobs(namespace, jobs)
            self.listed_jobs.update(changed)
        elif kind == PODS:
            pods = await self._kube.pods(namespace, JOB_LABEL)
            version, changed = pods.version, self._cache.replace_pods(namespace, pods)
        else:
            workers = await self._kube.workers(namespace, JOB_LABEL)
            version, changed = workers.version, self._cache.replace_workers(namespace, workers)
        self._listed.add(source)
        for key in changed:
            self.wake(key, 0.0)
        return version

    def took(self, kind: str, event: Any) -> bool:
        """Whether the event was handled here: a change of a known record, or a job that only shows its progress. Most
        events are, and kopf would make a task for each. Progress is shown by this operator's own writes: no step has to
        follow."""
        if event["type"] != "MODIFIED":
            return False
        if kind == JOBS:
            return self._cache.note_progress(event["object"])
        if kind != WORKERS or not self._cache.knows_worker(event["object"]):
            return False
        key, update = self._cache.note_worker(event["object"])
        self.wake(key, step_seconds(self._cache, key, update))
        return True


class KopfSettings(kopf.OperatorSettings):
    """kopf's settings, which kopf passes to its watches, with the objects that the watches need."""

    reflector: Reflector
    watches: WatchTimes


async def _continuous_watch(
    *, settings: KopfSettings, resource: Any, namespace: Any, operator_pause_waiter: Any
) -> AsyncIterator[Any]:
    """Replaces kopf's generator of the same name. kopf starts it again when it ends."""
    source = (resource.plural, namespace)
    where, at = f"{resource.plural} in {namespace}" if namespace else resource.plural, ListAndWatch()
    try:
        at.listed(await settings.reflector.begin(source))
    except (Forbidden, NotFound) as error:
        if namespace is not None:  # a restart of the process would not help
            settings.watches.unwanted(resource.get_url(namespace=namespace))
        settings.reflector.refused(source, error)
        await asyncio.sleep(GONE_SECONDS)
        return
    except ApiError as error:
        log.warning("%s could not be listed: %s", where, error)
        await asyncio.sleep(AGAIN_SECONDS)
        return
    yield watching.Bookmark.LISTED
    try:
        while not operator_pause_waiter.done():
            stream = watching.watch_objs(
                settings=settings,
                resource=resource,
                namespace=namespace,
                since=at.version,
                operator_pause_waiter=operator_pause_waiter,
            )
            # otherwise its timer may cancel whatever this task does next
            async with aclosing(cast(AsyncGenerator[Any, None], stream)):
                async for event in stream:
                    if at.take(cast(Object, event)) and not settings.reflector.took(resource.plural, event):
                        yield event
    except ApiError as error:
        await _has_ended(where, error)
    except errors.APIError as error:
        message = printable(error.message or "")
        explained = with_its_status(error.status, message)
        await _has_ended(where, kind_of(error.status, message)(explained, error.status))


async def _has_ended(where: str, error: ApiError) -> None:
    """Handles a watch that the API server has ended, or refused to begin."""
    if not isinstance(error, Gone):  # expected after minutes without a connection
        log.warning("the watch of %s has ended (%s), and begins anew with a listing", where, error)
        await asyncio.sleep(AGAIN_SECONDS)


def install() -> None:
    """Makes kopf use this module's generator, in this process."""
    watching.continuous_watch = _continuous_watch  # type: ignore[assignment]

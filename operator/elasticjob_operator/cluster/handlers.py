# SPDX-License-Identifier: Apache-2.0
"""kopf's part: watches that fill the cache and wake the queue. Handlers decide, write and return nothing.

Only `on.event` is used, so kopf adds no annotation, finalizer or status of its own. It does not retry such a handler,
and runs the handlers of different objects at the same time. So retries and order are left to the queue.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import kopf

from elasticjob.api import GROUP, JOB_LABEL, JOBS, VERSION, WORKERS
from elasticjob.kube.retry import RetryPolicy
from elasticjob.reading import Node
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.reflector import KopfSettings, Reflector, step_seconds
from elasticjob_operator.cluster.watch_times import WatchTimes
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.job.debounce import SOON_SECONDS

# The API server ends a watch after WATCH_SECONDS, after a bookmark; a watch without events for longer is silent. A
# worker that is pinged alone has longer: a silent watch must not look like a silent worker.
WATCH_SECONDS, SILENT_SECONDS = 10, 12
RETRY = RetryPolicy(1.0, 5.0)  # for a watch that cannot begin
IDLE_SECONDS = 0.2  # for so long kopf keeps an object's last event, up to 60 KiB for a pod


def register(
    registry: kopf.OperatorRegistry, cache: Cache, queue: WorkQueue[Key], watches: WatchTimes, *, nodes: bool
) -> None:
    """Adds the handlers to `registry`. `nodes`: includes the handler for the cluster's nodes."""

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await queue.stop()  # kopf would wait five seconds for unknown tasks

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return watches.session(found) if found else None

    @kopf.on.event(GROUP, VERSION, JOBS, registry=registry)
    async def job_event(event: kopf.RawEvent, **_: Any) -> None:
        # the operator's own writes wake it too: a decision may be the first of several
        queue.add(cache.note_job(dict(event["object"]), deleted=event["type"] == "DELETED"))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def pod_event(event: kopf.RawEvent, **_: Any) -> None:
        key, is_new = cache.note_pod(dict(event["object"]), deleted=event["type"] == "DELETED")
        queue.add(key, 0.0 if is_new else SOON_SECONDS)

    @kopf.on.event(GROUP, VERSION, WORKERS, registry=registry)
    async def worker_event(event: kopf.RawEvent, **_: Any) -> None:
        key, update = cache.note_worker(dict(event["object"]), deleted=event["type"] == "DELETED")
        queue.add(key, step_seconds(cache, key, update))

    if nodes:

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node_event(event: kopf.RawEvent, **_: Any) -> None:
            for key in cache.note_node(Node.read(dict(event["object"])), deleted=event["type"] == "DELETED"):
                queue.add(key)


class Backoffs:
    """Seconds between the tries of a request, without an end: after the last one kopf would end the watch for good."""

    def __iter__(self) -> Iterator[float]:
        return map(RETRY.pause, count())


class NoDiffs(kopf.DiffBaseStorage):
    """Stores no copies of objects. kopf copies every object at each event to find what has changed, which nobody uses
    here. That takes half of the CPU time of an ElasticWorker's event, and an eighth of a pod's."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


def settings(reflector: Reflector, watches: WatchTimes) -> KopfSettings:
    """kopf's settings: watches filtered by the server, bounded waits, and no marks of kopf's on the objects."""
    result = KopfSettings()
    result.reflector, result.watches = reflector, watches
    result.persistence.diffbase_storage = NoDiffs()
    result.watching.label_selectors["v1", "pods"] = JOB_LABEL
    result.watching.label_selectors[GROUP, VERSION, WORKERS] = JOB_LABEL
    result.queueing.idle_timeout = IDLE_SECONDS
    result.watching.connect_timeout = 5
    result.watching.server_timeout = WATCH_SECONDS
    result.watching.inactivity_timeout = SILENT_SECONDS
    result.process.ultimate_exiting_timeout = None  # otherwise the process is killed so long after the end of each term
    result.networking.error_backoffs = Backoffs()
    result.networking.connect_timeout = 5
    result.networking.request_timeout = 30
    result.scanning.disabled = True
    result.posting.enabled = False
    return result

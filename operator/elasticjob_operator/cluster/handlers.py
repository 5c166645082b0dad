# SPDX-License-Identifier: Apache-2.0
"""kopf's part: watches that fill the cache and wake the queue. Handlers decide, write and return nothing.

Only `on.event` is used: kopf then adds no annotation, finalizer or status of its own. It does not retry such a
handler and runs those of two objects at the same time, so retries and order are the queue's.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import kopf

from elasticjob.api import GROUP, JOB_LABEL, JOBS, VERSION, WORKERS
from elasticjob.kube.retry import RetryPolicy
from elasticjob.reading import Node
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.reflector import Reflector, Settings
from elasticjob_operator.cluster.watch_times import WatchTimes
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.job.pace import SOON_SECONDS

# The API server ends a watch after so long, a bookmark before; one that says nothing for longer has fallen silent. A
# worker that is asked alone has longer: a silent watch must not look like a silent worker.
WATCH_SECONDS, SILENT_SECONDS = 10, 12
RETRY = RetryPolicy(1.0, 5.0)  # of a watch that cannot begin
IDLE_SECONDS = 0.2  # for which kopf keeps an object's last event as it came, up to 60 KiB of a pod


def register(
    registry: kopf.OperatorRegistry, cache: Cache, queue: WorkQueue[Key], watches: WatchTimes, *, nodes: bool
) -> None:
    """Put the handlers into `registry`; `nodes`: also that of the cluster's nodes."""

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await queue.stop()  # kopf would wait five seconds for tasks that it does not know

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return watches.session(found) if found else None

    @kopf.on.event(GROUP, VERSION, JOBS, registry=registry)
    async def job_event(event: kopf.RawEvent, **_: Any) -> None:
        # also what this operator has written: a decision may be the first of several, and the next is made after it
        queue.add(cache.note_job(dict(event["object"]), deleted=event["type"] == "DELETED"))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def pod_event(event: kopf.RawEvent, **_: Any) -> None:
        key, is_news = cache.note_pod(dict(event["object"]), deleted=event["type"] == "DELETED")
        queue.add(key, 0.0 if is_news else SOON_SECONDS)

    @kopf.on.event(GROUP, VERSION, WORKERS, registry=registry)
    async def worker_event(event: kopf.RawEvent, **_: Any) -> None:
        key, is_news = cache.note_worker(dict(event["object"]), deleted=event["type"] == "DELETED")
        queue.add(key, 0.0 if is_news else SOON_SECONDS)

    if nodes:

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node_event(event: kopf.RawEvent, **_: Any) -> None:
            for key in cache.note_node(Node.read(dict(event["object"])), deleted=event["type"] == "DELETED"):
                queue.add(key)


class Backoffs:
    """Seconds between tries of a request. There is no last one, since with it a watch ends and none takes its place."""

    def __iter__(self) -> Iterator[float]:
        return map(RETRY.pause, count())


class NoDiffs(kopf.DiffBaseStorage):
    """kopf copies every object at each of its events, to find what changed since the last: nobody asks for that here.

    Without it an ElasticWorker's event takes half of the CPU time, a pod's an eighth.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


def settings(reflector: Reflector, watches: WatchTimes) -> Settings:
    """Watches filtered by the server, bounded waits, and none of kopf's own marks on the objects."""
    result = Settings()
    result.reflector, result.watches = reflector, watches
    result.persistence.diffbase_storage = NoDiffs()
    result.watching.label_selectors["v1", "pods"] = JOB_LABEL
    result.watching.label_selectors[GROUP, VERSION, WORKERS] = JOB_LABEL
    result.queueing.idle_timeout = IDLE_SECONDS
    result.watching.connect_timeout = 5
    result.watching.server_timeout = WATCH_SECONDS
    result.watching.inactivity_timeout = SILENT_SECONDS
    result.process.ultimate_exiting_timeout = None  # else the process is killed so long after each of its terms
    result.networking.error_backoffs = Backoffs()
    result.networking.connect_timeout = 5
    result.networking.request_timeout = 30
    result.scanning.disabled = True
    result.posting.enabled = False
    return result

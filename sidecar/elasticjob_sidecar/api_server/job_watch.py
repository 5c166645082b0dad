# SPDX-License-Identifier: Apache-2.0
"""Watch this worker's ElasticJob, pass on its rendezvous status, and tell which pods count.

A list is authoritative, and a watch continues from it. A watch is never more than three seconds from its next try. It
lasts about a minute, because a silent server cannot be told from a job without changes. While all links of a round are
heard, they reveal such a silence, and a watch lasts about five minutes. A watch that the API server does not end in
time is a failure. resourceVersions are compared only for equality.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from elasticjob.api import RendezvousStatus
from elasticjob.kube.errors import ApiError, Denied, Gone
from elasticjob.kube.retry import Backoff, RetryPolicy
from elasticjob.kube.watch import ListAndWatch
from elasticjob.members import Members, replacement_runs
from elasticjob.objects import Object
from elasticjob.pods import pod_name
from elasticjob_sidecar.api_server.client import REFUSALS, REQUEST_SECONDS, KubeApi
from elasticjob_sidecar.api_server.remedies import explained
from elasticjob_sidecar.api_server.retry import backoff
from elasticjob_sidecar.log_limits import TroubleLog

log = logging.getLogger(__name__)

# Together with REQUEST_SECONDS less than the default rejoinSeconds, for which the others wait for a worker that missed
# the news.
WATCH_SECONDS = (56, 64)
CALM_WATCH_SECONDS = (280, 320)
HURRY = RetryPolicy(1.0, REQUEST_SECONDS)  # the API server may only be slow
SHORT_SECONDS = 1.0  # after a shorter watch, pause before the next


class JobWatch:
    def __init__(
        self,
        kube: KubeApi,
        job: str,
        uid: str,
        sized: Callable[[int, int | None], None],
        seen: Callable[[RendezvousStatus], None],
        failed: Callable[[str, ApiError], None],
        limited: Callable[[int | None], None] = lambda _: None,
        progressed: Callable[[Object], None] = lambda _: None,
        heard: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._kube, self._job, self._uid = kube, job, uid
        self._sized, self._seen, self._failed, self._limited = sized, seen, failed, limited
        self._progressed, self._heard = progressed, heard
        self._hears = True  # as it was told last
        self._at = ListAndWatch()
        self._last = ""  # the job's resourceVersion that was passed on last
        self._call: asyncio.Timeout | None = None  # of the list or watch in progress
        self._grace = 0.0  # seconds it may still take once a new list is asked for
        self._hurry: Backoff | None = None  # the timeout of the next list, in seconds, until one succeeds
        self._calm = False
        self._replacements = Members()
        self._failure = self._unfit = ""  # why it cannot be watched, and what is wrong with the object
        self.refused = False  # whether the API server refuses the watch

    @property
    def trouble(self) -> str:
        """Why the job's present state is unknown, in a sentence; empty while it is known."""
        return self._failure or self._unfit

    def pod_of(self, index: int) -> str:
        """The name of the pod of this index that counts, by the last status passed on."""
        return pod_name(self._job, index, int(self._replacements.id_of(index) or 0))

    def again(self) -> None:
        """List again, now: the watch may have gone silent, and the other idle connections with it."""
        if self._hurry is None:
            self._hurry = Backoff(HURRY)
            self._tell()
            self._at.fell_silent()
            self._end_call(self._grace)

    def calm(self, calm: bool) -> None:
        """Whether the links would soon reveal that the watch is silent, and call `again`."""
        if calm != self._calm:
            self._calm = calm
            if self._hurry is None:
                self._end_call(None if calm else random.uniform(*WATCH_SECONDS))

    def _end_call(self, within: float | None) -> None:
        if self._call is not None and not self._call.expired():
            self._call.reschedule(None if within is None else asyncio.get_running_loop().time() + within)

    async def run(self) -> None:
        loop, pauses, trouble_log = asyncio.get_running_loop(), backoff(), TroubleLog(log)
        while True:
            began = loop.time()
            try:
                await self._follow(lambda: self._watched(trouble_log))
            except TimeoutError:
                log.info("ElasticJob %s is listed anew, as nothing was heard of it", self._job)
                self._at.fell_silent()
            except ApiError as failure:
                self._at.failed(failure)
                if not isinstance(failure, Gone):  # Gone is normal for a watch that was interrupted for minutes
                    self._not_watched(failure, trouble_log)
                if isinstance(failure, Denied):
                    pauses.longest()
            if loop.time() - began >= SHORT_SECONDS:
                pauses.reset()
            await asyncio.sleep(pauses.next())

    def _not_watched(self, failure: ApiError, trouble_log: TroubleLog) -> None:
        self._failed("watch", failure)
        why = explained(failure, self._job)
        self._failure = f"its ElasticJob cannot be watched: {why}"
        self.refused = isinstance(failure, REFUSALS)
        self._tell()
        trouble_log.warn(f"cannot watch ElasticJob {self._job}: {why}")

    def _watched(self, trouble_log: TroubleLog) -> None:
        self._failure, self.refused = "", False
        self._tell()
        trouble_log.over(f"ElasticJob {self._job} is watched again")

    def _tell(self) -> None:
        """Tell whether the API server is heard: nothing has failed since it was, and nobody doubts it."""
        hears = not self._failure and self._hurry is None
        if hears != self._hears:
            self._hears = hears
            self._heard(hears)

    async def _follow(self, opened: Callable[[], None]) -> None:
        if not self._at.version:
            seconds = None if self._hurry is None else self._hurry.next()
            await self._until_asked(self._list(), seconds, HURRY.first)
            self._hurry = None
            self._tell()
        await self._until_asked(self._listen(opened), None, 0.0)

    async def _until_asked(self, call: Awaitable[None], seconds: float | None, grace: float) -> None:
        """Make a request. `again` ends it after `grace` seconds. Raises TimeoutError."""
        async with asyncio.timeout(seconds) as self._call:
            self._grace = grace
            try:
                await call
            finally:
                self._call = None

    async def _listen(self, opened: Callable[[], None]) -> None:
        seconds = random.randint(*(CALM_WATCH_SECONDS if self._calm else WATCH_SECONDS))
        async for event in self._kube.watch_job(self._job, self._at.version, seconds, opened):
            self._at.take(event)
            match event["type"]:
                case "ADDED" | "MODIFIED":
                    self._pass_on(event["object"])
                case "DELETED":
                    log.info("ElasticJob %s was deleted; its pods will follow", self._job)

    async def _list(self) -> None:
        listed = await self._kube.list_job(self._job)
        if not listed["items"]:
            self._unfit = f"there is no ElasticJob {self._job}"
            self._last = ""  # so that a recreated object is passed on, even with a known version
            log.warning(self._unfit)
        for job in listed["items"]:
            self._pass_on(job)
        self._at.listed(listed["metadata"]["resourceVersion"])

    def _pass_on(self, job: Object) -> None:
        metadata = job["metadata"]
        if metadata["uid"] != self._uid:
            self._unfit = f"the ElasticJob {self._job} is another one, of uid {metadata['uid']}: this pod is left over"
            log.warning(self._unfit)
        elif metadata["resourceVersion"] != self._last:
            self._last = metadata["resourceVersion"]
            spec = job.get("spec", {})
            self._sized(spec.get("replicas", 1), spec.get("rendezvous", {}).get("workerLostSeconds"))
            self._limited(spec.get("progressDeadlineSeconds"))
            status = job.get("status", {})
            self._progressed(status.get("progress", {}))
            self._pass_on_status(status)

    def _pass_on_status(self, status: Object) -> None:
        try:
            replacements = replacement_runs(status.get("replacements", ""))
            rendezvous = RendezvousStatus.parse(status.get("rendezvous"))
        except ValueError as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            self._unfit = (
                f"the status of its ElasticJob cannot be read: {why}; see that the operator and the image of the "
                "sidecar are of one version"
            )
            log.warning("ElasticJob %s: %s", self._job, self._unfit)
        else:
            self._unfit = ""
            self._replacements = replacements
            self._seen(rendezvous)

# SPDX-License-Identifier: Apache-2.0
"""The only object that this sidecar writes: its ElasticWorker.

One task makes all writes, one after the other, so they cannot overtake each other. It always writes the newest values:
a request that is replaced before it was written is never written. Each write names the resourceVersion that it is based
on, so a write that lingers in a paused API server cannot undo a later one.

It never gives up: it retries at most three seconds apart, and logs once a minute what it waits for. Requests, acks and
suspicions are written at once; a new rank and the reports of rank 0's script within seconds. With no pending update it
writes only heartbeats, one every few minutes while a round stands. After rank 0's report, the next one waits until the
job's status shows the first: an operator of a thousand jobs may be slower than the script.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from elasticjob.api import Members, WorkerRequest
from elasticjob.kube.errors import ApiError, Conflict, Denied, NotFound, Unavailable
from elasticjob.kube.retry import RetryPolicy
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.client import REFUSALS, KubeApi
from elasticjob_sidecar.api_server.identity import Identity, asking, in_words
from elasticjob_sidecar.api_server.remedies import explained
from elasticjob_sidecar.api_server.retry import RequestTries
from elasticjob_sidecar.api_server.worker_status import SHORTEST_SHARE, StatusPace, WorkerStatus
from elasticjob_sidecar.log_limits import TroubleLog

log = logging.getLogger(__name__)

CLOCK_TICK = 0.001  # a shorter wait may end before the clock has advanced
# the timeout of an urgent update, in seconds, before it is retried: a connection that was idle for minutes may be dead
URGENT = RetryPolicy(1.0, 8.0)
FAILURES_NOT_LOGGED = 2  # in a row: a missing or newer record is normal, and the next try corrects it


class WorkerRecord:
    def __init__(self, kube: KubeApi, me: Identity, failed: Callable[[str, ApiError], None]) -> None:
        self._kube, self._me, self._failed = kube, me, failed
        self.recall: Callable[[WorkerRequest | None], None] = lambda _: None  # gets an earlier incarnation's request
        self._request: WorkerRequest | None = None
        self._requests = self._requests_written = 0  # how many were wanted, and how many the API server has
        self.trouble = ""  # why the record is not written, in a sentence
        self.refused = False  # whether the API server refuses the write
        self._ours = False  # the object exists, and has our id, labels and owner
        self._stored: Object = {}  # the object as last seen
        self._version = ""  # its resourceVersion, as far as it is known
        self._heartbeat = 0
        self._beats = StatusPace()
        self._status = WorkerStatus()
        self._written_status = WorkerStatus()  # the status that the object holds
        self._last_written = self._last_beat = 0.0
        self._ending = False
        self._shown: set[str] = set()  # names of the metrics that the object holds
        self._pending = asyncio.Event()
        self._urgent = asyncio.Event()  # set by an urgent update, cleared when a write begins
        self._giving_way: asyncio.Timeout | None = None  # of a write in progress that is not urgent
        self._written = asyncio.Condition()

    @property
    def established(self) -> bool:
        """Whether the object exists and names this incarnation."""
        return self._ours

    def want(self, request: WorkerRequest | None) -> None:
        """Write `request` into the record, from now on."""
        if request != self._request:
            self._request, self._requests = request, self._requests + 1
            self._pending.set()

    def job_sized(self, replicas: int, worker_lost: int | None) -> None:
        """The job's size, and its seconds without a heartbeat until a worker is lost."""
        self._beats.job_size, self._beats.job_worker_lost = replicas, worker_lost
        self._pending.set()

    def progress_shown(self, progress: Object) -> None:
        """The progress in the job's status."""
        self._beats.job_progress = progress
        self._pending.set()

    def rest(self, quiet: bool) -> None:
        """Whether a round stands: then heartbeats are minutes apart. Otherwise they are frequent, and soon notice that
        the record with the request was changed or deleted."""
        if self._beats.quiet and not quiet:
            self._last_written = self._last_beat = _now()  # not at once: all workers ask for a round now
        self._beats.quiet = quiet

    def named_worker_lost(self) -> float | None:
        """Seconds without a heartbeat until this worker is lost, if its trainer or the job has set them."""
        named = self._request.worker_lost_seconds if self._request is not None else None
        return named or self._beats.job_worker_lost

    @property
    def _pace(self) -> float:
        """Seconds between two writes of the status."""
        return self._beats.seconds(self._status, self._written_status)

    def say(self, **fields: Any) -> None:
        """Change fields of the `WorkerStatus` that are not urgent. Those that tell anything are written within
        seconds; of the script's reports only rank 0's, which stands for the job."""
        self._status = replace(self._status, **fields)
        if self._owes_report or (self._beats.quiet and self._status.has_update(self._written_status)):
            self._pending.set()

    def ack(self, ping: int) -> bool:
        """Ack a ping of this worker. Written at once. Returns False if that was written before."""
        if self._status.ack == ping:
            return False
        self._status = replace(self._status, ack=ping)
        self._note_urgent_update()
        return True

    def suspect(self, members: Members) -> None:
        """All members that this worker suspects. Written at once."""
        if self._status.suspects != (suspects := str(members)):
            self._status = replace(self._status, suspects=suspects)
            self._note_urgent_update()

    def end(self) -> None:
        """The training ends, and there may be no next heartbeat: from now on a report is written at once."""
        self._ending = True
        self._pending.set()

    async def written(self, report: bool = False) -> None:
        """Wait until the API server has the request that is wanted now, or a newer one. `report`: also the last
        report."""
        number = self._requests

        def done() -> bool:
            return self._ours and self._requests_written >= number and not (report and self._owes_report)

        async with self._written:
            await self._written.wait_for(done)

    def _note_urgent_update(self) -> None:
        """There is an urgent update: end the pause, and soon end a write that is not urgent."""
        self._pending.set()
        self._urgent.set()
        if self._giving_way is not None and self._giving_way.when() is None:
            self._giving_way.reschedule(_now() + URGENT.first)

    @property
    def _has_urgent_update(self) -> bool:
        return self._status.has_urgent_update(self._written_status)

    @property
    def _owes_report(self) -> bool:
        return self._ending and self._status.progress != self._written_status.progress

    async def run(self) -> None:
        # two, so that the back-off of one kind of write does not delay the other
        urgent, others, trouble_log = RequestTries(), RequestTries(), TroubleLog(log)
        # heartbeats of many workers are spread
        self._last_written = self._last_beat = _now() - self._pace + random.uniform(0, self._pace)
        while True:
            self._urgent.clear()
            is_urgent = self._has_urgent_update
            tries = urgent if is_urgent else others
            try:
                if is_urgent:  # the operator waits for it, and counts the seconds
                    async with asyncio.timeout(URGENT.pause(urgent.failures)):
                        await (self._beat() if self._ours else self._establish())
                elif (write := self._due()) is not None:
                    await self._give_way(write())
                else:
                    await self._idle(max(self._seconds_left, CLOCK_TICK))
                    continue
            except (ApiError, TimeoutError) as error:
                failure = error if isinstance(error, ApiError) else Unavailable("no answer in time to an urgent update")
                self._failed("write", failure)
                tries.failures += 1
                if isinstance(failure, NotFound | Denied):  # a change of the object by others may be the reason
                    self._ours = False
                if tries.failures > FAILURES_NOT_LOGGED or not isinstance(failure, NotFound | Conflict):
                    why = explained(failure, self._me.job)
                    self.trouble = f"its ElasticWorker cannot be written: {why}"
                    self.refused = isinstance(failure, REFUSALS)
                    trouble_log.warn(f"cannot write ElasticWorker {self._me.pod_name}: {why}")
                again, tries.conflict = tries.conflict, isinstance(failure, Conflict)
                if tries.conflict and not again:
                    continue  # the present object has been read
                slowly = isinstance(failure, Denied) and not is_urgent
                await self._pause(tries.backoff.longest() if slowly else tries.backoff.next())
            else:
                others.over()
                self.trouble, self.refused = "", False
                if not self._has_urgent_update:
                    urgent.over()
                trouble_log.over(f"ElasticWorker {self._me.pod_name} is written again")
                async with self._written:
                    self._written.notify_all()

    def _due(self) -> Callable[[], Awaitable[None]] | None:
        """The next write that is not urgent, None if none is due."""
        if not self._ours:
            return self._establish
        if self._requests_written < self._requests:
            return self._write_request
        return self._beat if self._seconds_left <= 0 or self._owes_report else None

    @property
    def _seconds_left(self) -> float:
        """Seconds until a heartbeat is due."""
        return self._last_written + self._pace - _now()

    async def _give_way(self, write: Awaitable[None]) -> None:
        """Make a write that an urgent update ends soon. It is retried afterwards, after reading the object."""
        async with asyncio.timeout(None) as self._giving_way:
            try:
                await write
            finally:
                self._giving_way = None

    async def _pause(self, seconds: float) -> None:
        """Wait; an urgent update ends the pause."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._urgent.wait()

    async def _idle(self, seconds: float) -> None:
        self._pending.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pending.wait()

    async def _establish(self) -> None:
        """Make the object this incarnation's, whatever an earlier sidecar or pod of this name left.

        A success recorded by an earlier sidecar of this pod stays: the operator may not have seen it yet.
        """
        try:
            found = await self._kube.get_worker(self._me.pod_name)
        except NotFound:
            number = self._requests
            self._took(await self._kube.create_worker(self._me.created(self._request)))
            self._wrote(WorkerStatus())
            self.recall(None)
            how = "created"
        else:
            self.recall(self._earlier_request(found))
            number = self._requests
            status = found.get("status", {})
            self._note(status)
            suspects, ack = status.get("suspects") or "", status.get("ack") or 0
            self._written_status = replace(self._written_status, suspects=suspects, ack=ack)
            version = found["metadata"]["resourceVersion"]
            self._took(await self._kube.patch_worker(self._me.pod_name, self._me.taken_over(self._request, version)))
            how = "taken over"
        if not self._ours:
            raise Conflict(f"ElasticWorker {self._me.pod_name} is not kept as it was written")
        self._requests_written = number
        log.info("ElasticWorker %s is %s with id %s", self._me.pod_name, how, self._me.id)

    def _earlier_request(self, found: Object) -> WorkerRequest | None:
        """The last request of an earlier incarnation in this pod, None if the object holds no valid one."""
        spec = found["spec"]
        if spec.get("id") == self._me.id or not spec.get("request") or not self._me.owns(found):
            return None
        try:
            return WorkerRequest.parse(spec["request"])
        except ValidationError as error:
            log.warning("ElasticWorker %s holds a request that does not match its schema: %s", self._me.pod_name, error)
            return None

    async def _write_request(self) -> None:
        number, request = self._requests, self._request
        await self._guarded(self._kube.replace_worker, asking(self._stored, request))
        self._requests_written = number
        # it shows life as well; but a heartbeat tells more, so this delays it at most once
        put_off = _now() - random.uniform(0, self._pace / 2)
        self._last_written = min(put_off, self._last_beat + self._pace)
        log.info("requested: %s", in_words(request))

    async def _beat(self) -> None:
        status = self._status
        written = status.as_object(self._shown) | {"heartbeat": self._heartbeat + 1}
        body = {"metadata": {"resourceVersion": self._version}, "status": written}
        await self._guarded(self._kube.patch_worker_status, body)
        self._heartbeat += 1
        self._wrote(status)
        self._beats.share = random.uniform(SHORTEST_SHARE, 1)
        self._last_written = self._last_beat = _now()

    def _wrote(self, status: WorkerStatus) -> None:
        """Record what the object holds now."""
        self._written_status, self._shown = status, set(status.progress.metrics)

    async def _guarded(self, write: Callable[[str, Object], Awaitable[Object]], body: Object) -> None:
        """Write. If the object is newer than expected, read it, so that the next try fits."""
        try:
            self._took(await write(self._me.pod_name, body))
        except Conflict:
            found = await self._kube.get_worker(self._me.pod_name)
            self._took(found)
            self._note(found.get("status", {}))
            raise

    def _note(self, status: Object) -> None:
        """Note the heartbeat count to continue from, and the fields to clear."""
        self._heartbeat = max(self._heartbeat, status.get("heartbeat") or 0)
        self._shown |= (status.get("metrics") or {}).keys()

    def _took(self, stored: Object) -> None:
        """Record the stored object, which others may have changed."""
        self._stored = stored
        self._version = stored["metadata"]["resourceVersion"]
        self._ours = self._me.is_of(stored)


def _now() -> float:
    return asyncio.get_running_loop().time()

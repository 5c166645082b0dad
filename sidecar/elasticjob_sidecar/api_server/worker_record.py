# SPDX-License-Identifier: Apache-2.0
"""The one object that this sidecar writes: its ElasticWorker.

One task makes all writes, one after the other, so they cannot overtake each other. What it writes is always
the newest wish: a request replaced before it was written is never written. Each write names the
resourceVersion that it was made for, so one that lingers in a paused API server cannot undo a later one.
It never gives up: it tries again at most three seconds apart, for as long as it takes, and says once a minute
what it waits for. Requests, answers and doubts are written at once, a new rank and what rank 0's script reports within
seconds; where there is no news nothing is but a heartbeat, and while a round stands that is one every few minutes. Once
rank 0 has reported, its next report waits until the job's status shows that one: an operator of a thousand jobs takes
longer to show one than a script to make another.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from elasticjob.api import Members, Stall, WorkerRequest
from elasticjob.kube.errors import ApiError, Conflict, Denied, NotFound, Unavailable
from elasticjob.kube.retry import RetryPolicy
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.client import REFUSALS, KubeApi
from elasticjob_sidecar.api_server.identity import Identity, asking
from elasticjob_sidecar.api_server.pace import SHORTEST_SHARE, Pace
from elasticjob_sidecar.api_server.remedies import explained
from elasticjob_sidecar.api_server.requests import in_words
from elasticjob_sidecar.api_server.retry import Tries
from elasticjob_sidecar.api_server.worker_status import Progress, WorkerStatus
from elasticjob_sidecar.log_limits import TroubleLog

log = logging.getLogger(__name__)

CLOCK_TICK = 0.001  # a shorter wait may end before the clock has moved
# seconds that a word may take; then it is tried anew: a connection that was idle for minutes may be dead
WORD = RetryPolicy(1.0, 8.0)
FAILURES_NOT_LOGGED = 2  # a record that is missing or newer is no trouble so often in a row: the next try cures it


class WorkerRecord:
    def __init__(self, kube: KubeApi, me: Identity, failed: Callable[[str, ApiError], None]) -> None:
        self._kube, self._me, self._failed = kube, me, failed
        self.recall: Callable[[WorkerRequest | None], None] = lambda _: None  # hears what an earlier incarnation asked
        self._request: WorkerRequest | None = None
        self._wishes = self._granted = 0  # how many requests were wanted, and up to which of them the API has them
        self.trouble = ""  # why it is not written, in a sentence
        self.refused = False  # whether the API server is there, and does not take it
        self._ours = False  # the object exists, carries our id, and is known as ours to everybody
        self._stored: Object = {}  # as it was last seen
        self._version = ""  # its resourceVersion, as far as we know
        self._heartbeat = 0
        self._beats = Pace()
        self._status = WorkerStatus()
        self._written_status = WorkerStatus()  # what the object holds
        self._last_sign = self._last_beat = 0.0
        self._ending = False
        self._shown: set[str] = set()  # names of the metrics that the object holds
        self._wish = asyncio.Event()
        self._new_word = asyncio.Event()  # since the last write was begun
        self._giving_way: asyncio.Timeout | None = None  # of a write under way that is no word
        self._written = asyncio.Condition()

    @property
    def established(self) -> bool:
        """The object exists and carries this incarnation."""
        return self._ours

    def want(self, request: WorkerRequest | None) -> None:
        """From now on the record should carry `request`."""
        if request != self._request:
            self._request, self._wishes = request, self._wishes + 1
            self._wish.set()

    def handed(self, round: int, rank: int) -> None:
        """The round that the trainer was handed, written within seconds."""
        self._say(handed=(round, rank))

    def job_sized(self, replicas: int, worker_lost: int | None) -> None:
        """What the job says of its size, and of the silence after which a worker is lost: the heartbeat's pace."""
        self._beats.job_size, self._beats.job_worker_lost = replicas, worker_lost
        self._wish.set()

    def progress_shown(self, progress: Object) -> None:
        """The progress in the job's status."""
        self._beats.job_progress = progress
        self._wish.set()

    def rest(self, quiet: bool, *, challenges: bool) -> None:
        """Whether a round stands, under an operator that challenges: then heartbeats are minutes apart. Else they find
        out soon if somebody has changed or deleted the record that asks for a round; and an operator that writes no
        challenges goes by them."""
        if self._beats.quiet and not quiet:
            self._last_sign = self._last_beat = _now()  # not now: all ask for a round
        self._beats.quiet, self._beats.challenges = quiet, challenges

    def named_worker_lost(self) -> float | None:
        """The silence after which this worker is lost, where its trainer or the job has named one."""
        named = self._request.worker_lost_seconds if self._request is not None else None
        return named or self._beats.job_worker_lost

    @property
    def _pace(self) -> float:
        """Seconds between two writes of the status."""
        return self._beats.seconds(self._status, self._written_status, self.named_worker_lost())

    def report(self, progress: Progress) -> None:
        """What the script reports: rank 0's is the job's, and written within seconds."""
        self._say(progress=progress)

    def connected(self, round: int) -> None:
        """All training processes of a round have come to its store: rank 0's word, written within seconds."""
        self._say(connected=round)

    def stepped(self, round: int) -> None:
        """The script has taken a step in a round: rank 0's is the job's, and written within seconds."""
        self._say(stepped=round)

    def stall(self, word: Stall | None) -> None:
        """How far this worker is in a round without steps, written within seconds; None is not news."""
        self._say(stall=word)

    def learned(self, imports: str) -> None:
        """What the script imports, written within seconds."""
        self._say(imports=imports)

    def answer(self, challenge: int) -> bool:
        """This worker was asked, and lives: written at once. False if it was said already."""
        if self._status.answer == challenge:
            return False
        self._status = replace(self._status, answer=challenge)
        self._hurry()
        return True

    def doubt(self, members: Members) -> None:
        """Whom this worker doubts, all of them: written at once."""
        if self._status.doubts != (doubts := str(members)):
            self._status = replace(self._status, doubts=doubts)
            self._hurry()

    def end(self) -> None:
        """There may be no next heartbeat: from now on a report is written at once."""
        self._ending = True
        self._wish.set()

    async def written(self, report: bool = False) -> None:
        """Wait until the API has the request that is wanted now, or a newer one, and on demand the last report."""
        wish = self._wishes

        def done() -> bool:
            return self._ours and self._granted >= wish and not (report and self._owes_report)

        async with self._written:
            await self._written.wait_for(done)

    def _say(self, **fields: Any) -> None:
        """What is no word; when the next write is due may have changed."""
        self._status = replace(self._status, **fields)
        if self._owes_report or (self._beats.quiet and self._status.has_news(self._written_status)):
            self._wish.set()

    def _hurry(self) -> None:
        """There is a new word: a pause ends, and another write soon."""
        self._wish.set()
        self._new_word.set()
        if self._giving_way is not None and self._giving_way.when() is None:
            self._giving_way.reschedule(_now() + WORD.first)

    @property
    def _owes_word(self) -> bool:
        return self._status.owes_word(self._written_status)

    @property
    def _owes_report(self) -> bool:
        return self._ending and self._status.progress != self._written_status.progress

    async def run(self) -> None:
        """Write, for ever."""
        # two: what one kind of write has to wait for costs the other no time
        words, others, trouble_log = Tries(), Tries(), TroubleLog(log)
        # a thousand workers do not beat as one
        self._last_sign = self._last_beat = _now() - self._pace + random.uniform(0, self._pace)
        while True:
            self._new_word.clear()
            is_word = self._owes_word
            tries = words if is_word else others
            try:
                if is_word:  # somebody waits for it, and counts the seconds
                    async with asyncio.timeout(WORD.pause(words.failures)):
                        await (self._beat() if self._ours else self._establish())
                elif (write := self._due()) is not None:
                    await self._give_way(write())
                else:
                    await self._idle(max(self._seconds_left, CLOCK_TICK))
                    continue
            except (ApiError, TimeoutError) as error:
                failure = error if isinstance(error, ApiError) else Unavailable("no answer, and a word is awaited")
                self._failed("write", failure)
                tries.failures += 1
                if isinstance(failure, NotFound | Denied):  # perhaps refused because somebody has changed it
                    self._ours = False
                if tries.failures > FAILURES_NOT_LOGGED or not isinstance(failure, NotFound | Conflict):
                    why = explained(failure, self._me.job)
                    self.trouble = f"its ElasticWorker cannot be written: {why}"
                    self.refused = isinstance(failure, REFUSALS)
                    trouble_log.warn(f"cannot write ElasticWorker {self._me.pod_name}: {why}")
                again, tries.conflict = tries.conflict, isinstance(failure, Conflict)
                if tries.conflict and not again:
                    continue  # what the object is now has been read
                slowly = isinstance(failure, Denied) and not is_word
                await self._pause(tries.backoff.longest() if slowly else tries.backoff.next())
            else:
                others.over()
                self.trouble, self.refused = "", False
                if not self._owes_word:
                    words.over()
                trouble_log.over(f"ElasticWorker {self._me.pod_name} is written again")
                async with self._written:
                    self._written.notify_all()

    def _due(self) -> Callable[[], Awaitable[None]] | None:
        """The next write that is no word."""
        if not self._ours:
            return self._establish
        if self._granted < self._wishes:
            return self._write_request
        return self._beat if self._seconds_left <= 0 or self._owes_report else None

    @property
    def _seconds_left(self) -> float:
        """Until a heartbeat is due."""
        return self._last_sign + self._pace - _now()

    async def _give_way(self, write: Awaitable[None]) -> None:
        """A new word ends it soon. It is made anew afterwards, with a look at the object if it was made already."""
        async with asyncio.timeout(None) as self._giving_way:
            try:
                await write
            finally:
                self._giving_way = None

    async def _pause(self, seconds: float) -> None:
        """A new word ends it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._new_word.wait()

    async def _idle(self, seconds: float) -> None:
        self._wish.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wish.wait()

    async def _establish(self) -> None:
        """Make the object this incarnation's, whatever an earlier sidecar or pod of this name left.

        A success that an earlier sidecar of this pod recorded stands: the operator may not have seen it yet.
        """
        try:
            found = await self._kube.get_worker(self._me.pod_name)
        except NotFound:
            wish = self._wishes
            self._took(await self._kube.create_worker(self._me.created(self._request)))
            self._wrote(WorkerStatus())
            self.recall(None)
            how = "created"
        else:
            self.recall(self._said_before(found))
            wish = self._wishes
            status = found.get("status", {})
            self._note(status)
            doubts, answer = status.get("doubts") or "", status.get("answer") or 0
            self._written_status = replace(self._written_status, doubts=doubts, answer=answer)
            version = found["metadata"]["resourceVersion"]
            self._took(await self._kube.patch_worker(self._me.pod_name, self._me.taken_over(self._request, version)))
            how = "taken over"
        if not self._ours:
            raise Conflict(f"ElasticWorker {self._me.pod_name} is not kept as it was written")
        self._granted = wish
        log.info("ElasticWorker %s is %s with id %s", self._me.pod_name, how, self._me.id)

    def _said_before(self, found: Object) -> WorkerRequest | None:
        """What an earlier incarnation in this pod has asked last. Others may have written what is no request."""
        spec = found["spec"]
        if spec.get("id") == self._me.id or not spec.get("request") or not self._me.owns(found):
            return None
        try:
            return WorkerRequest.parse(spec["request"])
        except ValidationError as error:
            log.warning("ElasticWorker %s asked for what makes no sense: %s", self._me.pod_name, error)
            return None

    async def _write_request(self) -> None:
        wish, request = self._wishes, self._request
        await self._guarded(self._kube.replace_worker, asking(self._stored, request))
        self._granted = wish
        # a sign of life as well; but a heartbeat tells more, and is put off once at most
        put_off = _now() - random.uniform(0, self._pace / 2)
        self._last_sign = min(put_off, self._last_beat + self._pace)
        log.info("requested: %s", in_words(request))

    async def _beat(self) -> None:
        status = self._status
        written = status.as_object(self._shown) | {"heartbeat": self._heartbeat + 1}
        body = {"metadata": {"resourceVersion": self._version}, "status": written}
        await self._guarded(self._kube.patch_worker_status, body)
        self._heartbeat += 1
        self._wrote(status)
        self._beats.share = random.uniform(SHORTEST_SHARE, 1)
        self._last_sign = self._last_beat = _now()

    def _wrote(self, status: WorkerStatus) -> None:
        """What the object holds now."""
        self._written_status, self._shown = status, set(status.progress.metrics)

    async def _guarded(self, write: Callable[[str, Object], Awaitable[Object]], body: Object) -> None:
        """Write; when the object was newer than we thought, read it, so that the next try fits."""
        try:
            self._took(await write(self._me.pod_name, body))
        except Conflict:
            found = await self._kube.get_worker(self._me.pod_name)
            self._took(found)
            self._note(found.get("status", {}))
            raise

    def _note(self, status: Object) -> None:
        """What the next heartbeat has to count on from, and to clear."""
        self._heartbeat = max(self._heartbeat, status.get("heartbeat") or 0)
        self._shown |= (status.get("metrics") or {}).keys()

    def _took(self, stored: Object) -> None:
        """Somebody else may have written to it."""
        self._stored = stored
        self._version = stored["metadata"]["resourceVersion"]
        self._ours = self._me.is_of(stored)


def _now() -> float:
    return asyncio.get_running_loop().time()

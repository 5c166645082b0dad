"""The one object that this sidecar writes: its ElasticWorker.

One task makes all writes, one after the other, so they cannot overtake each other. What it writes is always
the newest wish: a request replaced before it was written is never written. Each write names the
resourceVersion that it was made for, so one that lingers in a paused API server cannot undo a later one.
It never gives up: it tries again at most three seconds apart, for as long as it takes, and says once a minute
what it waits for.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL, WorkerRequest
from elasticjob.heartbeats import default_worker_lost, heartbeat_seconds
from elasticjob_sidecar.kubernetes.client import ApiFailure, Conflict, Denied, Json, KubeApi, Missing
from elasticjob_sidecar.kubernetes.retry import Backoff
from elasticjob_sidecar.log_limits import TroubleLog

log = logging.getLogger(__name__)

CLOCK_TICK = 0.001  # a shorter wait may end before the clock has moved
FAILURES_NOT_LOGGED = 2  # a record that is missing or newer is no trouble so often in a row: the next try cures it


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose record it is: the pod, and this incarnation of its sidecar."""

    pod_name: str
    pod_uid: str
    job: str
    index: int
    id: str
    certificate: str
    address: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the training script reported last."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


class WorkerRecord:
    def __init__(self, kube: KubeApi, me: Identity, failed: Callable[[str, ApiFailure], None]) -> None:
        self._kube, self._me, self._failed = kube, me, failed
        self._request: WorkerRequest | None = None
        self._wishes = self._granted = 0  # how many requests were wanted, and up to which of them the API has them
        self._ours = False  # the object exists, carries our id, and is known as ours to everybody
        self._version = ""  # its resourceVersion, as far as we know
        self._heartbeat = 0
        self._job_size = 1
        self._job_worker_lost: int | None = None
        self._handed_round: tuple[int | None, int | None] = (None, None)  # round and rank
        self._progress = self._written_progress = Progress()  # what was reported, and what of it the object holds
        self._ending = False
        self._shown: set[str] = set()  # names of the metrics that the object holds
        self._wish = asyncio.Event()
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
        """The round that the trainer was handed, written with the next heartbeat."""
        self._handed_round = (round, rank)

    def job_sized(self, replicas: int, worker_lost: int | None) -> None:
        """What the job says of its size, and of the silence after which a worker is lost: the heartbeat's pace."""
        self._job_size, self._job_worker_lost = replicas, worker_lost
        self._wish.set()

    @property
    def _pace(self) -> float:
        """Seconds between two heartbeats."""
        named = self._request.worker_lost_seconds if self._request is not None else None
        lost = named or self._job_worker_lost or default_worker_lost(self._job_size)
        return heartbeat_seconds(self._job_size, lost)

    def report(self, progress: Progress) -> None:
        """What the script reports, written with the next heartbeat."""
        self._progress = progress
        if self._ending:
            self._wish.set()

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

    @property
    def _owes_report(self) -> bool:
        return self._ending and self._written_progress != self._progress

    async def run(self) -> None:
        """Write, for ever."""
        loop, backoff, trouble_log = asyncio.get_running_loop(), Backoff(), TroubleLog(log)
        # a thousand workers do not beat as one
        last_sign = last_beat = loop.time() - self._pace + random.uniform(0, self._pace)
        failures = 0  # in a row
        while True:
            try:
                if not self._ours:
                    await self._establish()
                elif self._granted < self._wishes:
                    await self._write_request()
                    # a sign of life as well; but a heartbeat tells more, and is put off once at most
                    last_sign = min(loop.time() - random.uniform(0, self._pace / 2), last_beat + self._pace)
                elif (left := last_sign + self._pace - loop.time()) <= 0 or self._owes_report:
                    await self._beat()
                    last_sign = last_beat = loop.time()
                else:
                    await self._idle(max(left, CLOCK_TICK))
                    continue
            except ApiFailure as failure:
                self._failed("write", failure)
                failures += 1
                if isinstance(failure, Missing | Denied):  # perhaps refused because somebody has changed it
                    self._ours = False
                if failures > FAILURES_NOT_LOGGED or not isinstance(failure, Missing | Conflict):
                    trouble_log.warn(f"cannot write ElasticWorker {self._me.pod_name}: {failure}")
                await asyncio.sleep(backoff.longest() if isinstance(failure, Denied) else backoff.next())
            else:
                failures = 0
                backoff.reset()
                trouble_log.over(f"ElasticWorker {self._me.pod_name} is written again")
                async with self._written:
                    self._written.notify_all()

    async def _idle(self, seconds: float) -> None:
        self._wish.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wish.wait()
        except TimeoutError:
            pass

    async def _establish(self) -> None:
        """Make the object this incarnation's, whatever an earlier sidecar or pod of this name left."""
        wish, request = self._wishes, self._request
        try:
            found = await self._kube.get_worker(self._me.pod_name)
        except Missing:
            self._took(await self._kube.create_worker(self._body(request, version=None)))
            how = "created"
        else:
            status = found.get("status", {})
            self._heartbeat = max(self._heartbeat, status.get("heartbeat") or 0)
            self._shown |= (status.get("metrics") or {}).keys()
            version = found["metadata"]["resourceVersion"]
            self._took(await self._kube.patch_worker(self._me.pod_name, self._body(request, version)))
            how = "taken over"
        self._granted = wish
        log.info("ElasticWorker %s is %s with id %s", self._me.pod_name, how, self._me.id)

    async def _write_request(self) -> None:
        wish, request = self._wishes, self._request
        body = {"metadata": {"resourceVersion": self._version}, "spec": {"request": _replacing(request)}}
        await self._guarded(self._kube.patch_worker, body)
        self._granted = wish
        log.info("requested: %s", _in_words(request))

    async def _beat(self) -> None:
        round_, rank = self._handed_round
        progress = self._progress
        forgotten = dict.fromkeys(self._shown)  # null, or they would stay
        metrics = forgotten | progress.metrics if progress.metrics else None
        status = {
            "heartbeat": self._heartbeat + 1,
            "round": round_,
            "rank": rank,
            "step": progress.step,
            "total": progress.total,
            "metrics": metrics,
        }
        body = {"metadata": {"resourceVersion": self._version}, "status": status}
        await self._guarded(self._kube.patch_worker_status, body)
        self._heartbeat += 1
        self._shown, self._written_progress = set(progress.metrics), progress

    async def _guarded(self, write: Callable[[str, Json], Awaitable[Json]], body: Json) -> None:
        """Write; when the object was newer than we thought, read it, so that the next try fits."""
        try:
            self._took(await write(self._me.pod_name, body))
        except Conflict:
            found = await self._kube.get_worker(self._me.pod_name)
            self._took(found)
            self._heartbeat = max(self._heartbeat, found.get("status", {}).get("heartbeat") or 0)
            raise

    def _took(self, stored: Json) -> None:
        """Somebody may have written to it, and without its labels and its owner the operator would not know it."""
        meta, ours = stored["metadata"], self._metadata()
        labels, owners = meta.get("labels", {}), meta.get("ownerReferences", [])
        marked = ours["labels"].items() <= labels.items() and [one["uid"] for one in owners] == [self._me.pod_uid]
        self._version = meta["resourceVersion"]
        self._ours = marked and stored["spec"].get("id") == self._me.id

    def _metadata(self) -> Json:
        me = self._me
        owner = {"apiVersion": "v1", "kind": "Pod", "name": me.pod_name, "uid": me.pod_uid, "blockOwnerDeletion": False}
        labels = {JOB_LABEL: me.job, INDEX_LABEL: str(me.index)}
        return {"name": me.pod_name, "labels": labels, "ownerReferences": [owner]}

    def _body(self, request: WorkerRequest | None, version: str | None) -> Json:
        me, metadata = self._me, self._metadata()
        spec: Json = {
            "job": me.job,
            "index": me.index,
            "id": me.id,
            "certificate": me.certificate,
            "address": me.address,
            "node": me.node,
        }
        if version is not None:
            metadata["resourceVersion"] = version
            spec["request"] = _replacing(request)
        elif request is not None:
            spec["request"] = request.dump()
        return {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": metadata, "spec": spec}


def _replacing(request: WorkerRequest | None) -> Json | None:
    """`request` for a merge patch: absent fields are null, or the last request's would stay."""
    return None if request is None else request.model_dump(mode="json", by_alias=True)


def _in_words(request: WorkerRequest | None) -> str:
    if request is None:
        return "nothing"
    after = "" if request.after is None else f" after round {request.after}"
    round_ = "" if request.round is None else f" round {request.round}"
    return f"{request.type}{after}{round_}" + (f" ({request.cause})" if request.cause else "")

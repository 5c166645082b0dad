"""One job at a time: gather what is known, decide, write the status once, then act on pods, then announce.

The status goes first, guarded by its resourceVersion: what a pod is named after is agreed before the pod is made,
and an operator that no longer leads stops at the write. Everything else can be done twice without harm.
"""

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import ValidationError

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.rendezvous import Clocks, Decision, Worker, decide, pods_to_create, pods_to_delete
from elasticjob_operator import metrics
from elasticjob_operator.actions.grants import Grants
from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.actions.template_check import TemplateCheck
from elasticjob_operator.actions.worker_pods import WorkerPods
from elasticjob_operator.cluster.cache import Cache, JobView, Key
from elasticjob_operator.cluster.client import Conflict, Kube, Object
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.listing import Lister
from elasticjob_operator.job.cleanup import cleanup
from elasticjob_operator.job.expiry import seconds_left
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.pace import delay_of
from elasticjob_operator.job.progress import progress_of
from elasticjob_operator.job.status import Report, rendezvous_spec, state_of, status_of, waits_of
from elasticjob_operator.job.waiting import AnnouncedReasons
from elasticjob_operator.objects import template
from elasticjob_operator.objects.pods import SidecarImage, template_hash

RELIST_SECONDS = 300.0
SETTLE_SECONDS = 30.0  # at most twice as long: all jobs at once would be another take-over
GRANTS_SECONDS = 10.0  # new pods rely on the access that was found so long ago
SHORTEST_WAIT_SECONDS = 0.2
PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE = 64, 32

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """What this operator keeps of a job between two rounds of work; all of it can be lost.

    `settled`: it was listed by itself, not only with all others at a take-over.
    """

    uid: str
    epoch: int
    clocks: Clocks
    grants: Grants
    template: TemplateCheck
    pods: WorkerPods
    observer: Observer = field(default_factory=lambda: Observer(""))
    announced: AnnouncedReasons = field(default_factory=AnnouncedReasons)
    listed_at: float = 0.0
    settled: bool = False
    written_at: float = 0.0
    differs_at: float | None = None
    write_in: float | None = None


class Reconciler:
    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        leadership: Leadership,
        announcer: Announcer,
        image: SidecarImage,
        *,
        namespaces: tuple[str, ...] = (),
        network_policy: bool = False,
    ) -> None:
        self._kube, self._cache, self._leadership = kube, cache, leadership
        self._announcer, self._image, self._network_policy = announcer, image, network_policy
        self._lister = Lister(kube, cache, namespaces)
        self._memories: dict[Key, Memory] = {}
        self._taken_over, self._taking_over = False, asyncio.Lock()
        self._pod_slots: Slots[Key] = Slots(PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE)

    async def reconcile(self, key: Key) -> float | None:
        """Bring job `key` one step further; returns in how many seconds to look again, None for not by time alone."""
        with metrics.RECONCILE_SECONDS.time():
            memory = await self._recall(key)
            if memory is None:
                return None
            return await self._step(key, memory, self._cache.view(key))

    async def _recall(self, key: Key) -> Memory | None:
        """This job's memory, after a fresh listing where there is none or where it has aged."""
        view, epoch = self._cache.view(key), self._leadership.clock.epoch
        if view.job is None or "deletionTimestamp" in view.job["metadata"]:
            self._forget(key)
            return None
        await self._take_over()
        memory = self._memories.get(key)
        if memory is not None and (memory.uid, memory.epoch) != (view.job["metadata"]["uid"], epoch):
            self._announcer.forget(memory.uid)
            memory = None
        if memory is None or time.monotonic() - memory.listed_at >= RELIST_SECONDS:
            if not await self._lister.list_one(key):
                self._forget(key)
                return None
            memory = memory or self._begin(view.job["metadata"]["uid"], epoch)
            memory.settled = True
            memory.listed_at = time.monotonic()
            self._memories[key] = memory
        return memory

    async def _take_over(self) -> None:
        """Once, and after kopf has begun to list: one listing for all jobs of the leader before.

        kopf's own lists may be a little younger, and nobody reports what ended between the two, so each job is listed
        once more soon.
        """
        async with self._taking_over:
            if self._taken_over:
                return
            for key in await self._lister.list_all():
                job = self._cache.view(key).job
                assert job is not None
                memory = self._begin(job["metadata"]["uid"], self._leadership.clock.epoch)
                memory.listed_at = time.monotonic() - RELIST_SECONDS + random.uniform(1, 2) * SETTLE_SECONDS
                self._memories[key] = memory
            self._taken_over = True

    def _begin(self, uid: str, epoch: int) -> Memory:
        now = self._leadership.clock.now()
        grants = Grants(self._kube, self._announcer, network_policy=self._network_policy)
        check = TemplateCheck(self._kube, self._announcer, self._image)
        pods = WorkerPods(self._kube, self._cache, self._announcer, self._image, self._pod_slots)
        return Memory(uid, epoch, Clocks(opened=now, formed=now), grants, check, pods)

    def _forget(self, key: Key) -> None:
        if memory := self._memories.pop(key, None):
            self._announcer.forget(memory.uid)
        if self._cache.view(key).job is None:
            self._cache.forget(key)

    async def _step(self, key: Key, memory: Memory, view: JobView) -> float | None:
        job = view.job
        assert job is not None
        try:
            spec, before = ElasticJobSpec.parse(job.get("spec")), ElasticJobStatus.parse(job.get("status"))
        except ValidationError as error:
            log.warning("%s does not follow its CRD; is the CRD of this version installed? %s", key, error)
            return None
        await memory.template.check(job, spec, before)
        now = self._leadership.clock.now()
        if memory.observer.made_from != (made_from := template_hash(spec)):
            hint = None if memory.template.problem else template.hint(spec)
            memory.observer = Observer(spec.trainer_container, made_from, hint=hint or "")
        workers, ready = memory.observer.observe(view)
        state = state_of(before, memory.clocks)
        bounds = rendezvous_spec(spec, len(workers), starts_torchrun=not memory.observer.hint)
        decision = decide(bounds, state, workers, now)
        report = Report(
            job=job,
            spec=spec,
            workers=workers,
            ready=ready,
            decision=decision,
            before=before,
            problem=memory.template.problem,
            refusal=memory.grants.problem or memory.pods.refusal,
            term=self._leadership.term,
            now=_wall_clock(),
            progress=progress_of(view, decision.state, before.progress),
            waits=waits_of(bounds, decision.state, workers, memory.observer.waits),
        )
        wait = await self._write(key, memory, report)
        if wait is not None:
            return wait
        memory.clocks = decision.state.clocks
        self._announce(memory, report)
        again = await self._act(job, spec, memory, decision, workers)
        return self._next(decision, again, memory.write_in, await self._expire(job, spec, view))

    async def _write(self, key: Key, memory: Memory, report: Report) -> float | None:
        """Write the status if it has changed; a number is when to try again, and nothing may be done before."""
        after, now = status_of(report), time.monotonic()
        memory.write_in = None
        if report.before.term > self._leadership.term:
            await self._leadership.outgrow(report.before.term)
            return 0.0
        if after == report.before:
            memory.differs_at = None
            return None
        memory.differs_at = now if memory.differs_at is None else memory.differs_at
        delay = delay_of(report.before, after, now - memory.written_at, now - memory.differs_at)
        if delay.seconds > 0 and delay.actions_wait:
            return delay.seconds
        if delay.seconds > 0:
            memory.write_in = delay.seconds
            return None
        try:
            written = await self._kube.replace_job_status(report.job, after.dump())
        except Conflict:
            metrics.STATUS_CONFLICTS.inc()
            self._cache.note_job(await self._kube.job(*key))
            return 0.0
        self._cache.note_job(written)
        memory.written_at, memory.differs_at = time.monotonic(), None
        return None

    def _announce(self, memory: Memory, report: Report) -> None:
        job, decision = report.job, report.decision
        for event in decision.events:
            log.info("%s/%s: %s", job["metadata"]["namespace"], job["metadata"]["name"], event.message)
            self._announcer.announce(job, event.reason, event.message, warning=event.warning)
            metrics.EVENTS.labels(event.reason).inc()
        for index, wait in memory.announced.news(decision.state.last_formed, report.before.reason, report.waits):
            self._announcer.announce(job, wait.reason, f"worker {index}: {wait.sentence}", warning=True)
            metrics.EVENTS.labels(wait.reason).inc()
        if decision.formed_after is not None:
            metrics.ROUND_SECONDS.observe(decision.formed_after)

    async def _act(
        self, job: Object, spec: ElasticJobSpec, memory: Memory, decision: Decision, workers: tuple[Worker, ...]
    ) -> float | None:
        """Make and remove pods as the agreed state says; a number is when to try again what was refused."""
        bounds, now = rendezvous_spec(spec), self._leadership.clock.now()
        served, observer = pods_to_delete(bounds, decision.state, workers, now), memory.observer
        swept = cleanup(spec.clean_pod_policy, decision.state, workers, served, observer.pods, observer.trainer)
        await memory.pods.delete(job, swept.delete)
        await memory.pods.end(job, swept.end)
        new = () if memory.template.problem else pods_to_create(bounds, decision.state, workers, now)
        if new or (memory.settled and not decision.state.ended):  # an option may have changed with the operator
            within = GRANTS_SECONDS if new else RELIST_SECONDS
            if again := await memory.grants.give(job, spec, within=within):
                return again
        return await memory.pods.create(job, spec, new)

    async def _expire(self, job: Object, spec: ElasticJobSpec, view: JobView) -> float | None:
        """Delete an ended job after its time to live; returns the seconds left."""
        left = seconds_left(spec, ElasticJobStatus.parse((view.job or job).get("status")), datetime.now(UTC))
        if left is None or left > 0:
            return left
        await self._kube.delete_job(job["metadata"]["namespace"], job["metadata"]["name"], job["metadata"]["uid"])
        return None

    def _next(self, decision: Decision, *others: float | None) -> float | None:
        wakes = [other for other in others if other is not None]
        if decision.wake_at is not None:
            wakes.append(decision.wake_at - self._leadership.clock.now())
        return max(min(wakes), SHORTEST_WAIT_SECONDS) if wakes else None


def _wall_clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

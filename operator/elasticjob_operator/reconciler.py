"""One job at a time: gather what is known, decide, write the status once, then act on pods, then tell.

The status goes first, guarded by its resourceVersion: what a pod is named after is agreed before the pod is made,
and an operator that no longer leads stops at the write. Everything else can be done twice without harm.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar, cast

from pydantic import ValidationError

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.rendezvous import Clocks, Decision, Worker, decide, pods_to_create, pods_to_delete
from elasticjob_operator import metrics, template
from elasticjob_operator.access import render_access
from elasticjob_operator.cache import Cache, JobView, Key
from elasticjob_operator.events import Announcer
from elasticjob_operator.kube import Conflict, Forbidden, Invalid, Kube, Object
from elasticjob_operator.leader import Leadership
from elasticjob_operator.listing import Lister
from elasticjob_operator.observe import Observer, nodes_of_index
from elasticjob_operator.pace import delay_of
from elasticjob_operator.pods import SidecarImage, bare_pod, pod_name, render_pod
from elasticjob_operator.progress import progress_of
from elasticjob_operator.status import Report, rendezvous_spec, state_of, status_of

RELIST_SECONDS = 300.0
SETTLE_SECONDS = 30.0  # at most twice as long: all jobs at once would be another take-over
REFUSED_AGAIN_SECONDS = 10.0
SHORTEST_WAIT_SECONDS = 0.2
PODS_AT_ONCE = 32

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """What this operator keeps of a job between two rounds of work; all of it can be lost.

    `settled`: it was listed once more after a take-over.
    """

    uid: str
    epoch: int
    clocks: Clocks
    observer: Observer = field(default_factory=lambda: Observer(""))
    listed_at: float = 0.0
    settled: bool = False
    written_at: float = 0.0
    differs_at: float | None = None
    write_in: float | None = None
    access_ready: bool = False
    checked: ElasticJobSpec | None = None
    problem: str | None = None
    refusal: str | None = None


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
        self._pod_slots = asyncio.Semaphore(PODS_AT_ONCE)

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
            memory = None
        if memory is None or time.monotonic() - memory.listed_at >= RELIST_SECONDS:
            if not await self._lister.list_one(key):
                self._forget(key)
                return None
            if memory is None:
                memory = self._begin(view.job["metadata"]["uid"], epoch)
            else:
                memory.settled = True
            memory.listed_at = time.monotonic()
            self._memories[key] = memory
        return memory

    async def _take_over(self) -> None:
        """Once, and after kopf has begun to list: one listing for all jobs of the leader before.

        kopf's own lists may be a little younger, and what ended between the two nobody tells: so each job is listed
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
        return Memory(uid, epoch, Clocks(opened=now, formed=now))

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
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
        await self._check_template(job, spec, before, memory)
        now = self._leadership.clock.now()
        if memory.observer.trainer != spec.trainer_container:
            memory.observer = Observer(spec.trainer_container)
        workers, ready = memory.observer.observe(view)
        state = state_of(before, memory.clocks)
        decision = decide(rendezvous_spec(spec, len(workers)), state, workers, now)
        report = Report(
            job=job,
            spec=spec,
            workers=workers,
            ready=ready,
            decision=decision,
            before=before,
            problem=memory.problem,
            refusal=memory.refusal,
            term=self._leadership.term,
            now=_wall_clock(),
            progress=progress_of(view, decision.state, before.progress),
        )
        wait = await self._write(key, memory, report)
        if wait is not None:
            return wait
        memory.clocks = decision.state.clocks
        self._announce(job, memory, decision)
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
        if delay.seconds > 0 and delay.blocks:
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

    async def _check_template(
        self, job: Object, spec: ElasticJobSpec, before: ElasticJobStatus, memory: Memory
    ) -> None:
        """Ask the API server once per template what it thinks of a pod made from it; not where it told another leader
        that nothing is wrong."""
        known = memory.checked
        if known and (known.template, known.trainer_container) == (spec.template, spec.trainer_container):
            return
        if known is None and _was_valid(job, before):
            memory.problem = template.problem(spec)
        else:
            memory.problem = await self._problem(job, spec, memory)
        memory.checked = spec
        if memory.problem:
            self._announcer.tell(job, "TemplateInvalid", memory.problem, warning=True)

    async def _problem(self, job: Object, spec: ElasticJobSpec, memory: Memory) -> str | None:
        """The API server judges the template as it is, then this project's own rules, then the whole pod."""
        if refusal := await self._kube.try_pod(bare_pod(job, spec)):
            return f"spec.template is no valid pod: {refusal}"
        if found := template.problem(spec):
            return found
        await self._grant_access(job, spec, memory)
        if refusal := await self._kube.try_pod(render_pod(job, spec, 0, 0, self._image, batch=_batch())):
            return f"the API server refuses a worker pod of spec.template: {refusal}"
        return None

    async def _grant_access(self, job: Object, spec: ElasticJobSpec, memory: Memory) -> None:
        """Once, before the first pod: it is refused, even in a dry run, before its service account is there."""
        if not memory.access_ready:
            for path, body in render_access(job, spec, network_policy=self._network_policy):
                await self._kube.create(path, body)
            memory.access_ready = True

    def _announce(self, job: Object, memory: Memory, decision: Decision) -> None:
        for event in decision.events:
            log.info("%s/%s: %s", job["metadata"]["namespace"], job["metadata"]["name"], event.message)
            self._announcer.tell(job, event.reason, event.message, warning=event.warning)
            metrics.EVENTS.labels(event.reason).inc()
        if decision.formed_after is not None:
            metrics.ROUND_SECONDS.observe(decision.formed_after)

    async def _act(
        self,
        job: Object,
        spec: ElasticJobSpec,
        memory: Memory,
        decision: Decision,
        workers: tuple[Worker, ...],
    ) -> float | None:
        """Make and remove pods as the agreed state says; a number is when to try again what was refused."""
        bounds, now = rendezvous_spec(spec), self._leadership.clock.now()
        old = pods_to_delete(bounds, decision.state, workers, now)
        await _all(self._delete_pod(job, worker) for worker in old)
        new = () if memory.problem else pods_to_create(bounds, decision.state, workers)
        if new or (memory.settled and not decision.state.ended):  # an option may have changed with the operator
            await self._grant_access(job, spec, memory)
        batch = _batch()
        made = await _all(self._create_pod(job, spec, memory, batch, *place) for place in new)
        return None if all(made) else REFUSED_AGAIN_SECONDS

    async def _create_pod(
        self, job: Object, spec: ElasticJobSpec, memory: Memory, batch: str, index: int, number: int
    ) -> bool:
        view = self._cache.view(Key(job["metadata"]["namespace"], job["metadata"]["name"]))
        avoid = nodes_of_index(view, index)
        pod = render_pod(job, spec, index, number, self._image, batch=batch, avoid=avoid)
        async with self._pod_slots:
            try:
                self._cache.note_pod(await self._kube.create_pod(pod))
            except Conflict:
                return False  # one of that name is still going, or the watch has not shown ours yet
            except (Invalid, Forbidden) as error:
                if memory.refusal is None:
                    self._announcer.tell(job, "CreateFailed", f"worker {index}: {error}", warning=True)
                memory.refusal = str(error)
                return False
        memory.refusal = None
        return True

    async def _delete_pod(self, job: Object, worker: Worker) -> None:
        meta = job["metadata"]
        name = pod_name(meta["name"], worker.index, worker.replacement)
        pod = self._cache.view(Key(meta["namespace"], meta["name"])).pods.get(name)
        if pod is not None:
            async with self._pod_slots:
                await self._kube.delete_pod(meta["namespace"], name, pod["metadata"]["uid"])

    async def _expire(self, job: Object, spec: ElasticJobSpec, view: JobView) -> float | None:
        """Delete an ended job after its time to live; returns the seconds left."""
        if spec.ttl_seconds_after_finished is None:
            return None
        status = ElasticJobStatus.parse((view.job or job).get("status"))
        ended = [one for one in status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
        if not ended:
            return None
        age = datetime.now(UTC) - datetime.fromisoformat(ended[0].last_transition_time)
        left = spec.ttl_seconds_after_finished - age.total_seconds()
        if left <= 0:
            await self._kube.delete_job(job["metadata"]["namespace"], job["metadata"]["name"], job["metadata"]["uid"])
            return None
        return left

    def _next(self, decision: Decision, *others: float | None) -> float | None:
        wakes = [other for other in others if other is not None]
        if decision.wake_at is not None:
            wakes.append(decision.wake_at - self._leadership.clock.now())
        return max(min(wakes), SHORTEST_WAIT_SECONDS) if wakes else None


def _was_valid(job: Object, status: ElasticJobStatus) -> bool:
    """Whether the leader before has found nothing wrong with the template of this generation."""
    told = (one for one in status.conditions if one.type == "TemplateValid")
    return any((one.status, one.observed_generation) == ("True", job["metadata"]["generation"]) for one in told)


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Their results, once none of them is under way any more; raises the first error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


def _batch() -> str:
    return secrets.token_hex(4)


def _wall_clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

# SPDX-License-Identifier: Apache-2.0
"""Takes one job one step further: observe, decide, write the status once, then act on pods, then announce.

The status is written first, guarded by its resourceVersion. So a pod's name is agreed before the pod is made, and an
operator that no longer leads stops at the write. Everything else can be done twice without harm.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import ValidationError

from elasticjob import logs
from elasticjob.agreed import state_of
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.kube.errors import Terminating
from elasticjob.objects import Object
from elasticjob.rendezvous import decide, pods_to_create, pods_to_delete, roster_of
from elasticjob_operator import metrics
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.job import bad_nodes, network, quota, sidecars
from elasticjob_operator.job.absent import waits_of
from elasticjob_operator.job.cleanup import cleanup
from elasticjob_operator.job.conditions import evictions
from elasticjob_operator.job.deadline import active_of, left_of
from elasticjob_operator.job.drain import Budget, budget_of, still_there
from elasticjob_operator.job.expiry import Expired, expiry_of
from elasticjob_operator.job.finishing import finishing_of
from elasticjob_operator.job.measurements import measure
from elasticjob_operator.job.min_available import that_may_be_ready
from elasticjob_operator.job.numbers import renumbered
from elasticjob_operator.job.outcome import Agreed, Done, LookAgain, Outcome, Retry, look_again
from elasticjob_operator.job.progress import progress_of, said_by_first
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.spares import LOOK_SECONDS, are_held_back
from elasticjob_operator.job.stalls import hang_of, marked
from elasticjob_operator.job.starts import start_of
from elasticjob_operator.job.view import JobView
from elasticjob_operator.memory import Memories, Memory
from elasticjob_operator.objects.pods import SidecarImage

# for so long a successful check of the access is valid: for new pods; for existing ones
ACCESS_SECONDS, ACCESS_KEPT_SECONDS = 10.0, 300.0
SHORTEST_WAIT_SECONDS = 0.2
ENDED_SECONDS = 3600.0  # between two looks at an ended job

log = logging.getLogger(__name__)


class Reconciler:
    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        reflector: Reflector,
        leadership: Leadership,
        announcer: Announcer,
        image: SidecarImage,
        *,
        namespaces: tuple[str, ...] = (),
        network_policy: bool = False,
        nodes: bool = False,
    ) -> None:
        """`nodes`: whether the cluster's nodes are watched."""
        self._kube, self._cache, self._leadership, self._announcer = kube, cache, leadership, announcer
        self._nodes = nodes
        self._memories = Memories(kube, cache, reflector, leadership, announcer, image, namespaces, network_policy)

    async def reconcile(self, key: Key) -> float | None:
        """Takes job `key` one step further. Returns the seconds until the next look; None if no time is set."""
        logs.begin(job=f"{key.namespace}/{key.name}")
        with metrics.RECONCILE_SECONDS.time():
            memory = await self._memories.recall(key)
            if memory is None:
                return await self._memories.leftovers.release(key)
            if memory.ends:
                return None
            try:
                happened = await self._step(key, memory, self._cache.view(key))
            except Terminating:
                log.info("%s/%s: its namespace is being deleted, and nothing more is done for it", *key)
                memory.ends = True
                return None
        if isinstance(happened, Retry):
            return happened.seconds
        seconds = look_again(happened)
        return None if seconds is None else max(seconds, SHORTEST_WAIT_SECONDS)

    async def _step(self, key: Key, memory: Memory, view: JobView) -> Retry | tuple[Outcome, ...]:
        """The outcomes of the status and of all that follows from it. A `Retry` by itself is that of the status."""
        job = view.job
        assert job is not None
        try:
            spec, before = memory.spec_of(job), ElasticJobStatus.parse(job.get("status"))
        except ValidationError as error:
            log.warning("%s does not follow its CRD; is the CRD of this version installed? %s", key, error)
            return ()
        await memory.template.check(job, spec, before)
        await memory.gang.look(job, spec)
        heard, view.heard = view.heard, None
        memory.heard = heard if memory.heard is None else memory.heard
        report = self._report(memory, job, view, spec, before)
        written = await memory.status.write(report)
        if isinstance(written, Retry):
            return written
        return await self._follow(memory, view, report, written)

    def _report(
        self, memory: Memory, job: Object, view: JobView, spec: ElasticJobSpec, before: ElasticJobStatus
    ) -> Report:
        """What is observed, and what is decided from it. The view is the current one: the job may have left it since
        the step began."""
        observer = memory.observer_of(spec)
        workers, ready = observer.observe(view)
        clock, agreed, name = self._leadership.clock, before.rendezvous, job["metadata"]["name"]
        clocks = replace(memory.clocks_of((agreed.round, agreed.phase), clock.now()), settled=clock.settled)
        said = observer.said if spec.progress_deadline_seconds else {}
        hang = hang_of(spec, before, workers, said, memory.asked, clock.now())
        wall_clock = _wall_clock()
        workers = marked(hang, spec, workers)
        workers = bad_nodes.freed(spec, before, workers, observer.pods, observer.waits, wall_clock)
        state = state_of(before, clocks)
        reach = network.network_of(name, before, state, workers, memory.network, clock.now(), memory.troubles)
        workers = sidecars.marked(network.marked(reach, workers), memory.troubles)
        workers = memory.false_alarms.marked(state, workers, clock.now())
        workers = memory.restless.marked(state, workers, lambda: observer.said, clock.now())
        allowance = memory.gang.allowance(spec, state, workers)
        suspended = spec.suspend or allowance.suspends
        active = active_of(before.active, state, wall_clock, suspended=suspended)
        left = left_of(spec, active, wall_clock)
        deadline = None if left is None else clock.now() + left
        bounds = replace(memory.bounds_of(allowance.of(spec), workers), deadline=deadline)
        decision = decide(bounds, state, workers, clock.now())
        decision = renumbered(bounds, decision, workers, memory.pods.taken, clock.now())
        failures = bad_nodes.noted(name, spec, before, decision, observer.pods, wall_clock)
        asked = sidecars.to_ask(spec, decision.state, workers, observer.pods)
        memory.troubles = sidecars.troubles(asked, memory.questions.said)
        waits = waits_of(bounds, decision.state, workers, {**observer.waits, **memory.troubles})
        memory.going = still_there(memory.going, observer.going, clock.now())
        idle = decision.state.ended or (suspended and all(worker.deleting for worker in workers))
        return Report(
            job=job,
            spec=spec,
            workers=workers,
            ready=ready,
            decision=decision,
            before=before,
            problem=memory.template.problem,
            refusal=memory.access.refusal or memory.pods.refusal,
            term=self._leadership.term,
            lease=self._leadership.lease,
            now=wall_clock,
            progress=progress_of(view, decision.state, before.progress),
            start=start_of(before, said_by_first(view, state) if before.starting else None, memory.start, wall_clock),
            waits=quota.explained(bad_nodes.explained(waits, spec, failures), spec),
            started={} if decision.state.clocks.all_running is None else observer.started,  # slow for many workers
            asked=asked,
            hang=hang,
            network=reach,
            finishing=finishing_of(spec, before, decision.state, workers, memory.crashes, wall_clock),
            node_failures=failures,
            allowance=allowance,
            budget_problem=memory.access.budget_problem,
            active=active_of(active, decision.state, wall_clock, suspended=suspended),
            budget=budget_of(spec.drain, memory.going, clock.now(), watched=self._nodes, idle=idle),
        )

    async def _follow(self, memory: Memory, view: JobView, report: Report, agreed: Agreed) -> tuple[Outcome, ...]:
        """Does what follows from the status, which is `agreed`."""
        self._measure(memory, report, self._announce(memory, report))
        memory.keep(report.decision.state)
        memory.asked, memory.start, memory.network = report.hang.asked, report.start, report.network
        memory.crashes = report.finishing.crashes
        pods = memory.observer.pods
        memory.rejecting = bad_nodes.rejecting(memory.rejecting, report.decision, report.workers, pods)
        if report.budget is Budget.NONE and memory.access.owes(Budget.NONE, 0):  # before the last pods go
            await self._give(memory, report, soon=False)
        await self._remove_pods(memory, report)
        made = await self._make_pods(memory, view, report)
        kept = await memory.gang.keep(report)
        asked = memory.questions.keep(report.asked, datetime.fromisoformat(report.now))
        return agreed, made, kept, asked, await self._expire(view, report), *self._wake(memory, view, report)

    def _announce(self, memory: Memory, report: Report) -> list[str]:
        """Announces the events. Returns their reasons."""
        job, decision = report.job, report.decision
        events = (
            *report.network.news,
            *report.finishing.news,
            *report.hang.news,
            *report.start.news,
            *decision.events,
            *bad_nodes.news(report.before, report.node_failures),
        )
        for event in events:
            fields = {"reason": event.reason, "round": decision.state.round}
            if event.cause:
                fields["cause"] = event.cause
            if event.worker is not None:
                fields["worker"] = event.worker
            name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            log.info("%s: %s", name, event.message, extra={"fields": fields})
            self._announcer.announce(job, event.reason, event.message, warning=event.warning, cause=event.cause)
        news = memory.announced.news(decision.state.last_formed, report.before.reason, report.waits)
        for index, wait in news:
            self._announcer.announce(job, wait.reason, f"{wait.whose} {index}: {wait.sentence}", warning=wait.is_fault)
        reasons = [event.reason for event in events] + [wait.reason for _, wait in news]
        if report.budget is Budget.OPEN and not memory.evictable:
            reasons.append("DrainGraceOver")
            self._announcer.announce(job, reasons[-1], evictions(report.spec), warning=True)
        memory.evictable = report.budget is Budget.OPEN
        return reasons

    def _measure(self, memory: Memory, report: Report, announced: list[str]) -> None:
        now = self._leadership.clock.now()
        heard = None if memory.heard is None else now - (time.monotonic() - memory.heard)
        memory.heard = None
        measured, memory.times = measure(report, memory.clocks, memory.times, now, heard, announced)
        metrics.count(measured)

    async def _remove_pods(self, memory: Memory, report: Report) -> None:
        job, spec, workers, state = report.job, report.spec, report.workers, report.decision.state
        served = pods_to_delete(memory.bounds_of(report.limited, workers), state, workers, self._leadership.clock.now())
        observer = memory.observer
        swept = cleanup(spec.clean_pod_policy, state, workers, served, observer.pods, observer.trainer)
        await memory.pods.delete(job, swept.delete)
        await memory.pods.end(job, swept.end)

    async def _make_pods(self, memory: Memory, view: JobView, report: Report) -> Outcome:
        """Makes the pods that are due, and before them the access and budget that they need."""
        job, spec, workers, state = report.job, report.spec, report.workers, report.decision.state
        bounds = memory.bounds_of(report.limited, workers)
        new = pods_to_create(bounds, state, workers, self._leadership.clock.now())
        new = () if memory.template.problem or report.allowance.unknown else new
        spares = roster_of(bounds, state, workers).missing_spares if new else ()
        imports = memory.observer.imports if new else ""
        held_back = bool(spares) and are_held_back(spec, state, imports, self._leadership.clock.now())
        new = tuple(pod_key for pod_key in new if not (held_back and pod_key[0] in spares))
        due = memory.pods.due(job, spec, new)
        there = that_may_be_ready(view.pods.values(), memory.uid) + len(due)
        memory.min_available = memory.min_available.following(there, self._leadership.clock.now())
        given = await self._give(memory, report, soon=bool(new))
        if isinstance(given, Retry):
            return given
        avoided = bad_nodes.avoided(report.node_failures)
        admissions = memory.gang.admissions(view.pods.values(), job, spec, due)
        made = await memory.pods.create(job, spec, due, imports, spares, avoided, memory.rejecting, admissions)
        if isinstance(made, Done):
            return LookAgain(LOOK_SECONDS) if held_back else given
        return made

    async def _give(self, memory: Memory, report: Report, *, soon: bool) -> Done | Retry | LookAgain:
        """Gives the workers their access and budget. `soon`: pods are to be made."""
        given, least = memory.access, memory.min_available.pods
        if not (soon or memory.going or given.owes(report.budget, least) or memory.access_due_in() <= 0):
            return Done()
        within, access = ACCESS_SECONDS if soon else ACCESS_KEPT_SECONDS, not report.decision.state.ended
        # the cluster warns of a budget without pods; the first pod is seen, and protected, before it is ready
        is_first = not (memory.observer.pods or given.has_budget)
        budget = None if is_first and report.budget is not Budget.NONE else report.budget
        came = await given.give(
            report.job, report.spec, within=within, budget=budget, min_available=least, access=access
        )
        memory.min_available = memory.min_available.resumed(given.found, self._leadership.clock.now())
        return came

    async def _expire(self, view: JobView, report: Report) -> Done | LookAgain:
        """Deletes an ended job after its time to live."""
        if not report.decision.state.ended:
            return Done()
        job = view.job or report.job
        expiry = expiry_of(report.spec, ElasticJobStatus.parse(job.get("status")), datetime.now(UTC))
        if not isinstance(expiry, Expired):
            return expiry
        meta = report.job["metadata"]
        await self._kube.delete_job(meta["namespace"], meta["name"], meta["uid"])
        return Done()

    def _wake(self, memory: Memory, view: JobView, report: Report) -> Iterator[LookAgain]:
        """When time alone may change something, and when the workers' access is to be checked again."""
        decision = report.decision
        for again in (report.hang.again, report.start.again, report.network.again):
            if again is not None:
                yield LookAgain(again)
        if decision.wake_at is not None:
            yield LookAgain(decision.wake_at - self._leadership.clock.now())
        at_rest = ENDED_SECONDS if decision.state.ended else memory.access_due_in() or ACCESS_KEPT_SECONDS
        yield LookAgain(at_rest)
        forgotten = bad_nodes.forgotten_in(report.spec, report.node_failures, report.now)
        if forgotten is not None and not decision.state.ended:
            yield LookAgain(forgotten)
        now, grace = self._leadership.clock.now(), report.spec.drain.grace_seconds
        if report.budget is Budget.CLOSED:
            yield from (LookAgain(left) for since in memory.going.values() if (left := since + grace - now) > 0)
            there = that_may_be_ready(view.pods.values(), memory.uid)
            if (settles := memory.min_available.settles_in(there, now)) is not None:
                yield LookAgain(settles)


def _wall_clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

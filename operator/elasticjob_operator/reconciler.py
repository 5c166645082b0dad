# SPDX-License-Identifier: Apache-2.0
"""Takes one job one step further: observe, decide, write the status once, then act on pods, then announce.

The status is written first, guarded by its resourceVersion. So a pod's name is agreed before the pod is made, and an
operator that no longer leads stops at the write. Everything else can be done twice without harm.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import ValidationError

from elasticjob import logs
from elasticjob.agreed import rendezvous_spec, state_of
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.kube.errors import Terminating
from elasticjob.objects import Object
from elasticjob.rendezvous import Clocks, Decision, decide
from elasticjob_operator import metrics
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.job.measurements import measure
from elasticjob_operator.job.numbers import renumbered
from elasticjob_operator.job.outcome import LookAgain, Outcome, Retry, look_again
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.view import JobView
from elasticjob_operator.memory import Memories, Memory

SHORTEST_WAIT_SECONDS = 0.2

log = logging.getLogger(__name__)


class Reconciler:
    def __init__(self, memories: Memories, cache: Cache, leadership: Leadership, announcer: Announcer) -> None:
        self._memories, self._cache, self._leadership, self._announcer = memories, cache, leadership, announcer

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
        self._announce(memory, report)
        outcomes = [await action.keep(report) for action in memory.actions]
        now = self._leadership.clock.now()
        again = (concern.again(report, now) for concern in memory.concerns)
        return written, *outcomes, *(LookAgain(seconds) for seconds in again if seconds is not None)

    def _report(
        self, memory: Memory, job: Object, view: JobView, spec: ElasticJobSpec, before: ElasticJobStatus
    ) -> Report:
        """What is observed, and what is decided from it. The view is the current one: the job may have left it since
        the step began."""
        observer, clock, agreed = memory.observer_of(spec), self._leadership.clock, before.rendezvous
        workers, ready = observer.observe(view)
        at = clock.now()
        clocks = replace(memory.clocks.of((agreed.round, agreed.phase), at), settled=clock.settled)
        report = Report(
            job=job,
            spec=spec,
            before=before,
            view=view,
            observer=observer,
            bounds=rendezvous_spec(spec, len(workers), starts_torchrun=not observer.hint),
            workers=workers,
            ready=ready,
            decision=Decision(state_of(before, clocks)),
            at=at,
            now=_wall_clock(),
            problem=memory.template.problem,
            refusal=memory.access.refusal or memory.pods.refusal,
            budget_problem=memory.access.budget_problem,
            term=self._leadership.term,
            lease=self._leadership.lease,
        )
        for concern in memory.concerns:
            report = concern.see(report)
        bounds, workers = report.bounds, report.workers
        decision = decide(bounds, report.decision.state, workers, at)
        view.awaited = decision.awaited
        report = report._replace(decision=renumbered(bounds, decision, workers, memory.pods.taken, at))
        for concern in memory.concerns:
            report = concern.judge(report)
        return report

    def _announce(self, memory: Memory, report: Report) -> None:
        """Announces and counts what has happened."""
        job, clocks = report.job, memory.clocks.known
        events = [event for concern in memory.concerns for event in concern.after(report)]
        for event in events:
            fields = {"reason": event.reason, "round": report.decision.state.round}
            if event.cause:
                fields["cause"] = event.cause
            if event.worker is not None:
                fields["worker"] = event.worker
            name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            log.info("%s: %s", name, event.message, extra={"fields": fields})
            self._announcer.announce(job, event.reason, event.message, warning=event.warning, cause=event.cause)
        self._measure(memory, report, clocks, [event.reason for event in events])

    def _measure(self, memory: Memory, report: Report, clocks: Clocks, announced: Iterable[str]) -> None:
        """`clocks`: those before the step."""
        now = self._leadership.clock.now()
        heard = None if memory.heard is None else now - (time.monotonic() - memory.heard)
        memory.heard = None
        measured, memory.times = measure(report, clocks, memory.times, now, heard, announced)
        metrics.count(measured)


def _wall_clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

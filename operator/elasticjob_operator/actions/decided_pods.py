# SPDX-License-Identifier: Apache-2.0
"""Removes and makes a job's pods once the status is agreed, and gives them what they need before they are made."""

from elasticjob.rendezvous import pods_to_create, pods_to_delete, roster_of
from elasticjob_operator.actions.access import Access
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.worker_pods import WorkerPods
from elasticjob_operator.cluster.leader import LeaseClock
from elasticjob_operator.job.cleanup import cleanup
from elasticjob_operator.job.evictions import Budget, Evictions, Protection
from elasticjob_operator.job.outcome import Done, LookAgain, Outcome, Retry
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.spares import LOOK_SECONDS, are_held_back


class DecidedPods:
    """The pods of one job."""

    def __init__(self, pods: WorkerPods, access: Access, gang: Gang, evictions: Evictions, clock: LeaseClock) -> None:
        self._pods, self._access, self._gang, self._evictions, self._clock = pods, access, gang, evictions, clock

    async def keep(self, report: Report) -> Outcome:
        if report.of(Protection).budget is Budget.NONE and self._access.owes(Budget.NONE, 0):  # before the last pods go
            await self._give(report, soon=False)
        await self._remove(report)
        return await self._make(report)

    async def _remove(self, report: Report) -> None:
        job, workers, state, observer = report.job, report.workers, report.decision.state, report.observer
        served = pods_to_delete(report.bounds, state, workers, self._clock.now())
        swept = cleanup(report.spec.clean_pod_policy, state, workers, served, observer.pods, observer.trainer)
        await self._pods.delete(job, swept.delete)
        await self._pods.end(job, swept.end)

    async def _make(self, report: Report) -> Outcome:
        """Makes the pods that are due, and before them the access and budget that they need."""
        job, spec, workers, state = report.job, report.spec, report.workers, report.decision.state
        new = pods_to_create(report.bounds, state, workers, self._clock.now())
        new = () if report.problem or report.of(Allowance).unknown else new
        spares = roster_of(report.bounds, state, workers).missing_spares if new else ()
        imports = report.observer.imports if new else ""
        held_back = bool(spares) and are_held_back(spec, state, imports, self._clock.now())
        new = tuple(pod_key for pod_key in new if not (held_back and pod_key[0] in spares))
        due = self._pods.due(report, new)
        self._evictions.follow(report, len(due), self._clock.now())
        given = await self._give(report, soon=bool(new))
        if isinstance(given, Retry):
            return given
        admissions = self._gang.admissions(report.view.pods.values(), job, spec, due)
        made = await self._pods.create(report, due, imports, spares, admissions)
        if isinstance(made, Done):
            return LookAgain(LOOK_SECONDS) if held_back else given
        return made

    async def _give(self, report: Report, *, soon: bool) -> Done | Retry | LookAgain:
        given = await self._access.keep(report, self._evictions.min_available.pods, soon=soon)
        self._evictions.resume(self._access.found, self._clock.now())
        return given

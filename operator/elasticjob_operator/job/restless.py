# SPDX-License-Identifier: Apache-2.0
"""Members that repeatedly end formed rounds by joining again, without a counted failure and without a step. Each is
replaced, because the group would never train. Pure.

Such a trainer believes that a standing round is over. Nothing else would end that: its pod runs, its sidecar answers,
and coming back costs no restart.
"""

from dataclasses import dataclass, field, replace

from elasticjob.members import Member
from elasticjob.rendezvous import PodState, Worker
from elasticjob.rendezvous.losses import breaks
from elasticjob.terms import RendezvousPhase, RoundCause
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

MOST_ROUNDS, WITHIN_SECONDS = 3, 60.0


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a round. `at`: when it was seen. `step`: the step of the member's script. `restarts`: the failures
    counted."""

    at: float
    step: int | None
    restarts: int


@dataclass(slots=True)
class Restless(Concern):
    """The rounds that members of one job have ended, as far as this leader has seen."""

    _rounds: dict[Member, dict[int, _Ended]] = field(default_factory=dict)

    def see(self, report: Report) -> Report:
        """Workers to be replaced look as if the cluster had ended their pods."""
        state, workers, now = report.decision.state, report.workers, report.at
        if state.phase is not RendezvousPhase.FORMED:
            return report
        came = [one.member for one in breaks(state, workers, {}) if one.cause == RoundCause.CAME_BACK]
        if not came:
            return report
        records = report.observer.statuses
        steps = {worker.member: one.step for worker in workers if (one := records.get(worker.pod_key))}
        for member in came:
            ended = _Ended(now, steps.get(member), state.restarts)
            known = self._rounds.get(member, {})
            self._rounds[member] = {
                number: one
                for number, one in known.items()
                if now - one.at <= WITHIN_SECONDS and (one.step, one.restarts) == (ended.step, ended.restarts)
            } | {state.round: known.get(state.round, ended)}
        present = {worker.member for worker in workers}
        self._rounds = {member: rounds for member, rounds in self._rounds.items() if member in present}
        return report._replace(workers=tuple(self._marked(worker, came) for worker in workers))

    def _marked(self, worker: Worker, came: list[Member]) -> Worker:
        if worker.member not in came or worker.member is None or len(self._rounds[worker.member]) <= MOST_ROUNDS:
            return worker
        rounds = len(self._rounds[worker.member])
        how = f"its trainer has ended {rounds} rounds within {WITHIN_SECONDS:g} s by joining again"
        why = f"{how}, with neither a failure nor a step between"
        return replace(worker, pod=PodState.FAILED, disrupted=True, detail=why)

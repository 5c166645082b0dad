# SPDX-License-Identifier: Apache-2.0
"""Members that repeatedly suspect others that ack and hear them well. Each is replaced. Pure.

Each new suspicion makes the operator ping, and every sidecar read a status. If a link is at fault, neither end hears
the other, so a suspicion counts only if it is not mutual.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticjob.members import Member
from elasticjob.rendezvous import PodState, Worker
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

MOST_ALARMS, WITHIN_SECONDS = 10, 60.0


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """When a suspicion was first seen, and the number of the last ping at that time."""

    at: float
    ping: int


@dataclass(slots=True)
class FalseAlarms(Concern):
    """The suspicions in one job, as far as this leader has seen them: the members that each member last suspected, the
    open suspicions, and the times at which unfounded ones began."""

    _suspected: dict[Member, frozenset[Member]] = field(default_factory=dict)
    _open: dict[tuple[Member, Member], _Suspicion] = field(default_factory=dict)
    _alarms: dict[Member, frozenset[float]] = field(default_factory=dict)

    def see(self, report: Report) -> Report:
        """Workers to be replaced look as if the cluster had ended their pods, and suspect nobody."""
        state, workers, now = report.decision.state, report.workers, report.at
        present = {worker.member: worker for worker in workers if worker.member}
        for member, worker in present.items():
            suspected = frozenset(one for one in worker.suspects if one in present and one != member)
            for one in suspected - self._suspected.get(member, frozenset()):
                self._open[member, one] = _Suspicion(now, state.ping)
            self._suspected[member] = suspected
        self._settle(present)
        self._suspected = {member: those for member, those in self._suspected.items() if member in present}
        self._alarms = {
            member: recent
            for member, times in self._alarms.items()
            if member in present and (recent := frozenset(at for at in times if now - at <= WITHIN_SECONDS))
        }
        return report._replace(workers=tuple(self._marked(worker) for worker in workers))

    def _settle(self, present: Mapping[Member, Worker]) -> None:
        """A suspicion is over once its member acks a later ping, suspects the other in turn, or is gone."""
        for (member, one), suspicion in list(self._open.items()):
            accuser, suspect = present.get(member), present.get(one)
            if accuser is None or suspect is None or member in suspect.suspects:
                del self._open[member, one]
            elif (suspect.ack or 0) > suspicion.ping:
                del self._open[member, one]
                self._alarms[member] = self._alarms.get(member, frozenset()) | {suspicion.at}

    def _marked(self, worker: Worker) -> Worker:
        alarms = len(self._alarms.get(worker.member, ())) if worker.member else 0
        if alarms <= MOST_ALARMS:
            return worker
        why = f"its sidecar suspected others {alarms} times in {WITHIN_SECONDS:g} s, although they acked and heard it"
        return replace(worker, pod=PodState.FAILED, disrupted=True, detail=why, suspects=())

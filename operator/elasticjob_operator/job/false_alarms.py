# SPDX-License-Identifier: Apache-2.0
"""Members that suspect others again and again, who answer and hear them well: each is replaced. Pure.

Each new suspicion makes the operator ask, and everybody read a status. Where a line is at fault neither end hears the
other: so only a suspicion counts that is not returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticjob.members import Member
from elasticjob.rendezvous import PodState, State, Worker

MOST_ALARMS, WITHIN_SECONDS = 10, 60.0


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """When it was first seen, and the number of the last challenge at that time."""

    at: float
    challenge: int


@dataclass(slots=True)
class FalseAlarms:
    """Of one job, as far as this leader has seen: whom each member suspected last, which of that is open, and when
    those suspicions began of which nothing came."""

    _suspected: dict[Member, frozenset[Member]] = field(default_factory=dict)
    _open: dict[tuple[Member, Member], _Suspicion] = field(default_factory=dict)
    _alarms: dict[Member, frozenset[float]] = field(default_factory=dict)

    def marked(self, state: State, workers: tuple[Worker, ...], now: float) -> tuple[Worker, ...]:
        """The workers, those that are to be replaced as if the cluster had ended their pods, and suspect nobody. May be
        called again for the same state, where that could not be written."""
        present = {worker.member: worker for worker in workers if worker.member}
        for member, worker in present.items():
            suspected = frozenset(one for one in worker.doubts if one in present and one != member)
            for one in suspected - self._suspected.get(member, frozenset()):
                self._open[member, one] = _Suspicion(now, state.challenge)
            self._suspected[member] = suspected
        self._settle(present)
        self._suspected = {member: those for member, those in self._suspected.items() if member in present}
        self._alarms = {
            member: recent
            for member, times in self._alarms.items()
            if member in present and (recent := frozenset(at for at in times if now - at <= WITHIN_SECONDS))
        }
        return tuple(self._marked(worker) for worker in workers)

    def _settle(self, present: Mapping[Member, Worker]) -> None:
        """A suspicion is over once its member answers a challenge that came later, hears nothing either, or is gone."""
        for (member, one), suspicion in list(self._open.items()):
            asked, suspect = present.get(member), present.get(one)
            if asked is None or suspect is None or member in suspect.doubts:
                del self._open[member, one]
            elif (suspect.answer or 0) > suspicion.challenge:
                del self._open[member, one]
                self._alarms[member] = self._alarms.get(member, frozenset()) | {suspicion.at}

    def _marked(self, worker: Worker) -> Worker:
        alarms = len(self._alarms.get(worker.member, ())) if worker.member else 0
        if alarms <= MOST_ALARMS:
            return worker
        why = (
            f"its sidecar has suspected others {alarms} times within {WITHIN_SECONDS:g} s, who each time answered and "
            "heard it well"
        )
        return replace(worker, pod=PodState.FAILED, disrupted=True, detail=why, doubts=())

# SPDX-License-Identifier: Apache-2.0
"""The training scripts of this pod: which have a stream open, and which may save before the trainer learns that its
round is over.

A planned end of the round is withheld from the trainer while a script that wants to save has not saved, at most for
`save_seconds`. Scripts that never asked to save are not awaited, nor are scripts that have ended or asked too late. An
end that the trainer has learned of is never withheld again.
"""

from dataclasses import dataclass, field

from elasticjob.api import RendezvousPhase
from elasticjob_sidecar.membership.concern import Concern
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import Refused, needs_new_processes
from elasticjob_torch import wire
from elasticjob_torch.wire import Code


@dataclass(slots=True)
class Script:
    """A process with an open stream. `saves`: it asks to save. `saved`: the last round for whose end it has saved."""

    name: str
    saves: bool
    saved: int = 0


@dataclass(slots=True)
class Scripts(Concern):
    save_seconds: float = 15.0
    _open: dict[int, Script] = field(default_factory=dict)  # by the number of the stream
    _streams: int = 0
    _ending: int = 0  # the round whose planned end is known
    _until: float | None = None  # until when the end is withheld from the trainer
    _reporter: tuple[int, int] = (0, 0)  # a round, and the lowest local rank that has reported in it

    # --- inputs

    def opened(self, name: str, saves: bool) -> int:
        """A script opens its stream. Returns the stream's number for `closed`. Raises Refused."""
        if len(self._open) >= wire.MAX_SCRIPTS:
            raise Refused(Code.TOO_MANY, f"{wire.MAX_SCRIPTS} processes of this pod look on already")
        self._streams += 1
        self._open[self._streams] = Script(name, saves)
        return self._streams

    def closed(self, stream: int) -> None:
        self._open.pop(stream, None)

    def saves(self, name: str, saved: int) -> None:
        """The script of that name wants to save, and has saved for the end of round `saved` (0: of none)."""
        for script in self._open.values():
            if script.name == name:
                script.saves, script.saved = True, max(script.saved, saved)

    def look(self, worker: Standing, now: float) -> None:
        ending = planned_end(worker)
        if ending != self._ending:
            self._ending, self._until = ending, (now + self.save_seconds if ending else None)
        if self._until is not None and (now >= self._until or not self._awaited()):
            self._until = None

    def may_report(self, worker: Standing, local_rank: int) -> bool:
        """Whether this local rank's report stands for the worker: it is the lowest that has reported in this round."""
        round, lowest = self._reporter
        if round != worker.held or local_rank <= lowest:
            self._reporter = (worker.held, local_rank)
            return True
        return False

    # --- outputs

    @property
    def hold(self) -> bool:
        return self._until is not None

    @property
    def sentence(self) -> str:
        return f"the trainer is told {'when its scripts have saved' if self.hold else 'now'}"

    @property
    def wake_at(self) -> float | None:
        return self._until

    def _awaited(self) -> bool:
        return any(script.saves and script.saved < self._ending for script in self._open.values())


def planned_end(worker: Standing) -> int:
    """The trainer's round, if its end was planned, all its members run, and its processes do not live through it;
    else 0."""
    job, round = worker.job, worker.held
    forming = job is not None and job.phase is RendezvousPhase.FORMING and job.round == round + 1
    if job is None or not (forming and job.planned and worker.mode is Mode.HANDED):
        return 0
    return 0 if worker.live and not (worker.leaving or needs_new_processes(job, round)) else round


def script_view_of(worker: Standing) -> wire.ScriptView | None:
    """The view for scripts, None before the job was seen."""
    job, handed = worker.job, worker.handed
    if job is None:
        return None
    return wire.ScriptView(
        round=worker.held,
        waiting=job.waiting,
        reason=handed.reason if handed is not None and handed.round == worker.held else "",
        ending=bool(planned_end(worker)),
    )

# SPDX-License-Identifier: Apache-2.0
"""Whether the training scripts of this pod take steps, and what the worker's record reports when a member's do not.

A script stalls when it has reported a step in its round, and then nothing for the job's deadline. The record reports
that at once. The operator then asks all members of the round, and each reports how far it is. So nothing is written
while all is well, and no clock is compared with another: the sidecar beside the script measures its silence.
"""

from dataclasses import dataclass, field

from elasticjob.api import ProcessState, Stall
from elasticjob_sidecar.membership.concern import Concern
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Standing


@dataclass(slots=True)
class Stalls(Concern):
    """`deadline`: seconds, None for no limit. `word`: what the record should report, None for nothing."""

    deadline: float | None = None
    word: Stall | None = None
    _round: int = 0
    _since: float | None = None  # the last report in this round
    _steps: dict[int, int] = field(default_factory=dict)  # by local rank, in this round
    _process: tuple[ProcessState, int] | None = None  # the state that the trainer has found, and its local rank

    # --- inputs

    def reported(self, worker: Standing, local_rank: int, step: int | None, now: float) -> None:
        """Any report shows that the script goes on. The first that counts names a step."""
        self._enter(worker)
        if not self._round or (step is None and self._since is None):
            return
        self._since = now
        if step is not None:
            self._steps[local_rank] = step

    def looked(self, worker: Standing, process: ProcessState, local_rank: int) -> None:
        """The trainer reports the state of its training processes."""
        self._enter(worker)
        self._process = process, local_rank

    def look(self, worker: Standing, now: float) -> None:
        self._enter(worker)
        if not self._round:
            return
        self._process = self._process if stalled_by(worker) else None
        stalled = self.deadline is not None and self._since is not None and now - self._since >= self.deadline
        known = self.word
        if known is None and not (stalled or stalled_by(worker)):
            return
        if known is None or known.stalled is not stalled:
            self._process = None if known is not None and known.stalled else self._process
            self.word = known = Stall(round=self._round, stalled=stalled, step=min(self._steps.values(), default=None))
        if self._process is not None:
            process, local_rank = self._process
            self.word = known.model_copy(update={"process": process, "local_rank": local_rank})

    # --- outputs

    @property
    def status(self) -> dict[str, Stall | None]:
        return {"stall": self.word}

    @property
    def sentence(self) -> str:
        if self.word is None:
            return ""
        step = "none" if self.word.step is None else self.word.step
        return f"the script {'stalls' if self.word.stalled else 'goes on'}, its last step is {step}"

    @property
    def wake_at(self) -> float | None:
        if self.deadline is None or self._since is None or (self.word is not None and self.word.stalled):
            return None
        return self._since + self.deadline

    def _enter(self, worker: Standing) -> None:
        """Forget what was known of another round."""
        round = worker.held if worker.mode is Mode.HANDED and worker.in_round(worker.held) else 0
        if round != self._round:
            self._round, self._since, self._steps, self._process, self.word = round, None, {}, None, None


def stalled_by(worker: Standing) -> bool:
    """Whether a member of the trainer's round stalls: the trainer then looks at its training processes."""
    return worker.job is not None and worker.in_round(worker.held) and worker.job.stalled == worker.held

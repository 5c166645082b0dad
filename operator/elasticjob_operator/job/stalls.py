# SPDX-License-Identifier: Apache-2.0
"""Whether a job's training hangs, which member lags, and what the members are asked about it. Pure: the report has the
time.

Each sidecar reports by its own clock that its script stalls. Once all are asked, members that train on report that too.
So neither a script that chose to stop reporting nor a broken connection counts as a hang.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from elasticjob.api import ElasticJobStatus, ElasticWorkerStatus, ProcessState, Stall
from elasticjob.blocker_reasons import Reason
from elasticjob.heartbeats import record_seconds
from elasticjob.rendezvous import Event, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.words import first_few
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

PROGRESSING = "Progressing"
MISSED_WRITES = 3  # of an asked member, after which its answer is not awaited
WORDS = {
    ProcessState.STOPPED: "is stopped",
    ProcessState.BLOCKED: "waits in the kernel, for a disk or a device",
    ProcessState.COMPUTES: "computes while others wait",
}


@dataclass(frozen=True, slots=True)
class StallQuestion:
    """The round in which all members were asked, since when, by this operator's clock, and whether the hang was
    announced. It is remembered between two steps and lost with the operator. The time to answer then starts again,
    unless the status already says that the training hangs."""

    round: int = 0
    since: float = 0.0
    announced: bool = False


NOBODY = StallQuestion()


class Hang(NamedTuple):
    """What one step finds. `stalled`: the round in which a member stalls and all are asked, 0 for none. `sentence`:
    that the training hangs, and which member lags; empty while it does not hang. `of`: the pod of the member that ends
    the round. `again`: seconds until the next look. `events`: the events to announce."""

    asked: StallQuestion = NOBODY
    stalled: int = 0
    sentence: str = ""
    of: PodKey | None = None
    again: float | None = None
    events: tuple[Event, ...] = ()


class Hangs(Concern):
    """Whether the training of one job hangs."""

    def __init__(self) -> None:
        self._asked = NOBODY

    def see(self, report: Report) -> Report:
        hang, workers = hang_of(report, self._asked), report.workers
        if hang.sentence and report.spec.hang_policy == "Restart":
            workers = tuple(replace(one, hung=hang.sentence) if one.pod_key == hang.of else one for one in workers)
        return report.noting(hang, workers=workers)

    def after(self, report: Report) -> tuple[Event, ...]:
        self._asked = report.of(Hang).asked
        return report.of(Hang).events

    def again(self, report: Report, now: float) -> float | None:
        return report.of(Hang).again


class StallAnswer(NamedTuple):
    """What a member's record says of its round. `stall` is None until it contains an answer."""

    worker: Worker
    status: ElasticWorkerStatus
    stall: Stall | None


def hang_of(report: Report, asked: StallQuestion) -> Hang:
    """Whether the training hangs. `asked`: the result of the last step."""
    before, agreed, now = report.before, report.before.rendezvous, report.at
    deadline = report.spec.progress_deadline_seconds
    if deadline is None or agreed.phase is not RendezvousPhase.FORMED:
        return Hang()
    answers = list(_answers(before, report.workers, report.observer.statuses))
    stalls = [one.stall for one in answers if one.stall is not None]
    if not any(stall.stalled for stall in stalls):
        return Hang()
    asked = (
        asked if asked.round == agreed.round and agreed.stalled == agreed.round else StallQuestion(agreed.round, now)
    )
    if any(stall.step is not None and not stall.stalled for stall in stalls):  # the training continues
        return Hang(asked, agreed.round)
    hung = any(one.type == PROGRESSING and one.status == "False" for one in before.conditions)
    left = MISSED_WRITES * record_seconds(len(agreed.participants)) - (now - asked.since)
    answered = (hung and agreed.stalled == agreed.round) or all(
        one.stall is not None and one.stall.process is not None for one in answers
    )
    if left > 0 and not answered:
        return Hang(asked, agreed.round, again=left)
    lagging, how = _lagging(answers)
    sentence = f"no member has reported for {deadline} s: {how}"
    first = lagging[0].worker if lagging else answers[0].worker
    announced = asked.announced or hung
    events = () if announced else (Event(Reason.HUNG, sentence, warning=True),)
    return Hang(replace(asked, announced=True), agreed.round, sentence, first.pod_key, events=events)


def _answers(
    before: ElasticJobStatus, workers: Iterable[Worker], statuses: Mapping[PodKey, ElasticWorkerStatus]
) -> Iterator[StallAnswer]:
    """The answers of the members that still train, in rank order."""
    agreed = before.rendezvous
    known = {one.member: one for one in workers if one.member is not None and one.pod_key in statuses}
    for member in agreed.participants:
        if member in known and member not in agreed.finished and member not in agreed.finishing:
            status = statuses[known[member].pod_key]
            stall = status.stall if status.stall and status.stall.round == agreed.round else None
            yield StallAnswer(known[member], status, stall)


def _lagging(answers: list[StallAnswer]) -> tuple[list[StallAnswer], str]:
    """The members that lag, and the sentence about them. The states of their processes are the best evidence. Innocent
    ranks may also trail by one step, so only a small minority that trails is evidence."""
    by_state: dict[ProcessState | None, list[StallAnswer]] = {}  # None: its trainer has not answered
    for one in answers:
        if one.stall is not None:
            by_state.setdefault(one.stall.process, []).append(one)
    computing, waiting = by_state.get(ProcessState.COMPUTES, []), by_state.get(ProcessState.WAITS, [])
    found = by_state.get(ProcessState.STOPPED, []) + by_state.get(ProcessState.BLOCKED, [])
    if not found and 0 < len(computing) <= len(waiting):
        found = computing
    silent = by_state.get(None, [])
    if not found and 0 < 2 * len(silent) < len(answers):
        found = silent
    steps = [one.stall.step for one in answers if one.stall and one.stall.step is not None]
    if found:
        return found, _described(found, _does) + _at(steps)
    behind = [one for one in answers if one.stall and one.stall.step is not None and one.stall.step < max(steps)]
    if 0 < 2 * len(behind) < len(steps):
        return behind, _described(behind, _is_at) + f", the others at step {max(steps)}"
    return [], "none of them lags behind the others" + _at(steps)


def _described(those: list[StallAnswer], how: Callable[[StallAnswer], str]) -> str:
    return first_few([f"worker {one.worker.index}{how(one)}{_waits(one)}" for one in those])


def _does(one: StallAnswer) -> str:
    if one.stall is None or one.stall.process is None:
        return "'s trainer does not say what its training processes do"
    of = f" (local rank {one.stall.local_rank})" if one.stall.local_rank else ""
    return f"'s training process{of} {WORDS[one.stall.process]}"


def _is_at(one: StallAnswer) -> str:
    return f" is at step {one.stall.step if one.stall else None}"


def _waits(one: StallAnswer) -> str:
    return "" if one.status.waits is None else f" (it waits {one.status.waits:.0%} of its time)"


def _at(steps: list[int]) -> str:
    if not steps:
        return ""
    low, high = min(steps), max(steps)
    return f"; all at step {low}" if low == high else f"; at steps {low} to {high}"

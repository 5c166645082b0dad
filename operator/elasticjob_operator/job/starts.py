# SPDX-License-Identifier: Apache-2.0
"""Whether a formed round already trains, or its processes are still starting. Pure, and for people: no decision depends
on it.

A training process connects to the round's store when it makes its process group, and rank 0's sidecar sees that. A
script that reports its steps says more: model and checkpoint are loaded before its first step.
"""

from datetime import datetime
from typing import NamedTuple

from elasticjob.api import ElasticWorkerStatus
from elasticjob.rendezvous import Event
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.progress import status_of_first
from elasticjob_operator.job.report import Report

LONGEST_SECONDS = 600.0  # a script may have no process group and report nothing
TRAINING_STARTED = "TrainingStarted"


class StartFound(NamedTuple):
    """What one step finds. `round`: the round. `seconds`: from its forming until it trained, None if unknown. `again`:
    seconds until the next look. `events`: the events to announce."""

    round: int = 0
    starting: bool = False
    seconds: float | None = None
    again: float | None = None
    events: tuple[Event, ...] = ()


UNKNOWN = StartFound()


class Starts(Concern):
    """Whether the round of one job trains."""

    def __init__(self) -> None:
        self._known = UNKNOWN

    def see(self, report: Report) -> Report:
        return report.noting(start_of(report, self._known))

    def after(self, report: Report) -> tuple[Event, ...]:
        self._known = report.of(StartFound)
        return self._known.events

    def again(self, report: Report, now: float) -> float | None:
        return report.of(StartFound).again


def start_of(report: Report, known: StartFound) -> StartFound:
    """Whether the round trains. `known`: the result of the last step."""
    before, round = report.before, report.before.rendezvous.round
    if not before.starting or not before.history or before.history[-1].round != round:
        return StartFound(round)
    if known.round == round and known.seconds is not None:  # announced already, and not written yet
        return known._replace(events=())
    passed = (datetime.fromisoformat(report.now) - datetime.fromisoformat(before.history[-1].time)).total_seconds()
    status = status_of_first(report.view, report.decision.state)
    how = _trains(round, status, reports=before.progress is not None and before.progress.step is not None)
    if how:
        message = f"round {round} trains, {passed:g} s after it was formed: {how}"
        return StartFound(round, seconds=max(0.0, passed), events=(Event(TRAINING_STARTED, message),))
    if passed >= LONGEST_SECONDS:
        return StartFound(round)
    return StartFound(round, starting=True, again=LONGEST_SECONDS - passed)


def _trains(round: int, status: ElasticWorkerStatus | None, *, reports: bool) -> str:
    """The evidence that the round trains; empty while there is none. A job that has reported steps in earlier rounds
    will do so in this one."""
    if status is None:
        return ""
    if status.stepped == round:
        return "its first step is done"
    return "all its processes are in its group" if status.connected == round and not reports else ""

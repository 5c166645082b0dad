# SPDX-License-Identifier: Apache-2.0
"""What one step of a job adds to the operator's metrics, from the status before it and the agreed one. Pure.

A new leader starts with the status that it finds, and counts nothing of it again. What happened without a leader, or
was written by a leader that did not see the answer, is not counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from elasticjob.api import RendezvousStatus
from elasticjob.rendezvous import Clocks, Event
from elasticjob.rendezvous.transitions import ROUND_BROKEN, ROUND_FORMED, ROUND_REOPENED, STAGE_FINISHED
from elasticjob.terms import Loss, Outcome, RendezvousPhase, RoundCause
from elasticjob_operator.job.deadline import Activity
from elasticjob_operator.job.finishing import is_waiting
from elasticjob_operator.job.network import FAULT, says_so
from elasticjob_operator.job.report import Report

FORMING, _, CLOSED = RendezvousPhase


class Metric(StrEnum):
    """What is observed. `metrics` has the Prometheus names."""

    EVENTS = "events"
    ROUNDS_FORMED = "rounds formed"
    ROUNDS_ENDED = "rounds ended"
    WORKERS_LOST = "workers lost"
    PINGED = "workers pinged"
    RESTARTS = "restarts"
    JOBS_ENDED = "jobs ended"
    LASTED = "seconds from a job's start to its end"
    NOTIFIED = "seconds from a cause to the status that tells of it"
    REFORMED = "seconds from a cause to the next round"
    TRAINED = "seconds trained"
    STARTING = "seconds in which processes started"
    FINISHING = "seconds in which containers went on after success"
    LOST = "seconds lost"
    WORKERS_TRAINED = "worker seconds trained"
    WORKERS_WANTED = "worker seconds wanted"


class Measurement(NamedTuple):
    """One observation. `label`: the value of the metric's one label, empty if it has none."""

    metric: Metric
    value: float = 1.0
    label: str = ""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The times of one job, in seconds of the leader's clock. `counted`: up to when its seconds are counted. `caused`:
    when the cause of the last round's end was seen, or the job itself if no round has formed; None if this leader has
    not seen it."""

    counted: float
    caused: float | None = None


def measure(
    report: Report, clocks: Clocks, times: JobTimes, now: float, heard: float | None, announced: Iterable[str] = ()
) -> tuple[list[Measurement], JobTimes]:
    """What the step that made `report` adds, and the times for the next step.

    `clocks`: the clocks before the step. `heard`: when the event that caused the step came in, None if only time has
    passed. `announced`: the reasons of the step's events.
    """
    found = [Measurement(Metric.EVENTS, label=reason) for reason in announced]
    found += _seconds(report, now - times.counted)
    fresh = report.before.term == 0 or (report.suspended and report.before.rendezvous.phase is FORMING)
    times = JobTimes(counted=now, caused=now if fresh else times.caused)
    for event in report.decision.events:
        happened, times = _happened(report, event, clocks, times, now, heard)
        found += happened
    state, before = report.decision.state, report.before
    if state.ping > before.rendezvous.ping.number:
        found.append(Measurement(Metric.PINGED, len(state.pinged)))
    if state.restarts > before.restarts:
        found.append(Measurement(Metric.RESTARTS, state.restarts - before.restarts))
    if state.ended and state.outcome is not before.rendezvous.outcome:
        found.append(Measurement(Metric.JOBS_ENDED, label=str(state.outcome)))
        found += _lasted(report)
    return found, times


def _lasted(report: Report) -> Iterator[Measurement]:
    """The job's duration by the two times in its status. Nothing for a job that was never active."""
    active = report.of(Activity).active
    began = report.before.start_time or (active.since if active else None)
    if began:
        seconds = (datetime.fromisoformat(report.now) - datetime.fromisoformat(began)).total_seconds()
        phase = "Complete" if report.decision.state.outcome is Outcome.COMPLETE else "Failed"
        yield Measurement(Metric.LASTED, max(0.0, seconds), phase)


def _happened(
    report: Report, event: Event, clocks: Clocks, times: JobTimes, now: float, heard: float | None
) -> tuple[list[Measurement], JobTimes]:
    cause = event.cause
    if event.reason == "WorkerLost":
        return [Measurement(Metric.WORKERS_LOST, label=cause)], times
    if event.reason in (ROUND_BROKEN, ROUND_REOPENED, STAGE_FINISHED):
        caused = _caused(report.before.rendezvous, cause, clocks, heard)
        ended = [Measurement(Metric.ROUNDS_ENDED, label=cause)]
        notified = [] if caused is None else [Measurement(Metric.NOTIFIED, max(0.0, now - caused), cause)]
        return ended + notified, replace(times, caused=now if caused is None else caused)
    if event.reason == ROUND_FORMED:
        formed = [Measurement(Metric.ROUNDS_FORMED, label=cause)]
        took = [] if times.caused is None else [Measurement(Metric.REFORMED, max(0.0, now - times.caused), cause)]
        return formed + took, replace(times, caused=None)
    return [], times


def _caused(before: RendezvousStatus, cause: str, clocks: Clocks, heard: float | None) -> float | None:
    """When the cause of the round's end occurred; for an unacked ping, when it was sent."""
    if cause != Loss.UNRESPONSIVE:
        return heard
    known = clocks.pings or {}
    pinged = (known[member] for member in before.participants if member in known)
    return min((one.since for one in pinged if one.acked is None), default=None)


def _seconds(report: Report, elapsed: float) -> Iterator[Measurement]:
    """How the time since the last step was spent. Workers are not wanted by a job that is suspended, has ended, or
    waits for containers that continue after success."""
    before, spec = report.before.rendezvous, report.spec
    closed = before.phase is CLOSED
    if elapsed <= 0 or (closed and before.outcome is not Outcome.CLOSED) or (report.suspended and not closed):
        return
    if is_waiting(report.before):
        yield Measurement(Metric.FINISHING, elapsed)
        return
    if before.phase is FORMING:
        unknown = RoundCause.OTHER if before.reason else RoundCause.FIRST_FORMATION  # or written by an older operator
        yield Measurement(Metric.LOST, elapsed, before.cause or unknown)
    elif says_so(report.before):
        yield Measurement(Metric.LOST, elapsed, FAULT)
    elif report.before.starting:
        yield Measurement(Metric.STARTING, elapsed)
    else:
        yield Measurement(Metric.TRAINED, elapsed)
        yield Measurement(Metric.WORKERS_TRAINED, elapsed * len(before.participants))
    yield Measurement(Metric.WORKERS_WANTED, elapsed * spec.replicas)

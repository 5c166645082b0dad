# SPDX-License-Identifier: Apache-2.0
"""How long a job has been active, and when spec.activeDeadlineSeconds is over. Pure.

A Job of batch/v1 counts from zero again when it is resumed. Here the count continues: otherwise a job that is suspended
again and again would never reach its deadline. The count is kept in the status by wall-clock time, because it has to
outlive the operator.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from elasticjob.api import Active, ElasticJobSpec
from elasticjob.rendezvous import State
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report


class Activity(NamedTuple):
    """What one step finds: the job's activity for the status, None if nothing is known of it."""

    active: Active | None = None


class Deadline(Concern):
    """The activity of one job, and its deadline."""

    def see(self, report: Report) -> Report:
        active = active_of(report.before.active, report.decision.state, report.now, suspended=report.suspended)
        left = left_of(report.spec, active, report.now)
        deadline = None if left is None else report.at + left
        return report.noting(Activity(active), bounds=replace(report.bounds, deadline=deadline))

    def judge(self, report: Report) -> Report:
        active = report.of(Activity).active
        return report.noting(Activity(active_of(active, report.decision.state, report.now, suspended=report.suspended)))


def active_of(before: Active | None, state: State, now: str, *, suspended: bool) -> Active:
    """The activity that follows `before` in the status. A suspension does not stop a closed job's last round."""
    known = before or Active()
    if not state.ended and (not suspended or state.phase is RendezvousPhase.CLOSED):
        return known if known.since else Active(seconds=known.seconds, since=now)
    return Active(seconds=_seconds(known, now))


def left_of(spec: ElasticJobSpec, active: Active, now: str) -> float | None:
    """Seconds until the job has used all of its time. None if it has no deadline, or is not active."""
    if spec.active_deadline_seconds is None or active.since is None:
        return None
    return float(spec.active_deadline_seconds - _seconds(active, now))


def _seconds(active: Active, now: str) -> int:
    """The active seconds so far. A clock that was set back adds nothing."""
    if active.since is None:
        return active.seconds
    passed = datetime.fromisoformat(now) - datetime.fromisoformat(active.since)
    return active.seconds + max(0, passed // timedelta(seconds=1))

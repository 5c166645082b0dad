# SPDX-License-Identifier: Apache-2.0
"""For how long a job has been active, and when spec.activeDeadlineSeconds is over. Pure.

A Job of batch/v1 begins to count anew when it is resumed. Here the count goes on, or a job that makes room for others
again and again would never come to its end. It is kept in the status by wall-clock time, as operators come and go.
"""

from datetime import datetime, timedelta

from elasticjob.api import Active, ElasticJobSpec
from elasticjob.rendezvous import State
from elasticjob.terms import RendezvousPhase


def active_of(before: Active | None, state: State, now: str, *, suspended: bool) -> Active:
    """What the status says after `before`. A suspension does not stop a round that trains on after a `Close`."""
    known = before or Active()
    if not state.ended and (not suspended or state.phase is RendezvousPhase.CLOSED):
        return known if known.since else Active(seconds=known.seconds, since=now)
    return Active(seconds=_seconds(known, now))


def left_of(spec: ElasticJobSpec, active: Active, now: str) -> float | None:
    """Seconds until the job has had all of its time; None where it may have any, or is not active."""
    if spec.active_deadline_seconds is None or active.since is None:
        return None
    return float(spec.active_deadline_seconds - _seconds(active, now))


def _seconds(active: Active, now: str) -> int:
    """A clock that was set back counts nothing."""
    if active.since is None:
        return active.seconds
    passed = datetime.fromisoformat(now) - datetime.fromisoformat(active.since)
    return active.seconds + max(0, passed // timedelta(seconds=1))

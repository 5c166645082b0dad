# SPDX-License-Identifier: Apache-2.0
"""When a new status is written: all sidecars read each, so only what they wait for is urgent. Pure."""

from dataclasses import dataclass

from elasticjob.api import ElasticJobStatus
from elasticjob.objects import Object
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.outcome import Deferred, Retry

AGREED_SECONDS, COUNTERS_SECONDS, PROGRESS_SECONDS = 1.0, 1.0, 5.0
# how many sidecars may read a status in a second: that a member has finished and the like; only counters; only progress
AGREED_A_SECOND, COUNTED_A_SECOND, PROGRESSED_A_SECOND = 256, 64, 16
# what only says how far jobs are: so many statuses in a second are written of all jobs together
PROGRESS_WRITES_A_SECOND = 20
SOON_SECONDS = 1.0  # what is no news waits so long for more


@dataclass(frozen=True, slots=True)
class Due:
    """The status is to be written now."""


def told_by(before: ElasticJobStatus, after: ElasticJobStatus) -> ElasticJobStatus:
    """`after` as far as there is a reason to write it over `before`.

    A new leader's term goes with the next other change while a round stands and nobody is pinged: else each
    take-over would write all statuses at once. Until then a write of the leader before may land, once, as any earlier
    write of it: it was made from the same status. While a round forms, and while acks are awaited, the term keeps
    it out at once; and so does that of another Lease, whose holder is to see it.
    """
    stands = before.rendezvous.phase is not RendezvousPhase.FORMING and before.lease == after.lease
    if stands and not before.rendezvous.ping.members:
        return after.model_copy(update={"term": before.term})
    return after


def progress_seconds(jobs: int) -> float:
    """Between two statuses of a job that only say how far it is; `jobs`: how many the operator has."""
    return max(PROGRESS_SECONDS, jobs / PROGRESS_WRITES_A_SECOND)


def report_seconds(job: Object | None, jobs: int) -> float:
    """Within how many seconds a step looks at a record of which only heartbeat and report are new; `job`: as the API
    server shows it. While a round stands nothing but the progress follows from them: a suspicion
    by heartbeats takes minutes."""
    status = (job or {}).get("status") or {}
    agreed = status.get("rendezvous") or {}
    stands = agreed.get("phase") == RendezvousPhase.FORMED and not status.get("starting")
    if not stands or (agreed.get("ping") or {}).get("members"):
        return SOON_SECONDS
    return max(SOON_SECONDS, jobs / PROGRESS_WRITES_A_SECOND)


def pace_of(
    before: ElasticJobStatus, after: ElasticJobStatus, written: float, differs: float, jobs: int = 1
) -> Due | Deferred | Retry:
    """When `after`, which is not `before`, is written. `written` and `differs`: seconds since the last write, and since
    the first difference to it; `jobs`: how many the operator has. Counters gather for a while, as they come in showers:
    pods start, workers join."""
    if _essence(before) != _essence(after):
        return Due()
    watchers = max(len(after.rendezvous.participants), after.replicas)
    if _agreed(before) != _agreed(after):
        left = max(AGREED_SECONDS, watchers / AGREED_A_SECOND) - written
        return Retry(left) if left > 0 else Due()
    if after.model_copy(update={"progress": before.progress}) != before:
        left = max(COUNTERS_SECONDS, watchers / COUNTED_A_SECOND) - differs
    else:
        left = max(progress_seconds(jobs), watchers / PROGRESSED_A_SECOND) - written
    return Deferred(left) if left > 0 else Due()


def is_due(before: ElasticJobStatus, after: ElasticJobStatus) -> bool:
    """Whether `after` has what somebody waits for, or answers to a spec that `before` does not, whoever writes it."""
    same_term = after.model_copy(update={"term": before.term})
    return _essence(before) != _essence(same_term) or before.observed_generation != after.observed_generation


def _essence(status: ElasticJobStatus) -> tuple[object, ...]:
    """What a trainer, the making of pods, or an ack waits for."""
    agreed = status.rendezvous
    members = (agreed.participants, agreed.leaving, agreed.store)
    return (
        agreed.round,
        agreed.phase,
        agreed.stage,
        agreed.outcome,
        agreed.planned,
        *members,
        agreed.ping,
        status.replacements,
        status.term,
        status.restarts,
        status.node_failures,
    )


def _agreed(status: ElasticJobStatus) -> object:
    """What the rendezvous goes on from."""
    return status.rendezvous.model_copy(update={"waiting": 0})

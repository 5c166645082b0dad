# SPDX-License-Identifier: Apache-2.0
"""When a new status is written. All sidecars read each status, so only what they wait for is urgent. Pure."""

from dataclasses import dataclass

from elasticjob.api import ElasticJobStatus
from elasticjob.objects import Object
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.outcome import Deferred, Retry

AGREED_SECONDS, COUNTERS_SECONDS, PROGRESS_SECONDS = 1.0, 1.0, 5.0
# sidecars that may read a status in a second, if it changes what was agreed; only counters; only progress
AGREED_A_SECOND, COUNTED_A_SECOND, PROGRESSED_A_SECOND = 256, 64, 16
# statuses in a second that only report progress, of all jobs together
PROGRESS_WRITES_A_SECOND = 10
SOON_SECONDS = 1.0  # a change without urgency waits so long for others
JOINS_SECONDS = 0.1  # a join waits so long for the others that the round awaits


@dataclass(frozen=True, slots=True)
class Due:
    """The status is to be written now."""


def without_idle_term(before: ElasticJobStatus, after: ElasticJobStatus) -> ElasticJobStatus:
    """`after`, without the changes for which `before` need not be overwritten.

    While a round stands and no ping is open, a new leader's term is written with the next other change: otherwise each
    take-over would write all statuses at once. Until then one write of the previous leader may still land. That does no
    harm, as with any earlier write of it: it was made from the same status. While a round forms, or while acks are
    awaited, the new term is written at once and keeps the previous leader out. So is the term of another Lease, whose
    holder has to see it.
    """
    stands = before.rendezvous.phase is not RendezvousPhase.FORMING and before.lease == after.lease
    if stands and not before.rendezvous.ping.members:
        return after.model_copy(update={"term": before.term})
    return after


def progress_seconds(jobs: int) -> float:
    """Seconds between two statuses of a job that only report progress. `jobs`: the number of the operator's jobs."""
    return max(PROGRESS_SECONDS, jobs / PROGRESS_WRITES_A_SECOND)


def report_seconds(job: Object | None, jobs: int) -> float:
    """Seconds within which a step has to read a record in which only heartbeat and report are new. `job`: as the API
    server shows it. `jobs`: the number of the operator's jobs. While a round stands, only the progress follows from
    them: a suspicion by heartbeats takes minutes."""
    status = (job or {}).get("status") or {}
    agreed = status.get("rendezvous") or {}
    stands = agreed.get("phase") == RendezvousPhase.FORMED and not status.get("starting")
    if not stands or (agreed.get("ping") or {}).get("members"):
        return SOON_SECONDS
    return max(SOON_SECONDS, jobs / PROGRESS_WRITES_A_SECOND)


def due_of(
    before: ElasticJobStatus, after: ElasticJobStatus, *, written: float, shown: float, differs: float, jobs: int = 1
) -> Due | Deferred | Retry:
    """When to write `after`, which differs from `before`. `written`: seconds since this leader's last write. `shown`:
    seconds since progress was last shown, by any leader. `differs`: seconds since the first difference to `before`.
    `jobs`: the number of the operator's jobs.

    Changes of counters are collected for a while, because they come in bursts: pods start, workers join.
    """
    if _essence(before) != _essence(after):
        return Due()
    watchers = max(len(after.rendezvous.participants), after.replicas)
    if _agreed(before) != _agreed(after):
        left = max(AGREED_SECONDS, watchers / AGREED_A_SECOND) - written
        return Retry(left) if left > 0 else Due()
    if after.model_copy(update={"progress": before.progress}) != before:
        left = max(COUNTERS_SECONDS, watchers / COUNTED_A_SECOND) - differs
    else:
        left = max(progress_seconds(jobs), watchers / PROGRESSED_A_SECOND) - shown
    return Deferred(left) if left > 0 else Due()


def is_due(before: ElasticJobStatus, after: ElasticJobStatus) -> bool:
    """Whether somebody waits for a change in `after`, or it answers a newer spec than `before`. The term does not
    matter."""
    same_term = after.model_copy(update={"term": before.term})
    return _essence(before) != _essence(same_term) or before.observed_generation != after.observed_generation


def _essence(status: ElasticJobStatus) -> tuple[object, ...]:
    """The fields that trainers, the creation of pods, or acks wait for."""
    agreed = status.rendezvous
    members = (agreed.participants, agreed.leaving, agreed.store)
    return (
        agreed.round,
        agreed.phase,
        agreed.stage,
        agreed.outcome,
        agreed.planned,
        agreed.intact,
        agreed.members_ended,
        *members,
        agreed.ping,
        status.replacements,
        status.term,
        status.restarts,
        status.node_failures,
    )


def _agreed(status: ElasticJobStatus) -> object:
    """The fields that the rendezvous continues from."""
    return status.rendezvous.model_copy(update={"waiting": 0})

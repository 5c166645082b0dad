"""When a new status is written: all sidecars read each, so only what they wait for is urgent. Pure."""

from dataclasses import dataclass

from elasticjob.api import ElasticJobStatus
from elasticjob_operator.job.outcome import Deferred, Retry

AGREED_SECONDS, COUNTERS_SECONDS, PROGRESS_SECONDS = 1.0, 1.0, 5.0
# how many sidecars may read a status in a second: that a member has finished and the like; only counters; only progress
AGREED_A_SECOND, COUNTED_A_SECOND, PROGRESSED_A_SECOND = 256, 64, 16


@dataclass(frozen=True, slots=True)
class Due:
    """The status is to be written now."""


def pace_of(
    before: ElasticJobStatus, after: ElasticJobStatus, written: float, differs: float
) -> Due | Deferred | Retry:
    """When `after`, which is not `before`, is written. `written` and `differs`: seconds since the last write, and since
    the first difference to it. Counters gather for a while, as they come in showers: pods start, workers join."""
    if _essence(before) != _essence(after):
        return Due()
    watchers = max(len(after.rendezvous.participants), after.replicas)
    if _agreed(before) != _agreed(after):
        left = max(AGREED_SECONDS, watchers / AGREED_A_SECOND) - written
        return Retry(left) if left > 0 else Due()
    if after.model_copy(update={"progress": before.progress}) != before:
        left = max(COUNTERS_SECONDS, watchers / COUNTED_A_SECOND) - differs
    else:
        left = max(PROGRESS_SECONDS, watchers / PROGRESSED_A_SECOND) - written
    return Deferred(left) if left > 0 else Due()


def is_due(before: ElasticJobStatus, after: ElasticJobStatus) -> bool:
    """Whether `after` has what somebody waits for, or answers to a spec that `before` does not, whoever writes it."""
    same_term = after.model_copy(update={"term": before.term})
    return _essence(before) != _essence(same_term) or before.observed_generation != after.observed_generation


def _essence(status: ElasticJobStatus) -> tuple[object, ...]:
    """What a trainer, the making of pods, or a proof waits for."""
    agreed = status.rendezvous
    members = (agreed.participants, agreed.leaving, agreed.store)
    return (
        agreed.round,
        agreed.phase,
        agreed.stage,
        agreed.outcome,
        agreed.planned,
        *members,
        agreed.challenge,
        status.replacements,
        status.term,
        status.restarts,
        status.node_failures,
    )


def _agreed(status: ElasticJobStatus) -> object:
    """What the rendezvous goes on from."""
    return status.rendezvous.model_copy(update={"waiting": 0})

"""When a new status is written: all sidecars read each, so only what they wait for is urgent. Pure."""

from typing import NamedTuple

from elasticjob.api import ElasticJobStatus

AGREED_SECONDS, COUNTERS_SECONDS, PROGRESS_SECONDS = 1.0, 1.0, 5.0
# how many sidecars may read a status in a second: that a member has finished and the like; only counters; only progress
AGREED_A_SECOND, COUNTED_A_SECOND, PROGRESSED_A_SECOND = 256, 64, 16


class Delay(NamedTuple):
    """Seconds until the status is to be written; `actions_wait`: nothing that follows from it may be done before."""

    seconds: float
    actions_wait: bool


def delay_of(before: ElasticJobStatus, after: ElasticJobStatus, written: float, differs: float) -> Delay:
    """For `after`, which is not `before`. `written` and `differs`: seconds since the last write, and since the first
    difference to it. Counters gather for a while, as they come in showers: pods start, workers join."""
    if _essence(before) != _essence(after):
        return Delay(0.0, True)
    watchers = max(len(after.rendezvous.participants), after.replicas)
    if _agreed(before) != _agreed(after):
        return Delay(max(0.0, max(AGREED_SECONDS, watchers / AGREED_A_SECOND) - written), True)
    if after.model_copy(update={"progress": before.progress}) != before:
        return Delay(max(0.0, max(COUNTERS_SECONDS, watchers / COUNTED_A_SECOND) - differs), False)
    return Delay(max(0.0, max(PROGRESS_SECONDS, watchers / PROGRESSED_A_SECOND) - written), False)


def _essence(status: ElasticJobStatus) -> tuple[object, ...]:
    """What a trainer, or the making of pods, waits for."""
    agreed = status.rendezvous
    members = (agreed.participants, agreed.leaving, agreed.store)
    return (
        agreed.round,
        agreed.phase,
        agreed.outcome,
        agreed.planned,
        *members,
        status.replacements,
        status.term,
        status.restarts,
    )


def _agreed(status: ElasticJobStatus) -> object:
    """What the rendezvous goes on from."""
    return status.rendezvous.model_copy(update={"waiting": 0})

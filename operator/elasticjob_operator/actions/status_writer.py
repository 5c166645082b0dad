"""Writes a job's status, once in a step and before all that follows from it; guarded by resourceVersion and term."""

import time

from elasticjob.api import ElasticJobStatus, LeaseIdentity
from elasticjob_operator import metrics
from elasticjob_operator.cluster.cache import Cache
from elasticjob_operator.cluster.client import Conflict, Kube
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.job.outcome import Agreed, Retry, Unchanged, Written
from elasticjob_operator.job.pace import Due, pace_of
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.status import status_of


class StatusWriter:
    """Of one job."""

    def __init__(self, kube: Kube, cache: Cache, leadership: Leadership) -> None:
        self._kube, self._cache, self._leadership = kube, cache, leadership
        self._written_at = 0.0
        self._differs_at: float | None = None

    async def write(self, report: Report) -> Agreed | Retry:
        """Write the status that `report` makes, if it has changed and it is time."""
        if is_ahead(report.before, self._leadership.term, self._leadership.lease):
            await self._leadership.outgrow(report.before.term)
            return Retry(0.0)
        after, now = status_of(report), time.monotonic()
        if after == report.before:
            self._differs_at = None
            return Unchanged()
        self._differs_at = now if self._differs_at is None else self._differs_at
        pace = pace_of(report.before, after, now - self._written_at, now - self._differs_at)
        if not isinstance(pace, Due):
            return pace
        try:
            written = await self._kube.replace_job_status(report.job, after.dump())
        except Conflict:
            metrics.STATUS_CONFLICTS.inc()
            meta = report.job["metadata"]
            self._cache.note_job(await self._kube.job(meta["namespace"], meta["name"]))
            return Retry(0.0)
        self._cache.note_job(written)
        self._written_at, self._differs_at = time.monotonic(), None
        return Written()


def is_ahead(status: ElasticJobStatus, term: int, lease: LeaseIdentity) -> bool:
    """Whether a write in `term` of `lease` would not fence the writer of `status`: its term is later, or the same, as
    another Lease counted it. CRDs of an older version do not keep which Lease that was."""
    return status.term > term or (status.term == term and status.lease is not None and status.lease != lease)

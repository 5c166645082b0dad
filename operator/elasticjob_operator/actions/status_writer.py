# SPDX-License-Identifier: Apache-2.0
"""Writes a job's status, once in a step and before everything that follows from it. Guarded by resourceVersion and
term."""

import logging
import math
import random
import time

from elasticjob.api import JOB_LEFT, ElasticJobStatus, LeaseIdentity
from elasticjob.kube.errors import Conflict
from elasticjob_operator import metrics
from elasticjob_operator.cluster.cache import Cache
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.job.debounce import Due, due_of, progress_seconds, without_idle_term
from elasticjob_operator.job.outcome import Agreed, Retry, Unchanged, Written
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.rivals import Rivalry
from elasticjob_operator.job.status import status_of

LEFT_SECONDS = 60.0  # between two looks at a job left to another installation
WARN_SECONDS = 1800.0  # the API server keeps an event for an hour

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes the status of one job."""

    def __init__(
        self, kube: Kube, cache: Cache, leadership: Leadership, announcer: Announcer, rivalry: Rivalry
    ) -> None:
        self._kube, self._cache, self._leadership = kube, cache, leadership
        self._announcer, self._rivalry = announcer, rivalry
        self._written_at = -math.inf
        # the previous leader may have shown progress at any time; a take-over must not write that of all jobs at once
        self._begun_at = time.monotonic() - random.uniform(0.0, progress_seconds(len(cache)))
        self._differs_at: float | None = None
        self._warned_at: float | None = None

    async def write(self, report: Report) -> Agreed | Retry:
        """Writes the status made from `report`, if it has changed and is due."""
        after, now = status_of(report), time.monotonic()
        if other := self._rivalry.left_to(self._leadership.lease, report.before, after, now):
            self._warn(report, other, now)
            return Retry(LEFT_SECONDS)
        if is_ahead(report.before, self._leadership.term, self._leadership.lease):
            await self._leadership.outgrow(report.before.term)
            return Retry(0.0)
        if (due_status := without_idle_term(report.before, after)) == report.before:
            self._differs_at = None
            return Unchanged()
        self._differs_at = now if self._differs_at is None else self._differs_at
        due = due_of(
            report.before,
            due_status,
            written=now - self._written_at,
            shown=now - max(self._written_at, self._begun_at),
            differs=now - self._differs_at,
            jobs=len(self._cache),
        )
        if not isinstance(due, Due):
            return due
        try:
            written = await self._kube.replace_job_status(report.job, after.dump())
        except Conflict:
            metrics.STATUS_CONFLICTS.inc()
            meta = report.job["metadata"]
            self._cache.note_job(await self._kube.job(meta["namespace"], meta["name"]))
            return Retry(0.0)
        self._cache.note_job(written)
        self._rivalry.wrote()
        self._written_at = time.monotonic()
        self._differs_at = None
        return Written()

    def _warn(self, report: Report, other: LeaseIdentity, now: float) -> None:
        """Announces that the job is left to the holder of `other`."""
        if self._warned_at is not None and now - self._warned_at < WARN_SECONDS:
            return
        self._warned_at = now
        meta = report.job["metadata"]
        why = (
            f"two installations of ElasticJob look after the namespace {meta['namespace']}: the holder of the Lease "
            f"{other.place} goes on with this job, and that of {self._leadership.lease.place}, which is the younger "
            "Lease, leaves the namespace alone; uninstall one of the two, or keep them apart by the chart's value "
            "namespaces"
        )
        log.warning("%s/%s: %s", meta["namespace"], meta["name"], why)
        self._announcer.announce(report.job, JOB_LEFT, why, warning=True)


def is_ahead(status: ElasticJobStatus, term: int, lease: LeaseIdentity) -> bool:
    """Whether a write in `term` of `lease` would not fence the writer of `status`: the status has a later term, or the
    same term of another Lease. CRDs of an older version do not keep the Lease."""
    return status.term > term or (status.term == term and status.lease is not None and status.lease != lease)

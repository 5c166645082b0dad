# SPDX-License-Identifier: Apache-2.0
"""Deletes an ended job after its time to live."""

from datetime import UTC, datetime

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.report import Report


def expires_in(spec: ElasticJobSpec, status: ElasticJobStatus, now: datetime) -> float | None:
    """Seconds until the job's time to live has run out, 0 or less once it has. None if the job has not ended, or is
    kept."""
    ended = [one for one in status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
    if spec.ttl_seconds_after_finished is None or not ended:
        return None
    age = now - datetime.fromisoformat(ended[0].last_transition_time)
    return spec.ttl_seconds_after_finished - age.total_seconds()


class Expiry:
    """The end of one job."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def keep(self, report: Report) -> Done | LookAgain:
        if not report.decision.state.ended:
            return Done()
        job = report.view.job or report.job  # the newer one
        status = ElasticJobStatus.parse(job.get("status"))
        if (left := expires_in(report.spec, status, datetime.now(UTC))) is None:
            return Done()
        if left > 0:
            return LookAgain(left)
        meta = report.job["metadata"]
        await self._kube.delete_job(meta["namespace"], meta["name"], meta["uid"])
        return Done()

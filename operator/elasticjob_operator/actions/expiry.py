# SPDX-License-Identifier: Apache-2.0
"""Deletes an ended job after its time to live."""

from datetime import UTC, datetime

from elasticjob.api import ElasticJobStatus
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.job.expiry import expires_in
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.report import Report


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

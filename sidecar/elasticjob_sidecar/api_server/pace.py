# SPDX-License-Identifier: Apache-2.0
"""The time between two writes of an ElasticWorker's status. Pure."""

from dataclasses import dataclass, field

from elasticjob.heartbeats import backstop_seconds, record_seconds
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.worker_status import WorkerStatus

SHORTEST_SHARE = 0.75
UNREAD_SECONDS = 60.0  # between two reports, the first of which the job's status does not show yet


@dataclass(slots=True)
class StatusPace:
    """`job_size`, `job_worker_lost`, `job_progress`: the job's values, the last from its status. `quiet`: a round
    stands. `share`: a random share of the time between two heartbeats, so that those of a thousand workers spread."""

    job_size: int = 1
    job_worker_lost: int | None = None
    job_progress: Object = field(default_factory=dict)
    quiet: bool = False
    share: float = 1.0

    def seconds(self, status: WorkerStatus, written: WorkerStatus) -> float:
        """Seconds from the write of `written` to the write of `status`."""
        if self.quiet and not status.has_update(written):
            return backstop_seconds(self.job_size) * self.share
        pace = record_seconds(self.job_size)
        return max(pace, UNREAD_SECONDS) if self.quiet and self._is_unread(status, written) else pace

    def _is_unread(self, status: WorkerStatus, written: WorkerStatus) -> bool:
        """Whether the only change is a new report, and the operator has not shown the last one yet."""
        return status.only_reports(written) and not written.progress.is_in(self.job_progress)

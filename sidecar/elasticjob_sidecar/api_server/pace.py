# SPDX-License-Identifier: Apache-2.0
"""How long a sidecar waits between two writes of its ElasticWorker's status. Pure."""

from dataclasses import dataclass, field

from elasticjob.objects import Object
from elasticjob.signs import backstop_seconds, heartbeat_seconds
from elasticjob_sidecar.api_server.worker_status import WorkerStatus

SHORTEST_SHARE = 0.75
UNREAD_SECONDS = 60.0  # between two reports of which the job's status does not show the first


@dataclass(slots=True)
class Pace:
    """`job_size`, `job_worker_lost`, `job_progress`: as the job has them, the last as its status shows it. `quiet`: a
    round stands. `challenges`: the operator asks who is doubted. `share`: of the time between two heartbeats; those of
    a thousand workers drift apart."""

    job_size: int = 1
    job_worker_lost: int | None = None
    job_progress: Object = field(default_factory=dict)
    quiet: bool = False
    challenges: bool = False
    share: float = 1.0

    def seconds(self, status: WorkerStatus, written: WorkerStatus, worker_lost: float | None) -> float:
        """From the last write, which was of `written`, until that of `status`. `worker_lost`: the silence in seconds
        after which the worker is lost, where its trainer or the job names one."""
        if self.quiet and not status.has_news(written):
            return backstop_seconds(self.job_size) * self.share
        pace = heartbeat_seconds(self.job_size, None if self.challenges else worker_lost)
        return max(pace, UNREAD_SECONDS) if self.quiet and self._is_unread(status, written) else pace

    def _is_unread(self, status: WorkerStatus, written: WorkerStatus) -> bool:
        """Whether there is only another report than the last, which the operator has not taken up yet."""
        return status.only_reports(written) and not written.progress.is_in(self.job_progress)

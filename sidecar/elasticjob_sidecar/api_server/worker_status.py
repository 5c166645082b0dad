# SPDX-License-Identifier: Apache-2.0
"""The status of this sidecar's ElasticWorker, how urgent a change is compared with what the object holds, and the time
between two writes. Pure."""

from dataclasses import dataclass, field, replace

from elasticjob.api import Stall
from elasticjob.heartbeats import backstop_seconds, record_seconds
from elasticjob.objects import Object

Handed = tuple[int | None, int | None]  # round and rank
SHORTEST_SHARE = 0.75
UNREAD_SECONDS = 60.0  # between two reports, the first of which the job's status does not show yet


@dataclass(frozen=True, slots=True)
class ScriptProgress:
    """The last report of the training script."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    waits: float | None = None

    def is_in(self, shown: Object) -> bool:
        """Whether `shown`, the progress in a job's status, is this one."""
        return (self.step, self.total, self.metrics) == (
            shown.get("step"),
            shown.get("total"),
            shown.get("metrics") or {},
        )


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    handed: Handed = (None, None)
    progress: ScriptProgress = ScriptProgress()
    connected: int | None = None  # rank 0: the last round in which all training processes have connected to the store
    stepped: int | None = None  # the last round in which its script has taken a step
    live: int | None = None  # the last round in which all training processes have opted in to live through changes
    stall: Stall | None = None
    imports: str | None = None
    suspects: str = ""  # the members that this worker suspects
    ack: int = 0  # the last ping that it has acked

    def has_urgent_update(self, written: "WorkerStatus") -> bool:
        """Whether `written` lacks a suspicion or an ack: the operator waits for both."""
        return (self.suspects, self.ack) != (written.suspects, written.ack)

    def has_update(self, written: "WorkerStatus") -> bool:
        """Whether `written` lacks a change that must not wait for minutes. Of the reports only rank 0's is one."""
        if (self.handed, self.imports, self.live) != (written.handed, written.imports, written.live):
            return True
        current = (self.progress, self.connected, self.stepped)
        reported = self.handed[1] == 0 and current != (written.progress, written.connected, written.stepped)
        return reported or (self.stall is not None and self.stall != written.stall)

    def only_reports(self, written: "WorkerStatus") -> bool:
        """Whether the script's report is the only change, and an earlier one was written."""
        return written.progress != ScriptProgress() and replace(self, progress=written.progress) == written

    def as_object(self, shown: set[str]) -> Object:
        """A merge patch over a status whose metrics have the names `shown`."""
        forgotten = dict.fromkeys(shown)  # null removes them
        progress, stall = self.progress, self.stall
        status: Object = {
            "round": self.handed[0],
            "rank": self.handed[1],
            "connected": self.connected,
            "stepped": self.stepped,
            "live": self.live,
            "step": progress.step,
            "total": progress.total,
            "metrics": forgotten | progress.metrics if progress.metrics else None,
            "waits": progress.waits,
            "stall": None if stall is None else stall.model_dump(mode="json", by_alias=True),
            "suspects": self.suspects or None,
            "ack": self.ack or None,
        }
        if self.imports is not None:  # otherwise the value of the sidecar before this one still holds
            status["imports"] = self.imports
        return status


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
        seconds = record_seconds(self.job_size)
        return max(seconds, UNREAD_SECONDS) if self.quiet and self._is_unread(status, written) else seconds

    def _is_unread(self, status: WorkerStatus, written: WorkerStatus) -> bool:
        """Whether the only change is a new report, and the operator has not shown the last one yet."""
        return status.only_reports(written) and not written.progress.is_in(self.job_progress)

# SPDX-License-Identifier: Apache-2.0
"""What a sidecar says in the status of its ElasticWorker, and how soon: compared with what the object holds. Pure."""

from dataclasses import dataclass, field, replace

from elasticjob.api import Stall
from elasticjob.objects import Object

Handed = tuple[int | None, int | None]  # round and rank


@dataclass(frozen=True, slots=True)
class Progress:
    """What the training script reported last."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    waits: float | None = None

    def is_in(self, shown: Object) -> bool:
        """Whether `shown`, the progress in a job's status, is this."""
        return (self.step, self.total, self.metrics) == (
            shown.get("step"),
            shown.get("total"),
            shown.get("metrics") or {},
        )


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    handed: Handed = (None, None)
    progress: Progress = Progress()
    connected: int | None = None  # of rank 0, the last round to whose store all training processes have come
    stepped: int | None = None  # the last round in which its script has taken a step
    stall: Stall | None = None
    imports: str | None = None
    doubts: str = ""  # whom this worker doubts
    answer: int = 0  # the last challenge that it has answered

    def owes_word(self, written: "WorkerStatus") -> bool:
        """Whether there is a doubt or an answer that `written` does not have: it is awaited."""
        return (self.doubts, self.answer) != (written.doubts, written.answer)

    def has_news(self, written: "WorkerStatus") -> bool:
        """Whether `written` lacks what is not to wait for minutes: of the reports, rank 0's is the job's."""
        if self.handed != written.handed or self.imports != written.imports:
            return True
        told = (self.progress, self.connected, self.stepped)
        reported = self.handed[1] == 0 and told != (written.progress, written.connected, written.stepped)
        return reported or (self.stall is not None and self.stall != written.stall)

    def only_reports(self, written: "WorkerStatus") -> bool:
        """Whether nothing but the script's report is new, once there was one."""
        return written.progress != Progress() and replace(self, progress=written.progress) == written

    def as_object(self, shown: set[str]) -> Object:
        """A merge patch over a status whose metrics have the names `shown`."""
        forgotten = dict.fromkeys(shown)  # null, or they would stay
        progress, stall = self.progress, self.stall
        status: Object = {
            "round": self.handed[0],
            "rank": self.handed[1],
            "connected": self.connected,
            "stepped": self.stepped,
            "step": progress.step,
            "total": progress.total,
            "metrics": forgotten | progress.metrics if progress.metrics else None,
            "waits": progress.waits,
            "stall": None if stall is None else stall.model_dump(mode="json", by_alias=True),
            "doubts": self.doubts or None,
            "answer": self.answer or None,
        }
        if self.imports is not None:  # else what the sidecar before this one was told still holds
            status["imports"] = self.imports
        return status

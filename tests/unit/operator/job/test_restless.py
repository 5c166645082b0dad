# SPDX-License-Identifier: Apache-2.0
"""Who ends round after round by joining again is replaced, unless it fails or takes steps between."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from elasticjob.api import ElasticWorkerStatus
from elasticjob.rendezvous import Decision
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import RequestCause
from elasticjob_operator.job.restless import Restless
from support.job_on_paper import JobOnPaper
from support.statuses import report


class Job(JobOnPaper):
    """Seen by an operator that marks who is restless; `step_of_0` is how far worker 0's script is."""

    def __init__(self, **spec: object) -> None:
        self.restless, self.step_of_0 = Restless(), 0
        self.lost: list[str] = []
        super().__init__(**spec)

    def step(self) -> Decision:
        for _ in range(2):  # the first write fails
            made = report(self.state, workers=tuple(self.workers.values()), at=self.now)
            seen = self.restless.see(made._replace(observer=cast(Any, self)))
        self.workers = {worker.pod_key: worker for worker in seen.workers}
        decision = super().step()
        self.lost += [event.message for event in decision.events if event.reason == "WorkerLost"]
        return decision

    @property
    def statuses(self) -> Mapping[PodKey, ElasticWorkerStatus]:
        return {worker.pod_key: ElasticWorkerStatus(step=self.step_of_0) for worker in self.workers.values()}

    def come_back(self, cause: RequestCause = RequestCause.MEMBERSHIP_CHANGED, seconds: float = 2) -> None:
        """Worker 0 takes the round for over, and the other joins with it."""
        self.join(0, cause=cause)
        self.join(1, cause=RequestCause.MEMBERSHIP_CHANGED)
        self.wait(seconds, (0, 1))


def started(**spec: object) -> Job:
    job = Job(replicas=2, max_restarts=99, **spec)
    job.up(0, 1)
    return job


def test_the_fourth_round_in_a_minute_is_one_too_many() -> None:
    job = started()
    for _ in range(3):
        job.come_back()
    assert job.lost == []
    job.come_back()
    why = "its trainer has ended 4 rounds within 60 s by joining again, with neither a failure nor a step between"
    assert job.lost == [f"worker 0 lost: its pod failed ({why})"]
    assert (job.state.restarts, job.state.replacements) == (0, {0: 1})


@pytest.mark.parametrize("between", ["a step", "a failure", "time", "another's end"])
def test_no_other_end_of_a_round_has_a_worker_replaced(between: str) -> None:
    job = started()
    for number in range(9):
        job.step_of_0 += between == "a step"
        fails = between == "a failure" and number % 2
        if between == "another's end":
            job.join(1, cause=RequestCause.WORKER_FAILED)
            job.join(0, cause=RequestCause.MEMBERSHIP_CHANGED)
        else:
            job.come_back(
                RequestCause.WORKER_FAILED if fails else RequestCause.MEMBERSHIP_CHANGED, 21 if between == "time" else 2
            )
    assert job.state.round > 8
    assert job.lost == []

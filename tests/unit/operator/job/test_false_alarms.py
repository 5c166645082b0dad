# SPDX-License-Identifier: Apache-2.0
"""Who suspects others again and again without cause is replaced; who loses lines is not."""

import pytest

from elasticjob.rendezvous import Decision
from elasticjob_operator.job.false_alarms import FalseAlarms
from support.job_on_paper import JobOnPaper
from support.statuses import report


class Job(JobOnPaper):
    """Seen by an operator that marks whose suspicions are false."""

    def __init__(self, **spec: object) -> None:
        self.false_alarms = FalseAlarms()
        self.lost: list[str] = []
        super().__init__(**spec)

    def step(self) -> Decision:
        for _ in range(2):  # the first write fails
            seen = self.false_alarms.see(report(self.state, workers=tuple(self.workers.values()), at=self.now))
        self.workers = {worker.pod_key: worker for worker in seen.workers}
        decision = super().step()
        self.lost += [event.message for event in decision.events if event.reason == "WorkerLost"]
        return decision

    def alarm(self, *of: int, mutual: bool = False, answered: bool = True, seconds: float = 1) -> None:
        """Worker 0 suspects those, who are asked, and takes it back."""
        self.suspect(0, *of)
        if mutual:
            self.suspect(of[0], 0)
        if answered:
            self.beat(0, 1, 2)
        self.suspect(0)
        self.suspect(of[0])
        self.wait(seconds, (0, 1, 2))


@pytest.fixture
def job() -> Job:
    made = Job(replicas=3)
    made.up(0, 1, 2)
    return made


def test_the_eleventh_false_alarm_in_a_minute_is_one_too_many(job: Job) -> None:
    for number in range(10):
        job.alarm(1 + number % 2)
    assert job.lost == []
    job.alarm(1)
    why = "its sidecar suspected others 11 times in 60 s, although they acked and heard it"
    assert job.lost == [f"worker 0 lost: its pod failed ({why})"]
    assert (job.state.restarts, job.state.replacements) == (0, {0: 1})


def test_one_worker_causes_so_many_pings_and_no_more(job: Job) -> None:
    """However long it goes on, and whatever its next pod does."""
    before = job.state.ping
    for _ in range(60):
        if job.lost:
            break
        job.alarm(1)
    assert len(job.lost) == 1
    assert job.state.ping - before <= 12


@pytest.mark.parametrize("why", ["mutual", "slow", "at once"])
def test_who_has_cause_or_time_is_left_alone(job: Job, why: str) -> None:
    """A line that is at fault is so at both ends; several that fall silent together are one alarm."""
    for _ in range(15 if why != "at once" else 9):
        job.alarm(*((1, 2) if why == "at once" else (1,)), mutual=why == "mutual", seconds=7 if why == "slow" else 1)
    assert job.lost == []
    assert job.state.ping > 5


def test_who_does_not_answer_is_lost_and_not_who_said_so(job: Job) -> None:
    job.suspect(0, 1)
    job.wait(30, (0, 2))
    assert [message.partition(":")[0] for message in job.lost] == ["worker 1 lost"]

# SPDX-License-Identifier: Apache-2.0
"""Whether members are cut off from rank 0, who is named for it, and that nobody is replaced."""

from typing import Any

import pytest

from elasticjob.api import ElasticJobStatus
from elasticjob.blocker_reasons import Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import PodState
from elasticjob_operator.job.network import FORGET_SECONDS, STANDS_SECONDS, Network, NetworkFaults
from elasticjob_operator.job.sidecars import SidecarTroubles
from support.job_on_paper import JobOnPaper
from support.statuses import report, status

SENTENCE = (
    "pod digits-1-0 does not reach pod digits-0-0 at 10.0.0.1:27601, and both live: a NetworkPolicy, a firewall or the "
    "network between their nodes is in the way of that port"
)


class Job(JobOnPaper):
    """With the operator's memory of the network, the status that it writes, and what it announces."""

    def __init__(self, size: int = 2, **spec: Any) -> None:
        self.faults = NetworkFaults()
        self.before, self.network, self.news = ElasticJobStatus(), Network(), list[str]()
        super().__init__(replicas=size, **spec)
        self.up(*range(size))
        assert self.phase == "1 Formed"

    def step(self) -> Any:
        workers = tuple(self.workers.values())
        seen = self.faults.see(report(self.state, self.before, workers=workers, at=self.now))
        self.network = seen.of(Network)
        self.news += [event.message for event in self.faults.after(seen)]
        self.workers = {one.pod_key: one for one in seen.workers}
        decision = super().step()
        self.workers = {key: one.__class__(**_without_mark(one)) for key, one in self.workers.items()}
        self.before = status(self.state, self.before, facts=[self.network])
        return decision

    def part(self, *of: int) -> None:
        """Rank 0 and these hear nothing of each other."""
        self.suspect(0, *of)
        for index in of:
            self.suspect(index, 0)

    def live(self, seconds: float) -> None:
        """Everybody answers what is asked, and the operator looks when it has meant to."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1)
            self.beat(*{index for index, _ in self.workers})

    @property
    def condition(self) -> str:
        found = next((one for one in self.before.conditions if one.type == "Connected"), None)
        return f"{found.status} {found.reason} {found.message}".strip() if found else ""


def test_a_rank_0_that_says_what_is_wrong_with_its_sidecar_is_no_fault_of_the_network() -> None:
    job = Job()
    job.part(1)
    job.live(STANDS_SECONDS + 1)
    made = report(job.state, job.before, workers=tuple(job.workers.values()), at=job.now)
    trouble = Wait(Reason.SIDECAR_NOT_READY, "")
    found = [job.faults.see(made.noting(SidecarTroubles(waits={(one, 0): trouble}))) for one in (0, 1)]
    assert [one.of(Network).sentence for one in found] == ["", SENTENCE]


def test_before_any_round_nobody_is_cut_off_whatever_records_say() -> None:
    job = JobOnPaper(replicas=3, min_replicas=3)
    job.start(0, 1)
    job.suspect(0, 1)
    workers = tuple(job.workers.values())
    assert any(worker.suspects for worker in workers)
    assert NetworkFaults().see(report(job.state, workers=workers, at=job.now)).of(Network) == Network()


def _without_mark(worker: Any) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in worker.__slots__ if name not in ("member", "cut_off")}


def test_a_suspicion_that_stands_while_all_answer_is_told_once_and_costs_nobody_its_place() -> None:
    job = Job()
    job.part(1)
    job.live(STANDS_SECONDS - 1)
    assert (job.condition, job.before.reason, job.news) == ("", "", [])
    job.live(120)
    assert (job.condition, job.before.reason) == (f"False NetworkFault {SENTENCE}", "NetworkFault")
    assert (job.news, job.phase, job.ranks, "WorkerLost" in job.told) == ([SENTENCE], "1 Formed", [0, 1], False)
    job.suspect(0)
    assert job.condition.startswith("False"), "the other still hears nothing"
    job.suspect(1)
    assert (job.condition, job.before.reason, job.network.again) == ("True Reachable", "", None)


@pytest.mark.parametrize("who", [0, 1])
def test_one_that_suspicion_is_enough(who: int) -> None:
    """A member from rank 4 on does not, once rank 0 was asked; and rank 0's record names so many only."""
    job = Job()
    job.suspect(who, 1 - who)
    job.live(STANDS_SECONDS + 1)
    assert job.condition == f"False NetworkFault {SENTENCE}"


def test_who_does_not_answer_is_lost_and_no_fault_of_the_network() -> None:
    job = Job(min_replicas=1)
    job.part(1)
    for _ in range(60):
        job.now += 1
        job.beat(0)
    assert (job.condition, "WorkerLost" in job.told) == ("", True)


def test_while_nobody_answers_it_may_as_well_be_they() -> None:
    """So no clock of a proof runs, and nobody is lost either."""
    job = Job()
    job.part(1)
    job.wait(2 * STANDS_SECONDS)
    assert (job.condition, "WorkerLost" in job.told) == ("", False)


def test_some_of_many() -> None:
    job = Job(7)
    job.part(1, 2, 4, 5, 6)
    job.live(STANDS_SECONDS + 1)
    assert job.network.sentence.startswith(
        "pods digits-1-0, digits-2-0, digits-4-0 and 2 more do not reach pod digits-0-0 at 10.0.0.1:27601, and all live"
    )


def test_two_that_are_not_rank_0_have_no_line() -> None:
    job = Job(3)
    job.suspect(1, 2)
    job.live(STANDS_SECONDS + 1)
    assert job.network.suspicions == {}


def test_a_suspicion_outlives_rounds_that_end_before_they_can_tell() -> None:
    """The training's own connections fail sooner than 30 s, so that no round stands for so long. Such a failure counts
    until the fault is sure, and then no more."""
    job = Job()
    for _ in range(6):
        job.live(6)
        job.part(1)
        job.live(5)
        job.join(1, cause="WorkerFailed")
        job.rejoin(0)
        job.part()
        job.suspect(1)
    assert (job.state.restarts, job.phase) == (3, "7 Formed")
    assert job.condition == f"False NetworkFault {SENTENCE}"


@pytest.mark.parametrize("stands", [True, False], ids=["a round stands", "none does"])
def test_what_nobody_sees_any_more_is_forgotten(stands: bool) -> None:
    job = Job()
    job.part(1)
    job.live(STANDS_SECONDS + 1)
    job.suspect(0)
    job.join(1, cause="WorkerFailed")
    if stands:
        job.rejoin(0)
    job.suspect(1)
    assert job.condition.startswith("False")
    seen = job.now
    while job.condition.startswith("False"):
        assert job.network.again is not None
        job.now += job.network.again
        job.beat(0, 1)
    assert job.now - seen == pytest.approx(15.04 if stands else FORGET_SECONDS, abs=1)


def test_a_new_operator_goes_on_from_what_the_status_says() -> None:
    job = Job()
    job.part(1)
    job.live(STANDS_SECONDS + 1)
    job.faults = NetworkFaults()
    job.take_over()
    assert (job.condition, job.news) == (f"False NetworkFault {SENTENCE}", [SENTENCE])


def test_while_one_is_cut_off_others_are_once_they_have_been_for_as_long() -> None:
    job = Job(3)
    job.part(1)
    job.live(STANDS_SECONDS + 1)
    job.part(1, 2)
    job.live(STANDS_SECONDS - 1)
    assert job.condition == f"False NetworkFault {SENTENCE}"
    job.live(2)
    assert "pods digits-1-0, digits-2-0 do not reach pod digits-0-0" in job.condition
    assert len(job.news) == 1


def test_another_pod_in_the_place_of_one_that_was_cut_off_begins_anew() -> None:
    job = Job()
    job.part(1)
    job.live(STANDS_SECONDS + 1)
    job.change(1, pod=PodState.FAILED)
    assert job.condition == "True Reachable"

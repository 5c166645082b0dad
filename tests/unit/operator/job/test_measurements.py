# SPDX-License-Identifier: Apache-2.0
"""What a step adds to the metrics; above all that nothing is added twice, by whomever the job is led."""

from dataclasses import replace
from typing import Any

import pytest

from elasticjob.agreed import state_of
from elasticjob.api import ElasticJobStatus
from elasticjob.rendezvous import Clocks, Spec, State
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.finishing import FinishingContainers
from elasticjob_operator.job.measurements import JobTimes, Measurement, Metric, measure
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.status import status_of
from support.job_on_paper import JobOnPaper
from support.statuses import report, status


class Led(JobOnPaper):
    """A job on paper whose status is kept as the operator does, and what its leader has observed."""

    def __init__(self, **spec: Any) -> None:
        self.status, self.times, self.term = ElasticJobStatus(), JobTimes(counted=1000.0), 1
        self.found: list[Measurement] = []
        self.heard: float | None = None
        self.trains = True  # as soon as a round is formed
        super().__init__(**spec)

    def step(self) -> Any:
        clocks = self.state.clocks
        self.state = state_of(self.status, clocks)
        decision = super().step()
        report = self.report(decision)
        found, self.times = measure(report, clocks, self.times, self.now, self.heard)
        self.found += found
        self.status = status_of(report).model_copy(update={"starting": False} if self.trains else {})
        return decision

    def report(self, decision: Any) -> Report:
        ruled: Spec = self.spec
        given: dict[str, Any] = {
            "replicas": ruled.replicas,
            "minReplicas": ruled.min_replicas,
            "suspend": ruled.suspend,
        }
        given["maxRestarts"], workers = ruled.max_restarts, tuple(self.workers.values())
        made = report(decision.state, self.status, spec=given, workers=workers, decision=decision, term=self.term)
        return FinishingContainers().judge(made)

    def new_leader(self) -> None:
        self.term += 1
        self.state = replace(self.state, clocks=Clocks(opened=self.now, formed=self.now))
        self.times, self.found = JobTimes(counted=self.now), []

    def sums(self, *without: Metric) -> dict[tuple[Metric, str], float]:
        found: dict[tuple[Metric, str], float] = {}
        for metric, value, label in self.found:
            if metric not in without:
                found[metric, label] = round(found.get((metric, label), 0) + value, 3)
        return found


TIMES = (Metric.TRAINED, Metric.LOST, Metric.WORKERS_TRAINED, Metric.WORKERS_WANTED)


def led(size: int = 2, **spec: Any) -> Led:
    world = Led(replicas=size, **spec)
    world.now += 5
    world.up(*range(size))
    assert world.phase == "1 Formed"
    return world


def test_the_first_round_is_counted_from_the_job_on() -> None:
    assert led().sums(*TIMES) == {(Metric.ROUNDS_FORMED, "FirstFormation"): 1, (Metric.REFORMED, "FirstFormation"): 5}


def test_a_loss_and_the_next_round() -> None:
    world = led()
    world.found.clear()
    world.heard = world.now + 9.5
    world.now += 10
    world.delete(1)
    world.heard = None
    world.now += 2
    world.rejoin(0)
    world.up(1)
    assert world.sums(*TIMES) == {
        (Metric.WORKERS_LOST, "PodDeleted"): 1,
        (Metric.ROUNDS_ENDED, "PodDeleted"): 1,
        (Metric.NOTIFIED, "PodDeleted"): 0.5,
        (Metric.ROUNDS_FORMED, "PodDeleted"): 1,
        (Metric.REFORMED, "PodDeleted"): 2.5,
    }


def test_a_missing_answer_is_told_of_from_the_question_on() -> None:
    world = led(worker_lost=20)
    world.found.clear()
    world.suspect(0, 1)
    world.beat(0)
    world.now += 10
    world.step()
    sums = world.sums(*TIMES)
    assert (sums[Metric.PINGED, ""], sums[Metric.WORKERS_LOST, "Unresponsive"]) == (2, 1)
    assert sums[Metric.NOTIFIED, "Unresponsive"] == 10


def test_where_only_time_has_passed_nobody_knows_when_it_began() -> None:
    world = led()
    world.found.clear()
    world.spoil(1)
    world.wait(20, living=(0,))
    assert (Metric.ROUNDS_ENDED, "InvalidRecord") in world.sums()
    assert Metric.NOTIFIED not in {metric for metric, _ in world.sums()}


def test_seconds_are_trained_or_lost() -> None:
    world = led(2)
    world.found.clear()
    world.wait(30, living=(0, 1))
    world.delete(1)
    world.wait(4, living=(0,))
    world.rejoin(0)
    world.up(1)
    world.wait(6, living=(0, 1))
    assert world.sums() | {(Metric.TRAINED, ""): 36, (Metric.LOST, "PodDeleted"): 4} == world.sums()
    assert world.sums()[Metric.WORKERS_TRAINED, ""] == 72
    assert world.sums()[Metric.WORKERS_WANTED, ""] == 80


def test_a_round_whose_processes_start_does_not_train() -> None:
    world = led(2)
    world.trains = False
    world.delete(1)
    world.rejoin(0)
    world.up(1)
    world.found.clear()
    world.now += 10
    world.trains = True
    world.step()
    world.now += 5
    world.step()
    assert world.sums() == {
        (Metric.STARTING, ""): 10,
        (Metric.TRAINED, ""): 5,
        (Metric.WORKERS_TRAINED, ""): 10,
        (Metric.WORKERS_WANTED, ""): 30,
    }


def test_a_round_whose_pods_do_not_reach_each_other_does_not_train() -> None:
    world = led(2)
    world.status = status(world.state, world.status, facts=[Network(sentence="a pod does not reach rank 0's")])
    world.found.clear()
    world.now += 10
    world.step()
    assert world.sums() == {(Metric.LOST, "NetworkFault"): 10, (Metric.WORKERS_WANTED, ""): 20}


def test_what_containers_do_after_success_is_no_training_and_nothing_wanted() -> None:
    world = led(2)
    world.succeed(0, 1)
    world.found.clear()
    world.now += 10
    world.join(0, stage=2)
    assert world.sums() == {
        (Metric.FINISHING, ""): 10,
        (Metric.ROUNDS_ENDED, "NextStage"): 1,
    }
    world.now += 20
    world.join(1, stage=2)
    formed = {(Metric.ROUNDS_FORMED, "NextStage"): 1, (Metric.REFORMED, "NextStage"): 20}
    assert world.sums() == {(Metric.FINISHING, ""): 30, (Metric.ROUNDS_ENDED, "NextStage"): 1} | formed


def test_a_smaller_group_trains_less_than_is_wanted() -> None:
    world = Led(replicas=3, min_replicas=1)
    world.up(0, 1)
    world.change(2, pod="unschedulable")
    world.found.clear()
    world.now += 10
    world.step()
    assert world.sums() == {
        (Metric.TRAINED, ""): 10,
        (Metric.WORKERS_TRAINED, ""): 20,
        (Metric.WORKERS_WANTED, ""): 30,
    }


def test_a_suspended_job_loses_nothing_and_comes_back_as_fast_as_it_comes_back() -> None:
    world = led()
    world.suspend(True)
    world.found.clear()
    for _ in range(10):
        world.now += 100
        world.step()
    assert world.sums() == {}
    world.suspend(False)
    world.now += 3
    world.up(0, 1)
    assert world.sums()[Metric.REFORMED, "Resumed"] == 3


@pytest.mark.parametrize("moment", ["formed", "forming", "before the first round"])
def test_a_new_leader_counts_no_history(moment: str) -> None:
    world = Led(replicas=2) if moment == "before the first round" else led()
    if moment == "forming":
        world.delete(1)
    world.new_leader()
    world.step()
    world.step()
    assert world.sums() == {}
    world.now += 7
    if moment == "formed":
        world.step()
        assert set(world.sums()) == {(Metric.TRAINED, ""), (Metric.WORKERS_TRAINED, ""), (Metric.WORKERS_WANTED, "")}
        return
    world.up(0, 1)
    cause = "PodDeleted" if moment == "forming" else "FirstFormation"
    assert world.sums(*TIMES) == {(Metric.ROUNDS_FORMED, cause): 1}  # how long it took is known to nobody


def test_restarts_and_the_end_are_counted_once() -> None:
    world = led(1, max_restarts=1)
    world.found.clear()
    for _ in range(2):
        world.join(0, cause="WorkerFailed")
        world.step()
    assert world.state.ended
    world.now += 50
    world.step()
    assert world.sums()[Metric.RESTARTS, ""] == 2
    assert world.sums()[Metric.JOBS_ENDED, "Failed"] == 1
    assert (Metric.TRAINED, "") not in world.sums()


@pytest.mark.parametrize(("outcome", "phase"), [("Complete", "Complete"), ("RendezvousTimeout", "Failed")])
def test_how_long_a_job_has_lasted_is_told_at_its_end_alone(outcome: str, phase: str) -> None:
    began, now = "2026-01-02T03:04:05Z", "2026-01-03T03:04:06Z"
    ended = State(clocks=Clocks(opened=0, formed=0), phase=RendezvousPhase.CLOSED, outcome=Outcome(outcome))

    def lasted(before: ElasticJobStatus) -> list[Measurement]:
        made = report(ended, before, now=now)
        found, _ = measure(made, ended.clocks, JobTimes(0.0), 1.0, None)
        return [one for one in found if one.metric is Metric.LASTED]

    started = ElasticJobStatus(start_time=began)
    assert lasted(started) == [Measurement(Metric.LASTED, 86401.0, phase)]
    assert lasted(ElasticJobStatus()) == [], "it was never active"
    told = started.model_copy(update={"rendezvous": started.rendezvous.model_copy(update={"outcome": ended.outcome})})
    assert lasted(told) == []


def test_reasons_of_events_are_counted_as_they_were_announced() -> None:
    world = led()
    decision = JobOnPaper.step(world)
    found, _ = measure(world.report(decision), world.state.clocks, world.times, world.now, None, ["ImagePull"])
    assert found == [Measurement(Metric.EVENTS, label="ImagePull")]

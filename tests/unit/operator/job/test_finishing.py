# SPDX-License-Identifier: Apache-2.0
"""What people read while containers go on after their torchrun has ended in success."""

from dataclasses import replace

from elasticjob.api import ElasticJobStatus, RoundRecord
from elasticjob.rendezvous import Member, Request, State, Worker
from elasticjob.rendezvous.model import Finishing as Clock
from elasticjob.terms import RendezvousPhase, RequestType
from elasticjob_operator.job.finishing import FinishingContainers, FinishingFound
from elasticjob_operator.job.gauges import gauges_of
from elasticjob_operator.job.status import status_of
from support.job_on_paper import JobOnPaper, formed
from support.operator_objects import job
from support.statuses import NOW, report

LATER = "2026-01-02T03:05:05Z"
UNTIL = "until 2026-01-02T04:04:05Z at most (spec.finishSeconds is 3600)"


def told(world: JobOnPaper, before: ElasticJobStatus | None = None, now: str = NOW) -> ElasticJobStatus:
    """The status of the job as it is now."""
    before, workers = before or ElasticJobStatus(), tuple(world.workers.values())
    spec = {"replicas": world.spec.replicas, "maxRestarts": world.spec.max_restarts}
    made = report(world.state, before, spec=spec, workers=workers, now=now)
    return status_of(FinishingContainers().judge(made))


def finishing(status: ElasticJobStatus) -> tuple[str, str, str] | None:
    found = next((one for one in status.conditions if one.type == "Finishing"), None)
    return found and (found.status, found.reason, found.message)


def test_while_others_train_nothing_is_said_of_a_container_that_goes_on() -> None:
    world = formed(2)
    world.succeed(0)
    found = told(world)
    assert (finishing(found), found.reason) == (None, "")


def test_the_containers_that_a_job_waits_for_are_named_with_the_limit_and_when_it_ends() -> None:
    world = formed(2)
    world.succeed(0, 1)
    at_first = told(world, ElasticJobStatus(history=[RoundRecord(round=1, size=2, cause="x", seconds=0.0, time=NOW)]))
    known = at_first.model_copy(update={"starting": True})
    later = told(world, known, LATER)
    message = f"torchrun has ended in success in all 2 workers, and the containers of workers 0, 1 go on, {UNTIL}"
    assert finishing(at_first) == finishing(later) == ("True", "ContainersRun", message)
    assert (later.phase, later.reason, later.starting) == ("Running", "Finishing", False)
    assert [one.succeeded for one in later.history] == [0.0]
    world.exit(0)
    world.exit(1)
    after = told(world, later, LATER)
    assert finishing(after) == ("False", "NothingAwaited", "")
    assert after.phase == "Complete"


def test_who_is_waited_for_between_two_stages_is_named() -> None:
    world = formed(2)
    world.succeed(0, 1)
    world.join(0, stage=2)
    found = told(world)
    message = (
        "stage 2 waits for the next torchrun of each worker, and the container of worker 1 goes on without one, "
        f"{UNTIL}"
    )
    assert finishing(found) == ("True", "ContainersRun", message)
    assert (found.phase, found.reason) == ("Forming", "Finishing")
    world.join(1, stage=2)
    assert finishing(told(world, found)) == ("False", "NothingAwaited", "")


def test_a_container_that_fails_after_success_is_told_with_its_exit_code_and_how_often_it_may() -> None:
    world = formed(2, max_restarts=2)
    world.succeed(0)
    for crashes, may in ((1, "failed after"), (2, "failed 2 times after")):
        world.change(0, crashes=crashes, detail="exit code 3")
        left = {1: "it may fail once more", 2: "with the next such failure the job has failed"}[crashes]
        message = (
            f"worker 0's container {may} its torchrun had ended in success (exit code 3) and is started again: {left} "
            "(spec.maxRestarts is 2)"
        )
        assert finishing(told(world)) == ("False", "ContainerFailed", message)
    world.succeed(1)
    status, reason, both = finishing(told(world)) or ("", "", "")
    assert (status, reason) == ("True", "ContainerFailed")
    assert both.endswith(f"{UNTIL}; {message}")


def test_of_many_the_first_few_are_named() -> None:
    world = formed(6)
    world.succeed(*range(6))
    for index in range(6):
        world.change(index, crashes=1)
    _, _, message = finishing(told(world)) or ("", "", "")
    assert "the containers of workers 0, 1, 2 and 3 more go on" in message
    assert message.count("'s container failed after") == 3
    assert message.endswith("; and 3 more")


def test_each_failure_of_a_container_is_news_once() -> None:
    member = Member(0, "a")
    asked = Request(type=RequestType.FINISH)
    worker = Worker(index=0, id="a", crashes=2, request=asked)
    clocks = replace(formed(1).state.clocks, finishing={member: Clock(1, None)})
    state = State(clocks=clocks, phase=RendezvousPhase.FORMED, participants=(member,))
    containers, made = FinishingContainers(), report(state, workers=(worker,))
    first, again = (containers.judge(made) for _ in range(2))  # the status could not be written
    assert first == again
    assert [(one.reason, one.warning) for one in containers.after(again)] == [("ContainerFailed", True)]
    later = containers.judge(made)
    assert (containers.after(later), later.of(FinishingFound).failed) == ((), first.of(FinishingFound).failed)


def test_no_minimum_is_missed_while_containers_upload() -> None:
    """An alert goes by it."""
    world = formed(2)
    world.succeed(0, 1)
    world.join(0, stage=2)
    body = job(minReplicas=2) | {"status": told(world).dump()}
    assert [gauges_of(body).numbers[name] for name in ("world_size", "min_replicas")] == [0, 0]


def test_who_is_finishing_is_missed_no_more_than_who_has_finished() -> None:
    status = {"phase": "Forming", "rendezvous": {"round": 2, "finishing": "0/a", "finished": "1/b"}}
    assert gauges_of(job(minReplicas=4) | {"status": status}).numbers["min_replicas"] == 2

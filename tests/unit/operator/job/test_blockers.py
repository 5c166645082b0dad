# SPDX-License-Identifier: Apache-2.0
"""What keeps a job from its full size, as data: who is named, since when, in which order, and how little it takes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from elasticjob.agreed import limited
from elasticjob.api import Blocker, ElasticJobSpec, ElasticJobStatus, Member
from elasticjob.blocker_reasons import ORDER, Reason
from elasticjob.blockers import MAX_BLOCKERS, OTHERS
from elasticjob.reading.waits import KINDS, Wait
from elasticjob.rendezvous import PodState, State, Worker
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.debounce import due_of
from elasticjob_operator.job.evictions import Budget, Protection
from elasticjob_operator.job.finishing import FinishingFound
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.outcome import Deferred
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.refusal_messages import refused
from elasticjob_operator.job.stalls import Hang
from support.operator_objects import ID
from support.statuses import CLOCKS, FORMED, NOW, status

LATER = "2026-01-02T03:09:05Z"
FORMING = State(clocks=CLOCKS)
STUCK = Wait(Reason.UNSCHEDULABLE, "Unschedulable: 0/3 nodes")
STARTS = Wait(Reason.POD_STARTING, "its pod is being set up")


def names(found: ElasticJobStatus) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.reason, one.workers) for one in found.blockers]


def test_each_cause_is_there_once_with_all_workers_that_it_keeps_the_worst_first() -> None:
    found = status(FORMING, waits={0: STARTS, 2: STUCK, 3: STUCK, 7: STUCK, 9: STUCK._replace(message="no GPU")})
    assert names(found) == [("Unschedulable", (2, 3, 7)), ("Unschedulable", (9,)), ("PodStarting", (0,))]
    stuck, _, starts = found.dump()["blockers"]
    assert stuck == {
        "reason": "Unschedulable",
        "workers": "2-3 7",
        "count": 3,
        "spares": False,
        "since": NOW,
        "message": "Unschedulable: 0/3 nodes",
        "remedy": "make room or add nodes, or request less in the template",
        "passes": False,
    }
    assert starts["passes"]


def test_how_often_a_trainer_was_started_again_makes_no_other_cause() -> None:
    crashes = {index: Wait(Reason.TRAINER_CRASHES, "exit code 1", crashes=index) for index in range(3)}
    assert names(status(FORMING, waits=crashes)) == [("TrainerCrashes", (0, 1, 2))]


@pytest.mark.parametrize(
    ("changes", "reason", "object", "passes"),
    [
        ({"problem": "name one trainer"}, "TemplateInvalid", "ElasticJob/digits", False),
        ({"refusal": refused("exceeded quota: full")}, "QuotaExceeded", "ResourceQuota/full", False),
        (
            {"refusal": refused("status unknown for quota: new, resources: pods")},
            "QuotaExceeded",
            "ResourceQuota/new",
            False,
        ),
        ({"facts": [Allowance(1, message="1 of 2 workers wait for quota")]}, "QuotaPending", "", True),
        ({"facts": [Allowance(1, message="no such queue", refused=True)]}, "QuotaPending", "", False),
        ({"facts": [Protection(Budget.OPEN)]}, "DrainGraceOver", "", True),
        ({"budget_problem": "no"}, "BudgetRefused", "PodDisruptionBudget/digits-worker", False),
        ({"facts": [Hang(sentence="none lags")]}, "ProgressDeadlineExceeded", "", False),
        (
            {"facts": [Hang(sentence="none lags")], "spec": {"hangPolicy": "Restart"}},
            "ProgressDeadlineExceeded",
            "",
            True,
        ),
        ({"facts": [FinishingFound(failed="worker 0's container failed")]}, "ContainerFailed", "", False),
        ({"facts": [FinishingFound(waits=True, sentence="worker 0's goes on")]}, "Finishing", "", True),
    ],
)
def test_what_keeps_the_whole_job_names_no_worker(changes: Any, reason: str, object: str, passes: bool) -> None:
    (found,) = status(FORMED, **changes).blockers
    assert (found.reason, found.object, found.passes, found.workers) == (reason, object, passes, ())
    assert found.message


def test_who_does_not_reach_rank_0_is_named_by_index() -> None:
    workers = tuple(Worker(index=index, id=id) for index, id in ((1, "b"), (0, "a")))
    network = Network(sentence="pod digits-0-0 does not reach pod digits-1-0", cut_off=frozenset({(0, 0)}))
    (found,) = status(FORMED, facts=[network], workers=workers).blockers
    assert (found.reason, found.object, found.workers) == ("NetworkFault", "Pod/digits-1-0", (0,))


def test_workers_without_quota_are_counted_though_nobody_knows_which_they_will_be() -> None:
    spec = {"replicas": 4, "maxReplicas": 4, "spareReplicas": 1}
    (some,) = status(FORMED, spec=spec, facts=[Allowance(3, message="2 of 5 workers wait for quota")]).blockers
    (none,) = status(FORMING, spec=spec, facts=[Allowance(suspends=True, message="5 workers wait")]).blockers
    assert (some.count, none.count, some.workers) == (2, 5, ())


def test_what_is_said_of_quota_stays_while_nobody_can_see_it() -> None:
    """Else each pod that comes or goes would be another status."""
    spec = {"replicas": 4, "maxReplicas": 4}
    before = status(FORMED, spec=spec, facts=[Allowance(3)])
    assert status(FORMED, before, spec=spec, facts=[Allowance(2, unknown=True)]).admitted == before.admitted
    assert status(FORMED, before, spec=spec, facts=[Allowance(4)]).admitted is None
    unseen = Allowance(1, unknown=True, message="the Workloads cannot be seen")
    smaller = status(FORMED, before, spec={"replicas": 2}, facts=[unseen])
    assert [one.count for one in smaller.blockers] == [0], "it was scaled down meanwhile"
    assert smaller.admitted is not None
    assert limited(ElasticJobSpec.parse({"replicas": 2, "template": {}}), smaller.admitted).replicas == 2


def test_records_that_make_no_sense_are_told_by_what_is_wrong() -> None:
    workers = tuple(Worker(index=index, invalid="spec.id is no id" if index < 2 else "spec.job") for index in range(4))
    assert names(status(FORMING, workers=workers)) == [("InvalidRecord", (0, 1)), ("InvalidRecord", (2, 3))]


def test_who_has_not_said_a_word_is_told_while_a_round_forms() -> None:
    workers = tuple(Worker(index=index, pod=PodState.RUNNING) for index in range(2))
    (found,) = status(FORMING, workers=workers).blockers
    assert (found.reason, found.workers) == ("NotJoined", (0, 1))
    assert "no torchrun of worker 0, 1 has spoken to its sidecar" in found.message
    trouble = {index: Wait(Reason.SIDECAR_NOT_READY, "no access") for index in range(2)}
    assert names(status(FORMING, workers=workers, waits=trouble)) == [("SidecarNotReady", (0, 1))]


@pytest.mark.parametrize(
    ("state", "spec"),
    [
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.FAILED), {}),
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.CLOSED), {}),
        (FORMING, {"suspend": True}),
    ],
    ids=["ended", "closed", "suspended"],
)
def test_who_wants_no_workers_is_kept_from_none(state: State, spec: Any) -> None:
    assert status(state, waits={2: STUCK}, problem="no", spec=spec).blockers == ()


def test_a_cause_keeps_its_time_whatever_is_said_of_it_and_whoever_else_it_keeps() -> None:
    before = status(FORMING, waits={2: STUCK})
    for waits in ({2: STUCK._replace(message="0/4 nodes")}, {2: STUCK, 3: STUCK}, {1: STUCK, 2: STUCK}):
        assert [one.since for one in status(FORMING, before, waits=waits, now=LATER).blockers] == [NOW]
    for wait in ({3: STUCK}, {2: STARTS}, {2: STUCK._replace(spare=True)}, {2: STUCK._replace(object="Node/a")}):
        assert [one.since for one in status(FORMING, before, waits=wait, now=LATER).blockers] == [LATER]


def test_one_that_stays_keeps_its_place_before_those_that_come_later() -> None:
    before = status(FORMING, waits={5: STUCK})
    after = status(FORMING, before, waits={5: STUCK, 1: STUCK._replace(message="another")}, now=LATER)
    assert names(after) == [("Unschedulable", (5,)), ("Unschedulable", (1,))]
    again = status(FORMING, after, waits={1: STUCK._replace(message="another"), 5: STUCK}, now="2026-01-02T04:00:00Z")
    assert again.blockers == after.blockers


def test_of_more_causes_than_a_status_keeps_the_rest_is_counted() -> None:
    waits = {index: STUCK._replace(message=f"reason {index}") for index in range(MAX_BLOCKERS + 4)}
    *shown, rest = status(FORMING, waits=waits).blockers
    assert len(shown) == MAX_BLOCKERS
    assert (rest.reason, rest.count, rest.workers) == (OTHERS, 4, (16, 17, 18, 19))
    assert rest.message == "4 more causes keep 4 workers away"


@pytest.mark.parametrize(
    ("message", "most"),
    [("{:04}", 8 * 1024), ("{:04}" + "x" * 296, 16 * 1024), ("the same", 512)],
    ids=["short", "long", "one cause"],
)
def test_what_4096_workers_wait_for_stays_small(message: str, most: int) -> None:
    """Each for a cause of its own, or every other one for the same."""
    waits = {2 * index: Wait(Reason.IMAGE_PULL, message.format(index)) for index in range(4096)}
    if message == "the same":
        waits[1] = STUCK
    found = status(FORMING, waits=waits)
    text = json.dumps(found.dump()["blockers"])
    assert sum(one.count for one in found.blockers) == len(waits)
    assert len(text) < most + 512 * (message == "the same")
    assert ElasticJobStatus.parse(found.dump()) == found


def test_a_change_of_whom_a_cause_keeps_is_written_at_the_pace_of_counters() -> None:
    before = status(FORMING, waits={2: STUCK})
    after = before.model_copy(update={"blockers": status(FORMING, waits={2: STUCK, 3: STUCK}).blockers})
    assert due_of(before, after, written=100, shown=100, differs=0) == Deferred(1)


@pytest.mark.parametrize("worst", [reason for reason in Reason if reason in KINDS])
def test_the_first_of_the_pods_causes_is_the_one_in_the_column_reason(worst: Reason) -> None:
    """`status.reason` while a round stands, and `status.blockers`, are of one mind."""
    waits = {index: Wait(reason, "so it is") for index, reason in enumerate(KINDS) if ORDER[reason] >= ORDER[worst]}
    found = status(FORMED, waits=waits)
    assert found.reason == found.blockers[0].reason == worst


@pytest.mark.parametrize("text", ["1-", "a", "3-2", "2 1", "-1", "1--2", "99999", "1  2", "1-2-3", 5, None, ("a",)])
def test_indices_in_another_form_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="indices are written as numbers or first-last"):
        Blocker(reason="A", since=NOW, workers=text)


@pytest.mark.parametrize("text", ["", "0", "0-1", "0 2-5 7", " ".join(str(2 * index) for index in range(32))])
def test_indices_are_read_as_they_were_written(text: str) -> None:
    found = Blocker(reason="A", since=NOW, workers=text)
    assert found.dump().get("workers", "") == text
    assert len(Blocker(reason="A", since=NOW, workers=tuple(range(0, 200, 2))).workers) == 32


def test_a_member_whose_node_drains_is_told_with_its_node() -> None:
    draining = Wait(Reason.NODE_DRAINING, "its node b is draining", object="Node/b")
    members = (Member(0, ID),)
    found = status(replace(FORMED, participants=members), waits={0: draining})
    assert [(one.object, one.passes) for one in found.blockers] == [("Node/b", True)]

# SPDX-License-Identifier: Apache-2.0
"""The status that people and sidecars read."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from elasticjob.agreed import state_of
from elasticjob.api import Active, ElasticJobStatus
from elasticjob.blocker_reasons import Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Failures, Matched, Member, PodState, Request, Spec, State, Worker
from elasticjob.terms import Outcome, PolicyAction, RendezvousPhase, RequestType, RoundCause
from elasticjob_operator.job.absent import waits_of
from elasticjob_operator.job.deadline import Activity
from elasticjob_operator.job.evictions import Budget, Protection
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.refusal_messages import refused
from support.operator_objects import JOB_UID
from support.statuses import CLOCKS, FORMED, NOW, status

QUOTA = refused("exceeded quota: small")


def condition(status: ElasticJobStatus, type: str) -> Any:
    return next(one for one in status.conditions if one.type == type)


def test_a_state_survives_the_way_through_the_status() -> None:
    assert state_of(ElasticJobStatus.parse(status(FORMED).dump()), CLOCKS) == FORMED


def test_a_failure_that_waits_survives_it_too() -> None:
    waits = replace(FORMED, phase=RendezvousPhase.FORMING, store=None, failure="worker 0's processes failed")
    matched = Matched(2, PolicyAction.IGNORE, "it says so")
    waits = replace(waits, replaced=(Member(1, "b"),), matched=matched, live=(0, 1), restart_round=1)
    waits = replace(waits, planned=True, intact=True)
    assert state_of(ElasticJobStatus.parse(status(waits).dump()), CLOCKS) == waits


LATER = "2026-01-02T05:00:00Z"


def test_when_the_job_was_first_active_and_when_it_was_complete() -> None:
    waits = status(FORMED, facts=[Activity(Active())])
    assert (waits.start_time, waits.completion_time) == (None, None)
    runs = status(FORMED, waits, facts=[Activity(Active(since=NOW))])
    again = status(FORMED, runs, facts=[Activity(Active(seconds=60, since=LATER))], now=LATER)
    assert (again.start_time, again.completion_time) == (NOW, None)
    complete = status(ended(Outcome.COMPLETE), again, facts=[Activity(Active(seconds=60))], now=LATER)
    assert (complete.start_time, complete.completion_time) == (NOW, LATER)
    assert status(ended(Outcome.COMPLETE), complete, now=NOW).completion_time == LATER


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMEOUT, Outcome.CLOSED])
def test_a_job_that_is_not_complete_has_no_time_of_it(outcome: Outcome) -> None:
    assert status(ended(outcome)).completion_time is None


def ended(outcome: Outcome) -> State:
    return replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=outcome)


@pytest.mark.parametrize("state", [State(clocks=CLOCKS), FORMED], ids=["new", "formed"])
def test_the_status_holds_nothing_that_is_empty(state: State) -> None:
    """People read `kubectl describe`: a line without a value says nothing."""
    assert list(empty(status(state).dump())) == []


def empty(value: Any, path: str = "status") -> Iterator[str]:
    if value in ("", {}, []) and not path.endswith(".message"):  # which each condition has to have
        yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from empty(one, f"{path}.{key}")


def test_an_empty_status_is_the_first_round_forming() -> None:
    assert state_of(ElasticJobStatus(), CLOCKS) == State(clocks=CLOCKS)


def test_a_formed_round_is_running_and_rendezvoused() -> None:
    found = status(FORMED)
    assert (found.phase, found.rendezvous.world_size, found.term) == ("Running", 2, 5)
    assert condition(found, "Rendezvoused").status == "True"
    assert found.selector == f"elasticjob.io/job=digits,elasticjob.io/job-uid={JOB_UID}"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (FORMED, True),
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.CLOSED), True),
        (replace(FORMED, restarted_at=NOW), False),
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.COMPLETE), False),
    ],
    ids=["a member has finished", "closed", "done", "ended"],
)
def test_that_a_restart_is_not_done_is_told(state: State, told: bool) -> None:
    message = condition(status(state, spec={"restartedAt": NOW}), "Rendezvoused").message
    assert (f"no restart is done for spec.restartedAt {NOW}, as the round" in message) is told
    assert "no restart" not in condition(status(state), "Rendezvoused").message


def test_that_the_budget_is_refused_is_told_and_holds_nobody_up() -> None:
    found = status(FORMED, budget_problem="the PodDisruptionBudget is refused")
    told = condition(found, "Rendezvoused")
    assert (found.phase, found.reason, told.status) == ("Running", "", "True")
    assert told.message.endswith("; the PodDisruptionBudget is refused")


NO_IMAGE = Wait(Reason.IMAGE_PULL, "ErrImagePull: no such image: nowhere/x")
STARTING = Wait(Reason.POD_STARTING, "no scheduler has placed its pod yet")


def test_what_holds_the_group_up_is_in_the_condition_and_its_word_in_the_column() -> None:
    found = status(State(clocks=CLOCKS), waits={0: STARTING, 2: NO_IMAGE, 7: NO_IMAGE})
    told = condition(found, "Rendezvoused")
    assert (found.phase, found.reason, told.status, told.reason) == ("Pending", "ImagePull", "False", "ImagePull")
    assert "; workers 2, 7: ErrImagePull: no such image: nowhere/x; name an image that" in told.message


NEVER_SPOKE = tuple(Worker(index=index, id=f"{index}") for index in range(2))
SILENT = "; no torchrun of worker 0, 1 has spoken to its sidecar"
STARTED = {(0, 0): "2026-01-02T03:00:00Z", (1, 0): "2026-01-02T03:01:30Z"}


def waits(workers: tuple[Worker, ...], **clocks: float) -> str:
    state = State(clocks=replace(CLOCKS, **clocks))
    observer, spec = SimpleNamespace(started=STARTED), {"replicas": len(workers), "minReplicas": 2}
    found = status(state, workers=workers, observer=observer, spec=spec)
    return str(condition(found, "Rendezvoused").message)


def test_that_nobody_has_spoken_is_told_with_the_limit_and_when_it_ends() -> None:
    told = waits(NEVER_SPOKE, all_running=7)
    limit = "the job fails at 2026-01-02T04:01:30Z (spec.rendezvous.startTimeoutSeconds is 3600)"
    assert told == f"0 of 2 workers have joined (at least 2 must){SILENT}: {limit}"


def test_while_pods_are_to_come_the_limit_does_not_run() -> None:
    told = waits((*NEVER_SPOKE, Worker(index=2, pod=PodState.PENDING)))
    assert told.endswith(f"{SILENT}: once the other pods run it has 3600 s (spec.rendezvous.startTimeoutSeconds)")


def test_where_enough_have_joined_no_limit_is_told_for_who_has_not_spoken() -> None:
    join = Request(type=RequestType.JOIN)
    joined = [Worker(index=index, id=f"{index}", request=join) for index in range(2)]
    assert waits((*joined, Worker(index=2, id="2"))).endswith("; no torchrun of worker 2 has spoken to its sidecar")


def test_who_has_spoken_is_not_named() -> None:
    left = Request(type=RequestType.LEAVE, cause="AgentLost")
    assert "torchrun" not in waits(tuple(replace(worker, request=left) for worker in NEVER_SPOKE), all_spoke=7)


def test_the_worst_comes_first() -> None:
    waits = {index: Wait(Reason.UNSCHEDULABLE, f"0/{index} nodes") for index in range(9)} | {9: NO_IMAGE}
    message = condition(status(State(clocks=CLOCKS), waits=waits), "Rendezvoused").message
    assert message.split("; ")[1] == "worker 9: ErrImagePull: no such image: nowhere/x"


def test_of_many_that_wait_for_the_same_the_first_few_are_named() -> None:
    found = status(State(clocks=CLOCKS), waits=dict.fromkeys(range(1000), NO_IMAGE))
    assert "; workers 0, 1, 2 and 997 more: ErrImagePull" in condition(found, "Rendezvoused").message


def test_who_waits_for_quota_is_counted() -> None:
    queued = Wait(Reason.QUOTA_PENDING, "in the queue gpus")
    found = status(FORMED, waits={2: queued, 3: queued}, spec={"replicas": 4, "maxReplicas": 4})
    assert (found.phase, found.reason) == ("Running", "QuotaPending")
    message = condition(found, "Rendezvoused").message
    assert "; 2 of 4 workers wait for quota: in the queue gpus; its queue has no room" in message


def test_a_gang_without_quota_waits_for_it_and_nothing_else() -> None:
    found = status(State(clocks=CLOCKS), facts=[Allowance(suspends=True, message="4 workers wait for quota")])
    told = condition(found, "Rendezvoused")
    assert (found.phase, found.reason) == ("Pending", "QuotaPending")
    assert (told.status, told.reason, told.message) == ("False", "QuotaPending", "4 workers wait for quota")


def test_a_gang_that_trains_with_less_quota_says_so() -> None:
    allowance = Allowance(2, message="2 of 4 workers wait for quota")
    found = status(FORMED, facts=[allowance], spec={"replicas": 4, "maxReplicas": 4})
    told = condition(found, "Rendezvoused")
    assert (found.phase, found.reason, told.status) == ("Running", "QuotaPending", "True")
    assert told.message.endswith("; 2 of 4 workers wait for quota")
    forming = replace(FORMED, phase=RendezvousPhase.FORMING, store=None)
    message = condition(status(forming, facts=[allowance], spec={"replicas": 4}), "Rendezvoused").message
    assert message.startswith("0 of 1 workers have joined"), "one of the two has finished, and two are not wanted"


def test_a_group_that_trains_without_somebody_says_why() -> None:
    found = status(FORMED, waits={2: NO_IMAGE})
    assert (found.phase, found.reason) == ("Running", "ImagePull")
    assert "; worker 2: ErrImagePull" in condition(found, "Rendezvoused").message
    starting = status(FORMED, waits={2: STARTING})
    assert starting.reason == "PodStarting"
    assert "; worker 2: no scheduler has placed its pod yet; if it" in condition(starting, "Rendezvoused").message


@pytest.mark.parametrize(
    ("state", "changes", "word"),
    [
        (State(clocks=CLOCKS), {}, "InsufficientMembers"),
        (State(clocks=CLOCKS), {"problem": "name one so"}, "TemplateInvalid"),
        (State(clocks=CLOCKS), {"refusal": QUOTA, "waits": {0: STARTING}}, "QuotaExceeded"),
        (State(clocks=CLOCKS), {"workers": (Worker(index=0, invalid="spec.id is no id"),)}, "InvalidRecord"),
        (State(clocks=CLOCKS), {"spec": {"suspend": True}, "waits": {0: STARTING}}, "Suspended"),
        (FORMED, {}, ""),
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.COMPLETE), {}, "AllFinished"),
        (replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.TIMEOUT), {}, "RendezvousTimeout"),
    ],
)
def test_every_wait_and_end_has_a_word(state: State, changes: dict[str, Any], word: str) -> None:
    assert status(state, **changes).reason == word


def test_a_place_that_is_held_back_says_why() -> None:
    failures = {1: Failures(1, 1, 0.0, "its pod failed"), 2: Failures(3, 3, 0.0, "no room in /dev/shm")}
    clocks = replace(CLOCKS, failures=failures)
    found = waits_of(Spec(replicas=4), State(clocks=clocks), (Worker(index=0),), {})
    assert found == {2: Wait(Reason.POD_BACK_OFF, "its pods failed 3 times in a row: no room in /dev/shm")}
    assert status(State(clocks=clocks), waits=found).reason == "PodBackOff"


def test_a_spare_that_cannot_come_is_told_while_the_others_train() -> None:
    no_room, joined = Wait(Reason.UNSCHEDULABLE, "0/3 nodes are available"), Request(type=RequestType.JOIN, after=3)
    members = (Worker(index=1, replacement=2, id="b"), Worker(index=0, id="a"))
    absent, there = Worker(index=2, pod=PodState.UNSCHEDULABLE), Worker(index=4, id="e", request=joined)
    seen = {(2, 0): no_room, (4, 0): no_room}
    state = replace(FORMED, leaving=(), finished=())
    found = waits_of(Spec(replicas=2, spares=2), state, (*members, absent, there), seen)
    assert found == {2: no_room._replace(spare=True)}
    told = status(state, waits=found)
    assert (told.phase, told.reason) == ("Running", "Unschedulable")
    assert "; spare 2: 0/3 nodes are available; make room" in condition(told, "Rendezvoused").message
    found = waits_of(Spec(replicas=2, spares=2), state, (*members, absent, there), {(2, 0): STARTING})
    assert found == {2: STARTING._replace(spare=True)}


JOINED = Request(type=RequestType.JOIN, after=3)
LEFT = Request(type=RequestType.LEAVE, cause="AgentLost")
FINISHED = Request(type=RequestType.FINISH, round=3)
OF_EARLIER = Request(type=RequestType.JOIN, after=1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, "its trainer runs, and no torchrun has spoken to its sidecar"),
        (LEFT, "its torchrun has left (AgentLost), and none has joined since"),
        (FINISHED, "its torchrun of stage 1 has ended in success, and the next one has not begun"),
        (OF_EARLIER, "its torchrun has not joined again yet"),
    ],
    ids=["never", "left", "between stages", "joined before"],
)
@pytest.mark.parametrize("spare", [False, True])
def test_who_runs_and_has_not_joined_is_named_while_a_round_stands(
    asked: Request | None, said: str, *, spare: bool
) -> None:
    members = (Worker(index=1, replacement=2, id="b"), Worker(index=0, id="a"))
    state, absent = replace(FORMED, leaving=(), finished=()), Worker(index=2, id="c", request=asked)
    bounds = Spec(replicas=2, spares=1) if spare else Spec(replicas=3)
    found = waits_of(bounds, state, (*members, absent), {})
    assert found == {2: Wait(Reason.NOT_JOINED, said, spare=spare)}
    told = status(state, waits=found)
    whose = "spare" if spare else "worker"
    assert (told.phase, told.reason) == ("Running", "NotJoined")
    assert f"; {whose} 2: {said}; if it lasts, the log" in condition(told, "Rendezvoused").message
    there = replace(absent, request=JOINED)
    assert waits_of(bounds, replace(state, spares=int(spare)), (*members, there), {}) == {}


def test_a_worker_or_spare_without_a_pod_is_named_while_a_round_stands() -> None:
    members = (Worker(index=1, replacement=2, id="b"), Worker(index=0, id="a"))
    state = replace(FORMED, leaving=(), finished=())
    found = waits_of(Spec(replicas=3, spares=1), state, members, {})
    missing = Wait(Reason.POD_MISSING, "its pod is about to be made")
    assert found == {2: missing, 3: missing._replace(spare=True)}


def test_who_stops_the_last_rounds_processes_is_named_while_the_next_forms() -> None:
    """And the reason is still that too few have joined."""
    state = replace(FORMED, phase=RendezvousPhase.FORMING, round=4, store=None, leaving=(), finished=())
    workers = (Worker(index=1, replacement=2, id="b", request=Request(type=RequestType.JOIN, after=2)),)
    found = waits_of(Spec(replicas=2), state, workers, {})
    assert found == {1: Wait(Reason.NOT_JOINED, "its torchrun has not joined again yet")}
    assert status(state, workers=workers, waits=found).reason == "InsufficientMembers"


def test_a_record_that_makes_no_sense_is_told_in_its_own_condition_only() -> None:
    members = (Worker(index=1, replacement=2, id="b"), Worker(index=0, id="a"))
    state = replace(FORMED, leaving=(), finished=())
    assert waits_of(Spec(replicas=3), state, (*members, Worker(index=2, invalid="no id")), {}) == {}


def test_nobody_waits_for_a_spare_while_a_round_forms() -> None:
    there, absent = Worker(index=0, id="a"), Worker(index=1, pod=PodState.UNSCHEDULABLE)
    seen = {(1, 0): Wait(Reason.UNSCHEDULABLE, "0/3 nodes are available")}
    assert waits_of(Spec(replicas=1, spares=1), State(clocks=CLOCKS), (there, absent), seen) == {}


def joined(index: int, after: int, **more: Any) -> Worker:
    return Worker(index=index, id="abcdef"[index], request=Request(type=RequestType.JOIN, after=after), **more)


def test_who_comes_for_a_member_whose_node_drains_is_no_replica_more() -> None:
    """Else an autoscaler that goes by an average would ask for more."""
    members = (Member(0, "a"), Member(1, "b"))
    state = State(clocks=CLOCKS, round=3, phase=RendezvousPhase.FORMED, participants=members, replicas=2)
    workers = (joined(0, 2), joined(1, 2, draining=True), Worker(index=2, pod=PodState.PENDING))
    found = status(state, workers=workers, ready=[(0, 0), (1, 0), (2, 0)])
    assert (found.replicas, found.ready_replicas) == (2, 2)
    forming = replace(state, round=4, phase=RendezvousPhase.FORMING, leaving=members[1:], replacements={1: 1})
    assert status(forming, workers=(*workers[:2], joined(2, 3))).replicas == 2


def test_that_workers_may_be_evicted_is_told_once_the_grace_is_over() -> None:
    told = (
        "round 3 (2 workers): scaled from 1 to 2; its pods may be evicted: a draining node has used up "
        "spec.drain.graceSeconds, 300 s"
    )
    assert condition(status(FORMED, facts=[Protection(Budget.OPEN)]), "Rendezvoused").message.startswith(told)


@pytest.mark.parametrize(
    ("waiting", "done", "said"),
    [
        (1, (), "; 1 worker waits: the next larger size that spec.sizes allows is 6"),
        (2, (), "; 2 workers wait: the next larger size that spec.sizes allows is 6"),
        (3, (), ""),  # enough for a larger round
        (0, (), ""),
        (1, (Member(7, "h"),), ""),  # any size will do
    ],
)
def test_that_somebody_waits_as_no_round_may_be_so_large_is_told(
    waiting: int, done: tuple[Member, ...], said: str
) -> None:
    members = tuple(Member(index, "abc"[index]) for index in range(3))
    state = State(clocks=CLOCKS, round=3, phase=RendezvousPhase.FORMED, participants=members, replicas=3, reason="x")
    state = replace(state, waiting=waiting, finished=done)
    found = status(state, spec={"replicas": 6, "sizes": {"step": 3}})
    assert condition(found, "Rendezvoused").message == f"round 3 (3 workers): x{said}"


def test_a_bad_template_is_a_condition() -> None:
    found = condition(status(FORMED, problem="name one so"), "TemplateValid")
    assert (found.status, found.message) == ("False", "name one so")


def test_a_refused_pod_is_in_the_condition() -> None:
    found = condition(status(State(clocks=CLOCKS), refusal=QUOTA), "Rendezvoused")
    assert found.message.endswith("a pod cannot be made: exceeded quota: small")


def test_complete_and_failed() -> None:
    done = replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.COMPLETE)
    assert (status(done).phase, condition(status(done), "Complete").status) == ("Complete", "True")
    late = replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.TIMEOUT)
    assert (status(late).phase, condition(status(late), "Failed").reason) == ("Failed", "RendezvousTimeout")


def test_an_end_by_the_policy_for_failures_has_its_word() -> None:
    ended = replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.FAILED, reason="rule 0 says FailJob")
    found = status(replace(ended, cause=RoundCause.POD_FAILURE_POLICY))
    told = condition(found, "Failed")
    assert (found.phase, found.reason) == ("Failed", "PodFailurePolicy")
    assert (told.status, told.reason, told.message) == ("True", "PodFailurePolicy", "rule 0 says FailJob")


def test_a_transition_keeps_its_time_until_the_next() -> None:
    first = status(FORMED)
    second = status(replace(FORMED, reason="another"), before=first, now="2026-01-02T04:00:00Z")
    assert condition(second, "Rendezvoused").last_transition_time == NOW
    third = status(replace(FORMED, phase=RendezvousPhase.FORMING), before=second, now="2026-01-02T05:00:00Z")
    assert condition(third, "Rendezvoused").last_transition_time == "2026-01-02T05:00:00Z"


def test_resume_takes_the_suspended_condition_back() -> None:
    first = status(FORMED, spec={"suspend": True})
    assert (first.phase, condition(first, "Suspended").status) == ("Suspended", "True")
    assert condition(status(FORMED, before=first), "Suspended").status == "False"


def test_a_closed_round_that_trains_to_its_end_is_not_suspended() -> None:
    closing = replace(FORMED, phase=RendezvousPhase.CLOSED, outcome=Outcome.CLOSED)
    found = status(closing, before=status(FORMED, spec={"suspend": True}), spec={"suspend": True})
    assert (found.phase, condition(found, "Rendezvoused").reason) == ("Running", "Closed")
    assert (condition(found, "Suspended").status, condition(found, "Suspended").reason) == ("False", "Closed")


def test_an_invalid_record_is_a_condition_until_it_is_mended() -> None:
    assert all(one.type != "WorkersValid" for one in status(FORMED).conditions)
    bad = Worker(index=4, invalid="spec.id is no id")
    first = status(FORMED, workers=(bad,))
    found = condition(first, "WorkersValid")
    assert (found.status, found.reason, found.message) == ("False", "InvalidRecord", "worker 4: spec.id is no id")
    assert condition(status(FORMED, before=first), "WorkersValid").status == "True"


def test_of_many_invalid_records_the_first_few_are_shown() -> None:
    bad = tuple(Worker(index=index, invalid="spec.id is no id") for index in reversed(range(4, 1000)))
    message = condition(status(FORMED, workers=bad), "WorkersValid").message
    assert message.startswith("worker 4: spec.id is no id; worker 5:")
    assert message.endswith("; and 993 more")


def test_history_keeps_the_last_five_rounds() -> None:
    found = ElasticJobStatus()
    for number in range(1, 13):
        found = status(replace(FORMED, round=number), before=found, formed_after=0.25)
    assert [record.round for record in found.history] == list(range(8, 13))
    assert found.history[-1].dump() == {
        "round": 12,
        "size": 2,
        "cause": "Scaled",
        "reason": "scaled from 1 to 2",
        "counted": False,
        "seconds": 0.25,
        "time": NOW,
    }


@pytest.mark.parametrize(
    ("id", "most"), [("{:032x}", 64 * 1024), ("9f3c01d2.0", 2 * 1024)], ids=["each made by itself", "made at once"]
)
def test_how_large_the_status_of_a_thousand_members_is(id: str, most: int) -> None:
    members = tuple(Member(index, id.format(index)) for index in range(1024))
    text = status(replace(FORMED, participants=members)).model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) < most

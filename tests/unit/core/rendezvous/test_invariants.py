# SPDX-License-Identifier: Apache-2.0
"""Each check of the invariants can fail: a row is a step that breaks one rule, and what the check says of it."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticjob.rendezvous import (
    Clocks,
    Decision,
    Event,
    Failures,
    Matched,
    Member,
    PodState,
    Request,
    Spec,
    State,
    Worker,
)
from elasticjob.rendezvous.model import Beat, Pinged
from elasticjob.rendezvous.step import NO_PLAN
from elasticjob.terms import Outcome, PolicyAction, RendezvousPhase, RequestCause, RequestType, RoundCause
from oracle import history, invariants, live, stages, violations
from oracle.evidence import Step

FORMING, FORMED, CLOSED = RendezvousPhase
JOIN, LEAVE, FINISH, CLOSE = RequestType
A, B, C, D = Member(0, "a"), Member(1, "b"), Member(2, "c"), Member(3, "d")
X = Member(1, "x")  # another id of b's sidecar

new = State(clocks=Clocks(opened=0, formed=0))
formed = replace(new, round=2, phase=FORMED, participants=(A, B), store="a:1", reason="worker 1 lost", restarts=1)
forming = replace(formed, round=3, phase=FORMING, store=None, reason="worker 0 lost")
again = replace(formed, round=3)
stage_2 = replace(forming, stage=2)
waits = replace(forming, failure="worker 0's processes failed")
closing = replace(formed, phase=CLOSED, outcome=Outcome.CLOSED)
complete = replace(formed, phase=CLOSED, outcome=Outcome.COMPLETE, finished=(A, B))
failed = replace(formed, phase=CLOSED, outcome=Outcome.FAILED, restarts=2)
overdue = replace(failed, restarts=1, cause=RoundCause.DEADLINE_EXCEEDED)
timeout = replace(forming, phase=CLOSED, outcome=Outcome.TIMEOUT)

RULE = Matched(1, PolicyAction.FAIL_JOB, "it matches")
IGNORES, COUNTS = (RULE._replace(action=action) for action in (PolicyAction.IGNORE, PolicyAction.COUNT))

DISORDER = "the free ranks of round 3 are out of order: survivors as they were, then newcomers by index"
MOVED = "worker {} stays in round 3, and has lost its rank {}"
NO_END = "a failure was counted, and no round was formed, nor has the job failed"
GIVEN_UP = "workers {} of the last round were given up while a failure waits, and {} are noted"
NO_ROUND = "the members changed, and no round was formed"

HISTORY = {
    history.rounds_count_up: [
        (forming, formed, "the round went from 3 to 2"),
        (formed, replace(formed, round=4), "the round went from 2 to 4"),
        (forming, replace(forming, round=4), "round 4 was opened while round 3 was Forming"),
        (formed, replace(forming, round=2), "round 2 forms a second time"),
    ],
    history.told_once: [
        (formed, replace(formed, participants=(A,)), NO_ROUND),
        (formed, replace(forming, participants=()), NO_ROUND),
        (formed, replace(formed, replicas=3), NO_ROUND),
        (formed, replace(formed, restarted_at="noon"), "a restart was taken for done, and no round was formed"),
        (forming, replace(timeout, participants=()), NO_ROUND),
        (formed, replace(closing, participants=(A,)), NO_ROUND),
        (formed, replace(formed, store="b:1"), "the store of round 2 changed"),
        (formed, replace(closing, store=None), "the store of round 2 changed"),
        (formed, replace(forming, store="a:1"), "round 3 has a store before it is formed"),
    ],
    history.ranks_are_stable: [
        (forming, replace(again, participants=()), "round 3 was formed of nobody"),
        (forming, replace(again, participants=(A, B, X)), "an index has two ranks in round 3"),
        (forming, replace(again, participants=(A, C, B)), MOVED.format(1, 1)),
        (formed, replace(again, participants=(C, A)), MOVED.format(0, 0)),
        (formed, replace(again, participants=(A, C, X)), DISORDER),
        (replace(forming, participants=(X, A, C)), replace(again, participants=(D, C)), DISORDER),
    ],
    history.no_victims: [
        (replace(forming, leaving=(B,)), again, "worker 1 was told to leave, and is in round 3"),
        (formed, replace(again, leaving=(B,)), "worker 1 was told to leave, and is in round 3"),
        (forming, replace(again, finished=(B,)), "worker 1 has finished, and is in round 3"),
    ],
    history.replaced_for_good: [
        (replace(formed, replacements={1: 2}), formed, "the replacements of worker 1 fell from 2 to 0"),
        (formed, replace(formed, finished=(B,), replacements={1: 1}), "worker 1 has finished, and was replaced"),
        (formed, replace(forming, leaving=(B,)), "worker 1 was told to leave, and was not given up"),
    ],
    history.finished_once: [
        (replace(formed, finished=(B,)), formed, "a finished worker was forgotten"),
        (formed, replace(formed, finished=(B, X)), "an index has finished twice"),
        (formed, replace(formed, stage=3), "the stage went from 1 to 3"),
        (replace(formed, stage=2), formed, "the stage went from 2 to 1"),
    ],
    history.one_failure_a_round: [
        (formed, replace(again, restarts=3), "2 failures were counted at once"),
        (formed, replace(formed, restarts=2), NO_END),
        (formed, replace(forming, restarts=2), NO_END),
        (waits, replace(waits, restarts=2), NO_END),
        (formed, replace(closing, restarts=2), NO_END),
        (forming, replace(again, restarts=2), "a failure was counted, and none waited"),
        (formed, replace(forming, restarts=0), "the failures were reset, and no formed round stood"),
        (replace(formed, restarts=2), formed, "the failures fell from 2 to 1"),
    ],
    history.failures_wait: [
        (waits, replace(again, failure=waits.failure), "a failure waits, and round 3 is Formed"),
        (waits, replace(timeout, failure=waits.failure), "a failure waits, and round 3 is Closed"),
        (waits, replace(waits, failure="another"), "another failure was noted while round 3 was forming"),
        (forming, waits, "another failure was noted while round 3 was forming"),
        (formed, replace(waits, replacements={1: 1}), GIVEN_UP.format([1], [])),
        (replace(waits, replaced=(B,)), waits, GIVEN_UP.format([1], [])),
        (waits, replace(waits, replaced=(B,)), GIVEN_UP.format([], [1])),
        (replace(waits, replaced=(B,)), replace(again, replaced=(B,)), GIVEN_UP.format([], [1])),
    ],
    history.rules_go_with_failures: [
        (forming, replace(forming, matched=RULE), "rule 1 matches, and no failure waits"),
        (replace(waits, matched=RULE), waits, "rule 1 has matched, and None is noted"),
        (
            replace(waits, matched=RULE),
            replace(waits, matched=RULE._replace(rule=2)),
            "rule 1 has matched, and 2 is noted",
        ),
    ],
    history.planned_while_forming: [
        (formed, replace(formed, intact=True), "an end is planned, and round 2 is Formed"),
        (forming, replace(forming, intact=True), "the end before round 3 became planned while that was forming"),
        (
            replace(forming, planned=True, intact=True),
            replace(forming, planned=True),
            "the end before round 3 is planned, and a member may be lost",
        ),
    ],
    history.closed_with_an_outcome: [
        (formed, replace(formed, phase=CLOSED), "the rendezvous is Closed, and its outcome is None"),
        (formed, replace(complete, phase=FORMED), "the rendezvous is Formed, and its outcome is Complete"),
        (formed, replace(complete, finished=()), "Complete, and nobody has finished"),
        (formed, replace(complete, finished=(A,), finishing=(B,)), "Complete, and containers go on"),
        (closing, replace(complete, finished=(A,)), "Complete after a Close, and workers [1] have not finished"),
        (formed, failed, "Failed, and round 2 was formed"),
        (formed, replace(timeout, round=2), "RendezvousTimeout, and round 2 was not forming"),
        (closing, replace(timeout, round=2), "RendezvousTimeout, and round 2 was not forming"),
        (forming, replace(closing, round=3), "Closed, and round 3 was not formed before"),
    ],
    history.pings_count_up: [
        (formed, replace(formed, ping=2, pinged=(A,)), "the ping went from 0 to 2"),
        (replace(formed, ping=1, pinged=(A,)), formed, "the ping went from 1 to 0"),
        (formed, replace(formed, pinged=(A,)), "ping 0 asks others than before"),
        (formed, replace(formed, ping=1), "ping 1 asks nobody"),
    ],
    history.closed_is_final: [
        (complete, again, "the closed rendezvous became round 3, Formed"),
        (closing, replace(complete, round=3), "the closed rendezvous became round 3, Closed"),
        (complete, replace(complete, waiting=1), "something changed after the end (Complete)"),
        (complete, replace(complete, outcome=Outcome.FAILED), "something changed after the end (Complete)"),
        (formed, replace(formed, members_ended=True), "all members have ended, and round 2 is Formed"),
        (replace(closing, members_ended=True), closing, "members that have ended train again"),
    ],
    history.changes_have_a_reason: [
        (forming, replace(again, reason=""), "round 3 became Formed without a reason"),
        (closing, replace(failed, reason=""), "round 2 became Closed without a reason"),
    ],
}


def worker(member: Member, ask: RequestType = JOIN, cause: str = "", after: int = 1, **facts: Any) -> Worker:
    """A worker as it is in round 2: its last word is the join that was made after round 1."""
    known = {"heartbeat": 7, "request": Request(type=ask, after=after, cause=cause), **facts}
    return Worker(index=member.index, id=member.id, address=f"{member.id}:1", **known)


def joins(member: Member, cause: str = RequestCause.MEMBERSHIP_CHANGED, **facts: Any) -> Worker:
    """A worker that joins after round 2."""
    return worker(member, cause=cause, after=2, **facts)


def step(before: State, after: State, *workers: Worker, told: str = "", **spec: Any) -> Step:
    """A step of a job of two workers, of which one failure more ends it; `told` is its event."""
    known = Spec(**{"replicas": 2, "max_restarts": 1, **spec})
    return Step(known, before, workers, Decision(after, events=(Event(told, ""),)))


def at(one: Worker, *topology: str) -> Worker:
    return replace(one, topology=topology)


def pings(state: State, *open_pings: Pinged, pinged: tuple[Member, ...] = (A, B)) -> State:
    """`state` in which its members were asked so by ping 1, and were last heard before that."""
    known = dict(zip(pinged, open_pings, strict=False))
    beats = {member: Beat(7, 0) for member in state.participants}
    return replace(state, ping=1, pinged=pinged, clocks=replace(new.clocks, pings=known, beats=beats))


def after_failures(before_any_round: int) -> State:
    """The job has failed, and before that the pods of index 1 so often."""
    failures = {1: Failures(before_any_round, before_any_round, 0.0, "its pod failed")}
    return replace(ended, clocks=replace(new.clocks, failures=failures))


def lives(member: Member) -> Worker:
    """A worker that joins after round 2 with the processes that it has."""
    return replace(
        worker(member), request=Request(type=JOIN, after=2, cause=RequestCause.MEMBERSHIP_CHANGED, live=True)
    )


def next_stage(member: Member) -> Worker:
    return replace(worker(member), request=Request(type=JOIN, after=2, cause=RequestCause.STARTED, stage=2))


a, b, c = worker(A), worker(B), joins(C)
a_told = replace(forming, leaving=(A,), replacements={0: 1})
b_lost = replace(forming, replacements={1: 1})
c_told = replace(formed, leaving=(C,), replacements={2: 1})
a_done = replace(formed, finished=(A,))
planned = replace(forming, planned=True, intact=True)
lived_through = replace(planned, planned=False)
a_saves = replace(planned, leaving=(A,), replacements={0: 1})
b_told = replace(planned, leaving=(B,), replacements={1: 1})
told_in_vain = replace(lived_through, leaving=(B,), replacements={1: 1}, live=(0, 1))
ended = replace(failed, round=3, restarts=1)
no_round = replace(new, phase=CLOSED, outcome=Outcome.FAILED, reason="not torchrun")
pending, failing = replace(b, pod=PodState.PENDING), replace(b, pod=PodState.FAILED)
evicted = replace(failing, disrupted=True)
b_failed = joins(B, RequestCause.WORKER_FAILED)
ended_well = replace(a, pod=PodState.SUCCEEDED)
missed = replace(formed, clocks=replace(new.clocks, invalid={(0, 0): 0.0}))  # A's last word, for a while
crashed = replace(b, pod=PodState.CRASH_LOOP, crashes=1)

OPEN, RUNS, DONE = Pinged(1, 0.0), Pinged(1, 0.0, counting=1.0), Pinged(1, 0.0, acked=1.0, lived=1.0)
answered_a, answered = replace(a, ack=1), replace(b, ack=1)
one_waits = replace(formed, waiting=1)

only_a = replace(again, participants=(A,))

NOT_KNOWN = "round 3 was formed without worker 1, which nobody knows to be lost"
ABOUT_TO_END = "round 2 was reopened, and a member had finished"
STANDS = "round 2 stands, and a member no longer trains in it"
NO_CAUSE = "round 2 was ended without a cause"
left_as_told = worker(B, LEAVE, RequestCause.POD_STOPPING)
NOT_PLANNED = "the end of round 2 is called planned, and was not"
STOPPED = "the end of round 2 is called planned, and a member has stopped untold"
NO_MORE = "the end of round 2 was planned, and nobody is lost, and it is called so no more"
DROPPED = "a failure of round 2 was dropped, and nothing explains it"
NO_FAILURE = "a failure waits, and round 2 had none, or it is explained"
NOT_COUNTED = "counted 0 failures, and 1 waited"
UNMATCHED = "rule 1 is noted, and None matches"
ENDS = "a failure that ends the job waits, and nothing can explain it any more"
MISCOUNTED = "counted 1 failures, and 0 waited"
ONE_TOO_MANY = "the failure is one too many, and the job waits, though all of round 2 are there"
SURVIVED = "failure 2 was survived, and maxRestarts is 1"
FINISHING = "workers {} are said to be finishing, and {} are"
FORGOTTEN = "worker 0 ended in success, and has not finished"
INVENTED = "worker 0 has finished, and did not end in success"
NO_LOSS = "worker 1 was replaced without a cause"
TOO_SOON = "the clock of worker 1 runs, and nobody has acked"
NOT_LOST = "worker 1 is lost, and was not given up"
WRONG_VICTIM = "a worker was told to leave, and a higher rank was kept"
BECOMES_SPARE = "2 members of the last round are kept, and there is room for 1"
LEFT_OUT = "worker 1 has joined, and is not in round 3"
MISCOUNTS = "waiting and spares are {} and {}, and {} and {} wait"

LIVE = "the live members of the last round are {}, and {} to {} are"
LEFT_BEHIND = "round 3 has nobody who trained in the last one, and worker 1 still may join"
WAITS_IN_VAIN = "round 2 stands, all live through changes, and 1 newcomers wait"
ENDED_OTHERWISE = "the last round for new processes is {}, and round 2 ended otherwise"
all_live, anew = replace(formed, live=(0, 1)), replace(forming, restart_round=3)
ahead = Request(
    type=JOIN, after=3, cause=RequestCause.MEMBERSHIP_CHANGED, live=True
)  # of a round that is still to come

STEPS = {
    invariants.moves_are_in_the_table: [
        (step(forming, again, told="RoundBroken"), "RoundBroken is no move out of Forming"),
        (step(forming, again), "the events lead to round 3, Forming, and not to round 3, Formed"),
        (step(formed, again, told="RoundBroken"), "the events lead to round 3, Forming, and not to round 3, Formed"),
        (step(closing, complete, told="Failed"), "the events lead to round 2, Failed, and not to round 2, Complete"),
    ],
    invariants.formed_of_who_joined: [
        (step(forming, again, joins(A), b), "worker 1 is in round 3 without a join for it"),
        (step(forming, again, joins(A), joins(B, pod=PodState.FAILED)), "worker 1 is in round 3 without a join for it"),
        (step(forming, again, joins(A), worker(X)), "worker 1 is in round 3 without a join for it"),
        (step(forming, again, joins(A), joins(B), c, replicas=3), "worker 2 has joined, and is not in round 3"),
        (step(forming, replace(again, participants=(A, C)), joins(A), joins(B), c, spares=1), LEFT_OUT),
        (step(forming, replace(again, store="b:1"), joins(A), joins(B)), "the store of round 3 is not rank 0's"),
    ],
    invariants.formed_without_the_lost: [
        (step(forming, only_a, joins(A), b), NOT_KNOWN),
    ],
    invariants.formed_of_what_was_saved: [
        (
            step(a_saves, replace(again, leaving=(A,)), a, joins(B), c),
            "round 3 was formed while worker 0 may still save",
        ),
    ],
    invariants.formed_between_the_bounds: [
        (step(forming, again, replicas=1), "a round of 2 was formed, and 1 to 1 may"),
        (step(forming, again, replicas=4, min_replicas=3), "a round of 2 was formed, and 3 to 4 may"),
        (step(forming, again, suspend=True), "a round of 2 was formed, and 1 to 0 may"),
    ],
    invariants.neighbours_are_near: [
        (
            step(forming, replace(again, participants=members), *workers, replicas=4, rank_order=("zone",)),
            f"worker {wrong} has rank {rank}, which is worker {due}'s",
        )
        for members, workers, wrong, rank, due in (
            ((A, B, C), (at(joins(A), "x", "n"), at(joins(B), "y", "n"), at(c, "x", "m")), 1, 1, 2),
            ((B, A), (at(joins(A), "y", "n"), at(joins(B), "x", "n")), 1, 0, 0),
            ((A, C, B), (at(joins(A), "", "n"), at(joins(B), "x", "n"), at(c, "x", "n")), 2, 1, 1),
            ((A, B, C), (at(joins(A), "x", "n"), at(joins(B), "", "n"), at(c, "y", "n")), 1, 1, 2),
            ((A, D, C), (at(joins(A), "x", "n"), at(c, "y", "n"), at(joins(D), "y", "m")), 3, 1, 2),
            ((A, B, C), (at(joins(A), "x", "n"), at(joins(B), "x", "m"), at(c, "x", "n")), 1, 1, 2),
        )
    ],
    invariants.waiting_is_counted: [
        (step(formed, formed, a, b, c, replicas=3), MISCOUNTS.format(0, 0, 1, 0)),
        (step(forming, forming, joins(A), b), MISCOUNTS.format(0, 0, 1, 0)),
        (step(formed, one_waits, a, b, worker(C), replicas=3), MISCOUNTS.format(1, 0, 0, 0)),
        (step(formed, one_waits, a, b, joins(C, pod=PodState.CRASH_LOOP), replicas=3), MISCOUNTS.format(1, 0, 0, 0)),
        (step(formed, replace(c_told, waiting=1), a, b, c), MISCOUNTS.format(1, 0, 0, 0)),
        (step(closing, replace(closing, waiting=1), a, b, c), MISCOUNTS.format(1, 0, 0, 0)),
        (step(formed, one_waits, a, b, c, spares=1), MISCOUNTS.format(1, 0, 0, 1)),
        (step(forming, replace(forming, waiting=1), a, b, c, spares=1), MISCOUNTS.format(1, 0, 0, 1)),
    ],
    invariants.rounds_end_for_a_cause: [
        (step(formed, forming, a, b, told="RoundBroken"), NO_CAUSE),
        (step(formed, forming, a, b, c, told="RoundBroken"), NO_CAUSE),
        (step(formed, forming, a, b, worker(C), told="RoundReopened"), NO_CAUSE),
        (step(formed, forming, a, b, c, told="RoundReopened", spares=1), NO_CAUSE),
        (step(a_done, replace(forming, finished=(A,)), b, c, told="RoundReopened", replicas=3), ABOUT_TO_END),
        (step(formed, formed, a), STANDS),
        (step(formed, replace(formed, replacements={1: 1}), a, b), STANDS),
        (step(formed, formed, a, worker(X)), STANDS),
        (step(formed, formed, a, worker(B, request=None)), STANDS),
        (step(formed, formed, a, worker(B, LEAVE)), STANDS),
        (step(formed, formed, a, joins(B)), STANDS),
        (step(formed, formed, a, b, restarted_at="noon"), "round 2 stands, and a restart is asked for"),
    ],
    invariants.plans_hold_while_all_live: [
        (step(formed, planned, a, joins(B)), NOT_PLANNED),
        (step(formed, planned, worker(A, LEAVE, RequestCause.AGENT_LOST), b), NOT_PLANNED),
        (step(forming, planned, a, b), NOT_PLANNED),
        (step(planned, planned, a, worker(X)), STOPPED),
        (step(planned, planned, a, worker(B, request=None)), STOPPED),
        (step(planned, planned, a, replace(b, deleting=True)), STOPPED),
        (step(planned, planned, a, failing), STOPPED),
        (step(planned, planned, a, worker(B, LEAVE, RequestCause.POD_STOPPING)), STOPPED),
        (step(planned, planned, a, joins(B, RequestCause.WORKER_FAILED)), STOPPED),
        (step(planned, replace(planned, replacements={1: 1}), a, b), STOPPED),
        (step(b_told, b_told, a, failing), STOPPED),
        (step(b_told, b_told, a, worker(B, LEAVE, RequestCause.AGENT_LOST)), STOPPED),
        (step(b_told, b_told, a, worker(B, LEAVE, RequestCause.POD_STOPPING, deleting=True)), STOPPED),
        (step(formed, forming, a, b, c, told="RoundReopened", replicas=3), NO_MORE),
        (step(formed, replace(b_told, **NO_PLAN), a, b), NO_MORE),
        (
            step(formed, replace(planned, planned=False), a, b, c, told="RoundReopened", replicas=3),
            "scripts may not save at the end of round 2",
        ),
        (
            step(all_live, replace(planned, live=(0, 1)), a, b, c, told="RoundReopened", replicas=3),
            "scripts may save at the end of round 2",
        ),
        (step(lived_through, planned, a, b), "scripts may save at the end of round 2"),
        (step(pings(told_in_vain, RUNS, RUNS), forming, a, answered), NO_MORE),
        (step(pings(told_in_vain, DONE, OPEN), forming, answered_a, b), NO_MORE),
        (step(planned, forming, joins(A), b), NO_MORE),
        (step(planned, forming, a), NO_MORE),
        (step(planned, forming, a, Worker(index=1, replacement=1)), NO_MORE),
        (step(b_told, replace(b_told, **NO_PLAN), a, left_as_told), NO_MORE),
        (step(b_told, replace(b_told, **NO_PLAN), a, replace(left_as_told, pod=PodState.CRASH_LOOP)), NO_MORE),
        (step(b_told, replace(b_told, **NO_PLAN), a, replace(b, pod=PodState.SUCCEEDED, deleting=True)), NO_MORE),
    ],
    invariants.failures_are_the_trainings: [
        (
            step(replace(waits, matched=IGNORES), replace(again, restarts=2), joins(A), joins(B), max_restarts=2),
            MISCOUNTED,
        ),
        (step(formed, replace(forming, replacements={1: 1}), a, replace(b, deleting=True, matched=COUNTS)), DROPPED),
        (step(formed, forming, a, joins(B, RequestCause.WORKER_FAILED)), DROPPED),
        (step(formed, forming, a, joins(B, RequestCause.STARTED)), DROPPED),
        (step(formed, forming, a, worker(B, LEAVE, RequestCause.AGENT_LOST)), DROPPED),
        (step(formed, b_lost, a, crashed), DROPPED),
        (step(formed, b_lost, a, failing), DROPPED),
        (step(formed, b_lost, a, worker(B, LEAVE, RequestCause.AGENT_LOST, pod=PodState.SUCCEEDED)), DROPPED),
        (step(pings(replace(waits, replaced=(A,)), DONE, DONE), replace(b_lost, failure=""), joins(A), b), DROPPED),
        (step(formed, b_lost, a, replace(b, pod=PodState.OOM_KILLED)), DROPPED),
        (step(formed, forming, joins(A, RequestCause.WORKER_FAILED), joins(B)), DROPPED),
        (step(waits, forming, a, b), DROPPED),
        (step(replace(waits, replaced=(B,)), forming, a), DROPPED),
        (step(formed, waits, joins(A), b), NO_FAILURE),
        (step(formed, waits, joins(A, RequestCause.WORKER_FAILED)), NO_FAILURE),
        (step(formed, waits, joins(A, RequestCause.WORKER_FAILED), worker(X)), NO_FAILURE),
        (step(waits, replace(waits, replacements={1: 1}), joins(A), evicted), NO_FAILURE),
        (step(waits, waits, joins(A), worker(X)), NO_FAILURE),
        (step(waits, waits, joins(A)), NO_FAILURE),
        (step(waits, waits, joins(A, RequestCause.WORKER_FAILED), joins(B)), ONE_TOO_MANY),
        (step(waits, again, joins(A), joins(B)), NOT_COUNTED),
        (step(waits, replace(again, restarts=2), joins(A), joins(X), max_restarts=2), MISCOUNTED),
        (step(forming, replace(again, restarts=2), joins(A), joins(B), max_restarts=2), MISCOUNTED),
        (step(waits, replace(again, restarts=2), joins(A), joins(B)), SURVIVED),
    ],
    invariants.the_first_rule_decides: [
        (step(formed, waits, a, replace(b_failed, matched=RULE)), "rule None is noted, and 1 matches"),
        (step(waits, replace(waits, matched=RULE), joins(A), replace(b, matched=RULE)), UNMATCHED),
        (
            step(replace(waits, matched=RULE), again, joins(A), b_failed),
            "round 3 was formed after a failure that ends the job",
        ),
        (step(replace(waits, matched=RULE), replace(waits, matched=RULE), joins(A), b_failed), ENDS),
    ],
    stages.stages_follow_each_other: [
        (step(forming, again, joins(A), next_stage(B)), "a round of stage 1 was formed of workers in stages [1, 2]"),
        (step(formed, stage_2, worker(A, FINISH), worker(B, FINISH)), "stage 2 began, and nobody asked for it"),
        (step(formed, stage_2, next_stage(A), b), "stage 2 began, and workers [1] had not succeeded"),
        (step(formed, stage_2, next_stage(A), b, replicas=3), "stage 2 began, and workers [1] had not succeeded"),
    ],
    invariants.finished_in_success: [
        (step(formed, formed, worker(A, FINISH, pod=PodState.SUCCEEDED), b), FORGOTTEN),
        (step(formed, a_done, worker(A, FINISH), b), INVENTED),
        (step(formed, formed, worker(A, FINISH), b), FINISHING.format([], [0])),
        (step(formed, formed, next_stage(A), b), FINISHING.format([], [0])),
        (step(formed, replace(formed, finishing=(A,)), a, b), FINISHING.format([0], [])),
        (step(formed, replace(formed, finishing=(A,)), worker(A, FINISH, deleting=True), b), FINISHING.format([0], [])),
        (step(formed, a_done, a, b), INVENTED),
        (step(formed, a_done, ended_well, b), INVENTED),
        (step(missed, replace(a_done, clocks=missed.clocks), replace(ended_well, disrupted=True), b), INVENTED),
        (step(missed, replace(a_done, clocks=missed.clocks), joins(A, pod=PodState.SUCCEEDED), b), INVENTED),
        (step(formed, a_done, worker(A, FINISH, deleting=True), b), INVENTED),
        (step(formed, a_done, worker(A, FINISH), b, suspend=True), INVENTED),
    ],
    invariants.replaced_for_a_cause: [
        (step(formed, b_lost, a, b), "worker 1 was replaced without a cause"),
        (step(pings(formed, DONE, OPEN), pings(b_lost), a, b), "worker 1 was replaced without a cause"),
        (step(pings(formed, DONE, RUNS), pings(b_lost), a, answered), "worker 1 was replaced without a cause"),
        (step(pings(formed, DONE, DONE), pings(b_lost), a, b), "worker 1 was replaced without a cause"),
        (step(pings(forming, DONE, OPEN), pings(b_lost), joins(A), b), "worker 1 was replaced without a cause"),
        (step(forming, b_lost, a), "worker 1 was replaced without a cause"),
        (step(formed, c_told, a, b, c, replicas=3), "worker 2 was replaced without a cause"),
        (step(formed, c_told, a, b, c, spares=1), "worker 2 was replaced without a cause"),
        (step(formed, a_told, a, replace(c, id=None), replicas=1), "worker 0 was replaced without a cause"),
        (step(formed, replace(formed, replacements={2: 1}), a, b, c), "worker 2 was replaced without a cause"),
        (step(formed, b_lost, a, replace(b, id=None, invalid="no id")), "worker 1 was replaced without a cause"),
        (step(formed, forming, a, worker(B, deleting=True)), NOT_LOST),
        (step(formed, forming, a, failing), NOT_LOST),
        (step(formed, forming, a, crashed), NOT_LOST),
        (step(formed, forming, a, worker(B, LEAVE, pod=PodState.SUCCEEDED)), NOT_LOST),
        (step(formed, forming, a, joins(B, pod=PodState.SUCCEEDED)), NOT_LOST),
        (step(forming, b_lost, joins(A), joins(B)), "worker 1 was replaced without a cause"),
        (
            step(forming, b_lost, joins(A), worker(B, LEAVE, RequestCause.AGENT_LOST)),
            "worker 1 was replaced without a cause",
        ),
        (step(formed, forming, a, worker(B, LEAVE, RequestCause.STORE_NOT_READY)), NOT_LOST),
    ],
    invariants.only_suspects_are_pinged: [
        (step(formed, pings(formed, OPEN), worker(A, suspects=(B,)), b), "worker 1 is suspected, and was not pinged"),
        (step(formed, formed, a, worker(B, unready=True)), "worker 1 is suspected, and was not pinged"),
        (step(formed, pings(formed, OPEN, OPEN), a, failing), "worker 1 is pinged, and cannot ack"),
        (step(formed, pings(formed, OPEN, pinged=(B,)), a, b), "worker 1 is pinged alone, and others could be"),
    ],
    invariants.ack_limit_begins_with_an_ack: [
        (step(pings(formed, OPEN, OPEN), pings(formed, OPEN, RUNS), a, b), TOO_SOON),
        (step(pings(formed, OPEN, OPEN), pings(formed, OPEN, RUNS), a, answered), TOO_SOON),
        (step(pings(formed, OPEN, RUNS), pings(formed, OPEN, RUNS._replace(number=2)), a, b), TOO_SOON),
    ],
    invariants.room_is_kept: [
        (step(formed, formed, a, b, c), "3 workers are kept, and there is room for 2"),
        (step(formed, a_told, a, b, replicas=1), WRONG_VICTIM),
        (step(formed, formed, a, b, replicas=1, spares=1), BECOMES_SPARE),
        (step(formed, formed, a, b, c, replicas=1, spares=2), BECOMES_SPARE),
        (step(formed, formed, a, replace(b, outdated=True)), "worker 1 is outdated, and was kept"),
        (step(c_told, replace(c_told, leaving=()), a, b, c), "worker 2 was told to leave, and no longer is"),
    ],
    live.live_members_are_known: [
        (step(formed, formed, replace(a, live_in=2), b), LIVE.format([], [0], [0])),
        (step(formed, replace(formed, live=(0,)), replace(a, live_in=1), b), LIVE.format([0], [], [])),
        (step(formed, replace(formed, live=(1,)), a, replace(worker(X), live_in=2)), LIVE.format([1], [], [])),
        (step(replace(formed, live=(0,)), formed, a, b), LIVE.format([], [0], [0])),
        (step(replace(forming, live=(0,)), forming, a, b), LIVE.format([], [0], [0])),
        (step(forming, again, lives(A), joins(B)), LIVE.format([], [0], [0])),
        (step(replace(forming, live=(1,)), replace(again, live=(1,)), joins(A), joins(B)), LIVE.format([1], [], [])),
        (step(replace(formed, live=(0,)), replace(stage_2, live=(0,)), next_stage(A), b), LIVE.format([0], [], [])),
    ],
    live.nobody_waits_where_all_live: [
        (step(forming, forming, lives(A)), "1 workers have joined for round 3 and live on, and others are waited for"),
        (
            step(forming, forming, lives(A), lives(C), replicas=3),
            "2 workers have joined for round 3 and live on, and others are waited for",
        ),
    ],
    live.no_training_is_left_behind: [
        (step(replace(forming, live=(1,)), only_a, joins(A), replace(worker(X), request=None, live_in=2)), LEFT_BEHIND),
    ],
    live.newcomers_of_live_jobs_are_let_in: [
        (step(all_live, all_live, a, b, lives(C), replicas=4), WAITS_IN_VAIN),
    ],
    live.new_processes_where_they_are_needed: [
        (step(formed, forming, a, replace(b, hung="no step")), ENDED_OTHERWISE.format(0)),
        (step(formed, forming, a, b, told="RoundReopened", restarted_at="noon"), ENDED_OTHERWISE.format(0)),
        (step(formed, replace(forming, restart_round=3), a), ENDED_OTHERWISE.format(3)),
        (step(formed, replace(forming, restart_round=3), a, restarted_at="noon"), ENDED_OTHERWISE.format(3)),
        (step(replace(forming, restart_round=3), forming, a), ENDED_OTHERWISE.format(0)),
        (
            step(anew, replace(again, restart_round=3), joins(A), replace(lives(B), request=ahead)),
            "worker 1 lives on in round 3, which needs new processes",
        ),
        (
            step(forming, replace(again, restarted_at="noon"), joins(A), lives(B), restarted_at="noon"),
            "round 3 is taken for the restart that was asked for, and a process has lived on",
        ),
    ],
    invariants.ends_for_a_cause: [
        (step(formed, replace(complete, finished=(A,)), worker(A, FINISH), b), "Complete without a cause"),
        (step(formed, complete, worker(A, FINISH), worker(B, FINISH), suspend=True), "Complete without a cause"),
        (step(closing, replace(complete, finished=(A,)), b, replicas=1), "Complete without a cause"),
        (step(new, replace(complete, participants=()), worker(A, FINISH)), "Complete without a cause"),
        (step(formed, closing, a, b), "Closed without a cause"),
        (step(closing, replace(closing, members_ended=True), a, b), "all members have ended, and worker 0 trains"),
        (step(b_lost, replace(closing, replacements={1: 1}), a, worker(B, CLOSE)), "Closed without a cause"),
        (step(formed, replace(failed, restarts=1), a, b), "Failed without a cause"),
        (step(formed, overdue, a, b), "Failed without a cause"),
        (step(formed, overdue, a, b, deadline=1.0, suspend=True), "Failed without a cause"),
        (step(formed, failed, worker(A, CLOSE), b, max_restarts=2), "Failed without a cause"),
        (step(closing, replace(failed, restarts=1), worker(A, LEAVE), b), "Failed without a cause"),
        (step(forming, ended, a, crashed), "Failed without a cause"),
        (step(forming, ended, joins(A), replace(crashed, crashes=2)), "Failed without a cause"),
        (step(forming, ended, joins(A), crashed, min_replicas=2), "Failed without a cause"),
        (step(forming, after_failures(1), joins(A), min_replicas=2), "Failed without a cause"),
        (step(forming, after_failures(2), joins(A), replicas=3, min_replicas=2), "Failed without a cause"),
        (step(new, no_round, worker(A, LEAVE, pod=PodState.SUCCEEDED)), "Failed without a cause"),
        (step(forming, timeout, joins(A), b), "RendezvousTimeout without a cause"),
        (step(forming, timeout, joins(A), min_replicas=2), "RendezvousTimeout without a cause"),
        (step(forming, timeout, joins(A), pending, min_replicas=2), "RendezvousTimeout without a cause"),
    ],
}


@pytest.mark.parametrize(
    ("check", "before", "after", "said"), [(check, *row) for check, rows in HISTORY.items() for row in rows]
)
def test_two_statuses_that_cannot_follow_each_other(
    check: Callable[[State, State], object], before: State, after: State, said: str
) -> None:
    assert list(check(before, after)) == [said]
    assert said in history.history_violations(before, after)


@pytest.mark.parametrize(("check", "bad", "said"), [(check, *row) for check, rows in STEPS.items() for row in rows])
def test_a_step_that_the_workers_do_not_bear_out(check: Callable[[Step], object], bad: Step, said: str) -> None:
    assert list(check(bad)) == [said]
    assert said in violations(bad.spec, bad.before, bad.workers, bad.decision)


@pytest.mark.parametrize("check", [*history.HISTORY, *invariants.STEP], ids=lambda check: check.__name__)
def test_everything_that_a_check_can_say_is_said_here(check: Callable[..., object]) -> None:
    rows = {**HISTORY, **STEPS}[check]
    said = inspect.getsource(check).count("yield ")
    assert len({row[-1] for row in rows}) >= said


def test_rank_0_is_not_waited_for_once_it_leaves_a_ping_unacked() -> None:
    formed = replace(again, leaving=(A,))
    for ping, excuses in ((RUNS, True), (OPEN, False), (DONE, False)):
        pinged = replace(a_saves, clocks=replace(a_saves.clocks, pings={A: ping}))
        said = list(invariants.formed_of_what_was_saved(step(pinged, formed, a, joins(B), c)))
        assert (said == []) is excuses, ping


def test_rank_0_is_not_waited_for_once_another_member_has_stopped_untold() -> None:
    of_two_others = replace(again, participants=(X, C), leaving=(A,), replacements={0: 1})
    assert list(invariants.formed_of_what_was_saved(step(a_saves, of_two_others, a, joins(X), c))) == []

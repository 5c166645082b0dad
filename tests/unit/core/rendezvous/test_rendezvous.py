"""The rendezvous, rule by rule: each test is a story of one job."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from elasticjob.rendezvous import Clocks, PodState, Request, Worker
from elasticjob.rendezvous.transitions import MOVES, TABLE, IllegalMove, moved
from elasticjob.terms import Cause, Outcome, RendezvousPhase, RequestType
from support.rendezvous_world import World, formed


class TestMoves:
    """Each row of the table is the last move of some story of two workers, and there is no other move."""

    STORIES: ClassVar[dict[tuple[str, str], Callable[[World], object]]] = {
        ("Forming", "RoundFormed"): lambda job: job.up(0, 1),
        ("Forming", "RendezvousTimeout"): lambda job: (job.up(0), job.start(1), job.wait(600, living=(0, 1))),
        ("Forming", "Failed"): lambda job: (job.up(0), job.close(0)),
        ("Forming", "Complete"): lambda job: (job.up(0, 1), job.finish(1), job.delete(0), job.scale(1)),
        ("Formed", "RoundBroken"): lambda job: (job.up(0, 1), job.delete(0)),
        ("Formed", "RoundReopened"): lambda job: (job.up(0, 1), job.scale(3), job.up(2)),
        ("Formed", "Complete"): lambda job: (job.up(0, 1), job.finish(0, 1)),
        ("Formed", "Closed"): lambda job: (job.up(0, 1), job.close(0)),
        ("Closed", "Complete"): lambda job: (job.up(0, 1), job.close(0), job.finish(0, 1)),
        ("Closed", "Failed"): lambda job: (job.up(0, 1), job.close(0), job.leave(0), job.leave(1)),
    }

    @pytest.mark.parametrize("row", TABLE, ids=" ".join)
    def test_there_is_a_story_of_each_row(self, row: tuple[RendezvousPhase, str]) -> None:
        job = World(replicas=2, min_replicas=2, max_restarts=0)
        self.STORIES[row](job)
        made, phase = None, RendezvousPhase.FORMING
        for word in job.told:
            if (phase, word) in TABLE:
                made = (phase, word)
                phase = TABLE[made].target
        assert made == row

    @pytest.mark.parametrize("phase", RendezvousPhase)
    def test_no_other_move_is_made(self, phase: RendezvousPhase) -> None:
        state = replace(formed(1).state, phase=phase, outcome=Outcome.CLOSED if phase == "Closed" else None)
        for event in {move.event for move in MOVES if (phase, move.event) not in TABLE}:
            with pytest.raises(IllegalMove, match=f"round 1 is {phase}: {event} is no move"):
                moved(state, event)

    def test_no_move_leads_out_of_an_end(self) -> None:
        job = formed(1)
        job.finish(0)
        with pytest.raises(IllegalMove, match=r"round 1 has ended \(Complete\): Failed is no move"):
            moved(job.state, Outcome.FAILED)


class TestBarrier:
    def test_round_forms_when_all_replicas_have_joined(self) -> None:
        world = World(replicas=3)
        world.up(0, 1)
        assert world.phase == "1 Forming"
        world.up(2)
        assert world.phase == "1 Formed"
        assert world.ranks == [0, 1, 2]
        assert world.state.store == "10.0.0.1:29402"
        assert world.log[-1] == "round 1 formed with 3 workers in 0.0 s: first formation"

    def test_at_min_it_waits_for_a_pod_on_its_way_but_not_for_an_unschedulable_one(self) -> None:
        world = World(replicas=3, min_replicas=2)
        world.up(0, 1)
        assert world.phase == "1 Forming"
        world.change(2, pod=PodState.UNSCHEDULABLE)
        assert world.phase == "1 Formed"
        assert world.ranks == [0, 1]

    def test_last_call_runs_from_the_moment_min_is_there(self) -> None:
        world = World(replicas=3, min_replicas=2, last_call=30)
        world.up(0)
        world.wait(100, living=(0,))
        world.up(1)
        world.wait(29, living=(0, 1))
        assert world.phase == "1 Forming"
        world.wait(1, living=(0, 1))
        assert world.phase == "1 Formed"

    def test_the_longest_last_call_of_those_that_joined_replaces_the_jobs(self) -> None:
        world = World(replicas=3, min_replicas=1, last_call=30)
        world.start(0, 1)
        world.join(0, last_call=5)
        world.wait(4, living=(0, 1))
        world.join(1, last_call=8)
        world.wait(3.9, living=(0, 1))
        assert world.phase == "1 Forming"
        assert world.step().wake_at == world.state.clocks.min_reached + 8  # type: ignore[operator]
        world.wait(0.1, living=(0, 1))
        assert (world.phase, world.ranks) == ("1 Formed", [0, 1])

    def test_newcomers_last_call_replaces_the_jobs_too(self) -> None:
        world = formed(1, last_call=30)
        world.scale(3)
        world.start(1)
        world.join(1, last_call=5)
        world.wait(4.9, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(0.1, living=(0, 1))
        assert world.phase == "2 Forming"

    def test_last_call_waits_for_members_that_still_stop_their_processes(self) -> None:
        world = formed(3, min_replicas=1)
        world.delete(2)
        world.rejoin(0)
        world.wait(75, living=(0, 1))
        assert world.phase == "2 Forming"
        world.wait(5, living=(0, 1))
        assert (world.phase, world.ranks) == ("2 Formed", [0])

    def test_join_timeout_runs_only_while_every_missing_worker_has_a_running_pod(self) -> None:
        world = World(replicas=2, min_replicas=2, join_timeout=600)
        world.up(0)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.wait(10_000, living=(0,))
        assert world.phase == "1 Forming"
        world.start(1)
        world.wait(599, living=(0, 1))
        assert world.phase == "1 Forming"
        world.wait(1, living=(0, 1))
        assert world.state.outcome is Outcome.TIMEOUT
        assert world.state.reason == "1 of at least 2 workers joined within 600 s; missing: 1"

    def test_a_join_made_before_the_last_formed_round_does_not_count(self) -> None:
        world = formed(2)
        world.scale(3)
        world.start(2)
        world.join(2, after=0)
        assert (world.phase, world.state.waiting) == ("1 Formed", 0)
        world.join(2, after=1, cause=Cause.RENEWED)
        assert world.phase == "2 Forming"


def newcomers(job: World) -> None:
    job.scale(4)
    job.up(3)


def scale_down(job: World) -> None:
    job.scale(2)


def suspension(job: World) -> None:
    job.suspend(True)


def deleted(job: World) -> None:
    job.workers[1, 0] = replace(job.workers[1, 0], deleting=True)
    job.step()


def killed(job: World) -> None:
    job.leave(1)


def processes_failed(job: World) -> None:
    job.join(1, cause=Cause.WORKER_FAILED)


def sidecar_restarted(job: World) -> None:
    job.start(1)


def out_of_memory(job: World) -> None:
    job.change(1, pod=PodState.OOM_KILLED)


ENDS_BY_PLAN = (newcomers, scale_down, suspension)
STOPS_UNTOLD = (deleted, killed, processes_failed, sidecar_restarted, out_of_memory)


class TestScaling:
    def test_up_costs_one_round_when_the_newcomers_arrive_apart(self) -> None:
        world = formed(2)
        world.scale(4)
        world.up(2)
        assert (world.phase, world.state.waiting) == ("1 Formed", 1)
        world.wait(10, living=(0, 1, 2, 3))
        world.up(3)
        assert (world.phase, world.state.reason) == ("2 Forming", "scaled from 2 to 4")
        world.rejoin(0, 1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2, 3])

    def test_newcomers_wait_no_longer_than_the_last_call_for_one_another(self) -> None:
        world = formed(2, last_call=30)
        world.scale(4)
        world.up(2)
        world.wait(30, living=(0, 1, 2))
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 2 joined")

    def test_down_takes_the_waiting_first_then_the_highest_ranks(self) -> None:
        world = formed(3, max_restarts=0)
        leaver = world.member(2)
        world.scale(2)
        assert world.state.leaving == (leaver,)
        assert (world.phase, world.state.reason) == ("2 Forming", "scaled from 3 to 2")
        world.rejoin(0, 1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 0)

    @pytest.mark.parametrize("ends", ENDS_BY_PLAN, ids=lambda ends: ends.__name__)
    def test_an_end_by_plan_is_one_while_all_members_live(self, ends: Callable[[World], None]) -> None:
        world = formed(3)
        ends(world)
        assert (world.phase, world.state.planned) == ("2 Forming", True)
        world.rejoin(0)  # told, it has stopped its processes
        assert world.state.planned

    @pytest.mark.parametrize("ends", ENDS_BY_PLAN, ids=lambda ends: ends.__name__)
    @pytest.mark.parametrize("stops", STOPS_UNTOLD, ids=lambda stops: stops.__name__)
    def test_who_would_wait_for_a_lost_member_is_told_at_once(
        self, ends: Callable[[World], None], stops: Callable[[World], None]
    ) -> None:
        world = formed(3)
        ends(world)
        stops(world)
        assert (world.phase, world.state.planned) == ("2 Forming", False)

    @pytest.mark.parametrize("stops", STOPS_UNTOLD, ids=lambda stops: stops.__name__)
    def test_a_loss_is_no_plan(self, stops: Callable[[World], None]) -> None:
        world = formed(3)
        stops(world)
        world.scale(1)
        assert (world.phase, world.state.planned) == ("2 Forming", False)

    def test_who_has_gone_as_it_was_told_stays_so_whatever_its_record_says(self) -> None:
        world = formed(2)
        world.suspend(True)
        assert world.state.planned
        world.change(1, pod=PodState.SUCCEEDED, request=None)
        assert world.state.planned

    def test_who_was_told_to_leave_may_go(self) -> None:
        world = formed(2)
        world.scale(1)
        world.leave(1, cause=Cause.POD_STOPPING)
        world.change(1, pod=PodState.SUCCEEDED)
        world.step()
        assert ((1, 0) in world.workers, world.state.planned) == (False, True)
        world.rejoin(0)
        assert (world.phase, world.state.planned) == ("2 Formed", False)

    def test_down_goes_by_rank_and_not_by_index(self) -> None:
        world = formed(3)
        world.delete(0)
        world.change(0, pod=PodState.UNSCHEDULABLE)
        world.rejoin(1, 2)
        assert world.ranks == [2, 1]
        victim = world.member(1)
        world.scale(1)
        assert world.state.leaving == (victim,)

    def test_down_keeps_a_newcomer_that_has_joined_before_one_that_has_not(self) -> None:
        world = formed(2)
        world.scale(4)
        world.up(3)
        world.scale(3)
        assert {pod_key[0] for pod_key in world.workers} == {0, 1, 3}
        assert world.phase == "2 Forming"

    def test_a_victim_keeps_its_pod_until_its_trainer_is_gone(self) -> None:
        world = formed(2)
        world.scale(1)
        assert (1, 0) in world.workers
        world.change(1, pod=PodState.SUCCEEDED)
        assert (1, 0) not in world.workers
        world.step()
        assert world.state.leaving == ()
        assert world.state.outcome is None

    def test_a_victim_that_does_not_go_is_deleted_after_rejoin_seconds(self) -> None:
        world = formed(2, rejoin=75)
        world.scale(1)
        world.wait(74, living=(0, 1))
        assert (1, 0) in world.workers
        world.wait(1, living=(0, 1))
        assert (1, 0) not in world.workers

    def test_up_and_down_before_the_pod_joined_breaks_nothing(self) -> None:
        world = formed(2)
        world.scale(3)
        world.start(2)
        world.scale(2)
        assert world.phase == "1 Formed"

    def test_down_and_up_makes_a_new_pod_for_the_place(self) -> None:
        world = formed(3)
        world.scale(1)
        world.scale(3)
        assert {(1, 1), (2, 1)} <= set(world.workers)
        world.rejoin(0)
        world.up(1, 2)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2])

    def test_survivors_keep_their_ranks_and_newcomers_fill_the_free_ones_by_number(self) -> None:
        world = formed(11)
        world.scale(12)
        world.delete(3)
        world.delete(0)
        world.rejoin(*range(10, 3, -1), 2, 1)
        world.up(11, 3, 0)
        assert world.ranks == [0, 1, 2, 3, *range(4, 12)]
        assert world.member(0).id != "1"

    def test_only_survivors_whose_rank_is_no_more_change_theirs(self) -> None:
        world = formed(5)
        world.delete(1)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.rejoin(4, 3, 2, 0)
        assert world.ranks == [0, 4, 2, 3]

    def test_they_come_before_newcomers(self) -> None:
        world = formed(5)
        world.delete(1)
        world.delete(3)
        world.change(3, pod=PodState.UNSCHEDULABLE)
        world.rejoin(0, 2, 4)
        world.up(1)
        assert world.ranks == [0, 4, 2, 1]


class TestLosses:
    def test_a_deleted_pod_breaks_the_round_at_once_and_is_replaced(self) -> None:
        world = formed(2, max_restarts=0)
        world.delete(1)
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 1 lost: its pod was deleted")
        assert (1, 1) in world.workers
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 0)

    def test_why_the_cluster_deleted_a_pod_is_told(self) -> None:
        world = formed(2, max_restarts=0)
        world.change(1, deleting=True, disrupted=True, detail="Preempted to accommodate a workload")
        told = "worker 1 lost: its pod was deleted (Preempted to accommodate a workload)"
        assert (world.state.reason, world.state.restarts) == (told, 0)

    def test_a_pod_that_vanished_unseen_is_lost_too(self) -> None:
        world = formed(2)
        del world.workers[0, 0]
        world.step()
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 0 lost: its pod is gone")
        assert (0, 1) in world.workers

    def test_a_member_whose_record_makes_no_sense_is_replaced_in_time(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15)
        world.spoil(1, "spec.address is no address")
        broken = "worker 1's ElasticWorker is invalid: spec.address is no address"
        assert (world.phase, world.state.reason) == ("2 Forming", broken)
        world.rejoin(0, 2)
        world.wait(14, living=(0, 2))
        assert (1, 0) in world.workers
        world.wait(1, living=(0, 2))
        lost = "its ElasticWorker has been invalid for 15 s: spec.address is no address"
        assert f"worker 1 lost: {lost}" in world.log
        assert (1, 1) in world.workers
        world.up(1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2])
        assert world.told.count("InvalidRecord") == 1
        assert world.state.restarts == 0

    def test_the_others_train_without_a_worker_whose_records_never_make_sense(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15, last_call=30)
        world.spoil(1)
        world.rejoin(0, 2)
        for _ in range(3):  # and so on with the next pods
            world.wait(14, living=(0, 2))
            world.spoil(1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 2])

    def test_a_record_that_is_mended_in_time_costs_no_pod(self) -> None:
        world = World(replicas=2, worker_lost=15)
        world.up(0)
        world.spoil(1)
        world.wait(14, living=(0,))
        world.up(1)
        world.wait(14, living=(0, 1))
        assert (world.phase, world.ranks) == ("1 Formed", [0, 1])
        assert world.pod_key(1) == (1, 0)
        world.spoil(1)
        world.wait(14, living=(0,))
        assert world.pod_key(1) == (1, 0), "its time starts anew"
        assert world.told.count("InvalidRecord") == 2

    def test_somebody_looks_again_when_an_invalid_record_has_had_its_time(self) -> None:
        world = World(replicas=1, worker_lost=15)
        world.start(0)
        world.spoil(0)
        assert world.step().wake_at == world.now + 15

    def test_a_record_that_is_not_found_any_more_is_named(self) -> None:
        world = formed(2)
        world.change(1, id=None, address="", request=None, heartbeat=None)
        said = "worker 1's ElasticWorker was deleted, or lost its labels or its owner"
        assert (world.phase, world.state.reason) == ("2 Forming", said)

    def test_a_restarted_sidecar_is_another_incarnation(self) -> None:
        world = formed(2)
        world.start(1)
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 1's sidecar was restarted")
        world.join(1)
        world.rejoin(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1])
        assert (1, 0) in world.workers

    def test_a_pod_that_is_sent_away_when_its_sidecar_was_restarted_is_not_called_gone(self) -> None:
        world = formed(1)
        world.spec = replace(world.spec, suspend=True)
        world.change(0, id="restarted", request=None, heartbeat=None)
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 0's sidecar was restarted")

    def test_rank_0_is_lost_like_any_other(self) -> None:
        world = formed(3, min_replicas=2)
        world.delete(0)
        world.change(0, pod=PodState.UNSCHEDULABLE)
        world.rejoin(1, 2)
        assert (world.phase, world.ranks, world.state.store) == ("2 Formed", [2, 1], "10.0.0.3:29402")

    def test_a_rank_0_without_a_store_gets_a_fresh_pod(self) -> None:
        world = formed(2)
        world.leave(0, Cause.STORE_NOT_READY)
        assert world.state.reason == "worker 0 lost: it did not serve the round's store in time"
        assert (0, 1) in world.workers


class TestFailureBudget:
    def test_one_failure_a_round_is_counted_however_many_processes_failed(self) -> None:
        world = formed(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.join(1, cause=Cause.WORKER_FAILED, after=1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_past_the_budget_the_job_has_failed_and_its_pods_go(self) -> None:
        world = formed(2, max_restarts=1)
        world.join(0, 1, cause=Cause.WORKER_FAILED)
        assert world.phase == "2 Formed"
        world.join(1, cause=Cause.WORKER_FAILED)
        assert (world.phase, world.state.restarts) == ("3 Forming", 1)
        world.rejoin(0)
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason == "worker 1's processes failed: failure 2, and maxRestarts is 1"
        assert world.workers == {}

    def test_what_failed_is_in_the_reason_to_the_end(self) -> None:
        world = formed(1, max_restarts=0)
        request = Request(
            type=RequestType.JOIN, after=1, cause=Cause.WORKER_FAILED, detail="rank 0: ValueError: no data"
        )
        world.change(0, request=request)
        failed = "worker 0's processes failed (rank 0: ValueError: no data)"
        assert world.state.reason == f"{failed}: failure 1, and maxRestarts is 0"

    def test_a_killed_agent_counts_and_restarts_in_its_pod(self) -> None:
        world = formed(2)
        world.leave(1)
        assert (world.phase, world.state.failure) == ("2 Forming", "worker 1 left: AgentLost")
        world.rejoin(0)
        assert world.state.restarts == 0
        world.join(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 1)
        assert world.state.failure == ""
        assert (1, 0) in world.workers

    def test_a_killed_agent_whose_leave_was_overtaken_by_its_successor_counts_too(self) -> None:
        world = formed(2)
        world.join(1, cause=Cause.STARTED)
        assert world.state.failure == "worker 1's trainer was started again"
        world.rejoin(0)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_a_failure_beside_a_lost_pod_is_not_counted(self) -> None:
        world = formed(2)
        world.workers[0, 0] = world.workers[0, 0].__class__(index=0, deleting=True, id=world.member(0).id)
        world.join(1, cause=Cause.WORKER_FAILED)
        assert (world.phase, world.state.failure) == ("2 Forming", "")
        assert world.state.reason == "worker 0 lost: its pod was deleted"

    @pytest.mark.parametrize("max_restarts", [0, 3])
    def test_a_node_whose_loss_shows_after_its_peers_crashed_counts_nothing(self, max_restarts: int) -> None:
        world = formed(3, min_replicas=2, max_restarts=max_restarts)
        world.join(0, 1, cause=Cause.WORKER_FAILED)
        assert (world.phase, world.state.failure) == ("2 Forming", "worker 0's processes failed")
        world.doubt(0, 2)
        world.wait(10, living=(0, 1))
        assert (world.log[-1], world.state.failure) == ("worker 2 lost: no answer for 2 s", "")
        world.change(2, pod=PodState.UNSCHEDULABLE)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 0)

    @pytest.mark.parametrize(
        "loss",
        [
            lambda job: job.delete(1),
            lambda job: job.change(1, pod=PodState.FAILED, disrupted=True),
            lambda job: (job.workers.pop((1, 0)), job.step()),
            lambda job: job.start(1),
        ],
        ids=["deleted", "evicted", "vanished", "sidecar restarted"],
    )
    def test_what_befell_a_member_explains_a_failure_that_was_seen_before_it(
        self, loss: Callable[[World], object]
    ) -> None:
        world = formed(2, max_restarts=0)
        world.join(0, cause=Cause.WORKER_FAILED)
        loss(world)
        assert (world.phase, world.state.failure) == ("2 Forming", "")
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_rank_0_that_served_no_store_explains_the_failures_of_its_peers(self) -> None:
        world = formed(2, max_restarts=0)
        world.join(1, cause=Cause.WORKER_FAILED)
        world.leave(0, Cause.STORE_NOT_READY)
        world.up(0)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_who_merely_joins_again_or_is_told_to_leave_explains_nothing(self) -> None:
        world = formed(3)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.rejoin(1)
        world.scale(2)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 1)

    def test_a_place_whose_member_was_told_to_leave_explains_nothing_when_it_is_filled_again(self) -> None:
        world = formed(2, min_replicas=2)
        world.join(0, cause=Cause.WORKER_FAILED)
        told = world.member(1)
        world.suspend(True)
        assert world.state.given_up == (*world.state.participants[:1], told)
        world.change(1, pod=PodState.SUCCEEDED)
        world.change(0, pod=PodState.SUCCEEDED)
        world.suspend(False)
        world.up(0, 1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_a_new_operator_knows_the_failure_that_the_last_one_saw(self) -> None:
        world = formed(2)
        world.leave(1)
        world.change(1, pod=PodState.CRASH_LOOP, crashes=1)
        world.state = replace(world.state, clocks=Clocks(opened=world.now, formed=world.now))
        world.step()
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_a_loss_that_a_new_operator_finds_explains_the_failure_that_the_last_one_saw(self) -> None:
        world = formed(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.workers[1, 0] = replace(world.workers[1, 0], id="another", request=None)
        world.state = replace(world.state, clocks=Clocks(opened=world.now, formed=world.now))
        world.join(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    @pytest.mark.parametrize("pod", [PodState.CRASH_LOOP, PodState.OOM_KILLED])
    def test_a_member_whose_trainer_is_at_fault_gets_a_fresh_pod_and_counts(self, pod: PodState) -> None:
        world = formed(2)
        member = world.member(1)
        world.leave(1)
        world.change(1, pod=pod, crashes=1)
        assert (1, 1) in world.workers
        assert (world.state.failure, world.state.given_up) == ("worker 1 left: AgentLost", (member,))
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts, world.state.given_up) == ("2 Formed", 1, ())

    @pytest.mark.parametrize("pod", [PodState.CRASH_LOOP, PodState.OOM_KILLED])
    def test_a_trainer_at_fault_ends_the_job_at_last_even_if_only_its_pod_says_so(self, pod: PodState) -> None:
        world = formed(1, max_restarts=2)
        for number in (1, 2, 3):
            world.change(0, pod=pod, crashes=1, detail="OOMKilled")
            assert world.state.failure.startswith("worker 0 lost: its ")
            world.wait(20)
            world.up(0)
            assert world.state.restarts == number
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason.endswith(" (OOMKilled): failure 3, and maxRestarts is 2")

    def test_the_loss_of_a_fresh_pod_does_not_explain_why_its_predecessor_crashed(self) -> None:
        world = formed(2)
        world.change(1, pod=PodState.CRASH_LOOP, crashes=1)
        world.up(1)
        world.delete(1)
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_a_crash_looping_newcomer_costs_the_group_nothing(self) -> None:
        world = formed(2, max_restarts=1)
        world.scale(3)
        world.start(2)
        world.change(2, pod=PodState.CRASH_LOOP, crashes=7)
        world.wait(600, living=(0, 1))
        assert (world.phase, world.state.restarts) == ("1 Formed", 0)

    def test_crashes_before_the_first_round_end_the_job_too(self) -> None:
        world = World(replicas=1, max_restarts=2)
        world.start(0)
        world.change(0, pod=PodState.CRASH_LOOP, crashes=2)
        assert world.state.outcome is None
        world.change(0, pod=PodState.CRASH_LOOP, crashes=3, detail="exit code 2: no such file: train.py")
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason == (
            "worker 0 ended 3 times before it joined, and maxRestarts is 2: exit code 2: no such file: train.py"
        )

    def test_what_is_no_torchrun_is_not_started_a_third_time(self) -> None:
        """The kubelet would hold back each further start for longer, and none could join."""
        world = World(replicas=1, max_restarts=3, starts_torchrun=False)
        world.start(0)
        world.change(0, pod=PodState.CRASH_LOOP, crashes=1, detail="exit code 1: RANK expected; it must be torchrun")
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason == "worker 0 ended before it joined: exit code 1: RANK expected; it must be torchrun"

    def test_a_long_unbroken_round_starts_the_count_anew(self) -> None:
        world = formed(1, restart_reset=3600)
        world.join(0, cause=Cause.WORKER_FAILED)
        assert world.state.restarts == 1
        world.wait(3600, living=(0,))
        assert world.state.restarts == 0


class TestBackOff:
    """Pods that fail by themselves are made anew at once, then after 10, 20, 40, ... 300 s."""

    FAULTS: ClassVar[dict[str, Callable[[World], object]]] = {
        "failed": lambda job: job.change(1, pod=PodState.FAILED, detail="UnexpectedAdmissionError"),
        "out of memory": lambda job: job.change(1, pod=PodState.OOM_KILLED),
        "exit code 0": lambda job: job.exit(1),
        "store not ready": lambda job: (job.start(1), job.leave(1, Cause.STORE_NOT_READY)),
    }

    @pytest.mark.parametrize("fault", FAULTS)
    def test_each_pod_that_fails_by_itself_comes_later_than_the_one_before(self, fault: str) -> None:
        world = formed(1, max_restarts=1000)
        world.scale(2)
        for number, delay in enumerate([0, 10, 20, 40, 80, 160, 300, 300], start=1):
            self.FAULTS[fault](world)
            if delay:
                assert (1, number) not in world.workers
                assert world.log[-1].endswith(f"failure {number} in a row, and the next pod is made in {delay} s")
                assert 0 < (world.step().wake_at or 0) <= world.now + delay
                world.wait(delay - 1, living=(0,))
                assert (1, number) not in world.workers
                world.wait(1, living=(0,))
            assert (1, number) in world.workers
        assert world.phase == "1 Formed"

    @pytest.mark.parametrize(
        "end",
        [
            lambda job: job.delete(1),
            lambda job: job.change(1, pod=PodState.FAILED, disrupted=True),
            lambda job: job.change(1, pod=PodState.SUCCEEDED, disrupted=True),
        ],
        ids=["deleted", "evicted", "evicted with exit code 0"],
    )
    def test_a_pod_that_others_end_is_made_anew_at_once(self, end: Callable[[World], object]) -> None:
        world = formed(2, max_restarts=0)
        for number in range(1, 6):
            end(world)
            assert (1, number) in world.workers
            world.rejoin(0)
            world.up(1)
        assert (world.state.outcome, world.state.restarts) == (None, 0)

    def test_a_failure_is_forgotten_once_a_pod_has_stood_in_a_round(self) -> None:
        world = formed(1)
        world.scale(2)
        for _ in range(2):
            world.change(1, pod=PodState.FAILED)
        world.wait(10, living=(0,))
        world.up(1)
        world.rejoin(0)
        world.wait(299, living=(0, 1))
        assert set(world.state.clocks.failures) == {1}
        world.wait(1, living=(0, 1))
        assert world.state.clocks.failures == {}

    def test_a_member_that_failed_is_the_trainings_failure(self) -> None:
        world = formed(2)
        world.change(1, pod=PodState.FAILED, detail="exceeded its ephemeral storage")
        why = "worker 1 lost: its pod failed (exceeded its ephemeral storage)"
        assert (world.phase, world.state.failure) == ("2 Forming", why)
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    @pytest.mark.parametrize("pod", [PodState.FAILED, PodState.OOM_KILLED])
    def test_pods_that_fail_before_they_join_end_the_job(self, pod: PodState) -> None:
        world = World(replicas=2, min_replicas=2, max_restarts=2)
        world.up(0)
        for _ in range(3):
            assert world.state.outcome is None
            world.wait(20, living=(0,))
            world.change(1, pod=pod, detail="TopologyAffinityError")
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason == (
            "worker 1's pods failed 3 times in a row before they were in any round, and maxRestarts is 2: "
            "its pod failed (TopologyAffinityError)"
        )

    def test_who_fails_again_and_again_costs_a_group_nothing_that_can_do_without(self) -> None:
        world = formed(2, min_replicas=2, max_restarts=1)
        world.scale(3)
        for _ in range(4):
            world.wait(40, living=(0, 1))
            world.change(2, pod=PodState.FAILED)
        world.delete(0)  # for a moment too few are there
        world.rejoin(1)
        world.up(0)
        world.wait(30, living=(0, 1))
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1])

    def test_a_crash_loop_costs_a_group_nothing_that_can_do_without(self) -> None:
        world = formed(2, min_replicas=2, max_restarts=1)
        world.scale(3)
        world.start(2)
        world.change(2, pod=PodState.CRASH_LOOP, crashes=7)
        world.delete(0)
        assert world.state.outcome is None
        world.rejoin(1)
        world.up(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1])

    def test_the_failures_of_members_count_against_the_budget_alone(self) -> None:
        """They may yet be explained by what befell another."""
        world = formed(2, min_replicas=2, max_restarts=0)
        world.change(1, pod=PodState.CRASH_LOOP, crashes=1)
        assert (world.phase, world.state.outcome) == ("2 Forming", None)
        world.delete(0)
        world.up(0, 1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)


class TestOutdatedPods:
    def test_a_pod_of_another_template_is_told_to_leave_and_replaced(self) -> None:
        world = formed(2, max_restarts=0)
        old = world.member(0)
        world.change(0, outdated=True)
        assert (world.phase, world.state.planned) == ("2 Forming", True)
        assert (world.state.reason, world.state.leaving) == ("spec.template was changed", (old,))
        assert {(0, 0), (0, 1), (1, 0)} == set(world.workers)
        world.rejoin(1)
        world.workers[0, 0] = replace(world.workers[0, 0], pod=PodState.SUCCEEDED)
        world.step()
        world.up(0)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 0)

    def test_one_that_has_not_started_is_replaced_at_once(self) -> None:
        world = World(replicas=2)
        world.up(0)
        world.change(1, outdated=True)
        assert ((1, 0) in world.workers, (1, 1) in world.workers) == (False, True)
        assert world.state.leaving == ()

    def test_a_finished_one_stays_finished(self) -> None:
        world = formed(2)
        world.finish(1)
        world.change(1, outdated=True)
        assert (world.phase, set(world.workers)) == ("1 Formed", {(0, 0), (1, 0)})


class TestUnknownPods:
    """A pod whose number is not the agreed one was made by somebody else."""

    @staticmethod
    def forged(world: World, number: int) -> None:
        join = Request(type=RequestType.JOIN, after=world.state.last_formed, cause=Cause.STARTED)
        forged = Worker(index=1, replacement=number, id="f0", address="10.9.9.9:29402", request=join, heartbeat=0)
        world.workers[1, number] = forged
        world.step()

    @pytest.mark.parametrize("number", [1, 50, 999_999_999])
    def test_it_is_no_worker_and_goes(self, number: int) -> None:
        world = formed(2, worker_lost=15)
        self.forged(world, number)
        assert (world.phase, world.state.waiting, world.told.count("UnknownPod")) == ("1 Formed", 0, 1)
        assert world.step().wake_at == world.now + 15
        world.wait(14, living=(0, 1))
        assert (1, number) in world.workers, "the status may be older than what is known of the pods"
        world.wait(1, living=(0, 1))
        assert set(world.workers) == {(0, 0), (1, 0)}
        assert world.state.replacements == {}

    def test_no_replacement_has_the_number_of_a_pod_that_is_there(self) -> None:
        world = formed(2)
        self.forged(world, 1)
        world.workers[1, 0] = replace(world.workers[1, 0], deleting=True)
        world.step()
        assert world.state.replacements == {1: 2}
        assert (1, 2) in world.workers
        world.rejoin(0)
        world.up(1)
        assert [member.id for member in world.state.participants if member.index == 1] != ["f0"]


class TestReasons:
    def test_a_replacement_is_no_scaling(self) -> None:
        world = formed(2)
        world.delete(1)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.rejoin(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0])
        world.up(1)
        assert (world.phase, world.state.reason) == ("3 Forming", "worker 1 joined")

    def test_room_that_was_found_later_is_no_scaling(self) -> None:
        world = World(replicas=3, min_replicas=1, last_call=30)
        world.up(0)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.change(2, pod=PodState.UNSCHEDULABLE)
        assert world.phase == "1 Formed"
        world.start(1, 2)
        world.join(1, 2)
        assert (world.phase, world.state.reason) == ("2 Forming", "workers 1, 2 joined")

    def test_a_scaling_is_told_by_what_was_wanted(self) -> None:
        world = formed(3)
        world.delete(2)
        world.change(2, pod=PodState.UNSCHEDULABLE)
        world.rejoin(0, 1)
        assert world.ranks == [0, 1]
        world.scale(1)
        assert world.state.reason == "scaled from 3 to 1"


class TestFinish:
    def test_complete_only_after_the_last_member_has_finished(self) -> None:
        world = formed(2)
        world.finish(1)
        world.change(1, pod=PodState.SUCCEEDED)
        world.wait(1000, living=(0,))
        assert world.phase == "1 Formed"
        world.finish(0)
        assert world.state.outcome is Outcome.COMPLETE

    def test_a_pod_that_succeeded_has_finished_even_if_its_last_word_was_lost(self) -> None:
        world = formed(2, worker_lost=15)
        world.exit(0)
        world.exit(1)
        assert world.step().wake_at == world.now + 15
        world.wait(14)
        assert world.state.finished == ()
        world.wait(1)
        assert world.state.outcome is Outcome.COMPLETE
        assert set(world.workers) == {(0, 0), (1, 0)}

    @pytest.mark.parametrize("cause", [Cause.AGENT_LOST, Cause.TRAINER_LEFT, Cause.WORKER_FAILED])
    @pytest.mark.parametrize("pod_first", [False, True])
    def test_exit_code_0_after_a_failure_is_no_success(self, cause: Cause, pod_first: bool) -> None:
        """`bash -c "torchrun train.py | tee log"`, and torchrun is killed. Pod and record are seen in any order."""
        world = formed(2, worker_lost=15)
        if pod_first:
            world.exit(1)
            world.wait(14, living=(0, 1))
            assert world.phase == "1 Formed"
        world.leave(1, cause)
        if not pod_first:
            world.exit(1)
        assert (world.phase, world.state.finished) == ("2 Forming", ())
        assert (1, 1) in world.workers
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 1)
        world.wait(100, living=(0, 1))
        assert world.state.outcome is None

    @pytest.mark.parametrize("last_word", [Cause.POD_STOPPING, Cause.MEMBERSHIP_CHANGED, None])
    def test_exit_code_0_between_two_rounds_is_no_success(self, last_word: Cause | None) -> None:
        """An agent that is killed while it waits for the next round: the last word is the pod's, or still its join."""
        world = formed(3)
        world.delete(2)
        world.rejoin(1)
        if last_word is not None:
            world.leave(1, last_word)
        world.exit(1)
        assert (world.state.finished, (1, 1) in world.workers) == ((), True)
        world.rejoin(0)
        world.up(1, 2)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2])

    def test_an_agent_that_is_killed_before_the_first_round_gets_a_new_pod(self) -> None:
        world = World(replicas=2)
        world.up(0)
        world.start(1)
        world.leave(1, Cause.AGENT_LOST)
        world.exit(1)
        assert (1, 1) in world.workers
        world.up(1)
        assert (world.phase, world.state.restarts) == ("1 Formed", 0)

    def test_exit_code_0_of_a_newcomer_is_no_success(self) -> None:
        """The command was changed while the job was suspended, and is no torchrun any more."""
        world = formed(1)
        world.scale(2)
        world.start(1)
        world.exit(1)
        assert (world.phase, world.state.finished) == ("1 Formed", ())
        assert (1, 1) in world.workers

    def test_no_round_is_formed_while_a_members_last_word_is_awaited(self) -> None:
        world = formed(3, min_replicas=1, last_call=5)
        world.delete(2)
        world.rejoin(0)
        world.wait(70, living=(0, 1))
        world.exit(1)
        world.wait(14, living=(0, 2))
        assert world.phase == "2 Forming"
        world.finish(1)
        assert (world.phase, world.ranks, len(world.state.done)) == ("2 Formed", [0], 1)

    def test_who_closes_and_finishes_is_not_lost_before_its_close_is_read(self) -> None:
        world = formed(2)
        world.exit(0)
        world.close(0)
        assert world.state.outcome is Outcome.CLOSED
        world.finish(0, 1)
        assert world.state.outcome is Outcome.COMPLETE

    def test_a_finished_member_is_neither_awaited_nor_replaced_in_the_next_round(self) -> None:
        world = formed(3, min_replicas=3)
        world.finish(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.rejoin(1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1])
        assert set(world.workers) == {(0, 0), (1, 0), (2, 0)}
        world.finish(0, 1)
        assert world.state.outcome is Outcome.COMPLETE

    def test_a_finished_worker_whose_sidecar_was_restarted_has_finished_once(self) -> None:
        world = formed(3, min_replicas=3)
        world.finish(2)
        world.start(2)
        world.change(2, pod=PodState.SUCCEEDED)
        world.join(1, cause=Cause.WORKER_FAILED)
        world.change(0, pod=PodState.FAILED)
        world.change(0, pod=PodState.UNSCHEDULABLE)
        assert world.phase == "2 Forming"  # two of the three must be there, and worker 0 is not

    def test_a_finished_worker_whose_sidecar_was_restarted_is_not_lost_while_it_saves(self) -> None:
        world = formed(3)
        world.finish(2)
        world.start(2)
        world.wait(100, living=(0, 1))
        assert (2, 0) in world.workers
        world.finish(0, 1)
        assert (2, 0) in world.workers

    def test_a_round_about_to_end_is_not_broken_for_newcomers(self) -> None:
        world = formed(2)
        world.finish(1)
        world.scale(3)
        world.up(2)
        world.wait(300, living=(0, 2))
        assert world.phase == "1 Formed"
        world.finish(0)
        assert world.state.outcome is Outcome.COMPLETE
        assert (2, 0) not in world.workers

    def test_success_without_a_rendezvous_is_a_mistake_of_the_command(self) -> None:
        world = World(replicas=1)
        world.start(0)
        world.exit(0)
        assert world.state.outcome is Outcome.FAILED
        assert world.state.reason == (
            "worker 0: its trainer ended with exit code 0 without joining a round: its command must be torchrun, "
            "without --standalone and --rdzv-backend, and a shell around it must pass on its exit code"
        )
        assert set(world.workers) == {(0, 0)}, "its log is kept"

    @pytest.mark.parametrize("record", ["none", "asks for nothing", "the pod stops"])
    def test_a_command_that_exits_at_once_makes_one_pod(self, record: str) -> None:
        """`["true"]` may end before its sidecar has written a record, or after that was told to stop."""
        world = World(replicas=1)
        if record != "none":
            world.start(0)
        if record == "the pod stops":
            world.leave(0, Cause.POD_STOPPING)
        world.exit(0)
        assert world.state.outcome is Outcome.FAILED
        assert "its command must be torchrun" in world.state.reason

    def test_after_the_end_nothing_is_replaced(self) -> None:
        world = formed(1)
        world.finish(0)
        world.delete(0)
        assert world.workers == {}


class TestClose:
    def test_close_lets_the_round_train_on_and_nobody_join_another(self) -> None:
        world = formed(2)
        world.scale(3)
        world.close(0)
        assert (world.phase, world.state.outcome) == ("1 Closed", Outcome.CLOSED)
        world.finish(0)
        assert world.state.outcome is Outcome.CLOSED
        world.finish(1)
        assert world.state.outcome is Outcome.COMPLETE

    def test_a_member_that_fails_after_close_cannot_come_back(self) -> None:
        world = formed(2)
        world.close(0)
        world.finish(0)
        world.join(1, cause=Cause.WORKER_FAILED, after=1)
        assert world.state.outcome is Outcome.FAILED

    def test_after_close_a_suspended_job_completes_when_its_round_has_ended(self) -> None:
        world = formed(2)
        world.close(0)
        world.suspend(True)
        world.finish(0)
        world.exit(0)
        world.exit(1)
        world.wait(15)
        assert world.state.outcome is Outcome.COMPLETE

    @pytest.mark.parametrize("last_word", ["join", "finish"])
    def test_closed_is_final(self, last_word: str) -> None:
        world = formed(1)
        world.finish(0)
        before = world.state
        getattr(world, last_word)(0)
        assert world.state == before


class TestSuspend:
    def test_all_leave_as_planned_and_resume_forms_the_next_round(self) -> None:
        world = formed(2, max_restarts=0)
        world.suspend(True)
        assert (world.phase, world.state.reason) == ("2 Forming", "suspended")
        assert len(world.state.leaving) == 2
        world.change(0, pod=PodState.SUCCEEDED)
        world.change(1, pod=PodState.SUCCEEDED)
        assert (world.workers, world.state.outcome) == ({}, None)
        world.wait(10_000)
        world.suspend(False)
        world.up(0, 1)
        assert world.phase == "2 Formed"
        assert world.log[-1] == "round 2 formed with 2 workers in 0.0 s: resumed"

    def test_exit_0_in_the_moment_of_suspension_is_not_completion(self) -> None:
        world = formed(1)
        world.spec = replace(world.spec, suspend=True)
        world.change(0, pod=PodState.SUCCEEDED)
        assert (world.state.outcome, world.state.finished, world.workers) == (None, (), {})
        assert world.state.reason == "worker 0 lost: its pod ended while the job was suspended"
        world.suspend(False)
        assert set(world.workers) == {(0, 1)}

    def test_a_finish_in_the_moment_of_suspension_is_not_completion(self) -> None:
        world = formed(1)
        world.spec = replace(world.spec, suspend=True)
        world.finish(0)
        assert (world.state.outcome, world.state.finished, world.state.reason) == (None, (), "suspended")

    def test_a_suspended_job_starts_no_pod(self) -> None:
        world = World(replicas=2, suspend=True)
        assert world.workers == {}
        world.suspend(False)
        assert set(world.workers) == {(0, 0), (1, 0)}


def test_a_new_operator_goes_on_where_the_old_one_was() -> None:
    """Only the clocks are lost with an operator: nothing is broken by their absence."""
    world = formed(3)
    world.state = replace(world.state, clocks=Clocks(opened=5.0, formed=5.0))
    world.now = 5.0
    world.step()
    assert (world.phase, world.ranks) == ("1 Formed", [0, 1, 2])


def test_nobody_is_left_to_stay_after_the_end() -> None:
    """A victim that hangs when the others complete the job: no rule runs any more that would find it overdue."""
    world = formed(3)
    world.finish(0)
    world.scale(1)
    assert world.state.outcome is Outcome.COMPLETE
    assert set(world.workers) == {(0, 0)}

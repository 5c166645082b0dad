# SPDX-License-Identifier: Apache-2.0
"""The table of moves, and what ends by plan: tables, and no stories, which are in the transcripts."""

from dataclasses import replace

import pytest

from elasticjob.rendezvous import Request
from elasticjob.rendezvous.transitions import MOVES, TABLE, IllegalMove, moved
from elasticjob.terms import Outcome, RendezvousPhase, RequestCause, RequestType
from support.job_on_paper import formed
from support.rendezvous_transcript import job_after

LAST_MOVES = {
    ("Forming", "RoundFormed"): "up 0 1",
    ("Forming", "RendezvousTimeout"): "up 0; start 1; leave 1; wait 600: 0 1",
    ("Forming", "Failed"): "up 0; close 0",
    ("Forming", "Complete"): "up 0 1; finish 1; delete 0; scale 1",
    ("Formed", "RoundBroken"): "up 0 1; delete 0",
    ("Formed", "RoundReopened"): "up 0 1; scale 3; up 2",
    ("Formed", "StageFinished"): "up 0 1; succeed 0 1; join 0 stage=2",
    ("Formed", "Complete"): "up 0 1; finish 0 1",
    ("Formed", "Failed"): "up 0 1; succeed 0 1; wait 3600: 0 1",
    ("Formed", "Closed"): "up 0 1; close 0",
    ("Closed", "Complete"): "up 0 1; close 0; finish 0 1",
    ("Closed", "Failed"): "up 0 1; close 0; leave 0; leave 1",
}
ENDS_BY_PLAN = ["scale 4; up 3", "scale 2", "suspend"]
STOPS_UNTOLD = ["pod 1 deleting", "leave 1", "fail 1", "start 1", "pod 1 out-of-memory"]


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_there_is_a_story_of_each_row(row: tuple[RendezvousPhase, str]) -> None:
    job = job_after(f"job replicas=2 min_replicas=2 max_restarts=0; {LAST_MOVES[row]}")
    made, phase = None, RendezvousPhase.FORMING
    for word in job.told:
        if (phase, word) in TABLE:
            made = (phase, word)
            phase = TABLE[made].target
    assert made == row


@pytest.mark.parametrize("phase", RendezvousPhase)
def test_no_other_move_is_made(phase: RendezvousPhase) -> None:
    state = replace(job_after("formed 1").state, phase=phase, outcome=Outcome.CLOSED if phase == "Closed" else None)
    for event in {move.event for move in MOVES if (phase, move.event) not in TABLE}:
        with pytest.raises(IllegalMove, match=f"round 1 is {phase}: {event} is no move"):
            moved(state, event)


def test_no_move_leads_out_of_an_end() -> None:
    with pytest.raises(IllegalMove, match=r"round 1 has ended \(Complete\): Failed is no move"):
        moved(job_after("formed 1; finish 0").state, Outcome.FAILED)


@pytest.mark.parametrize("ends", ENDS_BY_PLAN)
@pytest.mark.parametrize("stops", STOPS_UNTOLD)
def test_an_end_by_plan_is_none_once_a_member_has_stopped_untold(ends: str, stops: str) -> None:
    """Whoever would wait for it is to stop at once."""
    job = job_after(f"formed 3; {ends}")
    assert (job.phase, job.state.planned, job.state.intact) == ("2 Forming", True, True)
    job = job_after(stops, job)
    assert (job.phase, job.state.planned, job.state.intact) == ("2 Forming", False, False)


@pytest.mark.parametrize("ends", ["scale 4; start 3; join 3 live=True", "scale 2"])
@pytest.mark.parametrize("stops", STOPS_UNTOLD)
def test_a_round_that_is_lived_through_is_intact_until_a_member_has_stopped_untold(ends: str, stops: str) -> None:
    """Others may wait for it in a collective."""
    job = job_after(f"formed 3; live 0 1 2; {ends}")
    assert (job.phase, job.state.planned, job.state.intact) == ("2 Forming", False, True)
    job = job_after(stops, job)
    assert (job.phase, job.state.intact) == ("2 Forming", False)
    assert job.state.restarts == 0


@pytest.mark.parametrize("stops", STOPS_UNTOLD)
def test_a_loss_is_no_plan(stops: str) -> None:
    job = job_after(f"formed 3; {stops}; scale 1")
    assert (job.phase, job.state.planned, job.state.intact) == ("2 Forming", False, False)


def test_the_deletion_of_who_has_left_as_told_does_not_hurry_those_who_save() -> None:
    """The operator deletes such a pod at once, while others still save."""
    job = formed(3)
    job.scale(2)
    left = Request(type=RequestType.LEAVE, cause=RequestCause.TOLD_TO_LEAVE)
    job.workers[2, 0] = replace(job.workers[2, 0], deleting=True, request=left)
    job.step()
    assert job.state.planned

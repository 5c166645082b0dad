# SPDX-License-Identifier: Apache-2.0
"""For how long a job has been active: from its start on, over suspensions, operators and its end."""

import pytest

from elasticjob.api import Active, ElasticJobSpec
from elasticjob.rendezvous import Clocks, State
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.deadline import active_of, left_of

FORMING = State(clocks=Clocks(opened=0.0, formed=0.0))
CLOSED = State(clocks=FORMING.clocks, phase=RendezvousPhase.CLOSED, outcome=Outcome.CLOSED)
FAILED = State(clocks=FORMING.clocks, phase=RendezvousPhase.CLOSED, outcome=Outcome.FAILED)
SPEC = ElasticJobSpec(template={}, active_deadline_seconds=600)


def at(seconds: int) -> str:
    return f"2026-01-02T03:{seconds // 60:02}:{seconds % 60:02}Z"


def test_the_time_of_suspensions_does_not_count_and_that_before_them_does() -> None:
    active: Active | None = None
    moments = ((0, True), (10, False), (110, False), (500, True), (510, False), (710, True), (720, True), (900, False))
    told = []
    for second, suspended in moments:
        active = active_of(active, FORMING, at(second), suspended=suspended)
        told.append((active.seconds, active.since, left_of(SPEC, active, at(second))))
    assert told == [
        (0, None, None),
        (0, at(10), 600),
        (0, at(10), 500),
        (490, None, None),
        (490, at(510), 110),
        (690, None, None),
        (690, None, None),
        (690, at(900), -90),
    ]


@pytest.mark.parametrize(
    ("state", "suspended", "is_active"),
    [(CLOSED, True, True), (FAILED, False, False), (FAILED, True, False)],
    ids=["closed and suspended, so it trains on", "ended", "ended and suspended"],
)
def test_a_job_is_active_until_it_is_suspended_or_ends(state: State, suspended: bool, is_active: bool) -> None:
    after = active_of(Active(seconds=7, since=at(10)), state, at(30), suspended=suspended)
    assert (after.seconds, after.since) == ((7, at(10)) if is_active else (27, None))


def test_without_the_field_there_is_no_deadline_and_with_it_later_all_counts() -> None:
    active = Active(seconds=100, since=at(0))
    assert left_of(ElasticJobSpec(template={}), active, at(60)) is None
    assert left_of(SPEC, active, at(60)) == 440


def test_a_clock_that_was_set_back_gives_nothing_back() -> None:
    assert active_of(Active(seconds=7, since=at(30)), FORMING, at(10), suspended=True).seconds == 7

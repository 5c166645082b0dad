# SPDX-License-Identifier: Apache-2.0
"""When the operator writes a new status, and what may follow before it does."""

from dataclasses import replace

import pytest

from elasticjob.api import ElasticJobStatus, LeaseIdentity, Progress
from elasticjob.rendezvous import Member, State, Worker
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.debounce import Due, due_of, report_seconds, without_idle_term
from elasticjob_operator.job.outcome import Deferred, Retry
from support.statuses import FORMED, status

STATE = replace(FORMED, leaving=(), finished=())
BROKEN = replace(STATE, phase=RendezvousPhase.FORMING, store=None, reason="worker 1 lost")
REST = replace(STATE, pinged=())
FORMS = replace(BROKEN, pinged=())
ASKED = replace(STATE, ping=1, pinged=STATE.participants)
LEASE = LeaseIdentity(namespace="ops", name="operator", uid="b", created="2026-01-02T00:00:00Z")
SHOWN = Progress(step=7, total=9, summary="7/9")


def of(size: int) -> State:
    return replace(STATE, participants=tuple(Member(index, f"{index:x}") for index in range(size)))


def shown(state: State, progress: Progress | None) -> ElasticJobStatus:
    return status(state).model_copy(update={"progress": progress})


@pytest.mark.parametrize("state", [BROKEN, replace(STATE, replacements={1: 3}), replace(STATE, restarts=3), ASKED])
def test_rounds_and_pods_do_not_wait(state: State) -> None:
    assert due_of(status(STATE), status(state), written=0, shown=0, differs=0) == Due()


@pytest.mark.parametrize(("size", "seconds"), [(2, 1), (64, 1), (1024, 16)])
def test_counters_gather_and_nothing_waits_for_them(size: int, seconds: float) -> None:
    before, after = status(of(size)), status(replace(of(size), waiting=1))
    assert due_of(before, after, written=100, shown=100, differs=0) == Deferred(seconds)
    assert due_of(before, after, written=0, shown=0, differs=seconds) == Due()
    ready = status(of(size), workers=(Worker(index=0),))
    assert due_of(before, ready, written=100, shown=100, differs=0) == Deferred(seconds)


def test_what_the_rendezvous_goes_on_from_is_written_first() -> None:
    before, after = status(STATE), status(replace(STATE, finished=(Member(1, "b"),)))
    assert due_of(before, after, written=0.25, shown=0.25, differs=0.25) == Retry(0.75)
    assert due_of(before, after, written=1, shown=1, differs=0) == Due()


@pytest.mark.parametrize(("size", "seconds"), [(2, 5), (80, 5), (1024, 64)])
def test_progress_alone_waits_longer_the_more_sidecars_watch(size: int, seconds: float) -> None:
    before, after = shown(of(size), None), shown(of(size), SHOWN)
    assert due_of(before, after, written=0, shown=0, differs=0) == Deferred(seconds)
    assert due_of(before, after, written=0, shown=seconds, differs=0) == Due()


@pytest.mark.parametrize(("jobs", "seconds"), [(1, 5), (50, 5), (1000, 100)])
def test_progress_alone_waits_longer_the_more_jobs_there_are(jobs: int, seconds: float) -> None:
    before, after = shown(STATE, None), shown(STATE, SHOWN)
    assert due_of(before, after, written=0, shown=0, differs=0, jobs=jobs) == Deferred(seconds)
    assert due_of(status(STATE), status(BROKEN), written=0, shown=0, differs=0, jobs=jobs) == Due()


@pytest.mark.parametrize(("state", "waits"), [(REST, 100), (BROKEN, 1), (ASKED, 1)], ids=["stands", "forms", "asked"])
def test_a_report_waits_longer_the_more_jobs_there_are_only_while_a_round_stands(state: State, waits: float) -> None:
    body = {"status": status(state).dump()}
    assert report_seconds(body, jobs=1000) == waits
    assert report_seconds(body, jobs=1) == 1
    body["status"]["starting"] = True
    assert report_seconds(body, jobs=1000) == 1


@pytest.mark.parametrize(("state", "tells"), [(REST, False), (FORMS, True), (ASKED, True)])
def test_a_new_term_alone_is_told_while_it_has_to_keep_out_the_leader_before(state: State, tells: bool) -> None:
    before = status(state)
    after = before.model_copy(update={"term": before.term + 1})
    assert (without_idle_term(before, after) != before) is tells
    other = after.model_copy(update={"lease": LEASE})
    assert without_idle_term(before, other) == other, "another installation's is to be seen"

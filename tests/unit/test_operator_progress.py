"""How far the training is: whose word counts, how it reads, and how seldom it is written."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from operator_objects import ID, job, record
from test_operator_status import FORMED, status

from elasticjob.api import ElasticJobSpec, ElasticJobStatus, Progress
from elasticjob.rendezvous import Clocks, Decision, Member, State
from elasticjob.terms import RendezvousPhase
from elasticjob_operator import reconciler
from elasticjob_operator.cache import Cache, JobView, Key
from elasticjob_operator.pods import SidecarImage
from elasticjob_operator.progress import progress_of, seconds_to_wait
from elasticjob_operator.reconciler import Memory, Reconciler
from elasticjob_operator.status import Report

KEY = Key("ml", "digits")
STATE = replace(FORMED, participants=(Member(1, ID), Member(0, "0" * 32)), replacements={1: 2}, leaving=(), finished=())
SHOWN = Progress(step=7, total=9, metrics={"loss": 0.5}, summary="7/9")


def said(index: int, number: int, id: str = ID, **progress: Any) -> dict[str, Any]:
    found = record(index, number, id=id)
    found["status"] |= progress
    return found


def view(*records: dict[str, Any]) -> JobView:
    return JobView(job=job(), workers={one["metadata"]["name"]: one for one in records})


def test_it_is_what_rank_0s_worker_says() -> None:
    seen = view(said(1, 2, step=7, total=9, metrics={"loss": 0.5}), said(0, 0, id="0" * 32, step=3))
    assert progress_of(seen, STATE, None) == SHOWN


@pytest.mark.parametrize(
    "records",
    [
        (),
        (said(1, 2),),  # nothing reported yet
        (said(1, 1, step=3),),  # of a pod that was given up
        (said(1, 2, id="f" * 32, step=3),),  # of another incarnation
        (said(1, 2, step=-1),),
    ],
)
def test_it_stays_while_rank_0_says_nothing(records: tuple[dict[str, Any], ...]) -> None:
    assert progress_of(view(*records), STATE, SHOWN) == SHOWN
    assert progress_of(view(*records), State(clocks=STATE.clocks), None) is None


@pytest.mark.parametrize(
    ("reported", "summary"),
    [({"step": 7}, "7"), ({"step": 0, "total": 9}, "0/9"), ({"total": 9}, ""), ({"metrics": {"loss": 1.0}}, "")],
)
def test_step_and_total_are_one_word(reported: dict[str, Any], summary: str) -> None:
    found = progress_of(view(said(1, 2, **reported)), STATE, None)
    assert found is not None
    assert found.summary == summary


def shown(state: State, progress: Progress | None) -> ElasticJobStatus:
    return status(state).model_copy(update={"progress": progress})


@pytest.mark.parametrize(("size", "seconds"), [(2, 5), (80, 5), (1024, 64)])
def test_alone_it_waits_longer_the_more_sidecars_watch(size: int, seconds: float) -> None:
    state = replace(STATE, participants=tuple(Member(index, f"{index:x}") for index in range(size)))
    before, after = shown(state, None), shown(state, SHOWN)
    assert seconds_to_wait(before, after, since=0) == seconds
    assert seconds_to_wait(before, after, since=seconds) == 0


def test_with_other_news_it_does_not_wait() -> None:
    assert seconds_to_wait(shown(STATE, None), shown(replace(STATE, waiting=1), SHOWN), since=0) == 0


class Statuses:
    """The API server, as far as statuses are written."""

    def __init__(self) -> None:
        self.written: list[ElasticJobStatus] = []

    async def replace_job_status(self, body: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        self.written.append(ElasticJobStatus.parse(status))
        return body


async def test_the_operator_goes_on_while_progress_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(reconciler, "time", SimpleNamespace(monotonic=lambda: clock.now))
    kube, leadership = Statuses(), SimpleNamespace(term=5)
    made = Reconciler(cast(Any, kube), Cache(), cast(Any, leadership), cast(Any, None), SidecarImage("x", "Always"))
    memory = Memory("uid", 0, Clocks(opened=0, formed=0))

    async def written(state: State, progress: Progress) -> int:
        before = kube.written[-1] if kube.written else ElasticJobStatus()
        spec = ElasticJobSpec.parse(job()["spec"])
        report = Report(job(), spec, (), 0, Decision(state), before, None, None, 5, "2026-01-02T03:04:05Z", progress)
        assert await made._write(KEY, memory, report) is None  # a number would stop all else
        return len(kube.written)

    assert await written(STATE, SHOWN) == 1
    clock.now += 2
    newer = SHOWN.model_copy(update={"step": 8})
    assert await written(STATE, newer) == 1
    assert memory.progress_in == 3
    broken = replace(STATE, round=4, phase=RendezvousPhase.FORMING, store=None, reason="worker 1 lost")
    assert await written(broken, newer) == 2  # other news take it along
    assert (memory.progress_in, kube.written[-1].progress) == (None, newer)
    clock.now += 5
    assert await written(broken, SHOWN) == 3

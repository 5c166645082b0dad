"""When the operator writes a new status, and what it does meanwhile."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobSpec, ElasticJobStatus, Progress
from elasticjob.rendezvous import Clocks, Decision, Member, State, Worker
from elasticjob.terms import RendezvousPhase
from elasticjob_operator import reconciler
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.job.pace import delay_of
from elasticjob_operator.job.status import Report
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.reconciler import Memory, Reconciler
from support.operator_objects import job
from support.statuses import FORMED, status

KEY = Key("ml", "digits")
STATE = replace(FORMED, leaving=(), finished=())
BROKEN = replace(STATE, phase=RendezvousPhase.FORMING, store=None, reason="worker 1 lost")
SHOWN = Progress(step=7, total=9, summary="7/9")


def of(size: int) -> State:
    return replace(STATE, participants=tuple(Member(index, f"{index:x}") for index in range(size)))


def shown(state: State, progress: Progress | None) -> ElasticJobStatus:
    return status(state).model_copy(update={"progress": progress})


@pytest.mark.parametrize("state", [BROKEN, replace(STATE, replacements={1: 3}), replace(STATE, restarts=3)])
def test_rounds_and_pods_do_not_wait(state: State) -> None:
    assert delay_of(status(STATE), status(state), written=0, differs=0).seconds == 0


@pytest.mark.parametrize(("size", "seconds"), [(2, 1), (64, 1), (1024, 16)])
def test_counters_gather_and_nothing_waits_for_them(size: int, seconds: float) -> None:
    before, after = status(of(size)), status(replace(of(size), waiting=1))
    assert delay_of(before, after, written=100, differs=0) == (seconds, False)
    assert delay_of(before, after, written=0, differs=seconds) == (0, False)
    ready = status(of(size), workers=(Worker(index=0),))
    assert delay_of(before, ready, written=100, differs=0) == (seconds, False)


def test_what_the_rendezvous_goes_on_from_is_written_first() -> None:
    before, after = status(STATE), status(replace(STATE, finished=(Member(1, "b"),)))
    assert delay_of(before, after, written=0.25, differs=0.25) == (0.75, True)
    assert delay_of(before, after, written=1, differs=0).seconds == 0


@pytest.mark.parametrize(("size", "seconds"), [(2, 5), (80, 5), (1024, 64)])
def test_progress_alone_waits_longer_the_more_sidecars_watch(size: int, seconds: float) -> None:
    before, after = shown(of(size), None), shown(of(size), SHOWN)
    assert delay_of(before, after, written=0, differs=0) == (seconds, False)
    assert delay_of(before, after, written=seconds, differs=0).seconds == 0


class Statuses:
    """The API server, as far as statuses are written."""

    def __init__(self) -> None:
        self.written: list[ElasticJobStatus] = []

    async def replace_job_status(self, body: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        self.written.append(ElasticJobStatus.parse(status))
        return body


async def test_the_operator_goes_on_while_counters_and_progress_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(reconciler, "time", SimpleNamespace(monotonic=lambda: clock.now))
    kube, leadership = Statuses(), SimpleNamespace(term=5)
    made = Reconciler(cast(Any, kube), Cache(), cast(Any, leadership), cast(Any, None), SidecarImage("x", "Always"))
    none = cast(Any, None)
    memory = Memory("uid", 0, Clocks(opened=0, formed=0), grants=none, template=none, pods=none)

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
    assert memory.write_in == 3
    broken = replace(BROKEN, round=4)
    assert await written(broken, newer) == 2  # other news take it along
    assert (memory.write_in, kube.written[-1].progress) == (None, newer)
    clock.now += 5
    assert await written(broken, SHOWN) == 3
    clock.now += 100
    counted = replace(broken, waiting=1)
    assert await written(counted, SHOWN) == 3
    clock.now += 0.75
    more = replace(broken, waiting=2)
    assert await written(more, SHOWN) == 3
    assert memory.write_in == 0.25
    clock.now += 0.25
    assert await written(more, SHOWN) == 4

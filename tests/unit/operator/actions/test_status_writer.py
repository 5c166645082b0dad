# SPDX-License-Identifier: Apache-2.0
"""What comes of a try to write a job's status: nothing that follows from it may be done before."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobStatus, LeaseIdentity, Progress
from elasticjob.kube.errors import Conflict
from elasticjob.rendezvous import State
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.actions import status_writer as module
from elasticjob_operator.actions.status_writer import StatusWriter
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.job.debounce import PROGRESS_WRITES_A_SECOND, progress_seconds
from elasticjob_operator.job.outcome import Deferred, Outcome, Retry, Unchanged, Written
from elasticjob_operator.job.rivals import Rivalry, Rivals
from support.operator_objects import Object, job, record, view_of
from support.recording_server import Announcements
from support.statuses import FORMED, report

STATE = replace(FORMED, leaving=(), finished=())
BROKEN = replace(STATE, round=4, phase=RendezvousPhase.FORMING, store=None, reason="worker 1 lost")
SHOWN = Progress(step=7, total=9, summary="7/9")
NEWER = Progress(step=8, total=9, summary="8/9")

OURS = LeaseIdentity(namespace="ops", name="operator", uid="b", created="2026-01-02T00:00:00Z")


class Operator:
    """One that leads in term 5, and the API server as far as statuses are written."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.written: list[ElasticJobStatus] = []
        self.conflicts = False
        self.term, self.lease = 5, OURS
        self.cache = Cache()
        self.announced = Announcements()
        parts = (self, self.cache, self, self.announced, Rivalry(Rivals(), "ml"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "time", self)
            self.writer = StatusWriter(*cast(Any, parts))

    def monotonic(self) -> float:
        return self.now

    async def outgrow(self, term: int) -> None:
        self.term = term + 1

    async def replace_job_status(self, body: Object, status: Object) -> Object:
        if self.conflicts:
            raise Conflict("the object has been modified", 409)
        self.written.append(ElasticJobStatus.parse(status))
        return body

    async def job(self, namespace: str, name: str) -> Object:
        found = job()
        found["metadata"]["resourceVersion"] = "8"
        return found

    async def write(self, state: State, progress: Progress = SHOWN, **before: Any) -> Outcome:
        """`before`: what of the status is other than this operator wrote it last."""
        known = self.written[-1] if self.written else ElasticJobStatus()
        known = known.model_copy(update=before)
        said = record(1, 2, id="b")
        said["status"] |= {"step": progress.step, "total": progress.total}
        view = view_of(job(), records={"digits-1-2": said})
        return await self.writer.write(report(state, known, view=view, term=self.term, lease=self.lease))


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    made = Operator()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


async def test_what_is_written_already_is_not_written_again(operator: Operator) -> None:
    assert await operator.write(STATE) == Written()
    assert await operator.write(STATE) == Unchanged()
    assert len(operator.written) == 1


async def test_work_goes_on_while_counters_and_progress_wait(operator: Operator) -> None:
    assert await operator.write(STATE, SHOWN) == Written()
    operator.now += 2
    assert await operator.write(STATE, NEWER) == Deferred(3)
    assert await operator.write(BROKEN, NEWER) == Written()  # other news take it along
    assert operator.written[-1].progress == NEWER
    operator.now += 5
    assert await operator.write(BROKEN, SHOWN) == Written()
    operator.now += 100
    assert await operator.write(replace(BROKEN, waiting=1), SHOWN) == Deferred(1)
    operator.now += 0.75
    assert await operator.write(replace(BROKEN, waiting=2), SHOWN) == Deferred(0.25)
    operator.now += 0.25
    assert await operator.write(replace(BROKEN, waiting=2), SHOWN) == Written()
    assert len(operator.written) == 4


async def test_the_progress_that_a_new_leader_finds_is_written_at_its_pace(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each take-over would write the statuses of all jobs at once."""
    stands, jobs = replace(STATE, pinged=()), 400
    await operator.write(stands)
    monkeypatch.setattr(Cache, "__len__", lambda _: jobs)
    leaders = [Operator() for _ in range(jobs)]
    for one in leaders:
        one.written = operator.written[:]
    written = [await _written_now(leaders, stands, now) for now in range(1000, 1001 + int(progress_seconds(jobs)))]
    assert sum(written) == jobs
    assert max(written) <= 3 * PROGRESS_WRITES_A_SECOND


async def _written_now(leaders: list[Operator], state: State, now: float) -> int:
    """The number of leaders that write their progress at this time, each at most once."""
    owing = [one for one in leaders if len(one.written) == 1]
    for one in owing:
        one.now = now
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "time", one)
            await one.write(state, NEWER)
    return sum(len(one.written) == 2 for one in owing)


async def test_a_new_leader_writes_its_term_with_the_next_change(operator: Operator) -> None:
    stands = replace(STATE, pinged=())
    await operator.write(stands)
    assert await operator.write(stands, term=4) == Unchanged()
    operator.now += 100
    assert await operator.write(stands, NEWER, term=4) == Written()
    assert operator.written[-1].term == 5


async def test_what_the_rendezvous_goes_on_from_is_waited_for(operator: Operator) -> None:
    await operator.write(STATE)
    operator.now += 0.25
    assert await operator.write(replace(STATE, finished=STATE.participants[:1])) == Retry(0.75)
    assert await operator.write(replace(STATE, leaving=STATE.participants[:1])) == Written()


async def test_a_status_that_another_has_written_is_read_and_nothing_is_done(operator: Operator) -> None:
    operator.conflicts = True
    assert await operator.write(STATE) == Retry(0.0)
    known = operator.cache.view(Key("ml", "digits")).job
    assert known is not None
    assert known["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize(
    ("before", "term"),
    [
        ({"term": 9, "lease": OURS}, 10),
        ({"term": 9, "lease": None}, 10),
        ({"term": 5, "lease": OURS.model_copy(update={"uid": "deleted"})}, 6),
    ],
    ids=["later", "later, by an older version", "the same, of a Lease that was deleted"],
)
async def test_nothing_is_written_over_a_term_that_is_not_before_this_operators(
    operator: Operator, before: dict[str, Any], term: int
) -> None:
    assert await operator.write(STATE, **before) == Retry(0.0)
    assert (operator.term, operator.written) == (term, [])
    assert await operator.write(STATE, **before) == Written()
    assert (operator.written[-1].term, operator.written[-1].lease) == (term, OURS)


@pytest.mark.parametrize("lease", [OURS, None], ids=["this Lease", "none, as the CRD knows no such field"])
async def test_a_status_of_the_same_term_is_written_over(operator: Operator, lease: LeaseIdentity | None) -> None:
    assert await operator.write(STATE, term=5, lease=lease) == Written()
    assert operator.term == 5


async def test_what_another_installation_with_an_older_lease_writes_again_and_again_is_left_to_it(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    other = LeaseIdentity(namespace="team", name="operator", uid="a", created="2026-01-01T00:00:00Z")
    for term in (6, 8):
        assert await operator.write(STATE) == Written()
        lost = await operator.write(STATE, term=term, lease=other)
        operator.written[-1] = operator.written[-1].model_copy(update={"term": term, "lease": other})
    assert lost == Retry(module.LEFT_SECONDS)
    count = len(operator.written)
    for passed, told in ((60, 1), (module.WARN_SECONDS, 2)):  # events are forgotten
        operator.now += passed
        assert await operator.write(STATE, term=8, lease=other) == Retry(module.LEFT_SECONDS)
        assert len(operator.announced) == told
    assert len(operator.written) == count
    first = operator.announced[0]
    assert first.startswith("Warning JobLeft: two installations of ElasticJob look after the namespace ml: ")
    assert "team/operator goes on with this job, and that of ops/operator, which is the younger Lease" in first
    assert "ml/digits: two installations" in caplog.text

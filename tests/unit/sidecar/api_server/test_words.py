# SPDX-License-Identifier: Apache-2.0
"""What the worker's record says under an operator that pings: answers and suspects at once, else next to nothing.

In virtual time.
"""

import asyncio
import itertools

import pytest

from elasticjob.api import Member, Members, RequestCause, RequestType, Stall, WorkerRequest
from elasticjob.kube.errors import ApiError, Conflict, Denied, Unavailable
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from support.faulty_kube import FaultyKube, Json
from support.records import kept, record_of, running

pytestmark = pytest.mark.looptime

JOIN = WorkerRequest(type=RequestType.JOIN, after=3, cause=RequestCause.STARTED)
TWO = Members([Member(1, "a.0"), Member(2, "a.0")])


def pinged(kube: FaultyKube, replicas: int = 4) -> WorkerRecord:
    record = record_of(kube)
    record.rest(True)
    record.job_sized(replicas, None)
    return record


def status(kube: FaultyKube) -> Json:
    found: Json = kube.workers["job-0-0"].get("status", {})
    return found


async def at_once(kube: FaultyKube, **expected: object) -> None:
    """Within a blink."""
    await asyncio.sleep(0.01)
    assert {key: status(kube).get(key) for key in expected} == expected


async def never(*_: object) -> Json:
    await asyncio.Event().wait()
    return {}


async def test_the_round_and_rank_are_written_within_seconds_and_once() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        await asyncio.sleep(300)
        before = kube.count("status")
        record.say(handed=(4, 1))
        await asyncio.sleep(6)
        assert (status(kube)["round"], status(kube)["rank"]) == (4, 1)
        await asyncio.sleep(60)
        assert kube.count("status") == before + 1


async def test_an_answer_waits_for_nothing_where_the_record_was_newer_than_known() -> None:
    """As after an API server that was away: a suspicion was written, the answer lost, the suspicion withdrawn since."""
    async with kept(pinged) as (kube, record):
        kube.fail["status"] = [Unavailable("no answer")]
        record.suspect(TWO)
        await asyncio.sleep(0.3)
        record.suspect(Members(()))
        await asyncio.sleep(30)
        kube.patch("job-0-0", {"metadata": {"annotations": {"a": "b"}}})
        record.ack(7)
        await at_once(kube, ack=7)


async def test_who_meets_one_conflict_after_the_other_pauses() -> None:
    async with kept(pinged) as (kube, record):
        kube.fail["status"] = [Conflict("the object has been modified", 409)] * 20
        before = kube.count("status")
        record.ack(7)
        await asyncio.sleep(1)
        assert kube.count("status") - before < 8


async def test_an_answer_is_written_at_once_and_once() -> None:
    async with kept(pinged) as (kube, record):
        assert record.ack(7)
        await at_once(kube, ack=7)
        assert not record.ack(7)
        await asyncio.sleep(60)
        assert kube.count("status") == 1
        record.ack(8)
        await at_once(kube, ack=8)


@pytest.mark.parametrize("refusal", [Unavailable("away"), Denied("forbidden", 403)], ids=["away", "denied"])
async def test_an_answer_does_not_wait_for_a_request_that_is_refused(refusal: ApiError) -> None:
    async with kept(pinged) as (kube, record):
        kube.fail["replace"] = [refusal] * 100
        record.want(JOIN)
        await asyncio.sleep(10)
        record.ack(7)
        await at_once(kube, ack=7)


async def test_an_answer_that_does_not_arrive_is_given_again() -> None:
    async with kept(pinged) as (kube, record):
        kube.fail["status"] = [Unavailable("away")]
        kube.lose["status"] = 1
        record.ack(7)
        await asyncio.sleep(1)
        assert status(kube)["ack"] == 7


async def test_an_answer_does_not_wait_for_a_dead_connection() -> None:
    async with kept(pinged) as (kube, record):
        kube.open.clear()
        record.ack(7)
        await asyncio.sleep(1.5)
        assert kube.count("status") == 2
        kube.open.set()
        await at_once(kube, ack=7)


async def test_an_answer_waits_a_second_at_most_for_another_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is made anew behind it."""
    async with kept(pinged) as (kube, record):
        replace_worker = kube.replace_worker
        monkeypatch.setattr(kube, "replace_worker", never)
        record.want(JOIN)
        await asyncio.sleep(0.5)
        assert record.ack(7)
        await asyncio.sleep(0.5)
        record.suspect(TWO)
        monkeypatch.setattr(kube, "replace_worker", replace_worker)
        await asyncio.sleep(0.49)
        assert "status" not in kube.workers["job-0-0"]
        await asyncio.sleep(0.02)
        await at_once(kube, ack=7, suspects="1-2/a.0")
        await record.written()
        assert kube.request("job-0-0") == JOIN.dump()


async def test_an_answer_does_not_wait_for_a_write_that_arrived_and_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The object is newer than it knows then."""
    kube = FaultyKube()
    record = pinged(kube)
    replace_worker = kube.replace_worker

    async def unanswered(name: str, body: Json) -> Json:
        await replace_worker(name, body)
        return await never(name, body)

    async with running(record):
        await record.written()
        monkeypatch.setattr(kube, "replace_worker", unanswered)
        record.want(JOIN)
        await asyncio.sleep(0.5)
        record.ack(7)
        await asyncio.sleep(1.2)
        assert status(kube)["ack"] == 7


async def test_an_answer_does_not_wait_until_the_record_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FaultyKube()
    record = pinged(kube)
    get_worker = kube.get_worker
    monkeypatch.setattr(kube, "get_worker", never)
    async with running(record):
        await asyncio.sleep(0.5)
        record.ack(7)
        await asyncio.sleep(0.5)
        monkeypatch.setattr(kube, "get_worker", get_worker)
        await asyncio.sleep(0.6)
        assert status(kube)["ack"] == 7


async def test_an_answer_that_is_refused_as_the_record_was_changed_is_given_soon() -> None:
    async with kept(pinged) as (kube, record):
        kube.patch("job-0-0", {"metadata": {"labels": None}})
        kube.fail["status"] = [Denied("metadata", 403)]
        record.ack(7)
        await asyncio.sleep(0.2)
        assert status(kube)["ack"] == 7


async def test_answers_that_are_refused_again_and_again_are_tried_three_seconds_apart() -> None:
    async with kept(pinged) as (kube, record):
        kube.fail["status"] = [Denied("forbidden", 403)] * 1000
        record.ack(7)
        await asyncio.sleep(60)
    assert 20 <= kube.count("status") <= 45


async def test_how_long_an_answer_is_waited_for_has_nothing_to_do_with_other_writes() -> None:
    async with kept(pinged) as (kube, record):
        kube.fail["replace"] = [Unavailable("away")] * 5
        record.want(JOIN)
        await asyncio.sleep(1)
        kube.open.clear()
        record.ack(7)
        await asyncio.sleep(1.2)
        assert kube.count("status") == 2


async def test_suspicion_are_written_and_withdrawn_at_once() -> None:
    async with kept(pinged) as (kube, record):
        record.suspect(TWO)
        await at_once(kube, suspects="1-2/a.0")
        record.suspect(TWO)
        record.suspect(Members())
        await at_once(kube, suspects=None)
        await asyncio.sleep(60)
    assert kube.count("status") == 2


async def test_all_that_is_to_be_said_is_said_in_one_write() -> None:
    async with kept(pinged) as (kube, record):
        record.suspect(TWO)
        record.ack(7)
        record.say(progress=ScriptProgress(step=5))
        await at_once(kube, suspects="1-2/a.0", ack=7, step=5)
    assert kube.count("status") == 1


async def test_what_an_earlier_sidecar_said_is_taken_back() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        record.suspect(TWO)
        record.ack(7)
        await asyncio.sleep(1)
    async with running(record := pinged(kube)):
        await record.written()
        await at_once(kube, suspects=None, ack=None)


async def test_a_record_that_is_made_anew_says_it_again() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        record.ack(7)
        record.say(imports="torch")
        await asyncio.sleep(6)
        kube.workers.clear()
        record.suspect(TWO)
        await asyncio.sleep(6)
        said = status(kube)
        assert (said["ack"], said["suspects"], said["imports"]) == (7, "1-2/a.0", "torch")


async def test_an_hour_without_news_costs_a_heartbeat_every_few_minutes() -> None:
    kube = FaultyKube()
    async with running(pinged(kube)):
        await asyncio.sleep(3600)
    beats = [at for (operation, _), at in zip(kube.calls, kube.times, strict=True) if operation == "status"]
    assert len(beats) / 3600 < 0.01
    assert max(later - earlier for earlier, later in itertools.pairwise([0.0, *beats])) <= 230


async def test_the_heartbeats_of_many_drift_apart() -> None:
    """However alike their lives began."""
    kubes = [FaultyKube() for _ in range(20)]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(pinged(kube).run()) for kube in kubes]
        await asyncio.sleep(3600)
        for task in running:
            task.cancel()
    last = sorted(kube.times[-1] for kube in kubes)
    assert last[-1] - last[0] > 30


@pytest.mark.parametrize(
    ("rank", "shown_after", "writes"),
    [(0, 1, range(19, 23)), (0, 40, range(5, 7)), (0, 1000, range(2, 4)), (1, 1, range(2))],
)
async def test_what_scripts_report_is_written_for_rank_0_alone(rank: int, shown_after: int, writes: range) -> None:
    """It speaks for the job, as often as the job's status shows it; what the others report goes with whatever is
    written. `shown_after`: half seconds."""
    async with kept(pinged) as (kube, record):
        record.say(handed=(1, rank))
        for step in range(200):
            record.say(progress=ScriptProgress(step=step, total=200, metrics={"loss": 0.5}))
            await asyncio.sleep(0.5)
            if step % shown_after == shown_after - 1:
                record.progress_shown({**status(kube), "summary": "what people read"})
        assert kube.count("status") in writes


async def test_what_rank_0_has_reported_as_another_is_written_when_it_becomes_rank_0() -> None:
    async with kept(pinged) as (kube, record):
        record.say(handed=(1, 1))
        await asyncio.sleep(20)
        record.say(progress=ScriptProgress(step=5))
        await asyncio.sleep(20)
        assert "step" not in status(kube)
        record.say(handed=(2, 0))
        await asyncio.sleep(6)
        assert (status(kube)["step"], status(kube)["rank"]) == (5, 0)


async def test_a_round_that_ends_makes_no_heartbeat_at_once_but_soon() -> None:
    """All ask for the next round just then; and a record that is deleted meanwhile asks for nothing."""
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        await asyncio.sleep(100)
        before = kube.count("status")
        record.rest(False)
        record.want(JOIN)
        await asyncio.sleep(2)
        assert kube.count("status") == before
        kube.workers.clear()
        await asyncio.sleep(8)
        assert kube.request("job-0-0") == JOIN.dump()


async def test_a_limit_that_is_named_hurries_no_heartbeat() -> None:
    """Nobody goes by them: a thousand workers would write four times as often while a round forms."""
    kube = FaultyKube()
    record = record_of(kube)
    record.rest(False)
    record.job_sized(1024, 10)
    async with running(record):
        await asyncio.sleep(600)
    assert 25 <= kube.count("status") <= 29


async def test_imports_do_not_wait_for_minutes() -> None:
    async with kept(pinged) as (kube, record):
        record.say(imports="torch")
        await asyncio.sleep(6)
        assert status(kube)["imports"] == "torch"


async def test_a_worker_that_stalls_writes_that_once() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        await asyncio.sleep(300)
        before = kube.count("status")
        record.say(stall=Stall(round=3, stalled=True, step=7))
        await asyncio.sleep(6)
        assert status(kube)["stall"]["step"] == 7
        await asyncio.sleep(60)
        assert kube.count("status") == before + 1


async def test_the_end_of_a_stall_costs_no_write_of_its_own() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        record.say(stall=Stall(round=3, stalled=True, step=7))
        await asyncio.sleep(6)
        before = kube.count("status")
        record.say(stall=None)
        await asyncio.sleep(60)
        assert kube.count("status") == before
        await asyncio.sleep(300)
        assert status(kube).get("stall") is None


async def test_the_share_that_a_script_waits_is_written_with_what_it_reports() -> None:
    kube = FaultyKube()
    async with running(record := pinged(kube)):
        record.say(handed=(3, 0))
        record.say(progress=ScriptProgress(step=1, waits=0.25))
        await asyncio.sleep(30)
        assert status(kube)["waits"] == 0.25

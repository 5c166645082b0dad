# SPDX-License-Identifier: Apache-2.0
"""The job's watch: what is passed on, and how it goes on after the stream ended. In virtual time."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from elasticjob.api import RendezvousStatus
from elasticjob.kube.errors import Denied, Gone, Unavailable
from elasticjob_sidecar.api_server import job_watch
from elasticjob_sidecar.api_server.job_watch import JobWatch
from support.faulty_kube import JOB_UID, FaultyKube, Json

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def watching(kube: FaultyKube) -> AsyncIterator[list[int]]:
    """The rounds that were passed on."""
    rounds: list[int] = []

    def seen(status: RendezvousStatus) -> None:
        rounds.append(status.round)

    task = asyncio.create_task(
        JobWatch(kube, "job", JOB_UID, lambda *_: None, seen, lambda _operation, _failure: None).run()
    )
    await asyncio.sleep(0.01)
    try:
        yield rounds
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def at(round: int) -> Json:
    return {"round": round, "phase": "Forming"}


async def test_it_lists_and_then_follows() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        kube.set_job(at(2))
        kube.bookmark()
        kube.set_job(at(3))
        await asyncio.sleep(0.01)
    assert rounds == [1, 2, 3]
    assert [operation for operation, _ in kube.calls] == ["list", "watch"]


async def test_the_progress_that_the_job_shows_is_passed_on() -> None:
    kube, shown = FaultyKube(), list[Json]()
    kube.set_job(at(1))
    nobody = [lambda *_: None] * 4
    task = asyncio.create_task(JobWatch(kube, "job", JOB_UID, *nobody, shown.append).run())
    await asyncio.sleep(0.01)
    kube.set_job(at(1), progress={"step": 5})
    await asyncio.sleep(0.01)
    task.cancel()
    assert shown == [{}, {"step": 5}]


async def test_why_the_job_is_not_seen_is_told_until_it_is() -> None:
    kube = FaultyKube()
    watch, rounds = silent_watch(kube)
    forbidden = Denied('the API server answered 403: User "u" cannot list resource "elasticjobs" in API group', 403)
    kube.fail["list"] = [forbidden]
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    assert watch.trouble.startswith("its ElasticJob cannot be watched: the API server answered 403: ")
    assert "the RoleBinding job-worker give u the right to list elasticjobs" in watch.trouble
    await asyncio.sleep(5)  # it looks every three seconds
    assert watch.trouble == "there is no ElasticJob job"
    kube.set_job(at(1), uid="another")
    await asyncio.sleep(0.01)
    assert watch.trouble == "the ElasticJob job is another one, of uid another: this pod is left over"
    kube.set_job(at(1))
    await asyncio.sleep(0.01)
    assert (watch.trouble, rounds) == ("", [1])
    task.cancel()


def silent_watch(kube: FaultyKube) -> tuple[JobWatch, list[int]]:
    rounds: list[int] = []
    watch = JobWatch(kube, "job", JOB_UID, lambda *_: None, lambda status: rounds.append(status.round), lambda *_: None)
    return watch, rounds


async def test_what_a_silent_watch_has_missed_is_seen_when_it_is_asked_for() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, rounds = silent_watch(kube)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    kube.server.watches.clear()
    kube.set_job(at(2))
    await asyncio.sleep(1)
    assert rounds == [1]
    watch.again()
    watch.again()
    await asyncio.sleep(0.2)
    kube.set_job(at(3))
    await asyncio.sleep(0.01)
    assert rounds == [1, 2, 3]
    assert [operation for operation, _ in kube.calls] == ["list", "watch"] * 2
    task.cancel()


async def test_who_asks_for_it_does_not_wait_for_a_dead_connection() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, _ = silent_watch(kube)
    watch.again()  # before it runs: no harm
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    kube.open.clear()
    watch.again()
    await asyncio.sleep(1.5)
    assert kube.count("list") == 3
    kube.open.set()
    await asyncio.sleep(0.2)
    assert kube.count("watch") == 2
    task.cancel()


async def test_who_asks_for_it_in_a_pause_is_not_forgotten() -> None:
    """What the watch would go on from may be as dead as it was."""
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, rounds = silent_watch(kube)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    kube.end_watches()
    await asyncio.sleep(0.01)
    kube.open.clear()
    watch.again()
    await asyncio.sleep(1.5)
    assert [operation for operation, _ in kube.calls] == ["list", "watch", "list", "list"]
    kube.set_job(at(2))
    kube.open.set()
    await asyncio.sleep(0.2)
    assert rounds == [1, 2]
    task.cancel()


async def test_who_asks_for_it_while_it_lists_does_not_wait_for_a_dead_connection_either() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    kube.open.clear()
    watch, _ = silent_watch(kube)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    watch.again()
    await asyncio.sleep(1.3)
    assert kube.count("list") == 2
    task.cancel()


async def test_an_api_server_that_takes_longer_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked for."""
    kube = FaultyKube()
    kube.set_job(at(1))
    list_job = kube.list_job

    async def slowly(name: str) -> Json:
        await asyncio.sleep(3)
        return await list_job(name)

    monkeypatch.setattr(kube, "list_job", slowly)
    watch, rounds = silent_watch(kube)
    task = asyncio.create_task(watch.run())
    for _ in range(40):
        watch.again()
        await asyncio.sleep(0.25)
    assert rounds == [1]
    task.cancel()


async def test_a_job_without_status_is_seen_too() -> None:
    kube = FaultyKube()
    kube.set_job(None)
    async with watching(kube) as rounds:
        pass
    assert rounds == [0]


async def test_a_job_that_does_not_exist_yet_is_awaited() -> None:
    kube = FaultyKube()
    async with watching(kube) as rounds:
        kube.set_job(at(1))
        await asyncio.sleep(0.01)
    assert rounds == [1]


async def test_an_ended_watch_goes_on_from_where_it_was() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        await asyncio.sleep(10)
        kube.workers["of another job"] = {}
        kube.bookmark()
        await asyncio.sleep(600)
        kube.set_job(at(2))
        await asyncio.sleep(0.01)
    assert rounds == [1, 2]
    assert kube.count("list") == 1
    assert 9 <= kube.count("watch") <= 12  # one every 56 to 64 s
    starts = [body["from"] for operation, body in kube.calls if operation == "watch" and body]
    assert starts[-1] != starts[0]  # the bookmark moved it on


async def test_while_others_would_notice_its_silence_a_watch_lasts_five_minutes() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, _ = silent_watch(kube)
    watch.calm(True)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(3600)
    assert kube.count("list") == 1
    assert 12 <= kube.count("watch") <= 13
    task.cancel()


async def test_what_a_long_watch_misses_is_seen_a_minute_after_others_would_notice_no_more() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, rounds = silent_watch(kube)
    watch.calm(True)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(10)
    kube.server.watches.clear()
    kube.set_job(at(2))
    watch.calm(False)
    await asyncio.sleep(55)
    assert rounds == [1]
    await asyncio.sleep(10)
    assert rounds == [1, 2]
    task.cancel()


async def test_a_minute_that_is_over_just_when_others_notice_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "WATCH_SECONDS", (60, 60))
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, _ = silent_watch(kube)
    watch.calm(True)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(10)
    watch.calm(False)
    await asyncio.sleep(30)
    watch.calm(True)
    watch.calm(False)
    loop = asyncio.get_running_loop()
    met = asyncio.Event()
    loop.call_at(loop.time() + 60, lambda: (watch.calm(True), watch.again(), met.set()))
    await asyncio.wait_for(met.wait(), 70)
    await asyncio.sleep(10)
    assert [operation for operation, _ in kube.calls] == ["list", "watch"] * 2
    task.cancel()


async def test_what_happened_between_two_watches_is_not_missed() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        kube.end_watches()
        await asyncio.sleep(0.001)
        kube.set_job(at(2))  # in the pause before the next watch
        await asyncio.sleep(1)
    assert rounds == [1, 2]
    assert kube.count("list") == 1


async def test_an_expired_version_is_listed_anew() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        kube.fail["watch"] = [Gone("too old", 410)]
        kube.end_watches()
        kube.set_job(at(2))
        await asyncio.sleep(3)
    assert rounds == [1, 2]
    assert kube.count("list") == 2


async def test_the_same_version_is_not_passed_on_twice() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        kube.fail["watch"] = [Gone("too old", 410)]
        kube.end_watches()
        await asyncio.sleep(3)
    assert kube.count("list") == 2
    assert rounds == [1]


async def test_it_tries_at_most_three_seconds_apart_while_the_server_is_away() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube) as rounds:
        kube.away = True
        kube.end_watches()
        before = len(kube.times)
        await asyncio.sleep(120)
        tries = kube.times[before:]
        kube.away = False
        await asyncio.sleep(3)
        kube.set_job(at(2))
        await asyncio.sleep(0.01)
    assert max(later - earlier for earlier, later in itertools.pairwise(tries)) <= 3
    assert len(tries) > 40
    assert rounds == [1, 2]


async def test_watches_that_end_at_once_do_not_spin() -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    async with watching(kube):
        for _ in range(1000):
            kube.end_watches()
            await asyncio.sleep(0.01)
    assert kube.count("watch") < 20


async def test_another_job_of_the_same_name_is_not_ours() -> None:
    kube = FaultyKube()
    kube.set_job(at(7), uid="another")
    async with watching(kube) as rounds:
        kube.set_job(at(1))
        await asyncio.sleep(0.01)
    assert rounds == [1]


@pytest.mark.parametrize(("senseless", "replacements"), [({"round": "many"}, "0/1"), (at(7), "0/many")])
async def test_a_status_that_makes_no_sense_is_passed_over(
    senseless: Json, replacements: str, caplog: pytest.LogCaptureFixture
) -> None:
    kube = FaultyKube()
    kube.set_job(at(1))
    watch, rounds = silent_watch(kube)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    kube.set_job(senseless, replacements=replacements)
    await asyncio.sleep(0.01)
    assert (rounds, watch.pod_of(0)) == ([1], "job-0-0")
    assert "cannot be read" in caplog.text
    assert "the operator and the image of the sidecar are of one version" in watch.trouble
    kube.set_job(at(2), replacements="0-1/3")
    await asyncio.sleep(0.01)
    assert watch.trouble == ""
    assert (rounds, watch.pod_of(0), watch.pod_of(2)) == ([1, 2], "job-0-3", "job-2-0")
    task.cancel()


async def test_troubles_are_counted_by_operation() -> None:
    kube = FaultyKube()
    kube.fail["list"] = [Unavailable("away"), Unavailable("away")]
    failed: list[str] = []
    task = asyncio.create_task(
        JobWatch(
            kube, "job", JOB_UID, lambda *_: None, lambda _: None, lambda operation, _: failed.append(operation)
        ).run()
    )
    await asyncio.sleep(3)
    task.cancel()
    assert failed == ["watch", "watch"]


async def test_whether_the_api_server_is_heard_is_told_at_each_change() -> None:
    kube, heard = FaultyKube(), list[tuple[float, bool]]()
    kube.set_job(at(1))
    now = asyncio.get_running_loop().time
    nobody = [lambda *_: None] * 5
    watch = JobWatch(kube, "job", JOB_UID, *nobody, heard=lambda hears: heard.append((round(now()), hears)))
    began = round(now())
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(10)
    assert heard == []
    kube.fail["watch"] = [Unavailable("away")] * 3  # an outage, after which the watch goes on
    kube.end_watches()
    await asyncio.sleep(10)
    assert [hears for _, hears in heard] == [False, True]
    kube.open.clear()  # it answers no more, and a link shows that something may have changed
    watch.again()
    await asyncio.sleep(20)
    assert [hears for _, hears in heard] == [False, True, False]
    kube.open.set()
    await asyncio.sleep(10)
    assert [hears for _, hears in heard] == [False, True, False, True]
    assert [at - began for at, _ in heard][2:] == [20, 40]
    task.cancel()

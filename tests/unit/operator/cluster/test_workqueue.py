# SPDX-License-Identifier: Apache-2.0
"""The work queue, in virtual time."""

import asyncio
from contextvars import ContextVar
from itertools import pairwise
from types import SimpleNamespace

import pytest

from elasticjob_operator.cluster import workqueue
from elasticjob_operator.cluster.workqueue import RETRY, WorkQueue

pytestmark = pytest.mark.looptime


async def test_what_is_asked_for_often_is_done_once() -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        done.append(key)

    queue = WorkQueue(work)
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    await asyncio.sleep(1)
    assert sorted(done) == ["a", "b"]
    assert len(queue) == 0


async def test_asked_for_while_it_runs_it_is_done_once_more_and_never_beside_itself() -> None:
    running, most, runs = 0, 0, 0

    async def work(_: str) -> None:
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        await asyncio.sleep(10)
        running -= 1

    queue = WorkQueue(work)
    queue.add("a")
    await asyncio.sleep(5)
    queue.add("a")
    queue.add("a")
    await asyncio.sleep(60)
    assert (runs, most) == (2, 1)


async def starts(patched: pytest.MonkeyPatch, takes: float, *adds: float) -> list[float]:
    """When work on one key begins that takes so many seconds of the processor, and is requested at these times."""
    clock, begun, loop = SimpleNamespace(used=0.0), list[float](), asyncio.get_running_loop()
    patched.setattr(workqueue, "time", SimpleNamespace(thread_time=lambda: clock.used))
    began = loop.time()

    async def work(_: str) -> None:
        begun.append(loop.time() - began)
        clock.used += takes
        await asyncio.sleep(0)

    queue = WorkQueue(work)
    for at in adds:
        loop.call_at(began + at, queue.add, "a")
    await asyncio.sleep(max(adds) + 1)
    return begun


OFTEN = [number / 1000 for number in range(1000)]


@pytest.mark.parametrize(("takes", "rests"), [(0.0625, 0.1875), (0.5, 0.2)])
async def test_a_key_leaves_most_of_the_processor_to_the_others(
    monkeypatch: pytest.MonkeyPatch, takes: float, rests: float
) -> None:
    begun = await starts(monkeypatch, takes, *OFTEN)
    assert begun[:2] == pytest.approx([0, 0.001], abs=1e-4)
    assert begun[2:5] == pytest.approx([begun[1] + number * rests for number in (2, 3, 4)], abs=0.001)


async def test_after_a_pause_without_a_request_the_second_piece_follows_the_first_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = await starts(monkeypatch, 0.05, 0, 0.1, 0.11, 0.8, 0.9, 1.5)
    assert begun == pytest.approx([0, 0.1, 0.4, 0.8, 0.9, 1.5], abs=1e-4)


async def test_an_earlier_wish_overtakes_a_later_one() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def work(_: str) -> None:
        times.append(loop.time() - start)

    queue = WorkQueue(work)
    queue.add("a", 100)
    await asyncio.sleep(1)
    queue.add("a", 1)
    await asyncio.sleep(200)
    assert times == [pytest.approx(2, abs=0.1)]


async def test_work_names_its_next_time_itself() -> None:
    runs = 0

    async def work(_: str) -> float | None:
        nonlocal runs
        runs += 1
        return 10 if runs < 4 else None

    WorkQueue(work).add("a")
    await asyncio.sleep(100)
    assert runs == 4


async def test_failing_work_is_tried_again_at_most_three_seconds_apart() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def work(_: str) -> None:
        times.append(loop.time())
        raise OSError("the API server is away")

    queue = WorkQueue(work)
    queue.add("a")
    await asyncio.sleep(60)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] < 0.1
    assert max(gaps) == pytest.approx(RETRY.longest, abs=0.1)
    await queue.stop()
    assert len(queue) == 0


async def test_an_error_without_words_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def work(_: str) -> None:
        raise TimeoutError

    queue = WorkQueue(work)
    queue.add("a")
    await asyncio.sleep(0.01)
    await queue.stop()
    assert "a: TimeoutError; again in 0.05 s" in caplog.text


async def test_nothing_is_kept_of_a_key_whose_work_is_done() -> None:
    async def work(_: str) -> None: ...

    queue = WorkQueue(work)
    empty = {name: len(value) for name, value in vars(queue).items() if isinstance(value, dict)}
    for number in range(100):
        queue.add(f"job {number}", number)
    await asyncio.sleep(200)
    assert {name: len(value) for name, value in vars(queue).items() if isinstance(value, dict)} == empty


async def test_work_that_is_woken_as_the_queue_stops_is_not_done() -> None:
    runs = 0

    async def work(_: str) -> None:
        nonlocal runs
        runs += 1

    queue = WorkQueue(work)
    queue.add("a", 100)
    await asyncio.sleep(1)
    queue.add("a", 50)
    began = asyncio.get_running_loop().time()
    await queue.stop()
    assert asyncio.get_running_loop().time() - began < 1
    assert runs == 0


async def test_work_keeps_nothing_of_who_has_asked_for_it() -> None:
    """The context of kopf's handlers leads to all objects, and a timer keeps its own until it is due."""
    asked_by = ContextVar("asked_by", default="nobody")
    seen = list[str]()

    async def work(_: str) -> None:
        seen.append(asked_by.get())

    queue = WorkQueue(work)
    asked_by.set("kopf")
    queue.add("a")
    await asyncio.sleep(1)
    assert seen == ["nobody"]


async def test_how_late_work_begins_and_what_is_tried_again_is_told() -> None:
    late, failed, errors = [], [], [OSError("no"), OSError("no")]
    loop = asyncio.get_running_loop()

    async def work(_: str) -> None:
        await asyncio.sleep(2)
        if errors:
            raise errors.pop()

    queue = WorkQueue(work)
    queue.began, queue.failed = late.append, lambda: failed.append(loop.time())
    queue.add("a", 5.0)
    await asyncio.sleep(6)
    queue.add("a")  # a second before the first is done
    await asyncio.sleep(60)
    assert len(failed) == 2
    assert late == [pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.25), pytest.approx(0, abs=0.01)]

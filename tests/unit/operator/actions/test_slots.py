# SPDX-License-Identifier: Apache-2.0
"""How jobs share what the operator does at once. In virtual time."""

import asyncio
from typing import Any, cast

import pytest

from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.actions.worker_pods import WorkerPods
from elasticjob_operator.cluster.cache import Cache
from elasticjob_operator.job.outcome import Done
from elasticjob_operator.objects.pods import SidecarImage
from support.operator_objects import Object, job
from support.statuses import FORMED, report

pytestmark = pytest.mark.looptime

SECONDS = 1.0  # that a request takes


class Work:
    def __init__(self, slots: Slots[str]) -> None:
        self._slots = slots
        self.running: dict[str, int] = {}
        self.most: dict[str, int] = {}

    async def do(self, key: str) -> float:
        async with self._slots.of(key):
            self.running[key] = self.running.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.running[key])
            await asyncio.sleep(SECONDS)
            self.running[key] -= 1
        return asyncio.get_running_loop().time()

    def start(self, key: str, times: int) -> list[asyncio.Task[float]]:
        return [asyncio.create_task(self.do(key)) for _ in range(times)]


async def test_one_that_comes_late_does_not_wait_for_all_of_anothers() -> None:
    work = Work(Slots(8, 6))
    began = asyncio.get_running_loop().time()
    many = work.start("big", 4096)
    await asyncio.sleep(0)
    (late,) = work.start("small", 1)
    assert await late - began == SECONDS
    assert work.most["big"] == 6
    for task in many:
        task.cancel()


async def test_two_that_want_more_than_there_is_have_as_much_of_it() -> None:
    work = Work(Slots(8, 6))
    first, second = work.start("first", 60), work.start("second", 60)
    await asyncio.sleep(10.5 * SECONDS)
    done = [sum(task.done() for task in tasks) for tasks in (first, second)]
    assert sum(done) == 80
    assert abs(done[0] - done[1]) <= 8
    await asyncio.gather(*first, *second)


async def test_who_gives_up_waiting_leaves_no_slot_held() -> None:
    slots: Slots[str] = Slots(2, 2)
    work = Work(slots)
    tasks = work.start("a", 6)
    await asyncio.sleep(0.5)
    for task in tasks[1:5]:  # one holds a slot, the others wait
        task.cancel()
    await tasks[5]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert {name: len(cast(Any, value)) for name, value in vars(slots).items() if hasattr(value, "__len__")} == {
        "_held": 0,
        "_waiting": 0,
    }


class Creations:
    def __init__(self) -> None:
        self.at: list[tuple[str, float]] = []

    async def create_pod(self, body: Object) -> Object:
        await asyncio.sleep(0.01)
        self.at.append((body["metadata"]["name"], asyncio.get_running_loop().time()))
        meta = {**body["metadata"], "uid": body["metadata"]["name"], "resourceVersion": str(len(self.at))}
        return {**body, "metadata": meta}


async def test_a_small_jobs_pod_does_not_wait_for_a_large_jobs() -> None:
    kube, none = Creations(), cast(Any, None)
    slots: Slots[Any] = Slots(64, 32)
    big, small = job(), job()
    small["metadata"] |= {"name": "small", "uid": "small"}

    def pods() -> WorkerPods:
        return WorkerPods(cast(Any, kube), Cache(), none, SidecarImage("none", "Always"), slots)

    began = asyncio.get_running_loop().time()
    first = asyncio.create_task(pods().create(report(FORMED, job=big), [(index, 0) for index in range(1000)]))
    await asyncio.sleep(0)
    assert await pods().create(report(FORMED, job=small), [(0, 0)]) == Done()
    assert asyncio.get_running_loop().time() - began < 0.1
    assert await first == Done()

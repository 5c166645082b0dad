# SPDX-License-Identifier: Apache-2.0
"""What a sidecar's HTTP is to training scripts: a stream to look on, time to save, and their progress."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

import elasticjob_torch
from elasticjob.members import Members
from elasticjob_torch import wire
from support.faulty_kube import FaultyKube, Json
from support.two_sidecars import DEADLINE, TwoSidecars, Worker, next_event, until
from support.waiting import within

SECONDS_TO_SAVE = 0.3


@pytest.fixture
async def pods() -> AsyncIterator[TwoSidecars]:
    """Two workers in round 1."""
    kube = FaultyKube()
    kube.set_job(None)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        pair = TwoSidecars(kube, [Worker(kube, index, http) for index in (0, 1)])
        for worker in pair.workers:
            await worker.sidecar.serve()
            tasks.create_task(worker.sidecar.run(worker.stopping))
        await until(lambda: all(worker.sidecar.driver.ready for worker in pair.workers))
        await pair.form()
        yield pair
        for worker in pair.workers:
            worker.stopping.set()
            for stream in worker.streams:
                stream.close()
            await worker.sidecar.close()


async def look_on(worker: Worker, script: str, query: str = "") -> aiohttp.ClientResponse:
    response = await worker.http.get(worker.url(f"rendezvous/watch?script={script}{query}"))
    assert response.status == 200
    worker.streams.append(response)
    return response


async def event_with(stream: aiohttp.ClientResponse, name: str, value: object) -> Json:
    while (event := await next_event(stream))[name] != value:
        pass
    return event


def plan(pods: TwoSidecars, **more: object) -> None:
    pods.job("Forming", 2, *pods.workers, planned=True, reason="scaled from 2 to 3", **more)


async def test_a_script_looks_on_and_is_no_trainer(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    agent, stream = zero.streams[0], await look_on(zero, "s")
    assert await next_event(stream) == {"round": 1, "waiting": 0, "reason": "", "ending": False}
    plan(pods)
    assert (await event_with(stream, "ending", True))["round"] == 1
    assert (await event_with(agent, "changed", True))["round"] == 2  # nobody saves: told at once
    stream.close()
    await until(lambda: not zero.sidecar.driver._concerns.scripts._open)
    assert zero.machine.trainer == zero.trainer


async def test_the_trainer_is_told_after_its_scripts_have_saved(pods: TwoSidecars) -> None:
    zero, one = pods.workers
    agent, stream = zero.streams[0], await look_on(zero, "s", "&saves=true")
    await event_with(agent, "phase", "Formed")
    plan(pods)
    await event_with(stream, "ending", True)
    await event_with(one.streams[0], "changed", True)  # the other pod's scripts do not save
    assert zero.sidecar.driver._concerns.scripts.hold
    assert (await zero.call("POST", "saved", script="s", round=1))[0] == 204
    event = await next_event(agent)
    assert (event["round"], event["changed"]) == (2, True)


async def test_a_script_that_asks_later_may_save_too(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    stream = await look_on(zero, "s")
    assert (await zero.call("POST", "saved", script="s", round=0))[0] == 204
    plan(pods)
    await event_with(stream, "ending", True)
    assert zero.sidecar.driver._concerns.scripts.hold


async def test_a_victim_may_save_before_it_is_told_to_leave(pods: TwoSidecars) -> None:
    zero, one = pods.workers
    agent, stream = one.streams[0], await look_on(one, "s", "&saves=true")
    await event_with(agent, "phase", "Formed")
    pods.job("Forming", 2, zero, one, planned=True, leaving=str(Members((one.machine.me,))))
    await event_with(stream, "ending", True)
    stream.close()  # its process has ended
    event = await next_event(agent)
    assert (event["leaving"], event["changed"]) == (True, True)


async def test_a_loss_meanwhile_is_told_at_once(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    agent, stream = zero.streams[0], await look_on(zero, "s", "&saves=true")
    plan(pods)
    await event_with(stream, "ending", True)
    pods.job("Forming", 2, *pods.workers, planned=False)
    await event_with(agent, "changed", True)
    await event_with(stream, "ending", False)


async def test_nobody_is_waited_for_longer_than_it_may_take(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    zero.sidecar.driver._concerns.scripts.save_seconds = SECONDS_TO_SAVE
    agent, stream = zero.streams[0], await look_on(zero, "s", "&saves=true")
    began = asyncio.get_running_loop().time()
    plan(pods)
    await event_with(stream, "ending", True)
    await event_with(agent, "changed", True)
    assert SECONDS_TO_SAVE <= asyncio.get_running_loop().time() - began < DEADLINE / 2


SCRIPT = """
import time
import elasticjob_torch
from elasticjob_torch.script import client
client.HEARD_SECONDS = 0.2
print(elasticjob_torch.current().round, flush=True)
while not elasticjob_torch.wants_restart():
    elasticjob_torch.report(step=7)
    time.sleep(0.01)
print("asked", flush=True)
time.sleep(0.3)  # it saves
print(time.monotonic(), flush=True)
while elasticjob_torch.wants_restart():
    time.sleep(0.01)
"""


async def test_a_real_script(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    agent = zero.streams[0]
    await event_with(agent, "phase", "Formed")
    job = {"PET_RDZV_BACKEND": "elasticjob", "PET_RDZV_ENDPOINT": f"127.0.0.1:{zero.ports.trainer_api}"}
    environment = {**os.environ, **job, "PYTHONPATH": str(Path(elasticjob_torch.__file__).parents[1])}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, env=environment, stdout=pipe)
    assert process.stdout is not None
    async with within("the script's saving and end"):
        assert await process.stdout.readline() == b"1\n"
        await until(lambda: zero.sidecar.record._status.progress.step == 7)
        plan(pods)
        assert await process.stdout.readline() == b"asked\n"
        assert (await next_event(agent))["changed"]
        told = time.monotonic()
        assert float(await process.stdout.readline()) < told  # one clock for all processes
        pods.job("Forming", 2, *pods.workers)  # over, and the script is not stopped: it goes on to its end
        assert await process.wait() == 0
    await until(lambda: not zero.sidecar.driver._concerns.scripts._open)


async def test_one_too_many_is_turned_away(pods: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    zero, _ = pods.workers
    monkeypatch.setattr(wire, "MAX_SCRIPTS", 1)
    await look_on(zero, "a")
    status, answer = await zero.call("GET", "rendezvous/watch?script=b")
    assert (status, answer["error"]["code"]) == (429, "TooMany")


async def test_progress_needs_no_trainer_and_is_of_one_process(pods: TwoSidecars) -> None:
    zero, _ = pods.workers
    assert (await zero.call("POST", "progress", step=7, local_rank=0))[0] == 204
    assert (await zero.call("POST", "progress", step=6, local_rank=1))[0] == 204
    assert zero.sidecar.record._status.progress.step == 7


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", "rendezvous/watch", {}, "script"),
        ("POST", "saved", {"script": "s", "round": -1}, "round"),
        ("POST", "saved", {"round": 1}, "script"),
        ("POST", "progress", {"step": "x"}, "step"),
        ("POST", "progress", {"local_rank": -1}, "local_rank"),
        ("POST", "progress", {"metrics": {str(number): 1.0 for number in range(17)}}, "metrics"),
    ],
)
async def test_a_wrong_request_names_its_field(
    pods: TwoSidecars, method: str, path: str, body: Json, field: str
) -> None:
    status, answer = await pods.workers[0].call(method, path, **body)
    assert (status, answer["error"]["code"]) == (400, "BadRequest")
    assert answer["error"]["message"].startswith(field)

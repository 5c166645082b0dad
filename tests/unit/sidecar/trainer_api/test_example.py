# SPDX-License-Identifier: Apache-2.0
"""The example in `docs/trainer-api.md`, played as it stands there: the test is the operator."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from elasticjob.members import Member, Members
from elasticjob_torch import wire
from elasticjob_torch.wire.fields import fields_of
from support.two_sidecars import TwoSidecars, next_event, until

PAGE = Path(__file__).parents[4] / "docs" / "trainer-api.md"
REASONS = {1: ("FirstFormation", "2 workers joined"), 2: ("Scaled", "scaled from 2 to 3")}


class Request(NamedTuple):
    method: str
    target: str
    body: dict[str, Any] | None


def example() -> list[str]:
    """The lines of its consoles."""
    consoles = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return [line for console in consoles for line in console.splitlines()]


def read(line: str) -> Request:
    words = shlex.split(line.removeprefix("$ curl "))
    target = next(word for word in words if word.startswith("http")).partition(f":{wire.PORT}")[2]
    if "-d" in words:
        return Request("POST", target, json.loads(words[words.index("-d") + 1]))
    return Request("GET", target, None)


class Play:
    def __init__(self, pair: TwoSidecars) -> None:
        self.pair, self.worker = pair, pair.workers[0]
        self.streams: dict[str, aiohttp.ClientResponse] = {}
        self.answer: Any = None

    def status(self, phase: str, round: int, **more: Any) -> None:
        members = [worker.machine.me for worker in self.pair.workers]
        members += [Member(2, "new")] if round == 2 and phase == "Formed" else []
        cause, reason = REASONS[round]
        told = {"participants": str(Members(members)), "cause": cause, "reason": reason, **more}
        self.pair.job(phase, round, *self.pair.workers, **told)

    async def make(self, request: Request) -> None:
        assert self.answer is None, f"the page lacks an answer: {self.answer}"
        path = request.target.partition("?")[0]
        if path in (wire.EVENTS.path, wire.WATCH.path):
            self.streams[path] = await self.worker.http.get(self.worker.url(request.target.removeprefix("/v1/")))
            self.worker.streams.append(self.streams[path])
            return
        made = asyncio.create_task(
            self.worker.call(request.method, request.target.removeprefix("/v1/"), **request.body or {})
        )
        if path == wire.JOIN.path:
            after = (request.body or {}).get("after", 0)
            await until(lambda: (self.pair.kube.request("job-0-0") or {}).get("after") == after)
            self.status("Formed", after + 1)
        _, self.answer = await made

    async def hear(self, event: dict[str, Any]) -> None:
        """Read the stream that tells such events until it has told this one."""
        path = wire.EVENTS.path if set(event) == {field.key for field in fields_of(wire.View)} else wire.WATCH.path
        if event.get("ending"):
            self.status("Forming", 2, waiting=1, planned=True, intact=True)
        await until(lambda: self._heard(path, event), f"{event} on {path}")

    async def _heard(self, path: str, event: dict[str, Any]) -> bool:
        return await next_event(self.streams[path]) == event


async def test_the_example_of_the_page(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    play, store = Play(pair), str(pair.workers[0].ports.store)
    lines = example()
    assert {read(line).target.partition("?")[0] for line in lines if line.startswith("$")} == {
        call.path
        for call in wire.CALLS
        if call not in (wire.LEAVE, wire.CLOSE, wire.LIVE, wire.IMPORTS, wire.PROCESSES)
    }
    for line in lines:
        if line.startswith("$ "):
            await play.make(read(line))
        elif line.startswith("data: "):
            await play.hear(json.loads(line.removeprefix("data: ")))
        else:
            assert play.answer == json.loads(line.replace("27400", store).replace("10.244.1.7", "127.0.0.1"))
            play.answer = None
    assert play.answer is None
    assert (pair.kube.request("job-0-0") or {})["type"] == "Finish"

# SPDX-License-Identifier: Apache-2.0
"""Two sidecars on real loopback sockets, with the simulated API server; the test plays operator and trainers."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from elasticjob.certificates import der_of, fingerprint_of
from elasticjob.members import Members
from elasticjob_sidecar.app import Ports, Sidecar
from elasticjob_sidecar.config import Config
from elasticjob_torch import wire
from elasticjob_torch.wire.fields import fields_of
from support.faulty_kube import JOB_UID, FaultyKube, Json
from support.pod_life import new_credentials
from support.ports import free_ports
from support.waiting import DEADLINE, until, within

_starts = itertools.count()


def _ports() -> Ports:
    """Two ports after the store's are nobody else's."""
    while True:
        store, *forwarded, trainer_api, tunnel, health = free_ports(6)
        if forwarded == [store + 1, store + 2]:
            return Ports(store, trainer_api, tunnel, health, forwarded=2)


class Worker:
    """One sidecar and its trainer's HTTP client."""

    def __init__(self, kube: FaultyKube, index: int, http: aiohttp.ClientSession) -> None:
        self.ports = _ports()
        config = Config.model_validate(
            {
                "job": "job",
                "job_uid": JOB_UID,
                "index": index,
                "batch": "0" * 8,
                "namespace": "default",
                "pod_name": f"job-{index}-0",
                "pod_uid": f"pod-{index}",
                "pod_ip": "127.0.0.1",
            }
        )
        self.index, self.kube, self.http = index, kube, http
        self.credentials = new_credentials()
        self.sidecar = Sidecar(config, f"{config.batch}.{next(_starts)}", kube, self.credentials, self.ports)
        self.machine = self.sidecar.driver._machine
        self.stopping = asyncio.Event()
        self.trainer = f"trainer-{index}"
        self.streams: list[aiohttp.ClientResponse] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports.tunnel}"

    @property
    def store(self) -> str:
        """As the job's status names it."""
        return f"{self.address}/{fingerprint_of(der_of(self.credentials.certificate))}"

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports.trainer_api}/v1/{path}"

    async def call(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        async with self.http.request(method, self.url(path), json=body or None) as response:
            answer = json.loads(text) if (text := await response.text()) else None
            must_be_on_the_wire(method, f"/v1/{path}", response.status, answer)
            return response.status, answer

    async def stream(self, round: int = 0) -> aiohttp.ClientResponse:
        response = await self.http.get(self.url(f"rendezvous/events?trainer={self.trainer}&round={round}"))
        assert response.status == 200
        self.streams.append(response)
        return response

    async def join(self, after: int = 0, cause: str = "Started", **more: Any) -> tuple[int, Any]:
        asked = {"trainer": self.trainer, "after": after, "cause": cause, "timeout": DEADLINE}
        return await self.call("POST", "rendezvous", **asked, **more)

    async def serve_store(self, round: int, store: asyncio.Server) -> None:
        port = store.sockets[0].getsockname()[1]
        status, _ = await self.call("POST", "store", trainer=self.trainer, round=round, port=port)
        assert status == 204

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.ports.store)


class TwoSidecars:
    def __init__(self, kube: FaultyKube, workers: list[Worker]) -> None:
        self.kube, self.workers = kube, workers
        self.joined: list[Json] = []  # the last answers

    def job(self, phase: str, round: int, *members: Worker, **more: Any) -> None:
        participants = str(Members(worker.machine.me for worker in members))
        rendezvous = {"phase": phase, "round": round, "participants": participants, **more}
        if phase != "Forming" and members:
            rendezvous = {"worldSize": len(members), "store": members[0].store} | rendezvous
        self.kube.set_job(rendezvous)

    async def form(self, round: int = 1, **more: Any) -> None:
        """All join, and are handed one round."""
        self.job("Forming", round)
        for worker in self.workers:
            if not worker.machine.trainer:
                await worker.stream()
        joins = [asyncio.create_task(worker.join(round - 1, **more)) for worker in self.workers]
        asked = {"type": "Join", "after": round - 1}
        await until(lambda: all(asked.items() <= (self.kube.request(f"job-{i}-0") or {}).items() for i in (0, 1)))
        self.job("Formed", round, *self.workers)
        self.joined = [(await join)[1] for join in joins]
        assert [answer["rank"] for answer in self.joined] == [0, 1]


def must_be_on_the_wire(method: str, target: str, status: int, answer: Any) -> None:
    """An answer has the fields that the wire names, a refusal one of the codes of that call and its status."""
    call = next((one for one in wire.CALLS if (one.method, one.path) == (method, target.partition("?")[0])), None)
    if status >= 400:
        error = answer["error"]
        code = wire.Code(error["code"])
        wire.Error.from_json(error)
        assert error.keys() <= {field.key for field in fields_of(wire.Error)}
        known = (*call.refusals, *call.common_refusals) if call is not None else (wire.Code.BAD_REQUEST,)
        assert code in known, (method, target, error)
        assert status == wire.REFUSALS[code].status or status in (404, 405), (method, target, status, error)
    elif call is not None and call.answers is not None:
        seen = {field.key for field in fields_of(call.answers)}
        assert set(answer) == seen or (call is wire.VIEW and set(answer) == {"rank", "job", "runId"}), (target, answer)
    else:
        assert (status, answer) == (204, None), (method, target, status, answer)


def in_use() -> tuple[int, int]:
    """How many tasks this process has, and how many descriptors."""
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


async def until_in_use(most: tuple[int, int]) -> None:
    """Wait until this process has no more tasks and descriptors than `most`."""
    await until(lambda: all(now <= then for now, then in zip(in_use(), most, strict=True)))


@contextlib.asynccontextmanager
async def two_workers() -> AsyncIterator[TwoSidecars]:
    kube = FaultyKube()
    kube.set_job(None)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        workers = [Worker(kube, index, http) for index in (0, 1)]
        for worker in workers:
            await worker.sidecar.serve()
            tasks.create_task(worker.sidecar.run(worker.stopping))
        await until(lambda: all(worker.sidecar.driver.ready for worker in workers))
        yield TwoSidecars(kube, workers)
        for worker in workers:
            worker.stopping.set()
            for stream in worker.streams:
                stream.close()
            await worker.sidecar.close()


@contextlib.asynccontextmanager
async def store(answer: Callable[[bytes], bytes] = lambda data: data) -> AsyncIterator[asyncio.Server]:
    """A stand-in for rank 0's TCPStore: answers what it gets, then closes when the client has ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(answer(data))
                await writer.drain()
            writer.write(b"bye")
            writer.write_eof()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server
    finally:
        server.close()


async def next_event(stream: aiohttp.ClientResponse) -> Json:
    async with within("an event of the stream"):
        while not (line := await stream.content.readline()).startswith(b"data:"):
            assert line
    event: Json = json.loads(line[5:])
    return event

# SPDX-License-Identifier: Apache-2.0
"""A process that writes what some jobs' users, kubelets and sidecars would, over connections of its own."""

import asyncio
import random
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rounds.child import serve

from elasticjob.heartbeats import backstop_seconds, record_seconds
from elasticjob_sidecar.api_server.worker_status import SHORTEST_SHARE, UNREAD_SECONDS, WorkerStatus
from fleet import objects
from fleet.objects import Object, Place
from support.api_client import ApiClient
from support.pod_life import new_credentials

GROUP = "/apis/elasticjob.io/v1alpha1"
AT_ONCE = 32  # requests
REQUEST_SECONDS = 60.0
STEPS_A_SECOND = 10


class Record:
    """One worker's ElasticWorker."""

    def __init__(self, path: str, place: Place, stored: Object) -> None:
        self.path, self.place = path, place
        self._version, self._heartbeat, self._shown = stored["metadata"]["resourceVersion"], 0, set[str]()
        self._step: int | None = None
        self._is_read = asyncio.Event()  # the job's status shows the last report
        self._is_read.set()

    async def write(self, writer: "Writer", status: WorkerStatus) -> None:
        """As a sidecar does."""
        self._heartbeat += 1
        told = status.as_object(self._shown) | {"heartbeat": self._heartbeat}
        body = {"metadata": {"resourceVersion": self._version}, "status": told}
        stored = await writer.call("PATCH", f"{self.path}/status", body)
        self._version, self._shown = stored["metadata"]["resourceVersion"], set(status.progress.metrics)

    async def report(self, writer: "Writer", step_now: Callable[[], int]) -> None:
        """As rank 0's sidecar does: not before the job's status shows the last, or has not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(UNREAD_SECONDS):
                await self._is_read.wait()
        self._step = step_now()
        self._is_read.clear()
        await self.write(writer, objects.trains(0, self._step))

    def shows(self, step: int | None) -> None:
        if step == self._step:
            self._is_read.set()


class Writer:
    """Its event loop is in a thread: the process's other one reads commands."""

    def __init__(self, server: str, authority: Path, token: str) -> None:
        self._server, self._token = server, token
        self._tls = ssl.create_default_context(cafile=authority)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._api: ApiClient
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._records: list[Record] = []
        self._beating: list[asyncio.Task[None]] = []
        self._requests = 0
        self._certificate = new_credentials().certificate
        self._do(self._open())

    async def _open(self) -> None:
        self._api = ApiClient(self._server, self._tls, self._token, REQUEST_SECONDS)

    async def call(self, method: str, path: str, body: Object) -> Object:
        self._requests += 1
        if method == "PATCH":
            return await self._api.patch(path, body)
        return await self._api.call(method, path, body)

    def fill(self, jobs: list[int], workers: int) -> None:
        """Make the jobs, their pods and their records, all of which ask to join."""
        self._do(_all(self._fill(job, workers) for job in jobs))

    def train(self) -> None:
        """All are in round 1."""
        self._do(_all(self._write(record, objects.trains(record.place.index, 1)) for record in self._records))

    def beat(self, workers: int) -> None:
        """From now on write as their sidecars do; `workers` of each job."""
        self._do(self._beat(workers))

    def counted(self) -> Object:
        """Raises what has ended a sidecar's writing."""
        for task in self._beating:
            if task.done():
                task.result()
        return {"requests": self._requests}

    async def _fill(self, number: int, workers: int) -> None:
        namespace = objects.namespace_of(number)
        async with self._slots:
            path = f"{GROUP}/namespaces/{namespace}/elasticjobs"
            job = await self.call("POST", path, objects.job_body(number, workers))
            for collection, body in objects.beside(job):
                await self.call("POST", collection, body)
        places = [Place(number, index) for index in range(workers)]
        pods = zip(places, objects.pod_bodies(job, places), strict=True)
        await _all(self._fill_place(place, body) for place, body in pods)

    async def _fill_place(self, place: Place, body: Object) -> None:
        namespace = objects.namespace_of(place.job)
        pods, records = f"/api/v1/namespaces/{namespace}/pods", f"{GROUP}/namespaces/{namespace}/elasticworkers"
        async with self._slots:
            pod = await self.call("POST", pods, body)
            name = pod["metadata"]["name"]
            await self.call("PATCH", f"{pods}/{name}/status", {"status": objects.pod_status(pod, place)})
            stored = await self.call("POST", records, objects.record_body(pod, place, self._certificate))
            record = Record(f"{records}/{name}", place, stored)
            await record.write(self, objects.joined())
            self._records.append(record)

    async def _write(self, record: Record, status: WorkerStatus) -> None:
        async with self._slots:
            await record.write(self, status)

    async def _beat(self, workers: int) -> None:
        self._beating = [asyncio.create_task(self._sidecar(record, workers)) for record in self._records]
        self._beating.append(asyncio.create_task(self._look_on()))

    async def _look_on(self) -> None:
        """For ever: what the jobs' statuses show of rank 0's reports."""
        first = {record.place.job: record for record in self._records if not record.place.index}
        jobs = {(objects.namespace_of(number), objects.name_of(number)): record for number, record in first.items()}
        while True:
            async for event in self._api.watch(f"{GROUP}/elasticjobs"):
                meta, status = event["object"]["metadata"], event["object"].get("status") or {}
                if record := jobs.get((meta["namespace"], meta["name"])):
                    record.shows((status.get("progress") or {}).get("step"))

    async def _sidecar(self, record: Record, workers: int) -> None:
        """For ever. Rank 0 has news of its script all the time, so it writes as often as any sidecar may."""
        rank = record.place.index
        pace = backstop_seconds(workers) if rank else record_seconds(workers)
        wait, began = random.uniform(0, pace), time.monotonic()

        def step_now() -> int:
            return 1 + int((time.monotonic() - began) * STEPS_A_SECOND)

        while True:
            await asyncio.sleep(wait)
            await (record.write(self, objects.trains(rank, step_now())) if rank else record.report(self, step_now))
            wait = pace * random.uniform(SHORTEST_SHARE, 1) if rank else pace

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _all(work: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*work)


def main() -> None:
    server, authority, token = sys.argv[1:]
    writer = Writer(server, Path(authority), Path(token).read_text())
    serve({"fill": writer.fill, "train": writer.train, "beat": writer.beat, "counted": writer.counted})


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The floor: what a round's writes and deliveries take when nobody decides anything.

One asyncio client writes a join into N ElasticWorkers, as their sidecars would, and an ElasticJob's status, which N
watches wait for, each with the field selector of a sidecar's. The namespace is one that no operator serves.
"""

import asyncio
import secrets
import time
from http import HTTPStatus

from elasticjob.members import Member, Members
from rounds.api import CUSTOM, Api, gather_in_turn
from support.api_client import ApiError, Object

PREFIX = "bench-floor-"
NAMESPACE = f"{PREFIX}{secrets.token_hex(2)}"
JOBS, WORKERS = f"{CUSTOM}/namespaces/{NAMESPACE}/elasticjobs", f"{CUSTOM}/namespaces/{NAMESPACE}/elasticworkers"
AT_ONCE = 64
BUSY_SECONDS = 0.5  # after the API server has refused a watch, as too many are being opened
OPEN_SECONDS = DELIVER_SECONDS = 60.0


class Floor:
    """For one size. `async with` makes the objects and opens the watches."""

    def __init__(self, api: Api, size: int) -> None:
        self._api, self._size = api, size
        self._name = f"floor-{size}-{secrets.token_hex(2)}"
        batch = secrets.token_hex(4)
        self._members = [Member(index, f"{batch}.0") for index in range(size)]
        self._records: dict[int, Object] = {}
        self._round = 0
        self._seen = 0
        self._all_seen = asyncio.Event()
        self._watches: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Floor":
        try:
            await self._api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        except ApiError as error:
            if error.status != 409:
                raise
        template = {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}
        job = {"metadata": {"name": self._name}, "spec": {"replicas": self._size, "template": template}}
        await self._api.call("POST", JOBS, _typed("ElasticJob", job))
        await gather_in_turn([self._create(index) for index in range(self._size)], AT_ONCE)
        opened = asyncio.Semaphore(0)
        async with asyncio.timeout(OPEN_SECONDS):
            for number in range(self._size):
                if number >= AT_ONCE:  # thousands of handshakes at once would keep the operator's Lease waiting
                    await opened.acquire()
                self._watches.append(asyncio.create_task(self._watch(opened)))
            for _ in range(min(self._size, AT_ONCE)):
                await opened.acquire()
        return self

    async def __aexit__(self, *error: object) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._api.call("DELETE", f"{JOBS}/{self._name}")
        await gather_in_turn([self._api.call("DELETE", self._path(index)) for index in range(self._size)], AT_ONCE)

    async def round(self, *, joins: int, writes: int) -> float:
        """Seconds for so many joins at once and then so many status writes, each of which all watches wait for."""
        began = time.monotonic()
        await gather_in_turn([self._join(index) for index in range(joins)], AT_ONCE)
        for _ in range(writes):
            await self._write()
        return time.monotonic() - began

    async def _write(self) -> None:
        self._round += 1
        self._seen = 0
        self._all_seen.clear()
        members = str(Members(self._members))
        rendezvous = {"round": self._round, "phase": "Formed", "participants": members, "reason": "floor"}
        await self._api.patch(f"{JOBS}/{self._name}/status", {"status": {"rendezvous": rendezvous}})
        async with asyncio.timeout(DELIVER_SECONDS):
            await self._all_seen.wait()

    async def _watch(self, opened: asyncio.Semaphore) -> None:
        while True:
            try:
                await self._follow(opened)
            except ApiError as error:
                if error.status != 429:
                    raise
                await asyncio.sleep(BUSY_SECONDS)

    async def _follow(self, opened: asyncio.Semaphore) -> None:
        async for event in self._api.watch(JOBS, opened.release, fieldSelector=f"metadata.name={self._name}"):
            if event["object"].get("status", {}).get("rendezvous", {}).get("round") == self._round > 0:
                self._seen += 1
                if self._seen == self._size:
                    self._all_seen.set()

    async def _create(self, index: int) -> None:
        spec = {
            "job": self._name,
            "index": index,
            "id": self._members[index].id,
            "certificate": "x" * 550,
            "address": "10.0.0.1:27601",
        }
        body = {"metadata": {"name": f"{self._name}-{index}-0"}, "spec": spec}
        self._records[index] = await self._api.call("POST", WORKERS, _typed("ElasticWorker", body))

    async def _join(self, index: int) -> None:
        try:
            await self._replace(index)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # aiohttp may have sent it twice: the connection was lost
                raise
            self._records[index] = await self._api.call("GET", self._path(index))
            await self._replace(index)

    async def _replace(self, index: int) -> None:
        record = self._records[index]
        record["spec"]["request"] = {"type": "Join", "after": self._round, "cause": "Started"}
        record["metadata"]["managedFields"] = [{}]  # as a sidecar writes it
        self._records[index] = await self._api.call("PUT", self._path(index), record)

    def _path(self, index: int) -> str:
        return f"{WORKERS}/{self._name}-{index}-0"


def _typed(kind: str, body: Object) -> Object:
    return {"apiVersion": "elasticjob.io/v1alpha1", "kind": kind, **body}

"""What the sidecar's tests put in the place of the API server: objects, versions, watches, failures on demand."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from copy import deepcopy
from typing import Any

from elasticjob_sidecar.kubernetes.client import ApiFailure, Conflict, Missing, Unreachable

Json = dict[str, Any]
JOB_UID = "11111111-1111-1111-1111-111111111111"


class FakeKube:
    """One namespace with one job. `fail[operation]` holds what its next calls raise; `lose[operation]` counts
    the next calls that are carried out but whose answer is lost."""

    def __init__(self) -> None:
        self.workers: dict[str, Json] = {}
        self.job: Json | None = None
        self.calls: list[tuple[str, Json | None]] = []
        self.times: list[float] = []
        self.fail: defaultdict[str, list[ApiFailure]] = defaultdict(list)
        self.lose: defaultdict[str, int] = defaultdict(int)
        self.away = False
        self.open = asyncio.Event()
        self.open.set()
        self._version = 100
        self._watches: set[asyncio.Queue[Json | None]] = set()

    # --- what a test does

    def set_job(self, rendezvous: Json | None = None, *, uid: str = JOB_UID, replacements: str = "") -> None:
        event = "ADDED" if self.job is None else "MODIFIED"
        self.job = {"metadata": self._metadata({"name": "job", "uid": uid})}
        if rendezvous is not None:
            self.job["status"] = {"rendezvous": rendezvous, "replacements": replacements}
        self._tell({"type": event, "object": deepcopy(self.job)})

    def bookmark(self) -> None:
        self._tell({"type": "BOOKMARK", "object": {"metadata": self._metadata({})}})

    def end_watches(self) -> None:
        for watch in self._watches:
            watch.put_nowait(None)

    def request(self, name: str) -> Json | None:
        request: Json | None = self.workers.get(name, {}).get("spec", {}).get("request")
        return request

    def count(self, operation: str) -> int:
        return sum(called == operation for called, _ in self.calls)

    # --- KubeApi

    async def get_worker(self, name: str) -> Json:
        await self._called("get", None)
        return deepcopy(self._found(name))

    async def create_worker(self, body: Json) -> Json:
        await self._called("create", body)
        name = body["metadata"]["name"]
        if name in self.workers:
            raise Conflict(f"{name} exists", 409)
        stored = deepcopy(body)
        stored["metadata"] = self._metadata(stored["metadata"])
        self.workers[name] = stored
        return self._answer("create", stored)

    async def replace_worker(self, name: str, body: Json) -> Json:
        """Guarded by the version that it names, which it has to; the status stays."""
        await self._called("replace", body)
        found = self._found(name)
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", 409)
        status = {"status": found["status"]} if "status" in found else {}
        self.workers[name] = deepcopy(body) | status | {"metadata": self._metadata(body["metadata"])}
        return self._answer("replace", self.workers[name])

    async def patch_worker(self, name: str, body: Json) -> Json:
        await self._called("patch", body)
        return self._answer("patch", self.patch(name, {key: body[key] for key in ("metadata", "spec") if key in body}))

    async def patch_worker_status(self, name: str, body: Json) -> Json:
        await self._called("status", body)
        return self._answer("status", self.patch(name, body))

    async def list_workers(self, job: str, indices: Sequence[int] = ()) -> list[Json]:
        await self._called("list workers", {"indices": list(indices)})
        specs = {name: worker["spec"] for name, worker in self.workers.items()}
        asked = [
            name for name, spec in specs.items() if spec["job"] == job and (spec["index"] in indices or not indices)
        ]
        return [deepcopy(self.workers[name]) for name in asked]

    async def list_job(self, name: str) -> Json:
        await self._called("list", None)
        items = [] if self.job is None else [deepcopy(self.job)]
        return {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    async def watch_job(
        self, name: str, resource_version: str, seconds: int, opened: Callable[[], None]
    ) -> AsyncIterator[Json]:
        await self._called("watch", {"from": resource_version})
        opened()
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        if self.job is not None and int(self.job["metadata"]["resourceVersion"]) > int(resource_version):
            queue.put_nowait({"type": "MODIFIED", "object": deepcopy(self.job)})  # between the last watch and this one
        self._watches.add(queue)
        try:
            async with asyncio.timeout(seconds):
                while (event := await queue.get()) is not None:
                    yield event
        except TimeoutError:
            return
        finally:
            self._watches.discard(queue)

    # --- inside

    def patch(self, name: str, body: Json) -> Json:
        """A merge patch, guarded by the version that it names."""
        found = self._found(name)
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", 409)
        merged: Json = merge(found, body)
        merged["metadata"] = self._metadata(merged["metadata"])
        self.workers[name] = merged
        return merged

    async def _called(self, operation: str, body: Json | None) -> None:
        self.calls.append((operation, deepcopy(body)))
        self.times.append(asyncio.get_running_loop().time())
        await self.open.wait()
        if self.away:
            raise Unreachable("the API server did not answer in time")
        if self.fail[operation]:
            raise self.fail[operation].pop(0)

    def _answer(self, operation: str, stored: Json) -> Json:
        if self.lose[operation]:
            self.lose[operation] -= 1
            raise Unreachable("the connection to the API server broke off")
        return deepcopy(stored)

    def _found(self, name: str) -> Json:
        if name not in self.workers:
            raise Missing(f"{name} not found", 404)
        return self.workers[name]

    def _metadata(self, metadata: Json) -> Json:
        self._version += 1
        return {**metadata, "resourceVersion": str(self._version)}

    def _tell(self, event: Json) -> None:
        for watch in self._watches:
            watch.put_nowait(deepcopy(event))


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged

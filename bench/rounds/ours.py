# SPDX-License-Identifier: Apache-2.0
"""An ElasticJob on the kind cluster: its real API server and etcd, the real operator process, sidecars and handlers.

Its pods are objects only: they name a scheduler that does not exist, so no kubelet has them, and this module writes
what a kubelet would into their status. Each sidecar has its pod's environment and token.
"""

import asyncio
import contextlib
import ipaddress
import json
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rounds.api import CUSTOM, Api, gather_in_turn
from rounds.child import Child
from rounds.group import Group
from support import kubelet, pod_life
from support.api_client import ApiError, Object

PREFIX = "bench-rounds-"
NAMESPACE = f"{PREFIX}{secrets.token_hex(2)}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
JOBS = f"{CUSTOM}/namespaces/{NAMESPACE}/elasticjobs"
FIRST_ADDRESS = ipaddress.IPv4Address("127.64.0.1")
PODS_SECONDS, SETTLED_SECONDS, DELETED_SECONDS = 180.0, 180.0, 300.0
TOKEN_SECONDS = 7200
JOINS_SECONDS, QUIET_SECONDS = 240.0, 2.0
LISTED_A_SECOND = 2048
TELLING = ("phase", "reason", "readyReplicas", "restarts", "rendezvous", "blockers", "replacements")
LONGEST_NOTE = 4000
LAST_CALL_SECONDS = 240  # two cores may need longer than the default for the joins of the largest job


class OurJob(Group):
    """N workers of one job whose sidecars are ready and whose trainers have not asked to join."""

    def __init__(self, api: Api, processes: list[Child], sidecars: list[Child], addresses: int = 0) -> None:
        """`addresses`: how many of this machine's other jobs have."""
        super().__init__(processes)
        self._api, self._sidecars = api, sidecars
        self._name = f"job-{secrets.token_hex(3)}"
        self._secrets = Path(tempfile.mkdtemp(prefix="bench-"))
        self._pods: dict[str, Child] = {}  # and the process of its sidecar
        self._addresses = addresses

    async def start(self, size: int, spare: int) -> list[str]:
        """`spare`: how many more workers the job may have. Returns the agents."""
        container = {"name": "trainer", "image": "none", "command": ["torchrun", "train.py"]}
        spec = {
            "replicas": size,
            "minReplicas": 1,
            "maxReplicas": size + spare,
            "rendezvous": {"lastCallSeconds": LAST_CALL_SECONDS},
            "template": {"spec": {"schedulerName": "none", "containers": [container]}},
        }
        metadata = {"name": self._name}
        body = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "metadata": metadata, "spec": spec}
        await self._api.call("POST", JOBS, body)
        return await self._fill(size, self._sidecars)

    async def scale(self, size: int, sidecars: list[Child] | None = None) -> str:
        """Returns the name of the newest agent, whose sidecar is ready; `sidecars`: the processes of the new ones."""
        await self._api.patch(f"{JOBS}/{self._name}", {"spec": {"replicas": size}})
        return (await self._fill(size, sidecars or self._sidecars))[-1]

    async def after_the_last_join(self) -> float:
        """Seconds of a round from the last agent's call, when the joins of all others have been written."""
        formed, others = (await self.status())["rendezvous"]["round"], len(self._home) - 1
        sign = self._secrets / f"joined-{formed}"
        forming = asyncio.create_task(asyncio.to_thread(self.rendezvous_after, sign))
        async with asyncio.timeout(JOINS_SECONDS):
            while await self._joins(formed) < others:  # noqa: ASYNC110 - the API server sets no event
                await asyncio.sleep(max(0.2, others / LISTED_A_SECOND))
        await asyncio.sleep(QUIET_SECONDS)
        sign.touch()
        return await forming

    async def settled(self) -> None:
        """Wait until each worker's record tells its rank in the newest round: nothing more is written then."""
        round = (await self.status())["rendezvous"]["round"]
        async with asyncio.timeout(SETTLED_SECONDS):
            while True:
                if {record.get("status", {}).get("round") for record in await self._records()} == {round}:
                    return
                await asyncio.sleep(1.0)

    async def end(self) -> None:
        """The job goes before its sidecars: a thousand that leave one after the other would be replaced meanwhile."""
        await self._api.call("DELETE", f"{JOBS}/{self._name}", {"propagationPolicy": "Background"})
        selector = f"labelSelector=elasticjob.io%2Fjob%3D{self._name}"
        await self._delete_all(f"{CORE}/pods?{selector}", {"gracePeriodSeconds": 0})
        await self._delete_all(f"{CUSTOM}/namespaces/{NAMESPACE}/elasticworkers?{selector}")

    @contextlib.asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """A failure in this block also says how the job stands: the agents know only that no round came."""
        try:
            yield
        except RuntimeError as error:
            status = await self.status()
            told = {field: status.get(field) for field in TELLING}
            error.add_note(f"the job's status: {json.dumps(told)[:LONGEST_NOTE]}")
            raise

    async def status(self) -> Object:
        """The job's status as it is now."""
        status: Object = (await self._api.call("GET", f"{JOBS}/{self._name}"))["status"]
        return status

    async def _delete_all(self, path: str, options: Object | None = None) -> None:
        """The API server gives up after a minute, which a thousand may take, and goes on when it is asked again. With
        thousands it may not answer within a minute either."""
        async with asyncio.timeout(DELETED_SECONDS):
            while True:
                try:
                    await self._api.text("DELETE", path, options)
                    return
                except ApiError as error:
                    if error.status != HTTPStatus.GATEWAY_TIMEOUT:
                        raise
                except TimeoutError:
                    pass

    async def _joins(self, after: int) -> int:
        """How many ask for the round after `after`."""
        requests = (record["spec"].get("request", {}) for record in await self._records())
        return sum(request.get("after") == after for request in requests)

    async def _records(self) -> list[Object]:
        selector = f"labelSelector=elasticjob.io%2Fjob%3D{self._name}"
        listed = await self._api.call("GET", f"{CUSTOM}/namespaces/{NAMESPACE}/elasticworkers?{selector}")
        return list(listed["items"])

    async def _fill(self, size: int, sidecars: list[Child]) -> list[str]:
        """Bring the pods to life that the operator makes, until there are `size`; returns the new agents."""
        new = [pod for pod in await self._wait_for_pods(size) if pod["metadata"]["name"] not in self._pods]
        new.sort(key=lambda pod: int(pod["metadata"]["labels"]["elasticjob.io/index"]))
        lives = await gather_in_turn([self._bring_to_life(pod) for pod in new])
        shares: dict[Child, dict[str, Any]] = {}
        for life in lives:
            home = self._pods[life["name"]] = sidecars[len(self._pods) % len(sidecars)]
            shares.setdefault(home, {})[life["name"]] = life
        for home, share in shares.items():  # one process after the other, or all would be late with their heartbeats
            await asyncio.to_thread(home.ask, "start", pods=share)
        uid = (await self._api.call("GET", f"{JOBS}/{self._name}"))["metadata"]["uid"]
        parameters = {life["name"]: _parameters(life["address"], uid, size) for life in lives}
        self.make(parameters, {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"})  # as the plug-in says in a torchrun
        return [life["name"] for life in lives]

    async def _wait_for_pods(self, size: int) -> list[Object]:
        async with asyncio.timeout(PODS_SECONDS):
            while True:
                listed = await self._api.call("GET", f"{CORE}/pods?labelSelector=elasticjob.io%2Fjob%3D{self._name}")
                if len(listed["items"]) == size:
                    return list(listed["items"])
                await asyncio.sleep(0.2)

    async def _bring_to_life(self, pod: Object) -> Object:
        name, address = pod["metadata"]["name"], str(FIRST_ADDRESS + self._addresses)
        self._addresses += 1
        token = self._secrets / name
        token.write_text(await pod_life.new_token(self._api, pod, TOKEN_SECONDS))
        runs = kubelet.status(kubelet.running(pod["spec"], address, time.time()))
        await self._api.patch(f"{CORE}/pods/{name}/status", {"status": runs})
        environment = pod_life.environment(pod["spec"]["initContainers"][-1], pod, address, node="none")
        return {"name": name, "address": address, "token": str(token), "environment": environment}


def _parameters(address: str, uid: str, size: int) -> dict[str, Any]:
    endpoint = f"{address}:27600"
    return {"backend": "elasticjob", "endpoint": endpoint, "run_id": uid, "min_nodes": 1, "max_nodes": size}


def size_in_bytes(status: Object) -> int:
    return len(json.dumps(status, separators=(",", ":")))

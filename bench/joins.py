# SPDX-License-Identifier: Apache-2.0
"""What a join costs the API server, by how it is written: its processor time for each of N writes.

    python bench/joins.py --workers 50 --runs 24

etcd and kube-apiserver are child processes, and no cluster is needed. The ways take turns within a run, in the other
direction in each second one: compare within one call, as a busy machine makes all of them slower.
"""

import argparse
import asyncio
import secrets
import ssl
import statistics
from pathlib import Path
from typing import Any

import yaml
from rounds.processes import cpu_seconds

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL
from support import ControlPlane
from support.api_client import ApiClient, Object
from support.pod_life import new_credentials

CRDS = Path(__file__).parents[1] / "crds"
WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticworkers"
WAYS = {
    "patch": "a merge patch of the request",
    "patch, unmanaged": "the same, and the API server is told to forget who manages which field",
    "put": "the whole object",
    "put, unmanaged": "the whole object, and the API server is told to forget it: as sidecars do it",
}
AT_ONCE = 32
CERTIFICATE = new_credentials().certificate


class Joins:
    """The records of one way, joined again in each run."""

    def __init__(self, api: ApiClient, way: str, workers: int) -> None:
        self._api, self._whole, self._unmanaged = api, way.startswith("put"), "unmanaged" in way
        self._job, self._workers = f"joins-{secrets.token_hex(3)}", workers
        self._versions: dict[int, str] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def make(self) -> None:
        for index in range(self._workers):
            await self._api.call("POST", WORKERS, self._body(index))
            seen = {"status": {"heartbeat": 1, "round": 1, "rank": index}}  # as every worker has them
            self._versions[index] = version(await self._api.patch(f"{self._path(index)}/status", seen))

    async def run(self, after: int) -> None:
        await asyncio.gather(*(self._join(index, after) for index in range(self._workers)))

    async def _join(self, index: int, after: int) -> None:
        request = {"type": "Join", "after": after, "cause": "Started"}
        metadata: Object = {"resourceVersion": self._versions[index]}
        metadata |= {"managedFields": [{}]} if self._unmanaged else {}
        async with self._turns:
            if self._whole:
                body = self._body(index)
                body["metadata"] |= metadata
                body["spec"]["request"] = request
                answer = await self._api.call("PUT", self._path(index), body)
            else:
                answer = await self._api.patch(self._path(index), {"metadata": metadata, "spec": {"request": request}})
        self._versions[index] = version(answer)

    def _path(self, index: int) -> str:
        return f"{WORKERS}/{self._job}-{index}-0"

    def _body(self, index: int) -> Object:
        name = f"{self._job}-{index}-0"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "0" * 36, "blockOwnerDeletion": False}
        labels = {JOB_LABEL: self._job, INDEX_LABEL: str(index)}
        spec = {
            "job": self._job,
            "index": index,
            "id": "9f3c01d2.0",
            "certificate": CERTIFICATE,
            "address": "10.0.0.1:27601",
            "node": "node-1",
        }
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        return {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": metadata, "spec": spec}


def version(stored: Object) -> str:
    return str(stored["metadata"]["resourceVersion"])


async def measured(plane: ControlPlane, workers: int, runs: int) -> dict[str, list[float]]:
    """By the way, milliseconds of the API server for one join, one figure for each run."""
    config: Any = yaml.safe_load(plane.kubeconfig.read_text())
    tls = ssl.create_default_context(cafile=plane.authority)
    api = ApiClient(plane.server, tls, config["users"][0]["user"]["token"])
    ways = {way: Joins(api, way, workers) for way in WAYS}
    for joins in ways.values():
        await joins.make()
        await joins.run(0)
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for run in range(1, runs + 1):
        for way in list(WAYS)[:: 1 if run % 2 else -1]:
            before = cpu_seconds(plane.server_pid)
            await ways[way].run(run)
            costs[way].append(1000 * (cpu_seconds(plane.server_pid) - before) / workers)
    await api.close()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python bench/joins.py", description="What a join costs the API server.")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--runs", type=int, default=24)
    arguments = parser.parse_args()
    with ControlPlane() as plane:
        plane.install_crds(*sorted(CRDS.glob("*.yaml")))
        costs = asyncio.run(measured(plane, arguments.workers, arguments.runs))
    print("| way | ms of the API server (range) | of a patch | what is written |\n|---|---|---|---|")
    base = statistics.median(costs["patch"])
    for way, found in costs.items():
        middle, least, most = statistics.median(found), min(found), max(found)
        print(f"| {way} | {middle:.2f} ({least:.2f}-{most:.2f}) | {middle / base:.2f} | {WAYS[way]} |")


if __name__ == "__main__":
    main()

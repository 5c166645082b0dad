"""A worker's record under the chart's admission policy: what an administrator takes from it comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from api import chart
from api.operators import GROUP, Operators, new_job
from elasticjob_sidecar.kubernetes.client import Kube
from elasticjob_sidecar.kubernetes.in_cluster import InCluster
from elasticjob_sidecar.kubernetes.worker_record import Identity, WorkerRecord
from support import ControlPlane

CORE = "/api/v1/namespaces/default"
SECONDS = 60.0


class Worker:
    """A job's one worker, whose pod the operator has made; its sidecar keeps the record."""

    def __init__(self, plane: ControlPlane, job: str) -> None:
        self.plane, self.name = plane, f"{job}-0-0"
        self.path = f"{GROUP}/namespaces/default/elasticworkers/{self.name}"
        self._job = job

    @contextlib.asynccontextmanager
    async def runs(self, directory: Path) -> AsyncIterator[WorkerRecord]:
        uid = self.plane.request("GET", f"{CORE}/pods/{self.name}")["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": uid}
        path = f"{CORE}/serviceaccounts/{self._job}-worker/token"
        token = self.plane.request("POST", path, {"spec": {"boundObjectRef": bound}})["status"]["token"]
        (directory / "token").write_text(token)
        server = urlsplit(self.plane.server)
        kube = Kube(
            "default",
            InCluster(str(server.hostname), int(server.port or 0), directory / "token", self.plane.authority),
        )
        me = Identity(
            pod_name=self.name,
            pod_uid=uid,
            job=self._job,
            index=0,
            id="9f3c01d2.0",
            certificate="PEM",
            address="10.0.0.1:29402",
        )
        record = WorkerRecord(kube, me, lambda _operation, _failure: None)
        task = asyncio.create_task(record.run())
        try:
            yield record
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kube.close()

    def marks(self) -> Any:
        meta = self.plane.request("GET", self.path)["metadata"]
        return {key: meta.get(key) for key in ("uid", "labels", "ownerReferences")}

    def beats(self) -> int:
        return int(self.plane.request("GET", self.path).get("status", {}).get("heartbeat", 0))


@pytest.mark.parametrize(
    "taken",
    [{"labels": None}, {"labels": {"elasticjob.io/index": "7"}}, {"ownerReferences": None}],
    ids=["labels", "index", "owner"],
)
async def test_what_an_administrator_takes_from_a_record_comes_back(
    operators: Operators, plane: ControlPlane, tmp_path: Path, taken: Any
) -> None:
    chart.install(plane, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    worker = Worker(plane, new_job(plane))
    await (await operators.lead()).see(worker.name.removesuffix("-0-0"))
    async with worker.runs(tmp_path) as record, asyncio.timeout(SECONDS):
        await record.written()
        before = worker.marks()
        plane.request("PATCH", worker.path, {"metadata": taken}, content_type="application/merge-patch+json")
        assert worker.marks() != before
        while worker.marks() != before:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.1)
        beats = worker.beats()
        while worker.beats() == beats:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

# SPDX-License-Identifier: Apache-2.0
"""A device that a kubelet reports as unhealthy, from the pod's status at the API server to the job's. A test is the
kubelet, and writes the status by hand: no device is at fault anywhere."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from api.operators import GROUP, JOBS, Leader, Operators, job_body
from api.pods import CORE
from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL
from elasticjob.objects import Object
from elasticjob.reading import Pod
from support import ControlPlane
from support.pod_life import new_credentials
from support.waiting import within

WORKERS = f"{GROUP}/namespaces/default/elasticworkers"
GPU, DEVICE = "nvidia.com/gpu", "GPU-6f1b7e0c"
MERGE = "application/merge-patch+json"
KEEPS_HEALTH = 36  # from this version on the API server keeps the field without a feature gate


class GpuJob:
    """A job of one worker with a GPU, which has joined its round."""

    def __init__(self, plane: ControlPlane, leader: Leader, name: str) -> None:
        self.plane, self.leader, self.name, self.pod = plane, leader, name, f"{CORE}/pods/{name}-0-0"

    async def train(self, **drain: Any) -> None:
        body = job_body(self.name)
        trainer = body["spec"]["template"]["spec"]["containers"][0]
        trainer["resources"] = {"limits": {GPU: "1"}}
        body["spec"] |= {"drain": drain}
        self.plane.request("POST", JOBS, body)
        await self.until(lambda status: self.has_pod(0))
        meta = {"name": f"{self.name}-0-0"}
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}  # which need not exist
        self.plane.request("POST", f"{self.pod}/binding", {"metadata": meta, "target": target})
        self.report("Healthy")
        self.plane.request("POST", WORKERS, self.record())
        await self.until(lambda status: status["rendezvous"]["phase"] == "Formed")

    def record(self) -> Object:
        pod = self.plane.request("GET", self.pod)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        meta = {"name": name, "labels": {JOB_LABEL: self.name, INDEX_LABEL: "0"}, "ownerReferences": [owner]}
        spec = {"job": self.name, "index": 0, "id": f"{Pod.read(pod).batch}.0", "address": "10.0.0.1:27601"}
        spec |= {"certificate": new_credentials().certificate, "node": "node-a"}
        spec |= {"request": {"type": "Join", "after": 0, "cause": "Started"}}
        return {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": meta, "spec": spec}

    def report(self, health: str) -> Object:
        """The kubelet's status of the trainer; returns what the API server has kept of its devices."""
        devices = [{"name": GPU, "resources": [{"resourceID": DEVICE, "health": health}]}]
        container = {"name": "trainer", "image": "train:1", "imageID": "", "ready": True, "restartCount": 0}
        container |= {"state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}, "allocatedResourcesStatus": devices}
        status = {"phase": "Running", "containerStatuses": [container]}
        kept = self.plane.request("PATCH", f"{self.pod}/status", {"status": status}, content_type=MERGE)
        found: Object = kept["status"]["containerStatuses"][0].get("allocatedResourcesStatus")
        return found

    def has_pod(self, index: int) -> bool:
        names = [pod["metadata"]["name"] for pod in self.plane.request("GET", f"{CORE}/pods")["items"]]
        return f"{self.name}-{index}-0" in names

    async def until(self, holds: Callable[[Object], bool]) -> Object:
        """The job's status once that holds, as the operator writes it meanwhile."""
        async with within("the operator's answer"):
            while not holds(status := await self.leader.see(self.name)):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)
        return status


@pytest.fixture
async def gpu_job(operators: Operators, plane: ControlPlane, request: pytest.FixtureRequest) -> GpuJob:
    if plane.minor_version < KEEPS_HEALTH:
        pytest.skip(f"the API server of Kubernetes 1.{plane.minor_version} drops the health of devices from a status")
    return GpuJob(plane, await operators.lead(), request.node.name.replace("_", "-")[:40])


async def test_a_sick_gpu_moves_its_worker(gpu_job: GpuJob) -> None:
    await gpu_job.train()
    assert gpu_job.report("Unhealthy")[0]["resources"][0]["health"] == "Unhealthy"
    status = await gpu_job.until(lambda status: gpu_job.has_pod(1) and bool(status.get("blockers")))
    (blocker,) = [one for one in status["blockers"] if one["reason"] == "DeviceUnhealthy"]
    assert (blocker["workers"], blocker["object"], blocker["passes"]) == ("0", "Node/node-a", True)
    assert blocker["message"] == f"its device {GPU} {DEVICE} on node node-a is unhealthy"
    assert status["reason"] == "DeviceUnhealthy"
    assert status["draining"]
    assert status["rendezvous"]["phase"] == "Formed", "it trains on until another has come"

    gpu_job.report("Healthy")
    await gpu_job.until(lambda status: not gpu_job.has_pod(1) and not status.get("draining"))
    assert gpu_job.has_pod(0)


async def test_where_the_job_says_no_it_stays(gpu_job: GpuJob) -> None:
    await gpu_job.train(unhealthyDevices=False)
    gpu_job.report("Unhealthy")
    for _ in range(3):  # each look lists everything anew
        status = await gpu_job.leader.see(gpu_job.name)
        assert not status.get("draining")
    assert not gpu_job.has_pod(1)

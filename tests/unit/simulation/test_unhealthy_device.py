# SPDX-License-Identifier: Apache-2.0
"""A GPU becomes unhealthy while a job trains: its worker is replaced in one planned round; one that recovers stays."""

import asyncio

from elasticjob.api import INDEX_LABEL
from elasticjob.terms import RoundCause
from simulation.one_job import OneJob
from simulation.stubs import LOOK_SECONDS, StubPrograms
from support import kubelet
from support.pod_life import new_credentials

GPU = "nvidia.com/gpu"
FORMED_SECONDS, CALM_SECONDS = 60.0, 120.0


async def live(job: OneJob) -> None:
    job.submit(replicas=2, maxRestarts=0)
    await job.formed(2, seconds=FORMED_SECONDS)
    await asyncio.sleep(5 * LOOK_SECONDS)  # a stub takes part in no round that ends before it looks
    sick = next(pod for pod in job.pods if pod["metadata"]["labels"][INDEX_LABEL] == "1")
    run = job.world.nodes.run_of(sick["metadata"]["uid"])
    assert run is not None

    job.world.nodes.scheduling = False  # no other has a place yet
    run.note(kubelet.has_devices, "trainer", GPU, {"GPU-0": "Healthy", "GPU-1": "Unhealthy"})
    await asyncio.sleep(CALM_SECONDS)
    status = job.status
    assert (status.rendezvous.round, status.reason) == (1, "DeviceUnhealthy"), "it trains on"
    assert [one.reason for one in status.blockers if one.object.startswith("Node/")] == ["DeviceUnhealthy"]
    run.note(kubelet.has_devices, "trainer", GPU, {"GPU-0": "Healthy", "GPU-1": "Healthy"})
    await asyncio.sleep(CALM_SECONDS)
    job.world.nodes.scheduling = True
    await asyncio.sleep(CALM_SECONDS)
    status = job.status
    assert (status.rendezvous.round, status.reason, len(job.pods)) == (1, "", 2), "it has recovered in time"

    run.note(kubelet.has_devices, "trainer", GPU, {"GPU-0": "Unhealthy", "GPU-1": "Healthy"})
    await job.formed(2, after=1, seconds=FORMED_SECONDS)
    agreed = job.status.rendezvous
    assert agreed.cause == RoundCause.DEVICE_UNHEALTHY
    assert "joined for worker 1, whose device is unhealthy" in agreed.reason
    assert job.status.restarts == 0
    await asyncio.sleep(CALM_SECONDS)
    assert sick["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in job.pods]
    assert job.status.rendezvous.round == 2


def test_a_worker_with_an_unhealthy_device_is_replaced() -> None:
    OneJob(5, StubPrograms(new_credentials().certificate), nodes=2, capacity=8).run(live)

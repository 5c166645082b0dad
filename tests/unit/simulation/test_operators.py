# SPDX-License-Identifier: Apache-2.0
"""A simulated operator leaves nothing behind in the process."""

from prometheus_client import REGISTRY

from simulation.one_job import OneJob
from simulation.stubs import StubPrograms
from support.pod_life import new_credentials


async def live(job: OneJob) -> None:
    job.submit(replicas=1)
    await job.formed(1, seconds=30.0)
    assert value("elasticjob_jobs", phase="Running") == 1


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_metrics_can_be_read_after_a_life() -> None:
    OneJob(7, StubPrograms(new_credentials().certificate), nodes=1, capacity=1).run(live)
    assert list(REGISTRY.collect())
    assert value("elasticjob_jobs", phase="Running") is None
    assert value("elasticjob_leader") == 0

"""How often a sidecar gives a sign of life, and for how long it may give none."""

import asyncio

import pytest

from elasticjob.api import ElasticJobSpec, RequestType, WorkerRequest
from elasticjob.heartbeats import default_worker_lost, heartbeat_seconds
from elasticjob_operator.job.status import rendezvous_spec
from support.operator_objects import job
from support.records import record_of, running
from support.sidecar_fakes import FakeKube

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("workers", "lost", "between"), [(1, 15, 5), (240, 15, 5), (480, 30, 10), (1024, 64, 64 / 3), (4096, 256, 256 / 3)]
)
def test_a_large_group_beats_more_seldom(workers: int, lost: float, between: float) -> None:
    assert default_worker_lost(workers) == lost
    assert heartbeat_seconds(workers, lost) == between
    assert workers / between <= 48


def test_a_limit_that_is_named_holds_in_a_group_of_any_size() -> None:
    assert heartbeat_seconds(1024, 15) == 5
    assert heartbeat_seconds(2, 600) == 5  # else the first beat after a silence of all would never be far


def test_the_operator_goes_by_the_workers_that_are_still_there() -> None:
    spec = ElasticJobSpec.parse(job(replicas=8)["spec"])
    assert (rendezvous_spec(spec).worker_lost, rendezvous_spec(spec, workers=1024).worker_lost) == (15, 64)
    named = ElasticJobSpec.parse(job(replicas=8, rendezvous={"workerLostSeconds": 20})["spec"])
    assert rendezvous_spec(named, workers=1024).worker_lost == 20


async def test_a_sidecar_beats_as_its_job_is_large() -> None:
    kube = FakeKube()
    record = record_of(kube)
    record.job_sized(480, None)
    async with running(record):
        await asyncio.sleep(40)
        assert kube.count("status") in (4, 5)


async def test_in_a_job_that_becomes_small_it_beats_as_the_others_do() -> None:
    kube = FakeKube()
    record = record_of(kube)
    record.job_sized(4096, None)
    async with running(record):
        await asyncio.sleep(100)
        record.job_sized(8, None)
        before = kube.count("status")
        await asyncio.sleep(5.1)
        assert kube.count("status") > before


async def test_a_trainers_own_limit_is_kept() -> None:
    kube = FakeKube()
    record = record_of(kube)
    record.job_sized(4096, None)
    record.want(WorkerRequest(type=RequestType.JOIN, after=0, cause="Started", worker_lost_seconds=15))
    async with running(record):
        await asyncio.sleep(30)
        assert kube.count("status") >= 5

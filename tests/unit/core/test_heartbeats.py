# SPDX-License-Identifier: Apache-2.0
"""How often a sidecar gives a sign of life, and for how long it may give none."""

import asyncio

import pytest

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.heartbeats import (
    ack_seconds,
    backstop_seconds,
    default_worker_lost,
    link_seconds,
    record_seconds,
    suspicion_seconds,
)
from elasticjob.timing import RendezvousSpec
from support.faulty_kube import FaultyKube
from support.operator_objects import job
from support.records import record_of, running

pytestmark = pytest.mark.looptime


SIZES = (1, 2, 4, 64, 256, 1024, 2048, 4096)


@pytest.mark.parametrize("workers", SIZES)
def test_who_is_stopped_for_three_seconds_is_not_lost_and_who_is_lost_is_told_in_time(workers: int) -> None:
    lost = default_worker_lost(workers)
    longest_suspicion = suspicion_seconds(workers, lost)
    proof = ack_seconds(lost)
    assert longest_suspicion - link_seconds(workers) + proof > 3.3
    assert longest_suspicion + proof <= 0.9 * lost
    if workers <= 4:
        assert longest_suspicion + proof + 0.2 < 4
    if workers <= 1024:
        assert longest_suspicion + proof + 1 < 5


def test_nor_is_it_with_the_least_that_a_job_may_name() -> None:
    least = RendezvousSpec.model_json_schema()["properties"]["workerLostSeconds"]["anyOf"][0]["minimum"]
    assert suspicion_seconds(256, least) - link_seconds(256) + ack_seconds(least) > 3.3
    before = ElasticJobSpec.parse(job(rendezvous={"workerLostSeconds": 1})["spec"])
    assert rendezvous_spec(before).worker_lost == 1, "of a job that was stored when less was allowed"


@pytest.mark.parametrize("workers", SIZES)
def test_lines_and_heartbeats_cost_little_in_a_group_of_any_size(workers: int) -> None:
    assert workers / link_seconds(workers) <= 1600
    assert 1 / backstop_seconds(workers) < 0.01
    assert workers / backstop_seconds(workers) <= 4 or workers <= 600


@pytest.mark.parametrize(("workers", "between"), [(1, 5), (240, 5), (480, 10), (1024, 64 / 3), (4096, 256 / 3)])
def test_while_a_round_forms_a_large_group_beats_more_seldom(workers: int, between: float) -> None:
    assert record_seconds(workers) == between
    assert workers / between <= 48


def test_a_limit_that_is_named_holds_in_a_group_of_any_size() -> None:
    assert (suspicion_seconds(2, 60), ack_seconds(60)) == (24, 30)


def test_the_operator_goes_by_the_workers_that_are_still_there() -> None:
    spec = ElasticJobSpec.parse(job(replicas=8)["spec"])
    assert (rendezvous_spec(spec).worker_lost, rendezvous_spec(spec, workers=1024).worker_lost) == (4, 4.4)
    named = ElasticJobSpec.parse(job(replicas=8, rendezvous={"workerLostSeconds": 20})["spec"])
    assert rendezvous_spec(named, workers=1024).worker_lost == 20


async def test_a_sidecar_beats_as_its_job_is_large() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    record.job_sized(480, None)
    async with running(record):
        await asyncio.sleep(40)
        assert kube.count("status") in (4, 5)


async def test_in_a_job_that_becomes_small_it_beats_as_the_others_do() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    record.job_sized(4096, None)
    async with running(record):
        await asyncio.sleep(100)
        record.job_sized(8, None)
        before = kube.count("status")
        await asyncio.sleep(5.1)
        assert kube.count("status") > before

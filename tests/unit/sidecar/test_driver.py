# SPDX-License-Identifier: Apache-2.0
"""What the driver tells a trainer is so: its word is recorded, or it is told that it is not. In virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from elasticjob.api import Member, Members, ProcessState, RendezvousPhase, RendezvousStatus, RequestCause
from elasticjob.kube.errors import Unavailable
from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.membership.concerns import Concerns
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.membership.scripts import Scripts
from elasticjob_sidecar.membership.stalls import Stalls
from elasticjob_sidecar.metrics import Metrics
from elasticjob_torch.wire import Code
from support.faulty_kube import FaultyKube

pytestmark = pytest.mark.looptime

ME = Member(0, "0")
IDENTITY = Identity(pod_name="job-0-0", pod_uid="1", job="job", index=0, id="0", certificate="", address="10.0.0.7:1")


@contextlib.asynccontextmanager
async def in_round(kube: FaultyKube) -> AsyncIterator[Driver]:
    """The driver of a worker whose trainer holds round 1."""
    metrics = Metrics()
    record = WorkerRecord(kube, IDENTITY, metrics.api_failed)
    driver = Driver(Membership(ME), Concerns(Scripts(), Stalls()), record, metrics)
    writing = asyncio.create_task(record.run())
    driver.job_seen(status(RendezvousPhase.FORMING))
    driver.attach("t", 0)
    joining = asyncio.create_task(driver.join("t", 0, RequestCause.STARTED, 60.0))
    await asyncio.sleep(1)
    driver.job_seen(status(RendezvousPhase.FORMED))
    await joining
    yield driver
    writing.cancel()


def status(phase: RendezvousPhase, round: int = 1, stalled: int = 0) -> RendezvousStatus:
    return RendezvousStatus(phase=phase, round=round, participants=Members([ME]), world_size=1, stalled=stalled)


def said(kube: FaultyKube) -> str:
    request = kube.request("job-0-0")
    assert request is not None
    return str(request["type"])


@pytest.mark.parametrize("end", ["Finish", "Leave"])
async def test_a_word_behind_a_close_is_recorded_before_it_is_answered(end: str) -> None:
    """The record asks Close until the rendezvous is closed, and one thing at a time."""
    kube = FaultyKube()
    async with in_round(kube) as driver:
        await driver.close("t", 5.0)
        ending = driver.finish("t", 1, 60.0) if end == "Finish" else driver.leave("t", RequestCause.TRAINER_LEFT, 60.0)
        answered = asyncio.create_task(ending)
        await asyncio.sleep(10)
        assert (answered.done(), said(kube)) == (False, "Close")
        driver.job_seen(status(RendezvousPhase.CLOSED))
        await answered
        assert said(kube) == end


async def test_a_word_that_a_newer_trainer_took_back_is_not_told_as_recorded() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        kube.fail["patch_worker"] = [Unavailable("away")] * 3
        finishing = asyncio.create_task(driver.finish("t", 1, 60.0))
        await asyncio.sleep(0)
        driver.detach("t", 1)
        driver.attach("newer", 0)
        joining = asyncio.create_task(driver.join("newer", 0, RequestCause.STARTED, 60.0))
        with pytest.raises(Refused) as refused:
            await finishing
        assert (refused.value.code, said(kube)) == (Code.SUPERSEDED, "Join")
        joining.cancel()


async def test_a_recorded_success_survives_the_sidecar_that_recorded_it() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        await driver.finish("t", 1, 60.0)
    metrics = Metrics()
    record = WorkerRecord(kube, replace(IDENTITY, id="1"), metrics.api_failed)
    driver = Driver(Membership(Member(0, "1")), Concerns(Scripts(), Stalls()), record, metrics)
    writing = asyncio.create_task(record.run())
    await driver.stop(60.0)
    assert (kube.workers["job-0-0"]["spec"]["id"], said(kube)) == ("1", "Finish")
    writing.cancel()


async def test_who_has_finished_and_starts_again_may_leave() -> None:
    """What was recorded stays; there is nothing that it could take back."""
    kube = FaultyKube()
    async with in_round(kube) as driver:
        await driver.finish("t", 1, 60.0)
        driver.detach("t", 1)
        driver.attach("again", 0)
        await driver.leave("again", RequestCause.TRAINER_LEFT, 60.0)
        assert said(kube) == "Finish"


async def test_a_word_that_stays_behind_a_close_is_not_told_as_recorded() -> None:
    async with in_round(FaultyKube()) as driver:
        await driver.close("t", 5.0)
        with pytest.raises(Refused) as refused:
            await driver.finish("t", 1, 5.0)
        assert refused.value.code is Code.API_AWAY


async def test_whether_the_api_server_is_heard_wakes_who_listens() -> None:
    async with in_round(FaultyKube()) as driver:
        for heard in (False, True):
            change = driver.next_change
            driver.api_heard(heard)
            assert (driver.api_away, change.is_set()) == (not heard, True)


def first_steps(metrics: Metrics) -> tuple[float, float]:
    """How many were observed, and their sum in seconds."""
    lines = dict(line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if not line.startswith("#"))
    name = "elasticjob_sidecar_first_step_seconds"
    return float(lines[f"{name}_count"]), float(lines[f"{name}_sum"])


async def test_how_long_the_training_stood_still_until_a_script_reports_a_step() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        await asyncio.sleep(2)
        driver.report(ScriptProgress(metrics={"loss": 1.0}), 0)
        assert first_steps(driver.metrics) == (0, 0)
        driver.report(ScriptProgress(step=1), 0)
        driver.report(ScriptProgress(step=2), 0)
        assert first_steps(driver.metrics) == (1, 3)  # the join, one second before its round, counts as well

        driver.job_seen(status(RendezvousPhase.FORMING, 2))
        await asyncio.sleep(4)
        driver.report(ScriptProgress(step=3), 0)  # of the round that is over: its script saves
        joining = asyncio.create_task(driver.join("t", 1, RequestCause.MEMBERSHIP_CHANGED, 60.0))
        await asyncio.sleep(5)
        driver.job_seen(status(RendezvousPhase.FORMED, 2))
        await joining
        await asyncio.sleep(6)
        driver.report(ScriptProgress(step=3), 0)
        assert first_steps(driver.metrics) == (2, 3 + 15)


def stall(kube: FaultyKube) -> object:
    return kube.workers["job-0-0"].get("status", {}).get("stall")


async def test_a_script_that_stalls_is_noticed_by_time_alone_and_written_within_seconds() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        driver.store_posted("t", 1, 5000)
        driver.limited(60)
        for step in range(5):
            driver.report(ScriptProgress(step=step), 0)
            await asyncio.sleep(50)
        assert stall(kube) is None
        await asyncio.sleep(10 + 6)
        assert stall(kube) == {"round": 1, "stalled": True, "step": 4}
        driver.report(ScriptProgress(step=5), 0)
        await asyncio.sleep(6)
        assert stall(kube) == {"round": 1, "stalled": False, "step": 5}


async def test_what_the_trainer_finds_is_written_within_seconds() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        driver.store_posted("t", 1, 5000)
        driver.job_seen(status(RendezvousPhase.FORMED, stalled=1))
        await asyncio.sleep(6)
        assert stall(kube) == {"round": 1, "stalled": False}
        driver.looked("t", 1, ProcessState.COMPUTES, 2)
        await asyncio.sleep(6)
        assert stall(kube) == {"round": 1, "stalled": False, "process": "Computes", "localRank": 2}
        with pytest.raises(Refused) as refused:
            driver.looked("t", 2, ProcessState.COMPUTES, 2)
        assert refused.value.code is Code.ROUND_BROKEN


async def test_a_deadline_that_is_set_or_moved_later_holds_at_once() -> None:
    async with in_round(kube := FaultyKube()) as driver:
        driver.store_posted("t", 1, 5000)
        driver.report(ScriptProgress(step=1), 0)
        await asyncio.sleep(30)
        driver.limited(3600)
        await asyncio.sleep(30)
        driver.limited(70)
        await asyncio.sleep(10 + 6)
        assert stall(kube) is not None


async def test_the_word_goes_with_its_round() -> None:
    kube = FaultyKube()
    async with in_round(kube) as driver:
        driver.store_posted("t", 1, 5000)
        driver.limited(60)
        driver.report(ScriptProgress(step=1), 0)
        await asyncio.sleep(70)
        assert stall(kube) is not None
        driver.job_seen(status(RendezvousPhase.FORMING, 2))
        joining = asyncio.create_task(driver.join("t", 1, RequestCause.MEMBERSHIP_CHANGED, 60.0))
        await asyncio.sleep(6)
        assert stall(kube) is None
        joining.cancel()

"""The Lease: its clock, and what its holder waits for, in real, short seconds."""

import asyncio
import time

import aiohttp
import pytest

from elasticjob_operator.cluster import leader
from elasticjob_operator.cluster.leader import Leadership, LeaseClock, StillWorking, lead
from support.operator_fakes import Leases
from support.waiting import DEADLINE


def test_the_clock_runs_from_renewal_to_renewal_and_a_little_beyond() -> None:
    now = 100.0
    clock = LeaseClock(lambda: now)
    clock.renewed(100)
    now = 101.0
    clock.renewed(101)
    assert clock.now() == pytest.approx(1.0)
    now = 200.0
    assert clock.now() == pytest.approx(2.5)


def test_a_gap_of_the_clock_is_not_counted_and_begins_an_epoch() -> None:
    now = 100.0
    clock = LeaseClock(lambda: now)
    clock.renewed(100)
    now = 104.0
    clock.renewed(104)
    before, epoch = clock.now(), clock.epoch
    now = 230.0
    clock.renewed(230)
    assert clock.now() - before <= 1.5
    assert clock.epoch == epoch + 1


def test_the_clock_never_goes_back() -> None:
    now, seen = 0.0, 0.0
    clock = LeaseClock(lambda: now)
    for at in (0.0, 1.0, 2.2, 9.0, 9.5, 14.4, 30.0):
        for answered in (0.0, 0.3, 0.4):  # the answer comes later than the renewal was sent
            now = at + answered
            assert clock.now() >= seen
            seen = clock.now()
        clock.renewed(at)


def leadership(leases: Leases) -> Leadership:
    return Leadership(leases, "ops", "operator", "one")  # type: ignore[arg-type]


async def test_a_renewal_that_is_not_answered_ends_with_the_lease(
    leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    ours = leadership(leases)
    await ours.acquire()
    leases.stuck.add("write")
    began = time.monotonic()
    await ours.hold()
    assert time.monotonic() - began < 1  # and not after one request more, when another leads
    assert "the lease was not renewed: TimeoutError" in caplog.text


async def test_an_answer_cut_off_is_no_reason_to_stop_standing_by(leases: Leases) -> None:
    leases.fails = [aiohttp.ServerDisconnectedError(), OSError("refused"), TimeoutError("no answer")]
    ours = leadership(leases)
    async with asyncio.timeout(DEADLINE):
        await ours.acquire()
    assert ours.term == 1


async def test_work_that_does_not_stop_is_left_behind(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader, "STOP_SECONDS", 0.1)
    freed = asyncio.Event()

    async def stubborn() -> None:
        leases.stuck.add("write")
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(StillWorking):
            await lead(leadership(leases), stubborn)
    assert "did not stop within 0.1 s" in caplog.text
    assert not leases.released
    freed.set()

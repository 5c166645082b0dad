# SPDX-License-Identifier: Apache-2.0
"""The Lease: its clock, and what its holder waits for, in real, short seconds."""

import asyncio
import time
from types import SimpleNamespace

import aiohttp
import pytest

from elasticjob_operator.cluster import leader
from elasticjob_operator.cluster.leader import (
    DURATION_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    Leadership,
    LeaseClock,
    StillWorking,
    lead,
)
from support.recording_server import RecordingServer
from support.waiting import in_time, within

LEASE = "leases/operator"


class Passing:
    """A process whose clock ticks as time passes, but for when it stands still."""

    def __init__(self) -> None:
        self.at = 100.0
        self.clock = LeaseClock(lambda: self.at)
        self.clock.renewed(100)

    def runs(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.at += 0.1
            self.clock.tick()

    def stands_still(self, seconds: float) -> None:
        self.at += seconds


def test_the_clock_runs_from_renewal_to_renewal_and_a_little_beyond() -> None:
    passing = Passing()
    passing.runs(1)
    passing.clock.renewed(passing.at)
    assert passing.clock.now() == pytest.approx(1.0)
    passing.runs(100)
    assert passing.clock.now() == pytest.approx(2.5)


def test_the_clock_of_one_that_has_stood_by_for_long_runs_from_its_first_second() -> None:
    """Nothing ticks while another leads, and that was no standing still."""
    at = 100.0
    clock = LeaseClock(lambda: at)
    at = 700.0
    clock.renewed(at)
    assert clock.now() == pytest.approx(0)
    for _ in range(10):
        at += 0.1
        clock.tick()
    assert clock.now() == pytest.approx(1)
    clock.renewed(at)
    assert clock.now() == pytest.approx(1)


def test_a_gap_of_the_clock_is_not_counted_and_begins_an_epoch() -> None:
    passing = Passing()
    passing.runs(4)
    passing.clock.renewed(passing.at)
    before, epoch = passing.clock.now(), passing.clock.epoch
    passing.runs(126)
    passing.clock.renewed(passing.at)
    assert passing.clock.now() - before == pytest.approx(1.5)
    assert passing.clock.epoch == epoch + 1


@pytest.mark.parametrize("asked", [0.0, 0.5], ids=["before a renewal", "while a renewal is not answered"])
def test_what_a_process_did_not_see_is_not_counted(asked: float) -> None:
    """What was said while it stood still is not read yet in the moment in which it goes on."""
    passing = Passing()
    passing.runs(1)
    before, sent = passing.clock.now(), passing.at
    passing.stands_still(3)
    assert passing.clock.now() == pytest.approx(before)
    passing.clock.renewed(sent if asked else passing.at)
    assert passing.clock.now() == pytest.approx(before)
    passing.runs(0.5)
    assert passing.clock.now() == pytest.approx(before + 0.5)


def test_after_an_api_server_that_was_away_all_have_time_to_find_it_again() -> None:
    passing = Passing()
    passing.runs(1)
    passing.clock.renewed(passing.at)
    assert passing.clock.settled <= passing.clock.now()
    passing.runs(3)
    passing.clock.renewed(passing.at)
    assert passing.clock.settled == pytest.approx(passing.clock.now() + 5)


async def test_who_has_stood_by_for_long_knows_that_the_api_server_was_there(leases: RecordingServer) -> None:
    first, second = leadership(leases), leadership(leases)
    await first.acquire()
    assert first.clock.settled > first.clock.now()
    second._answered_since = time.monotonic() - 60
    await first.release()
    await second.acquire()
    assert second.clock.settled <= second.clock.now()


def test_the_clock_never_goes_back() -> None:
    now, seen = 0.0, 0.0
    clock = LeaseClock(lambda: now)
    for at in (0.0, 1.0, 2.2, 9.0, 9.5, 14.4, 30.0):
        for answered in (0.0, 0.3, 0.4):  # the answer comes later than the renewal was sent
            now = at + answered
            assert clock.now() >= seen - 1e-9
            seen = clock.now()
        clock.renewed(at)


def leadership(leases: RecordingServer) -> Leadership:
    return Leadership(leases.client(), "ops", "operator", "one")


async def test_a_renewal_that_is_not_answered_ends_with_the_lease(
    leases: RecordingServer, caplog: pytest.LogCaptureFixture
) -> None:
    ours = leadership(leases)
    await ours.acquire()
    ours._times = ours._times._replace(lost_after=1.0)  # in which a renewal begins also where its process is late
    leases.network.open.clear()
    with in_time("the end of the lease, and no request more", 4):
        await ours.hold()
    assert "the lease was not renewed: " in caplog.text


@pytest.mark.parametrize("holder", ["one", "two"])
async def test_a_leader_whose_last_renewal_was_not_answered_gives_the_lease_up(
    leases: RecordingServer, holder: str
) -> None:
    """It has reached the server; what another has taken since is the other's."""
    ours = leadership(leases)
    await ours.acquire()
    with leases.objects.edited(LEASE) as lease:
        lease["spec"]["holderIdentity"] = holder
    await ours.release()
    assert leases.objects[LEASE]["spec"]["holderIdentity"] == ("" if holder == "one" else "two")


async def test_a_term_of_another_lease_is_outgrown_once_and_while_the_lease_is_renewed(leases: RecordingServer) -> None:
    """Each job's status asks for it, and the answer of none may be taken for another operator's write."""
    ours = leadership(leases)
    await ours.acquire()
    await asyncio.gather(ours.outgrow(9), ours._rewrite("one"), ours.outgrow(9))
    lease = leases.objects[LEASE]
    assert (ours.term, lease["spec"]["leaseTransitions"]) == (10, 10)
    assert (ours.lease.place, ours.lease.uid) == ("ops/operator", lease["metadata"]["uid"])


async def test_an_answer_cut_off_is_no_reason_to_stop_standing_by(leases: RecordingServer) -> None:
    leases.network.fails = [aiohttp.ServerDisconnectedError(), OSError("refused"), TimeoutError("no answer")]
    ours = leadership(leases)
    async with within("the Lease"):
        await ours.acquire()
    assert ours.term == 1


async def test_work_that_does_not_stop_is_left_behind(
    leases: RecordingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader, "STOP_SECONDS", 0.1)
    freed = asyncio.Event()

    async def stubborn() -> None:
        leases.network.open.clear()
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue

    async with within("the operator to leave the work behind"):
        with pytest.raises(StillWorking):
            await lead(leadership(leases), stubborn)
    assert "did not stop within 0.1 s" in caplog.text
    assert leases.objects[LEASE]["spec"]["holderIdentity"] == "one"
    freed.set()


@pytest.mark.parametrize("duration", [SHORTEST_SECONDS, DURATION_SECONDS, LONGEST_SECONDS])
def test_a_leader_survives_two_lost_requests_and_stops_before_another_may_lead(duration: float) -> None:
    times = leader.times_of(duration)
    assert 2 * (times.renew + times.request) <= times.lost_after < times.duration == duration


@pytest.mark.parametrize(("named", "seconds"), [(None, 0.25), (2, 2), (9_999, LONGEST_SECONDS)])
async def test_a_lease_lasts_as_long_as_its_holder_goes_by(
    leases: RecordingServer, monkeypatch: pytest.MonkeyPatch, named: int | None, seconds: float
) -> None:
    """An operator with a shorter duration may come beside one that leads."""
    await leadership(leases).acquire()
    with leases.objects.edited(LEASE) as lease:
        lease["spec"] |= {"holderIdentity": "two", "leaseDurationSeconds": named}
    now = 1000.0
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: now))
    ours = leadership(leases)
    assert not await ours._try_to_acquire()
    now += seconds - 0.2
    assert not await ours._try_to_acquire()
    now += 0.2
    assert await ours._try_to_acquire()

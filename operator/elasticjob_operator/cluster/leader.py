# SPDX-License-Identifier: Apache-2.0
"""Which operator acts: one Lease, and the clock that runs only while it is held.

A Lease is judged by when this process last saw it change, never by the times written in it. Losing it ends all work:
the next term starts from nothing but the API server's state. Every status that a leader writes contains the term (the
Lease's number of transitions) and the Lease. So the writes of a former leader that wakes up fail, except for one that
meets a status that the new leader has had no reason to change (`job.debounce.without_idle_term`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import NamedTuple

from elasticjob.api import LeaseIdentity
from elasticjob.kube.errors import ApiError, Conflict, NotFound
from elasticjob.objects import Object
from elasticjob_operator.cluster.client import Kube

DURATION_SECONDS, SHORTEST_SECONDS, LONGEST_SECONDS = 10, 5, 60  # seconds without a renewal until another may lead
LOST_SHARE = 0.8  # of the duration, after which the leader itself stops, so that two never lead
RENEW_SHARE, RENEW_SECONDS = 0.1, 1.0  # of the duration; at most
REQUEST_SHARE, REQUEST_SECONDS = 0.3, 3.0
LONGEST_STEP_SECONDS = 5.0
LONGEST_LEAD_SECONDS = 1.5 * RENEW_SECONDS
STEADY_STEP_SECONDS = 2.0  # after a longer step the API server has been unreachable
SETTLE_SECONDS = 5.0  # for sidecars to reach the API server again: they try at most three seconds apart
TICK_SECONDS, LONGEST_TICK_SECONDS = 0.1, 0.3
STOP_SECONDS = 10.0  # kopf takes up to seven if its own tasks linger

log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another operator may lead by now, so this one must stop."""


class StillWorking(Exception):
    """Work begun in a term did not end with it. Only the end of the process ends it."""


class LeaseTimes(NamedTuple):
    """All in seconds. `renew`: between renewals. `request`: for one request. `lost_after`: without a renewal until the
    leader stops. `duration`: without a renewal until another may lead."""

    renew: float
    request: float
    lost_after: float
    duration: float


def times_of(duration: float) -> LeaseTimes:
    renew, request = min(RENEW_SHARE * duration, RENEW_SECONDS), min(REQUEST_SHARE * duration, REQUEST_SECONDS)
    return LeaseTimes(renew, request, LOST_SHARE * duration, duration)


class LeaseClock:
    """The seconds that provably passed while this process led and the API server answered.

    The clock advances from renewal to renewal, and beyond the last one by no more than the next should take. A gap of
    more than five seconds is not counted and begins a new `epoch`: times measured before it are invalid. The ticks show
    when this process stood still. That time is not counted either, because the process has not yet read what arrived
    meanwhile. `settled`: the time from which all sidecars can be assumed to reach the API server again.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.epoch = 0
        self.settled = 0.0
        self._monotonic = monotonic
        self._seconds = 0.0
        self._last: float | None = None
        self._ticked = monotonic()
        self._stood_still = 0.0  # since the last renewal

    def now(self) -> float:
        self.tick()
        return self._seconds + self._unproved()

    def tick(self) -> None:
        now = self._monotonic()
        if self._last is not None and now - self._ticked > LONGEST_TICK_SECONDS:  # a standby does not tick
            self._stood_still += now - self._ticked
        self._ticked = now

    def begins(self, steady: float) -> None:
        """Notes that the API server has answered without fail for `steady` seconds."""
        self.settled = self.now() + max(0.0, SETTLE_SECONDS - steady)

    def renewed(self, at: float) -> None:
        """Notes a successful renewal that was sent at `at`, in monotonic seconds."""
        self.tick()
        passed = 0.0 if self._last is None else at - self._last
        if passed > LONGEST_STEP_SECONDS:
            self.epoch += 1
            self._seconds += LONGEST_LEAD_SECONDS
            self._stood_still = 0.0
        else:
            self._seconds += max(0.0, passed - self._stood_still)
            self._stood_still = max(0.0, self._stood_still - passed)
        self._last = at
        if passed > STEADY_STEP_SECONDS:
            self.settled = self.now() + SETTLE_SECONDS

    def _unproved(self) -> float:
        if self._last is None:
            return 0.0
        return max(0.0, min(self._monotonic() - self._last - self._stood_still, LONGEST_LEAD_SECONDS))


class Leadership:
    """The Lease `name` as held by `identity`, valid for `duration` seconds from its last renewal."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, identity: str, duration: float = DURATION_SECONDS
    ) -> None:
        self.clock = LeaseClock(time.monotonic)
        self.term = 0
        self._times = times_of(duration)
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._lease: Object = {}
        self._writing = asyncio.Lock()  # a write must not conflict with the previous one
        self._answered_since: float | None = None  # the first of uninterrupted answers, in monotonic seconds
        self._seen: tuple[str, float] = ("", 0.0)

    @property
    def lease(self) -> LeaseIdentity:
        """The Lease that counts the term, once this process has led."""
        meta = self._lease["metadata"]
        return LeaseIdentity(
            namespace=self._namespace, name=self._name, uid=meta["uid"], created=meta["creationTimestamp"]
        )

    async def acquire(self) -> None:
        """Waits until this process leads, without a limit."""
        logged = ""
        while not (await self._try_to_acquire()):
            holder = self._lease.get("spec", {}).get("holderIdentity") or "nobody"
            if holder != logged:
                log.info("standing by: %s holds the lease %s/%s", holder, self._namespace, self._name)
                logged = holder
            await asyncio.sleep(self._times.renew)
        log.info("leading in term %d", self.term)

    async def hold(self) -> None:
        """Renews until the Lease is lost, then returns. The caller must no longer act."""
        ticking = asyncio.create_task(self._tick(), name="ticks")
        try:
            await self._hold()
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            self.clock.tick()
            await asyncio.sleep(TICK_SECONDS)

    async def _hold(self) -> None:
        renewed = time.monotonic()
        while time.monotonic() - renewed < self._times.lost_after:
            await asyncio.sleep(self._times.renew)
            sent = time.monotonic()
            if sent - renewed >= self._times.lost_after:
                break
            try:
                async with asyncio.timeout(renewed + self._times.lost_after - sent):  # for up to three requests
                    await self._rewrite(self._identity)
            except LeaseLost:
                log.warning("another operator has taken the lease")
                return
            except Exception as error:  # whatever the error, only the time without a renewal counts
                log.warning("the lease was not renewed: %s", str(error) or type(error).__name__)
            else:
                renewed = sent
                self.clock.renewed(sent)
        log.error("the lease was not renewed for %.0f s", time.monotonic() - renewed)

    async def outgrow(self, term: int) -> None:
        """Leads in a later term than `term`, which a status contains because another Lease counted it.

        Raises Conflict if the status is that of a later leader of this Lease.
        """
        async with self._writing:
            if term < self.term:  # already done for another job's status
                return
            log.warning("term %d is in a status: going on in term %d", term, term + 1)
            await self._write(self._identity, term + 1)

    async def release(self) -> None:
        """Gives the Lease up, so that another operator leads within a second."""
        try:
            await self._rewrite("")
        except LeaseLost:
            log.info("the lease is another's already")
        except Exception as error:
            log.warning("the lease was not released, and runs out in %.0f s: %s", self._times.duration, error)

    async def _rewrite(self, holder: str) -> None:
        async with self._writing:
            try:
                await self._write(holder)
            except Conflict:  # perhaps with the last renewal of this process, whose answer was lost
                self._lease = await self._kube.lease(self._namespace, self._name, self._times.request)
                held = self._lease["spec"]
                if (held.get("holderIdentity"), held.get("leaseTransitions")) != (self._identity, self.term):
                    raise LeaseLost from None
                await self._write(holder)

    async def _try_to_acquire(self) -> bool:
        try:
            self._lease = await self._kube.lease(self._namespace, self._name, self._times.request)
        except NotFound:
            self._lease = {}
        except ApiError as error:
            self._answered_since = None
            log.warning("the lease could not be read: %s", error)
            return False
        sent = time.monotonic()
        self._answered_since = sent if self._answered_since is None else self._answered_since
        if not self._is_free():
            return False
        try:
            await self._write(self._identity, self._lease.get("spec", {}).get("leaseTransitions", 0) + 1)
        except ApiError as error:
            log.info("the lease went to another: %s", error)
            return False
        self.clock.renewed(sent)
        self.clock.begins(steady=sent - self._answered_since)
        return True

    def _is_free(self) -> bool:
        spec = self._lease.get("spec", {})
        if not spec.get("holderIdentity"):
            return True
        version, now = self._lease["metadata"]["resourceVersion"], time.monotonic()
        if version != self._seen[0]:
            self._seen = (version, now)
        # its holder may have another duration, for example during an upgrade
        named = min(spec.get("leaseDurationSeconds") or 0, LONGEST_SECONDS)
        return now - self._seen[1] >= max(self._times.duration, named)

    async def _write(self, holder: str, new_term: int | None = None) -> None:
        """Renews the Lease, or begins `new_term`. Raises Conflict if the Lease has changed since it was last read."""
        spec = self._lease.get("spec", {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        term = self.term if new_term is None else new_term
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._lease.get("metadata", {"namespace": self._namespace, "name": self._name}),
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": math.ceil(self._times.duration),
                "leaseTransitions": term,
                "acquireTime": spec.get("acquireTime", now) if new_term is None else now,
                "renewTime": now,
            },
        }
        self._lease = await self._kube.write_lease(lease, self._times.request)
        self.term = term


async def lead(leadership: Leadership, work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Acquires the Lease, runs `work` to its end while the Lease is held, then releases it. Raises LeaseLost and
    StillWorking."""
    await leadership.acquire()
    holding = asyncio.create_task(leadership.hold(), name="lease")
    working = asyncio.create_task(work(), name="work")
    try:
        await asyncio.wait({holding, working}, return_when=asyncio.FIRST_COMPLETED)
        if holding.done():
            raise LeaseLost
        await working
    finally:
        lost = holding.done()
        for task in (holding, working):
            task.cancel()
        stopping = asyncio.gather(holding, working, return_exceptions=True)
        await asyncio.wait({stopping}, timeout=STOP_SECONDS)
        if not stopping.done():
            log.error("the watches and their work did not stop within %g s: the lease is left to run out", STOP_SECONDS)
            raise StillWorking
        if not lost:
            await leadership.release()

# SPDX-License-Identifier: Apache-2.0
"""Hold this worker's heartbeat links of a round, and report the members that it suspects, as `membership.link_monitor`
decides.

Each other member has one link to rank 0 and sends heartbeats on it. Rank 0 answers each with one, so both ends hear
each other. Links are made after the store's first connections, spread over time, and those of the last round are closed
in the same way, so neither delays a round. A suspicion only makes the operator ping: nothing here changes what the
worker does.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from math import ceil

from elasticjob.api import Member, Members, RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.api_server.job_watch import JobWatch
from elasticjob_sidecar.api_server.retry import backoff
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.links.link import Link
from elasticjob_sidecar.log_limits import LimitedLog, TroubleLog
from elasticjob_sidecar.membership.link_monitor import LinkGroup, LinkMonitor, LinkTimes, group_of, times_of
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.store.connection import Connection
from elasticjob_sidecar.store.transport import Claim, PeerTransport

log = logging.getLogger(__name__)

SAY_SECONDS = 0.5  # between two changes of the suspects: many silent members would cause a write each


class PeerLinks:
    """`worker_lost` returns the seconds that the job or the trainer has set. `suspect` takes all members that are
    suspected now. `watch` watches the job's status."""

    def __init__(
        self,
        driver: Driver,
        transport: PeerTransport,
        metrics: Metrics,
        worker_lost: Callable[[], float | None],
        suspect: Callable[[Members], None],
        watch: JobWatch,
    ) -> None:
        self._driver, self._transport, self._metrics = driver, transport, metrics
        self._worker_lost, self._suspect, self._watch = worker_lost, suspect, watch
        self._silent = LimitedLog(log, "sidecars went silent")
        self._round: _Round | None = None
        self._past: set[_Round] = set()  # whose links are still to be closed
        transport.take_links(self._accepted)

    async def run(self) -> None:
        """Follow the job's rounds, forever."""
        try:
            while True:
                next_change, before = self._driver.next_change, self._round.group if self._round else None
                group = group_of(self._driver.standing, before)
                if group != before:
                    self._close()
                    if group is not None:
                        self._open(group)
                if self._round is None:
                    if self._driver.standing.quiet:  # the worker has no links in the standing round
                        self._suspect(Members())
                    await next_change.wait()
                    continue
                self._look(self._round)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._round.monitor.look_seconds):
                        await next_change.wait()
        finally:
            self._close()
            for round in self._past:
                round.close()

    def _open(self, group: LinkGroup) -> None:
        self._round = _Round(group, times_of(len(group.members), self._worker_lost()), self._metrics)
        if group.rank > 0:
            self._round.calling = asyncio.create_task(self._call(self._round))

    def _close(self) -> None:
        if (round := self._round) is not None:
            self._round = None
            self._watch.calm(False)
            round.monitor.end(_now())
            self._past.add(round)
            asyncio.get_running_loop().call_later(round.closing_seconds(), self._end, round)

    def _end(self, round: "_Round") -> None:
        round.close()
        self._past.discard(round)

    def _look(self, round: "_Round") -> None:
        job, now = self._driver.standing.job, _now()
        assert job is not None
        if job is not round.seen:
            new = round.seen is not None and job.ping != round.seen.ping
            round.monitor.job_seen(job.ping.members if new else Members(), now)
            round.seen = job
        if job.phase is RendezvousPhase.FORMING and not round.monitor.over:
            round.monitor.end(now)
        round.monitor.look(now)
        suspects = round.monitor.suspects(job.finished, job.finishing)
        for member in suspects:
            if member not in round.suspects:
                self._metrics.suspicions.inc()
                self._silent.info("nothing is heard of worker %d's sidecar", member.index)
        round.suspects = suspects
        if suspects != round.reported and now >= round.reports_at:
            self._suspect(suspects)
            round.reported, round.reports_at = suspects, now + SAY_SECONDS
        if round.monitor.misses_updates():
            self._watch.again()
        self._watch.calm(round.monitor.hears_all())
        if round.calling is not None and round.calling.done():
            round.calling.result()

    # --- the side that calls

    async def _call(self, round: "_Round") -> None:
        """Hold the link to rank 0 until cancelled. It is reconnected while the round stands."""
        group, times = round.group, round.times
        pauses, trouble_log = backoff(), TroubleLog(log)
        await asyncio.sleep(random.uniform(times.earliest, times.latest))
        while not round.monitor.over:
            try:
                connection = await self._transport.connect_link(group.store, group.round, times.make)
            except (Refused, OSError, TimeoutError) as error:
                self._say(trouble_log, f"no link to rank 0's sidecar: {error}")
            else:
                pauses.reset()
                trouble_log.over("the link to rank 0's sidecar stands again")
                link = round.add(group.members[0], connection, lambda _: None)
                await link.keep_beating(times.heartbeat, ceil(times.suspicion / times.heartbeat))  # then reconnect
                if not round.monitor.over:  # otherwise it may have ended with the round
                    self._say(trouble_log, "the link to rank 0's sidecar broke, or is silent")
            await asyncio.sleep(pauses.next())

    def _say(self, trouble_log: TroubleLog, sentence: str) -> None:
        """Log trouble with a link, unless the training ends: pods then end one after the other, before the status says
        that the job is complete."""
        if self._driver.standing.mode is Mode.FINISHED:
            log.info(sentence)
        else:
            trouble_log.warn(sentence)

    # --- rank 0

    def _accepted(self, claim: Claim, connection: Connection) -> None:
        round = self._round
        if round is None or round.group.rank != 0 or round.group.round != claim.round:
            connection.abort()  # the other end reconnects
            return
        round.add(claim.peer, connection, Link.beat)


class _Round:
    """The links of one round, one for each member that this worker has to hear."""

    def __init__(self, group: LinkGroup, times: LinkTimes, metrics: Metrics) -> None:
        self.group, self.times = group, times
        self.monitor = LinkMonitor(group, times, _now())
        self.suspects = Members()
        self.reported: Members | None = None  # the suspects of this round that were reported
        self.reports_at = 0.0
        self.seen: RendezvousStatus | None = None
        self.calling: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._links: dict[Member, Link] = {}

    def closing_seconds(self) -> float:
        """Seconds from the links' last use until they are closed: members close theirs one by one, then rank 0 closes
        the rest."""
        return self.times.latest if self.group.rank == 0 else random.uniform(self.times.earliest, self.times.latest)

    def add(self, member: Member, connection: Connection, heard: Callable[[Link], None]) -> Link:
        """Add a link. It replaces an older link of the member, which broke unnoticed at this end."""

        def beat() -> None:
            self.monitor.heard(member, _now())
            heard(link)

        def forget(_: object) -> None:
            if self._links.get(member) is link:
                del self._links[member]
            self._metrics.links.dec()

        link = Link(connection, beat)
        if (older := self._links.get(member)) is not None:
            older.abort()
        self._links[member] = link
        self._metrics.links.inc()
        link.closed.add_done_callback(forget)
        return link

    def close(self) -> None:
        if self.calling is not None:
            self.calling.cancel()
        for link in self._links.values():
            link.abort()


def _now() -> float:
    return asyncio.get_running_loop().time()

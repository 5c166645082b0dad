# SPDX-License-Identifier: Apache-2.0
"""Holds this worker's lines of a round, and passes on whom it doubts; `membership.silences` says whom.

Each other member has one line to rank 0 and gives a sign at times; rank 0 answers each sign with one, so that both hear
the other. Lines are made when the store's first connections stand, spread out, and those of the last round are closed
in the same way: neither is in a round's way. What they tell is no more than a reason for the operator to ask: nothing
here changes what the worker does.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from math import ceil
from typing import Protocol

from elasticjob.api import Member, Members, RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.api_server.retry import backoff
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.links.line import Line
from elasticjob_sidecar.log_limits import LimitedLog, TroubleLog
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.membership.silences import Group, Silences, Times, group_of, times_of
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.store.connection import Connection
from elasticjob_sidecar.store.transport import Claim, Transport

log = logging.getLogger(__name__)

SAY_SECONDS = 0.5  # between two changes of what is doubted: of many that fall silent each would else be a write


class Watch(Protocol):
    def again(self) -> None:
        """The status may have changed unseen."""

    def calm(self, calm: bool) -> None:
        """Whether lines are heard: their silence would tell of news that the watch misses."""


class Lines:
    """`worker_lost` tells what the job or the trainer has named; `doubt` takes all who are doubted now; `watch` is
    that of the job's status."""

    def __init__(
        self,
        driver: Driver,
        transport: Transport,
        metrics: Metrics,
        worker_lost: Callable[[], float | None],
        doubt: Callable[[Members], None],
        watch: Watch,
    ) -> None:
        self._driver, self._transport, self._metrics = driver, transport, metrics
        self._worker_lost, self._doubt, self._watch = worker_lost, doubt, watch
        self._silent = LimitedLog(log, "sidecars fell silent")
        self._round: _Round | None = None
        self._past: set[_Round] = set()  # whose lines are still to be closed
        transport.take_lines(self._accepted)

    async def run(self) -> None:
        """Follow the job's rounds, for ever."""
        try:
            while True:
                next_change, before = self._driver.next_change, self._round.group if self._round else None
                group = group_of(self._driver.standing, before)
                if group != before:
                    self._close()
                    if group is not None:
                        self._open(group)
                if self._round is None:
                    if self._driver.standing.quiet:  # a round stands in which it hears nobody
                        self._doubt(Members())
                    await next_change.wait()
                    continue
                self._look(self._round)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._round.silences.look_seconds):
                        await next_change.wait()
        finally:
            self._close()
            for round in self._past:
                round.close()

    def _open(self, group: Group) -> None:
        self._round = _Round(group, times_of(len(group.members), self._worker_lost()), self._metrics)
        if group.rank > 0:
            self._round.calling = asyncio.create_task(self._call(self._round))

    def _close(self) -> None:
        if (round := self._round) is not None:
            self._round = None
            self._watch.calm(False)
            round.silences.end(_now())
            self._past.add(round)
            asyncio.get_running_loop().call_later(round.closing_seconds(), self._end, round)

    def _end(self, round: "_Round") -> None:
        round.close()
        self._past.discard(round)

    def _look(self, round: "_Round") -> None:
        job, now = self._driver.standing.job, _now()
        assert job is not None
        assert job.challenge is not None
        if job is not round.seen:
            new = round.seen is not None and job.challenge != round.seen.challenge
            round.silences.job_seen(job.challenge.members if new else Members(), now)
            round.seen = job
        if job.phase is RendezvousPhase.FORMING and not round.silences.over:
            round.silences.end(now)
        round.silences.look(now)
        doubted = round.silences.doubted(job.finished, job.finishing)
        for member in doubted:
            if member not in round.doubted:
                self._metrics.doubts.inc()
                self._silent.info("nothing is heard of worker %d's sidecar", member.index)
        round.doubted = doubted
        if doubted != round.said and now >= round.says_at:
            self._doubt(doubted)
            round.said, round.says_at = doubted, now + SAY_SECONDS
        if round.silences.misses_news():
            self._watch.again()
        self._watch.calm(round.silences.hears_all())
        if round.calling is not None and round.calling.done():
            round.calling.result()

    # --- the side that calls

    async def _call(self, round: "_Round") -> None:
        """Hold the line to rank 0, until cancelled. It is made anew as long as the round stands."""
        group, times = round.group, round.times
        pauses, trouble_log = backoff(), TroubleLog(log)
        await asyncio.sleep(random.uniform(times.earliest, times.latest))
        while not round.silences.over:
            try:
                connection = await self._transport.connect_line(group.store, group.round, times.make)
            except (Refused, OSError, TimeoutError) as error:
                self._say(trouble_log, f"no line to rank 0's sidecar: {error}")
            else:
                pauses.reset()
                trouble_log.over("the line to rank 0's sidecar stands again")
                line = round.add(group.members[0], connection, lambda _: None)
                await line.talk(times.sign, ceil(times.doubt / times.sign))  # then a new one is the better try
                if not round.silences.over:  # else it may have gone with the round
                    self._say(trouble_log, "the line to rank 0's sidecar broke, or is silent")
            await asyncio.sleep(pauses.next())

    def _say(self, trouble_log: TroubleLog, sentence: str) -> None:
        """At the end of a training pods end one after the other, before the status says that the job is complete."""
        if self._driver.standing.mode is Mode.FINISHED:
            log.info(sentence)
        else:
            trouble_log.warn(sentence)

    # --- rank 0

    def _accepted(self, claim: Claim, connection: Connection) -> None:
        round = self._round
        if round is None or round.group.rank != 0 or round.group.round != claim.round:
            connection.abort()  # it calls again
            return
        round.add(claim.peer, connection, Line.give_sign)


class _Round:
    """The lines of one round, one for each member that this worker is to hear."""

    def __init__(self, group: Group, times: Times, metrics: Metrics) -> None:
        self.group, self.times = group, times
        self.silences = Silences(group, times, _now())
        self.doubted = Members()
        self.said: Members | None = None  # of this round
        self.says_at = 0.0
        self.seen: RendezvousStatus | None = None
        self.calling: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._lines: dict[Member, Line] = {}

    def closing_seconds(self) -> float:
        """From when they serve no more until they are closed: members' one by one, and then at rank 0 what is left."""
        return self.times.latest if self.group.rank == 0 else random.uniform(self.times.earliest, self.times.latest)

    def add(self, member: Member, connection: Connection, heard: Callable[[Line], None]) -> Line:
        """A newer line of a member takes the place of the older: it has broken, unseen from here."""

        def sign() -> None:
            self.silences.heard(member, _now())
            heard(line)

        def forget(_: object) -> None:
            if self._lines.get(member) is line:
                del self._lines[member]
            self._metrics.lines.dec()

        line = Line(connection, sign)
        if (older := self._lines.get(member)) is not None:
            older.abort()
        self._lines[member] = line
        self._metrics.lines.inc()
        line.closed.add_done_callback(forget)
        return line

    def close(self) -> None:
        if self.calling is not None:
            self.calling.cancel()
        for line in self._lines.values():
            line.abort()


def _now() -> float:
    return asyncio.get_running_loop().time()

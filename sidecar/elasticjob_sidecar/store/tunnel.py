# SPDX-License-Identifier: Apache-2.0
"""The round's store at one loopback address: forwarded to rank 0's sidecar, or from it to rank 0's agent.

The ports after it are forwarded to the same ports of rank 0's pod: scripts take MASTER_ADDR for rank 0's machine, and
libraries open stores of their own there.

The tunnel follows the round last handed to this worker's own trainer; connections of another round are closed. A
trainer of an old round gets an error, never the new store. Every accepted connection has a deadline: torch's client,
once accepted and then met with silence, blocks forever and ignores SIGTERM. A connection that comes before the store
exists is held until then: closing it makes the client write two C++ stacks to the script's log.
"""

import asyncio
import logging
from collections import Counter

from elasticjob.api import Member
from elasticjob.kube.retry import Backoff, RetryPolicy
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.log_limits import LimitedLog
from elasticjob_sidecar.membership.refusal import PeerCode, Refused
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.store.connection import Connection, dial, listen
from elasticjob_sidecar.store.forwards import Forwards
from elasticjob_sidecar.store.transport import Claim, PeerTransport, admission_seconds
from elasticjob_torch.wire import Code

log = logging.getLogger(__name__)

HELD_SECONDS = 15.0  # a process of this pod that comes before the store does; less than torch's own shortest timeout
HOLD_SECONDS = 3.0  # rank 0 lets a caller wait for the store: less than the caller's own deadline
MARGIN_SECONDS = 1.0  # the trainer's connection is kept this much longer than its way to the store may take
RETRY = RetryPolicy(0.02, 0.2)
DIAL_SECONDS = 2.0
CONNECTIONS = 1024  # from this pod's processes to the store; each is a connection at rank 0 as well


class Callers:
    """Which training processes have connected to the round's store, as rank 0's sidecar sees it.

    A process connects when it makes its process group. An agent connects only at its end, except where workers may have
    different numbers of processes: then all agents connect at the start. `processes`: of each worker, 0 if unknown.
    """

    def __init__(self, processes: int) -> None:
        self._needed = processes or 2  # an agent, and at least one of its processes
        self._round = 0
        self._came: Counter[Member] = Counter()

    def came(self, round: int, member: Member, members: int) -> bool:
        """Note a connection of a member of `round`. Returns whether it was the last one that all `members` needed."""
        if round != self._round:
            self._round, self._came = round, Counter()
        self._came[member] += 1
        if self._came[member] != self._needed:
            return False
        return sum(number >= self._needed for number in self._came.values()) == members


class Tunnel:
    def __init__(self, driver: Driver, transport: PeerTransport, metrics: Metrics, callers: Callers) -> None:
        self._callers = callers  # of the store, if this agent serves it
        self._driver, self._transport, self._metrics = driver, transport, metrics
        self._server: asyncio.Server | None = None
        self._open: dict[tuple[Connection, Connection], int] = {}  # spliced connections, and the round of each
        self._tasks: set[asyncio.Task[None]] = set()
        self._trainers: set[Connection] = set()  # connections of this pod's processes
        self._refusals = LimitedLog(log, "connections to the store were closed")
        self._spare: tuple[int, Connection] | None = None  # an unused connection to a round's store
        self._port = 0
        self._forwards = Forwards("", 0, 0, self._accepted)

    async def listen(self, store: tuple[str, int], peers: tuple[str, int], forwarded: int = 0) -> None:
        """Serve the store and the `forwarded` ports after it to this pod's trainer and, as rank 0, to other sidecars.
        Raises OSError."""
        self._port = store[1]
        self._forwards = Forwards(*store, forwarded, self._accepted)
        self._server = await listen(*store, self._accepted)
        await self._transport.listen(*peers, self._admit, self._admitted)

    async def run(self) -> None:
        """Close connections of other rounds, whenever the round changes."""
        while True:
            next_change = self._driver.next_change
            current = self._driver.standing.tunnel_round
            if self._spare is not None and self._spare[0] != current:
                self._drop_spare()
            stale = [pair for pair, round in self._open.items() if round != current]
            for connection, other in stale:
                connection.abort()
                other.abort()
            if stale:
                log.info("closed %d connections of an earlier round's store", len(stale))
            await self._forwards.follow(self._forwards_now())
            await next_change.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._forwards.close()
        await self._transport.close()
        for task in self._tasks:
            task.cancel()
        self._drop_spare()
        for pair in list(self._open):
            for connection in pair:
                connection.abort()

    async def wait_for_store(self, round: int, patience: float) -> None:
        """Return once the store of `round` answers through the tunnel. Raises Refused."""
        self._driver.standing.check_round(round)
        connection = await self._connected(round, patience)
        self._drop_spare()
        self._spare = round, connection  # for the trainer, which connects next

    async def _connected(self, round: int, patience: float) -> Connection:
        """A connection to the store of `round`, which may not exist yet. Raises Refused after `patience` seconds, and
        when the round is over."""
        why = ["rank 0's sidecar does not answer"]  # of the last try
        serves = asyncio.create_task(self._until_it_serves(round, why))
        broken = asyncio.create_task(self._until_it_breaks(round))
        try:
            await asyncio.wait({serves, broken}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                broken.result()  # raises
            if serves.done():
                return serves.result()
        except BaseException:
            serves.add_done_callback(_let_go)
            raise
        finally:
            serves.cancel()
            broken.cancel()
        serves.add_done_callback(_let_go)  # it may have connected at the last moment
        raise Refused(Code.STORE_TIMEOUT, f"the store of round {round} did not answer within {patience:g} s: {why[0]}")

    async def _until_it_serves(self, round: int, why: list[str]) -> Connection:
        pauses = Backoff(RETRY)
        while True:
            try:
                return await self._connect(round)
            except (Refused, OSError, TimeoutError) as error:
                why[:] = [str(error) or "rank 0's sidecar does not answer"]
                await asyncio.sleep(pauses.next())

    async def _until_it_breaks(self, round: int) -> None:
        while True:
            next_change = self._driver.next_change
            self._driver.standing.check_round(round)
            await next_change.wait()

    # --- this pod's trainer

    def _forwards_now(self) -> bool:
        """Whether a round stands whose rank 0 is in another pod. In rank 0's pod the ports belong to the script."""
        standing = self._driver.standing
        return standing.handed is not None and standing.handed.rank != 0 and standing.in_round(standing.tunnel_round)

    def _accepted(self, connection: Connection, offset: int = 0) -> None:
        if len(self._trainers) >= CONNECTIONS:
            self._refuse(connection, Code.TOO_MANY, f"this pod has {CONNECTIONS} connections to the store already")
            return
        self._trainers.add(connection)
        connection.closed.add_done_callback(lambda _: self._trainers.discard(connection))
        task = asyncio.create_task(self._serve(connection, offset))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, offset: int) -> None:
        round = self._driver.standing.tunnel_round
        try:
            store = await self._reached(round, offset)
        except (Refused, OSError, TimeoutError) as error:
            code = error.code if isinstance(error, Refused) else PeerCode.NOT_YET
            self._refuse(connection, code, f"round {round}: {str(error) or 'no answer in time'}")
        except BaseException:
            connection.abort()
            raise
        else:
            self._splice("trainer", round, connection, store)
            self._count(round, self._driver.standing.me)

    async def _reached(self, round: int, offset: int) -> Connection:
        """A connection to the store for a process of this pod, or to the port `offset` after it, which is tried once.
        Raises Refused, OSError or TimeoutError."""
        seconds = self._open_seconds()
        self._driver.standing.check_round(round)
        if not offset:
            return self._take_spare(round) or await self._connected(round, max(HELD_SECONDS, seconds))
        async with asyncio.timeout(seconds):
            return await self._connect(round, offset)

    def _refuse(self, connection: Connection, code: Code | PeerCode, why: str) -> None:
        self._metrics.tunnels_refused.labels("trainer", code.value).inc()
        self._refusals.info("a connection to the store is closed: %s", why)
        connection.abort()

    def _open_seconds(self) -> float:
        handed = self._driver.standing.handed
        return admission_seconds(handed.world_size if handed else 0) + MARGIN_SECONDS

    async def _connect(self, round: int, offset: int = 0) -> Connection:
        """An admitted connection to the store of `round`, or to the port `offset` after it. Raises Refused, OSError or
        TimeoutError."""
        handed = self._driver.standing.handed
        assert handed is not None
        if handed.rank == 0:
            return await self._admit(Claim(round, self._driver.standing.me, offset))
        return await self._transport.connect(handed.store, round, handed.world_size, offset)

    def _take_spare(self, round: int) -> Connection | None:
        if self._spare is None or self._spare[0] != round or self._spare[1].closed.done():
            return None
        (_, connection), self._spare = self._spare, None
        return connection

    def _drop_spare(self) -> None:
        if self._spare is not None:
            (_, connection), self._spare = self._spare, None
            connection.abort()

    # --- other sidecars

    async def _admit(self, claim: Claim) -> Connection:
        """A connection to this agent's store, if it serves the claimed round or will within a moment; or to the port
        `offset` after it."""
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while True:
                    next_change = self._driver.next_change
                    port = self._driver.standing.admit(claim.round, claim.peer)
                    if port is not None:
                        break
                    await next_change.wait()
        except TimeoutError:
            message = f"the store of round {claim.round} is not served yet, after {HOLD_SECONDS:g} s"
            raise Refused(PeerCode.NOT_YET, message) from None
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await dial("127.0.0.1", self._port + claim.offset if claim.offset else port)
        except TimeoutError:
            message = f"rank 0's agent did not take a connection to its store within {DIAL_SECONDS:g} s"
            raise TimeoutError(message) from None

    def _admitted(self, claim: Claim, caller: Connection, store: Connection) -> None:
        self._splice("peer", claim.round, caller, store)
        if not claim.offset:  # a connection to a later port is no process group
            self._count(claim.round, claim.peer)

    def _count(self, round: int, member: Member) -> None:
        handed = self._driver.standing.handed
        if handed is None or handed.rank != 0 or handed.round != round:
            return
        if self._callers.came(round, member, handed.world_size):
            self._driver.connected(round)

    def _splice(self, side: str, round: int, connection: Connection, other: Connection) -> None:
        if round != self._driver.standing.tunnel_round:
            connection.abort()
            other.abort()
            return
        pair = (connection, other)
        self._open[pair] = round
        self._metrics.tunnels_opened.labels(side).inc()
        self._metrics.tunnels.set(len(self._open))
        for one in pair:
            one.closed.add_done_callback(lambda _: self._forget(pair))
        connection.splice(other, self._metrics.tunnel_bytes.inc)

    def _forget(self, pair: tuple[Connection, Connection]) -> None:
        if all(connection.closed.done() for connection in pair):
            self._open.pop(pair, None)
            self._metrics.tunnels.set(len(self._open))


def _let_go(task: asyncio.Task[Connection]) -> None:
    """Close the connection made by a task that no caller awaits any more."""
    if not task.cancelled() and not task.exception():
        task.result().abort()

"""The round's store at one loopback address: forwarded to rank 0's sidecar, or from it to rank 0's agent.

It follows the round last handed to this worker's own trainer; connections of another round are closed. A
trainer of an old round gets an error, never the new store. No accepted connection is kept without a
deadline: torch's client, once accepted and then met with silence, blocks for ever, deaf to SIGTERM.
"""

import asyncio
import logging

from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.membership.refusal import Code, Refused
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.quiet import Sparing
from elasticjob_sidecar.store.forward import End, dial, listen
from elasticjob_sidecar.store.transport import Claim, Transport, admission_seconds

log = logging.getLogger(__name__)

HOLD_SECONDS = 3.0  # rank 0 lets a caller wait for the store: less than the caller's own deadline
MARGIN_SECONDS = 1.0  # by which the trainer's connection is kept longer than its way to the store may take
FIRST_RETRY_SECONDS, RETRY_SECONDS = 0.02, 0.2
DIAL_SECONDS = 2.0
CONNECTIONS = 1024  # of this pod's processes to the store; each is one at rank 0 as well


class Tunnel:
    def __init__(self, driver: Driver, transport: Transport, metrics: Metrics) -> None:
        self._driver, self._transport, self._metrics = driver, transport, metrics
        self._server: asyncio.Server | None = None
        self._open: dict[tuple[End, End], int] = {}  # spliced connections, and the round of each
        self._tasks: set[asyncio.Task[None]] = set()
        self._trainers: set[End] = set()  # of this pod's processes
        self._refusals = Sparing(log, "connections to the store were closed")
        self._spare: tuple[int, End] | None = None  # a connection to a round's store that nobody uses yet

    async def listen(self, store: tuple[str, int], peers: tuple[str, int]) -> None:
        """Serve the store to this pod's trainer, and, as rank 0, to other sidecars. Raises OSError."""
        self._server = await listen(*store, self._accepted)
        await self._transport.listen(*peers, self._admit, self._admitted)

    async def run(self) -> None:
        """Close what belongs to another round, whenever the round changes."""
        while True:
            bell = self._driver.bell
            current = self._driver.standing.tunnel_round
            if self._spare is not None and self._spare[0] != current:
                self._drop_spare()
            stale = [ends for ends, round in self._open.items() if round != current]
            for end, other in stale:
                end.abort()
                other.abort()
            if stale:
                log.info("closed %d connections of an earlier round's store", len(stale))
            await bell.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._transport.close()
        for task in self._tasks:
            task.cancel()
        self._drop_spare()
        for ends in list(self._open):
            for end in ends:
                end.abort()

    async def wait_for_store(self, round: int, patience: float) -> None:
        """Return once the store of `round` answers through the tunnel. Raises Refused."""
        self._driver.standing.check_round(round)
        why: list[str] = []
        serves = asyncio.create_task(self._until_it_serves(round, why))
        broken = asyncio.create_task(self._until_it_breaks(round))
        try:
            await asyncio.wait({serves, broken}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in (broken, serves):
                if task.done():
                    return task.result()
        finally:
            serves.cancel()
            broken.cancel()
        last = why[-1] if why else "rank 0's sidecar does not answer"
        raise Refused(Code.STORE_TIMEOUT, f"the store of round {round} did not answer within {patience:g} s: {last}")

    async def _until_it_serves(self, round: int, why: list[str]) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                end = await self._connect(round)
            except (Refused, OSError, TimeoutError) as error:
                why.append(str(error) or "rank 0's sidecar does not answer")
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS)
            else:
                self._drop_spare()
                self._spare = round, end  # for the trainer, which connects next
                return

    async def _until_it_breaks(self, round: int) -> None:
        while True:
            bell = self._driver.bell
            self._driver.standing.check_round(round)
            await bell.wait()

    # --- this pod's trainer

    def _accepted(self, end: End) -> None:
        if len(self._trainers) >= CONNECTIONS:
            self._refuse(end, Code.TOO_MANY, f"this pod has {CONNECTIONS} connections to the store already")
            return
        self._trainers.add(end)
        end.closed.add_done_callback(lambda _: self._trainers.discard(end))
        task = asyncio.create_task(self._serve(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, end: End) -> None:
        round = self._driver.standing.tunnel_round
        try:
            async with asyncio.timeout(open_seconds := self._open_seconds()):
                self._driver.standing.check_round(round)
                store = self._take_spare(round) or await self._connect(round)
        except (Refused, OSError, TimeoutError) as error:
            code = error.code if isinstance(error, Refused) else Code.NOT_YET
            self._refuse(end, code, f"round {round}: {str(error) or f'no answer within {open_seconds:g} s'}")
        except BaseException:
            end.abort()
            raise
        else:
            self._splice("trainer", round, end, store)

    def _refuse(self, end: End, code: Code, why: str) -> None:
        self._metrics.tunnels_refused.labels("trainer", code.value).inc()
        self._refusals.info("a connection to the store is closed: %s", why)
        end.abort()

    def _open_seconds(self) -> float:
        handed = self._driver.standing.handed
        return admission_seconds(handed.world_size if handed else 0) + MARGIN_SECONDS

    async def _connect(self, round: int) -> End:
        """A connection to the store of `round`, admitted. Raises Refused, OSError or TimeoutError."""
        handed = self._driver.standing.handed
        assert handed is not None
        if handed.rank == 0:
            return await self._admit(Claim(round, self._driver.standing.me))
        return await self._transport.connect(handed.store, round, handed.world_size)

    def _take_spare(self, round: int) -> End | None:
        if self._spare is None or self._spare[0] != round or self._spare[1].closed.done():
            return None
        (_, end), self._spare = self._spare, None
        return end

    def _drop_spare(self) -> None:
        if self._spare is not None:
            (_, end), self._spare = self._spare, None
            end.abort()

    # --- other sidecars

    async def _admit(self, claim: Claim) -> End:
        """A connection to this agent's store, when it serves the claimed round, or will within a moment."""
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while True:
                    bell = self._driver.bell
                    port = self._driver.standing.admit(claim.round, claim.peer)
                    if port is not None:
                        break
                    await bell.wait()
        except TimeoutError:
            message = f"the store of round {claim.round} is not served yet, after {HOLD_SECONDS:g} s"
            raise Refused(Code.NOT_YET, message) from None
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await dial("127.0.0.1", port)
        except TimeoutError:
            message = f"rank 0's agent did not take a connection to its store within {DIAL_SECONDS:g} s"
            raise TimeoutError(message) from None

    def _admitted(self, claim: Claim, caller: End, store: End) -> None:
        self._splice("peer", claim.round, caller, store)

    def _splice(self, side: str, round: int, end: End, other: End) -> None:
        if round != self._driver.standing.tunnel_round:
            end.abort()
            other.abort()
            return
        ends = (end, other)
        self._open[ends] = round
        self._metrics.tunnels_opened.labels(side).inc()
        self._metrics.tunnels.set(len(self._open))
        for one in ends:
            one.closed.add_done_callback(lambda _: self._forget(ends))
        end.splice(other, self._metrics.tunnel_bytes.inc)

    def _forget(self, ends: tuple[End, End]) -> None:
        if all(end.closed.done() for end in ends):
            self._open.pop(ends, None)
            self._metrics.tunnels.set(len(self._open))

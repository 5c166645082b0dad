# SPDX-License-Identifier: Apache-2.0
"""What an agent starts for a round: its training processes, which train only together, and, as rank 0, the store."""

import asyncio
from contextlib import suppress
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from elasticjob.api import STORE_PORT
from elasticjob_torch import wire
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.script.client import HEARD_SECONDS, ScriptStream
from elasticjob_torch.sidecar.errors import SidecarError
from elasticjob_torch.wire import Round
from simulation.pipes import LOOPBACK
from simulation.plugin import Reader, VirtualCalls, VirtualStream, Writer, open_connection
from simulation.progress import Processes, Standing

if TYPE_CHECKING:
    from simulation.agents import Agent

BROKEN = (OSError, EOFError)  # what collectives and the store raise when a round is over
STEP_SECONDS = 1.0
STUCK_SECONDS = 300.0  # until processes that wait for others fail


class WatchStream(VirtualStream, ScriptStream):
    """A script's events."""


class Hung(TimeoutError):
    """A collective that hung has ended."""


class Group:
    """The training processes of one round, in all pods: none goes on without the others."""

    def __init__(self, size: int, left: float | None) -> None:
        self.left = left
        self._missing = size
        self.all_here = asyncio.Event()
        self.broken = asyncio.Event()
        self.best = Standing(0, 0)  # of the member that has trained furthest
        self._began: float | None = None
        self._ended = inf

    def come(self, standing: Standing) -> None:
        self._missing -= 1
        self.best = max(self.best, standing)
        if not self._missing:
            self.all_here.set()

    def begin(self, now: float) -> bool:
        """Whether this is the first member that trains."""
        is_first, self._began = self._began is None, self._began or now
        return is_first

    def end(self, now: float) -> None:
        """A member is gone, or has left: there is no further step."""
        self._ended = min(self._ended, now)
        self.broken.set()

    def steps(self, now: float) -> int:
        """How many are done, those of earlier rounds included."""
        seconds = 0.0 if self._began is None else max(0.0, min(now, self._ended) - self._began)
        return self.best.step + int(seconds / STEP_SECONDS)


class Workers:
    """The processes that an agent starts for a round: they reach the store, train with the others, and tell. With
    `lives` they go on in a later round that they are `moved` to. `ready`: they were started before the round."""

    def __init__(self, agent: "Agent", handed: Round, *, ready: bool = False) -> None:
        self.agent, self.handed, self.state = agent, handed, "healthy"
        self._pod, self._dice, plan = agent.pod, agent.dice, agent.pod.plan
        self._moves, self._ready = asyncio.Event(), ready
        self.lives = ready or (plan.live > 0 and agent.dice.random() < plan.live)
        self.group = self._group_of(handed)
        self._began = 0.0
        self._stream: WatchStream | None = None
        self._failing = plan.doomed or agent.dice.random() < plan.fails
        self._hanging = agent.dice.random() < plan.hangs
        self._closing = agent.dice.random() < plan.closes
        self._saves = agent.dice.random() < plan.saves
        self._reports = agent.dice.choice((0.0, 0.0, 0.4, 3.0))  # seconds between two reports, 0 for none
        self._fails_itself = False
        self._standing, self._stage = Standing(0, 0), handed.stage
        if self.lives:
            those = Processes(agent.index, agent.pod.name, self._could_come)
            agent.views.progress.started(agent.job, self._stage, self, those)
        self._task = asyncio.create_task(self._run())

    def _group_of(self, handed: Round) -> Group:
        agent, plan = self.agent, self.agent.pod.plan
        self._trained = f"trained in stage {handed.stage}"
        left = None if plan.seconds is None else max(0.5, plan.seconds - agent.facts.get(self._trained, 0.0))
        groups: dict[int, Group] = agent.facts.setdefault("groups", {})
        return groups.setdefault(handed.number, Group(handed.world_size, left))

    def moved(self, handed: Round) -> None:
        """They go on in another round, with what they know."""
        self._leave_group()
        self.handed, self.group = handed, self._group_of(handed)
        self._moves.set()

    def stop(self) -> None:
        """They are ended by the agent, or have ended; the others notice."""
        self._task.cancel()
        self.agent.views.progress.ended(self.agent.job, self._stage, self)
        if self._stream is not None:
            self._stream.stop()
        self._leave_group()

    def _leave_group(self) -> None:
        agent = self.agent
        if self._began and self.state == "healthy" and self.group.left is not None and self.handed.rank == 0:
            trained = 0.7 * (agent.loop.time() - self._began)
            agent.facts[self._trained] = agent.facts.get(self._trained, 0.0) + trained
        if self.state != "succeeded":
            self.group.end(agent.loop.time())
        if self._began:  # of two members one may have applied the step that broke
            behind = Random(f"{agent.name} {self.handed.number}").choice((0, 0, 1))
            self._standing = Standing(self.handed.number, max(self.group.best.step, self.steps - behind))
        self._began = 0.0

    @property
    def steps(self) -> int:
        return self.group.steps(self.agent.loop.time())

    def busy_for(self) -> tuple[float, bool]:
        """Seconds until the step ends in which they hear that the round is over, and whether they save meanwhile."""
        dice = Random(f"{self.agent.name} {self.handed.number} busy")
        if dice.random() >= self._pod.plan.busy:
            return 0.0, False
        return dice.choice((dice.uniform(0.5, 5), dice.uniform(5, 40), 70.0)), dice.random() < 0.5

    def _could_come(self) -> Standing | None:
        agent = self.agent
        is_able = self.state == "healthy" and not self._fails_itself and not agent.is_going and agent.process.runs
        standing = Standing(self.handed.number, self.steps) if self._began else self._standing
        return standing if is_able else None

    async def _run(self) -> None:
        try:
            await self._train()
            self.state = "succeeded"
        except (OSError, EOFError, TimeoutError, SidecarError) as error:
            self._pod.say(f"{self.agent.name}'s processes fail", str(error))
            self.state = "failed"
            if not isinstance(error, Hung):  # which has been counted
                self.agent.views.fails(self.agent.job)
            self.group.end(self.agent.loop.time())

    async def _train(self) -> None:
        if not self._ready:
            await asyncio.sleep(self._dice.uniform(0.1, 2))  # imports
        while True:
            try:
                await self._train_in_round()
                return
            except BROKEN as error:
                if not self.lives or self._fails_itself:
                    raise
                self._pod.say(f"{self.agent.name}'s processes wait for another round", str(error))
            async with asyncio.timeout(STUCK_SECONDS):
                await self._moves.wait()

    async def _train_in_round(self) -> None:
        self._moves.clear()
        agent, dice = self.agent, self._dice
        reader, writer = await self._connect()
        try:
            self.group.come(self._standing)
            writer.write(b"hello\n")
            async with asyncio.timeout(STUCK_SECONDS):
                await line_of(reader)
                await self._while_whole(self.group.all_here.wait())
            self._began = agent.loop.time()
            if self.group.begin(self._began):
                agent.views.progress.begins(agent.job, self._stage, self.handed.number, self.group.best)
            if self.lives:
                with suppress(SidecarError):
                    await agent.calls.tell_live(self.handed.number)
            if (self._saves or self._reports) and self._stream is None:
                self._open_stream()
            await self._while_whole(self._steps())
            await asyncio.sleep(dice.uniform(0, 0.5))
        finally:
            writer.close()

    async def _connect(self) -> tuple[Reader, Writer]:
        """torch's TCPStore tries on, for a while."""
        deadline = self.agent.loop.time() + STUCK_SECONDS
        while True:
            try:
                async with asyncio.timeout(15):
                    reader, writer = await open_connection(LOOPBACK, STORE_PORT)
                    writer.write(b"hello\n")
                    await line_of(reader)
                    return reader, writer
            except (OSError, EOFError, TimeoutError):
                if self.agent.loop.time() > deadline:
                    raise
            await asyncio.sleep(0.5)

    async def _while_whole(self, work: Any) -> None:
        """As collectives go: when one member is gone, the others fail soon, or hang until they are stopped or moved."""
        doing = asyncio.ensure_future(work)
        broken = asyncio.ensure_future(self.group.broken.wait())
        moves = asyncio.ensure_future(self._moves.wait())
        try:
            await asyncio.wait({doing, broken, moves}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return
            if self.lives:
                raise ConnectionResetError("the round is over")
            if self._dice.random() < 0.4:
                await asyncio.sleep(self._dice.uniform(30, STUCK_SECONDS))
            await asyncio.sleep(self._dice.uniform(0.1, 3))
            raise ConnectionResetError("a peer is gone")
        finally:
            doing.cancel()
            broken.cancel()
            moves.cancel()

    async def _steps(self) -> None:
        agent, dice = self.agent, self._dice
        ends = 1e12 if self.group.left is None else agent.loop.time() + self.group.left
        fails = agent.loop.time() + dice.uniform(0.5, 20)
        calls = VirtualCalls(agent.settings.address, f"{agent.name}-script", 5.0, agent._told)
        step, late, saved = 0, False, 0
        while (now := agent.loop.time()) < ends:
            if self._failing and now >= fails:
                self._fails_itself = True
                raise ConnectionResetError("an exception in the script")
            if self._hanging and now >= fails:
                self._fails_itself = True
                agent.views.fails(agent.job)  # the operator may end the round for it
                await asyncio.sleep(dice.uniform(30, STUCK_SECONDS))
                raise Hung("a collective took too long")
            if self._closing and now >= fails:
                self._closing = False
                with suppress(CannotRunHere, SidecarError):
                    await agent.machine.go(agent.machine.closing())
            step += 1
            await asyncio.sleep(min(self._reports or STEP_SECONDS, max(ends - now, 0.01)))
            if self._reports:
                with suppress(SidecarError):
                    await calls.post(wire.PROGRESS, wire.ProgressReport(step=step), 5.0)
            view = self._stream.view if self._stream is not None else None
            if not self._saves or view is None or not view.ending:
                late = False
                continue
            if late and saved != view.round:
                saved = view.round
                with suppress(SidecarError):
                    await calls.post(wire.SAVED, wire.Saved(script=f"{agent.name}-script", round=saved), 5.0)
            late = agent.loop.time() - self._stream.ending_since >= HEARD_SECONDS

    def _open_stream(self) -> None:
        agent = self.agent
        stream = self._stream = WatchStream(agent.settings.address, f"{agent.name}-script")
        stream.saves = self._saves
        stream.silent = lambda: agent.views.silent(
            f"{agent.name}'s script", agent.process, self._pod, agent.loop.time()
        )
        stream.start()


class Store:
    """The round's TCPStore, as far as it counts: who has come to the exit barrier."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._exited: set[str] = set()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.BaseTransport, None] = {}  # in their order: that of a set is chance

    async def serve(self, facts: dict[str, Any]) -> int:
        port: int = facts.get("port", 30000) % 50000 + 1
        facts["port"] = port
        self._server = await asyncio.get_running_loop().create_server(lambda: _StoreClient(self), LOOPBACK, port)
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.close()

    def answer(self, line: bytes) -> bytes:
        if line.startswith(b"exit "):
            self._exited.add(line[5:].decode())
        return f"{len(self._exited)}\n".encode()


class _StoreClient(asyncio.Protocol):
    def __init__(self, store: Store) -> None:
        self._store, self._left = store, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._store._open[transport] = None

    def connection_lost(self, _: Exception | None) -> None:
        self._store._open.pop(self._transport, None)

    def data_received(self, data: bytes) -> None:
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._transport.write(self._store.answer(line))  # type: ignore[attr-defined]


async def line_of(reader: Reader) -> bytes:
    line = await reader.readline()
    if not line:
        raise EOFError("the store closed the connection")
    return line

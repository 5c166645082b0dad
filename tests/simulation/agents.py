# SPDX-License-Identifier: Apache-2.0
"""torchrun, as far as the sidecar sees of it.

An agent's state machine is the plug-in's own. What torch and the handler around it do is done here as they do it: to
join, serve or reach the store, look every five seconds at the processes and for waiting nodes, restart, the exit
barrier.
"""

import asyncio
from contextlib import suppress
from typing import Any

from elasticjob.api import STORE_PORT, Member
from elasticjob_torch.agent.settings import parse_settings
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.errors import (
    Closed,
    Leaving,
    NewProcesses,
    NoTrainer,
    RoundBroken,
    SidecarError,
    SidecarUnavailable,
    StageFinished,
    Superseded,
)
from elasticjob_torch.sidecar.events import EventStream
from elasticjob_torch.wire import LEFT_EXIT_CODE, NO_FAILURE, Failure, FailureKind, LeaveCause, Round
from simulation.containers import Sandbox
from simulation.loop import PROCESS
from simulation.pipes import LOOPBACK, Internet
from simulation.plugin import Reader, VirtualAgent, VirtualCalls, VirtualStream, Writer, open_connection
from simulation.views import Views
from simulation.workers import Store, Workers, line_of

MONITOR_SECONDS = 5.0  # torch's monitor interval
EXIT_SECONDS, BARRIER_SECONDS = 30.0, 300.0  # the plug-in's and torch's limits of the exit barrier
FAILED = Failure("local rank 0, exit code 1", None, FailureKind.EXIT_CODE)


class Exit(Exception):
    """The agent ends, with this code."""

    def __init__(self, code: int, why: object = "") -> None:
        super().__init__(str(why))
        self.code = code


class AgentStream(VirtualStream, EventStream):
    """An agent's events. Its process has the same id in each run of a history."""

    def __init__(self, address: Address, trainer: str, container: str, script: str) -> None:
        super().__init__(address, trainer, container=container, script=script)
        self._pid = 7


class Agent:
    """One torchrun process."""

    def __init__(self, pod: Sandbox, internet: Internet, views: Views, name: str, container: str, script: str) -> None:
        self._place = container, script
        self.pod, self.name, self.trainer, self.views = pod, name, f"{name}-trainer", views
        env = pod.env("trainer")
        sidecar = pod.env("elasticjob-sidecar")
        self.settings = parse_settings(env["PET_RDZV_ENDPOINT"], env["PET_RDZV_ID"], {})
        self.index, self.job = int(sidecar["ELASTICJOB_INDEX"]), env["PET_RDZV_ID"]
        self.patience = parse_settings(env["PET_RDZV_ENDPOINT"], env["PET_RDZV_ID"], {}, env).patience
        self.process = internet.fork(f"{name}/torchrun")
        views.starts(self.job, self.process)
        self.facts = pod.facts
        self.loop, self.dice = pod.loop, pod.dice
        self.store: Store | None = None
        self.stopped = False
        self._task: asyncio.Task[Any] | None = None
        self.work: asyncio.Task[int] = self.process.start(self.run())

    def stop(self) -> None:
        """SIGTERM: torch raises in the main thread."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> int:
        address = self.settings.address
        events = self.events = AgentStream(address, self.trainer, *self._place)
        events.silent = lambda: self.views.silent(self.name, self.process, self.pod, self.loop.time())
        calls = self.calls = VirtualCalls(address, self.trainer, self.settings.sidecar_timeout, self._told)
        machine = self.machine = VirtualAgent(self.settings, calls, events, self.loop.time, asyncio.sleep)
        try:
            await machine.go(machine.opening())
        except CannotRunHere as error:
            self.pod.say("torchrun finds no sidecar", str(error))
            return 1
        self._task = asyncio.create_task(self._work())
        try:
            code = await self._task
        except asyncio.CancelledError:
            code = 1
        except Exit as exit:
            code = exit.code
            self.pod.say(f"{self.name} ends with code {code}", str(exit))
        self.views.fails(self.job)
        recorded = await machine.go(machine.ending(stopped=self.stopped))
        self._drop_store()
        if recorded and machine._succeeded and not self.stopped:
            self.views.success(self.name, self.pod, machine._succeeded)
        return code

    @property
    def is_going(self) -> bool:
        """Whether it joins no other round."""
        view = self.machine.view
        return self.stopped or self.events.superseded or view is None or view.leaving or view.closed

    async def _work(self) -> int:
        """As torch's agent runs: its exit code."""
        failure, ready = NO_FAILURE, await self._is_ready_first()
        while True:
            handed, ready = await self._joined(failure, ready)
            workers = Workers(self, handed, ready=ready)
            try:
                verdict = await self._monitor(workers)
                while verdict == "changed" and await self._lives_on(workers):
                    handed, verdict = workers.handed, await self._monitor(workers)
                if verdict == "succeeded":
                    await self._exit_barrier(handed)
                    return 0
                failure = FAILED if verdict == "failed" else NO_FAILURE
            finally:
                workers.stop()
            if ready := failure is not NO_FAILURE and workers.lives and await self._mends(failure):
                failure = NO_FAILURE
                continue
            await asyncio.sleep(self.dice.uniform(0, 1.5))  # until its processes have ended

    async def _monitor(self, workers: "Workers") -> str:
        """torch looks at its processes, then at the rendezvous."""
        while True:
            await asyncio.sleep(MONITOR_SECONDS * self.dice.uniform(0.9, 1.1))
            if workers.state != "healthy":
                return workers.state
            if self.machine.notice_change():
                return "changed"
            if not self.stopped:
                round = workers.handed.number
                self.views.trains_on(self.job, round, self.process.woken_at, self.loop.time(), self.name)

    # --- training that lives through changes of the group

    async def _is_ready_first(self) -> bool:
        """Whether a newcomer has started its processes before it joins, as it does where all live."""
        if not self.pod.plan.live or self.dice.random() >= self.pod.plan.live:
            return False
        await asyncio.sleep(self.dice.uniform(0.2, 3))  # until they are ready; meanwhile the first event comes
        view = self.machine.view
        return view is not None and view.live

    async def _joined(self, failure: Failure, ready: bool) -> tuple[Round, bool]:
        """The next round, and whether the processes that are ready live on in it."""
        if ready:
            try:
                self.calls.live = True
                return await self._next_rendezvous(failure), True
            except NewProcesses as error:
                self.pod.say(f"{self.name} needs new processes", str(error))
            finally:
                self.calls.live = False
        return await self._next_rendezvous(failure), False

    async def _lives_on(self, workers: "Workers") -> bool:
        """Join the next round with the processes as they are; False if they have to be new."""
        if not workers.lives or not await self._reaches_boundary(workers):
            return False
        view = self.machine.view
        if view is not None and view.restart:
            self.views.starts_anew(self.job, self.name, "an event said so")
        if view is None or view.restart or view.leaving or self.events.superseded:
            return False
        try:
            self.calls.live = True
            handed = await self._next_rendezvous(NO_FAILURE)
        except NewProcesses as error:
            self.views.starts_anew(self.job, self.name, str(error))
            return False
        finally:
            self.calls.live = False
        self.views.lives_on(self.job, self.name, handed.number)
        workers.moved(handed)
        return True

    async def _reaches_boundary(self, workers: "Workers") -> bool:
        """Whether its processes end their step in the time that they have."""
        loop, patience = self.loop, self.patience
        seconds, saves = workers.busy_for()
        end = loop.time() + seconds
        patience.begin(loop.time())
        while loop.time() < end and not self.is_going:
            if late := patience.look(loop.time(), [saves]):
                self.pod.say(f"{self.name} starts new processes", late)
                return False
            await asyncio.sleep(min(1.0, end - loop.time()))
        return True

    async def _mends(self, failure: Failure) -> bool:
        """Leave until another process is ready, in a job that goes on meanwhile."""
        view = self.machine.view
        if view is None or not view.live or self.stopped:
            return False
        with suppress(SidecarError):
            await self.calls.leave(LeaveCause.WORKER_FAILED, 5.0, failure._replace(exit_code=1))
        self.machine.excuse()
        await asyncio.sleep(self.dice.uniform(0.5, 4))
        return True

    # --- as the handler

    async def _next_rendezvous(self, failure: Failure) -> Round:
        machine = self.machine
        while True:
            self._drop_store()
            handed = await self._join(failure)
            failure = NO_FAILURE
            me = Member(self.index, self.pod.files["sidecar"].id)
            self.views.handed(self.job, self.name, me, handed)
            self.pod.say(f"{self.name} is handed round {handed.number}", f"rank {handed.rank} of {handed.world_size}")
            try:
                await self._enter(handed)
            except (RoundBroken, NoTrainer) as error:
                self.pod.say(f"{self.name} passes over round {handed.number}", str(error))
                machine.give_up(handed)
            except Superseded as error:
                raise Exit(1, error) from None
            except SidecarError as error:
                raise Exit(1, error) from None
            else:
                return handed

    async def _join(self, failure: Failure) -> Round:
        try:
            handed: Round = await self.machine.go(self.machine.joining(failure))
        except StageFinished as error:
            raise Exit(0, error) from None
        except Leaving as error:
            raise Exit(LEFT_EXIT_CODE, error) from None
        except Closed as error:
            raise Exit(LEFT_EXIT_CODE if error.outcome == "Complete" else 1, error) from None
        except NewProcesses:
            raise
        except (CannotRunHere, SidecarUnavailable, SidecarError) as error:
            raise Exit(1, error) from None
        return handed

    async def _enter(self, handed: Round) -> None:
        machine = self.machine
        if handed.rank == 0:
            self.store = Store(handed.world_size)
            await asyncio.sleep(self.dice.uniform(0, 0.2))
            port = await self.store.serve(self.facts)
            await machine.go(machine.posting_store(handed, port))
        elif self.dice.random() < 0.3:  # ranks come through the store
            await machine.go(machine.awaiting_store(handed, self.loop.time() + BARRIER_SECONDS))
        machine.use(handed)

    async def _exit_barrier(self, handed: Round) -> None:
        """Told first that this agent is done; then the others are waited for, as long as any may come."""
        machine = self.machine
        if await machine.go(machine.finishing()):
            self.views.success(self.name, self.pod, handed.number)
        limit = BARRIER_SECONDS if self.store is None else 1e9
        with suppress(SidecarError, OSError, TimeoutError, EOFError):
            await machine.go(machine.awaiting_store(handed, self.loop.time() + EXIT_SECONDS))
            async with asyncio.timeout(EXIT_SECONDS):
                reader, writer = await open_connection(LOOPBACK, STORE_PORT)
            try:
                async with asyncio.timeout(limit):
                    await self._wait_for_all(reader, writer, handed)
            finally:
                writer.close()

    async def _wait_for_all(self, reader: Reader, writer: Writer, handed: Round) -> None:
        machine, pause = self.machine, 0.05
        while not (machine.has_ended(handed.number) or machine.is_over()):
            writer.write(f"exit {handed.rank}\n".encode())
            if int(await line_of(reader)) >= handed.world_size:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _drop_store(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    def _told(self, call: Any, began: float, error: BaseException | None) -> None:
        process = PROCESS.get()
        if process is not None and not isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.views.ended(call, began, self.loop.time(), process, self.name)

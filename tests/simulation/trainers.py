# SPDX-License-Identifier: Apache-2.0
"""The trainer's container: its torchruns, and what becomes of them."""

import asyncio
from contextlib import suppress

from simulation.agents import Agent
from simulation.containers import KILLED, Sandbox
from simulation.pipes import Internet
from simulation.views import Views


class TrainerProgram:
    """The trainer's container: one torchrun after the other, as many as the job has stages; perhaps another one in the
    place of one that is killed, or beside it."""

    def __init__(self, pod: Sandbox, internet: Internet, views: Views) -> None:
        self._pod, self._internet, self._views = pod, internet, views
        self._agents: list[Agent] = []
        self._stop = asyncio.Event()
        self._start_of_container = pod.files["containers"] = pod.files.get("containers", 0) + 1

    def terminate(self) -> None:
        self._stop.set()
        for agent in self._agents:
            agent.process.call(agent.stop)

    async def run(self) -> int:
        pod, dice = self._pod, self._pod.dice
        self._internet.settle(pod.ip, pod.network.is_parted_from)
        if dice.random() < pod.plan.crashes:
            await asyncio.sleep(dice.uniform(0, 3))
            return 1
        for stage in range(1, pod.plan.stages + 1):
            code = await self._torchrun(stage) or await self._go_on()
            if code:
                return code
        return 0

    async def _go_on(self) -> int:
        """After a success: a shell that does something else, for some time."""
        pod, dice = self._pod, self._pod.dice
        if not pod.plan.uploads:
            return 143 if self._stop.is_set() else 0
        with suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(0, pod.plan.uploads)):
                await self._stop.wait()
        if self._stop.is_set():
            return 143
        return 3 if dice.random() < pod.plan.upload_fails else 0

    async def _torchrun(self, stage: int) -> int:
        dice = self._pod.dice
        agent = self._start(stage)
        if dice.random() < self._pod.plan.killed:
            await asyncio.wait({agent.work}, timeout=dice.uniform(1, 40))
            if not agent.work.done():
                agent = await self._struck(agent, stage)
        done, _ = await asyncio.wait({agent.work})
        return done.pop().result()

    def _start(self, stage: int) -> "Agent":
        pod = self._pod
        number = pod.files["agents"] = pod.files.get("agents", 0) + 1
        place = (str(self._start_of_container), f"stage-{stage}.py")
        agent = Agent(pod, self._internet, self._views, f"{pod.name}.{number}", *place)
        self._agents.append(agent)
        return agent

    async def _struck(self, agent: "Agent", stage: int) -> "Agent":
        """It is killed, with its container or under a shell that starts another; or hangs beside another."""
        pod, dice = self._pod, self._pod.dice
        loop, how = asyncio.get_running_loop(), dice.random()
        if how < 0.3:
            pod.say("torchrun is stopped for a while, and another started", agent.name)
            agent.process.freeze()
            self._views.fails(agent.job)
            loop.call_later(dice.uniform(0.1, 90), agent.process.thaw)
        else:
            pod.say("torchrun is killed", agent.name)
            agent.process.kill()
            check = (agent.name, agent.trainer, pod)
            pod.loop.call_outside(2.5, lambda: self._views.gone(*check, loop.time()))
            if how < 0.6:
                raise_code = asyncio.get_running_loop().create_task(asyncio.sleep(dice.uniform(0, 1), KILLED))
                agent.work = raise_code
                return agent
        await asyncio.sleep(dice.uniform(0, 8))
        if self._stop.is_set():
            agent.work = loop.create_task(asyncio.sleep(0.1, 1))
            return agent
        return self._start(stage)

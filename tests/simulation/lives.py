# SPDX-License-Identifier: Apache-2.0
"""The life of one seed: jobs, operators and nodes by chance, some minutes of faults, then quiet until all is well."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from elasticjob_operator import memory
from elasticjob_operator.cluster import client
from simulation import faults, people
from simulation.claims import claims, jobs
from simulation.containers import Programs
from simulation.faults import Fault
from simulation.judge import Judge
from simulation.loop import START_SECONDS
from simulation.people import Doing
from simulation.probes import probe
from simulation.store import Object
from simulation.world import World

LONGEST_SECONDS = 1500.0  # of quiet until everything must be settled: each single wait of the product is less
SETTLED_SECONDS = 3.0

T = TypeVar("T")
Pick = Callable[[list[Object]], Object]  # one of several jobs


class Verdict(NamedTuple):
    """Of one seed: which rules were broken, the whole history, and what happened how often."""

    seed: int
    broken: tuple[str, ...]
    history: list[str]
    jobs: int
    seconds: float
    happened: Mapping[str, int]


class Unrest(NamedTuple):
    """What may happen, and how often beside the others; `of_machines` is the part, of 1, that is no doing of people."""

    faults: Mapping[Fault, int]
    doings: Mapping[Doing, int]
    of_machines: float


UNREST = Unrest(faults.FAULTS, people.DOINGS, 0.5)


class Life:
    def __init__(self, seed: int, programs: Programs) -> None:
        self.world = World(seed, programs)
        self.judge = Judge(self.world)
        self.world.on_mistake = self.judge.complain
        self.happened: dict[str, int] = {}
        self.unrest = UNREST

    def run(self) -> Verdict:
        world, dice = self.world, self.world.dice
        pages, settle = dice.choice((1, 2, 500)), dice.choice((4.0, 12.0, 30.0))
        at_once = dice.choice(((1, 1), (2, 1), (64, 32)))
        with ExitStack() as stack:
            for context in (
                world.running(),
                self.judge.watching(),
                patch.object(client, "PAGE", pages),
                patch.object(memory, "ACCESS_SECONDS", (settle, 10 * settle)),
                patch.object(memory, "PODS_AT_ONCE", at_once[0]),
                patch.object(memory, "PODS_OF_A_JOB_AT_ONCE", at_once[1]),
            ):
                stack.enter_context(context)
            world.run(self._live())
            for network in world.networks:
                for what, times in network.uses.items():
                    self._count(what, times)
        for name, times in world.server.admission.denied.items():
            self._count(f"refused: {name}", times)
        for status, times in world.server.answered.items():
            self._count(f"answer {status}", times)
        return Verdict(
            world.seed,
            tuple(self.judge.found),
            world.history.lines,
            self.judge.jobs,
            world.loop.time() - START_SECONDS,
            self.happened,
        )

    async def _live(self) -> None:
        world, dice = self.world, self.world.dice
        world.add_nodes(dice.randint(1, 4), dice.choice((2, 4, 8, 20)))
        policy = dice.random() < 0.3
        keepers = [asyncio.create_task(self._keep("op-a", policy))]
        if dice.random() < 0.5:
            keepers.append(asyncio.create_task(self._keep("op-b", policy != (dice.random() < 0.2))))
        for number in range(dice.choice((1, 1, 2, 3))):
            people.submit(world, f"job-{number}")
            await asyncio.sleep(dice.choice((0.0, 0.5, 10.0)))
        await self._unrest(dice.choice((20.0, 60.0, 120.0)), dice.choice((2.0, 6.0, 20.0)), self.unrest, dice.choice)
        await self._quiet()
        self._look_inside()
        for keeper in keepers:
            if keeper.done():
                keeper.result()  # it has no end but a mistake of the simulation's own
            keeper.cancel()
        for operator in world.operators:
            operator.process.kill()

    async def _keep(self, identity: str, policy: bool) -> None:
        """The kubelet starts it again; at times it is an operator of another version, with other options."""
        world = self.world
        while True:
            operator = world.start_operator(identity, network_policy=policy)
            while not operator.process.dead:
                await asyncio.sleep(0.5)
            await asyncio.sleep(world.dice.uniform(0.5, 4))
            if world.dice.random() < 0.2:
                policy = not policy

    async def _unrest(
        self, seconds: float, pace: float, unrest: Unrest, pick: Callable[[list[Object]], Object]
    ) -> None:
        """Faults of machines and doings of people, one every `pace` seconds or so, some at the same time; `pick`
        chooses whose job people meddle with."""
        world, dice, loop = self.world, self.world.dice, self.world.loop
        end, going = loop.time() + seconds, []
        while (wait := dice.expovariate(1 / pace)) < end - loop.time() and not self.judge.found:
            await asyncio.sleep(wait)
            if dice.random() < unrest.of_machines:
                fault = _one_of(dice, unrest.faults)
                self._count(fault.__name__)
                going.append(asyncio.create_task(fault(world)))
            elif known := jobs(world):
                doing = _one_of(dice, unrest.doings)
                self._count(doing.__name__)
                going.append(asyncio.create_task(doing(world, pick(known))))
        for one in going:
            one.add_done_callback(lambda done: done.cancelled() or done.result())
        if going:
            await asyncio.wait(going, timeout=60)
        for one in going:
            one.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        faults.all_is_well(world)
        people.tidy(world)
        world.say("judge", "from now on all is well")

    async def _quiet(self) -> None:
        """Until every claim holds, and does so for some seconds; then once more, after a last fault."""
        await self._settle("the last fault", lambda: True, LONGEST_SECONDS)
        if not self.judge.found and (last := probe(self.world, jobs(self.world))):
            self.world.say("judge", "probes", last.what)
            self._count("probe: " + last.what.rsplit(" ", 1)[-1].strip("0123456789"))
            await self._settle(last.what, last.mended, last.seconds)

    async def _settle(self, since: str, mended: Callable[[], bool], seconds: float) -> None:
        loop = self.world.loop
        end, held_since = loop.time() + seconds, None
        while loop.time() < end and not self.judge.found:
            holds = mended() and not claims(self.world)
            held_since = (held_since or loop.time()) if holds else None
            if held_since is not None and loop.time() - held_since >= SETTLED_SECONDS:
                return
            await asyncio.sleep(1)
        for why in claims(self.world) or ["it is not mended"]:
            if not self.judge.found or self.judge.found[0].endswith(why):
                self.judge.complain(f"{seconds:g} s after {since}: {why}")

    def _look_inside(self) -> None:
        """Mistakes that nobody has caught."""
        world = self.world
        for operator in world.operators:
            for mistake in operator.mistakes:
                self.judge.complain(mistake)
        for failure in world.loop.failures:
            self.judge.complain(f"nobody caught: {failure.get('message')} {failure.get('exception')!r}")

    def _count(self, what: str, times: int = 1) -> None:
        self.happened[what] = self.happened.get(what, 0) + times


def _one_of(dice: Any, weights: Mapping[T, int]) -> T:
    found: T = dice.choices(list(weights), list(weights.values()))[0]
    return found

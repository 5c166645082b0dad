# SPDX-License-Identifier: Apache-2.0
"""Lives of jobs that use what few do, in any combination: gangs over a Kueue, sizes, spares, policies, hangs; and on
nodes that reject pods."""

import asyncio
from random import Random

from simulation import faults, kueue, people
from simulation.containers import Plan
from simulation.kueue import TAKEN_SECONDS, Kueue
from simulation.lives import Unrest
from simulation.people import Doing
from simulation.programs import WholeLife
from simulation.store import Object
from simulation.world import NAMESPACE, World


class GangLife(WholeLife):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kueue = Kueue(self.world)
        self.world.adds_features = add_features
        self.unrest = Unrest(
            {**faults.FAULTS, faults.node_rejects: 5}, {**people.DOINGS, raise_least: 6, **self._of_kueue()}, 0.4
        )

    def _of_kueue(self) -> dict[Doing, int]:
        async def quota_changes(world: World, _: Object) -> None:
            self.kueue.quota = world.dice.randint(0, 8)
            world.say(kueue.WHO, "has quota for", str(self.kueue.quota))

        async def preempts(_: World, __: Object) -> None:
            self.kueue.preempt()

        async def goes_away(world: World, _: Object) -> None:
            world.say(kueue.WHO, "is away")
            self.kueue.away_since = world.loop.time()
            await asyncio.sleep(world.dice.choice((1.0, 8.0, 30.0, 50.0)))
            self.kueue.away_since = None
            world.say(kueue.WHO, "is back")

        async def workload_deleted(world: World, _: Object) -> None:
            if there := self.kueue.workloads:
                name = world.dice.choice(there)["metadata"]["name"]
                self.kueue.excuse(TAKEN_SECONDS)
                if found := world.server.store.find("workloads", (NAMESPACE, name)):
                    world.server.delete("workloads", found, people.WHO)

        return {quota_changes: 6, preempts: 6, goes_away: 4, workload_deleted: 2}

    async def _live(self) -> None:
        self.kueue.start()
        queue = asyncio.create_task(self.kueue.run())
        await super()._live()
        if queue.done():
            queue.result()  # it has no end but a mistake of the simulation's own
        queue.cancel()

    async def _quiet(self) -> None:
        self.kueue.quota, self.kueue.away_since = kueue.PLENTY, None
        await super()._quiet()


def add_features(dice: Random, job: Object, plan: Plan) -> None:
    spec = job["spec"]
    if dice.random() < 0.35:
        step = dice.choice((2, 2, 3))
        replicas = -(-spec["replicas"] // step) * step
        spec |= {"sizes": {"step": step}, "replicas": replicas, "minReplicas": dice.choice((1, step, replicas))}
    if dice.random() < 0.4:
        spec["spareReplicas"] = dice.choice((1, 1, 2))
    if dice.random() < 0.3:
        spec["podFailurePolicy"] = {"rules": [_rule(dice) for _ in range(dice.choice((1, 1, 2)))]}
    if dice.random() < 0.3:
        spec |= {"progressDeadlineSeconds": dice.choice((10, 20)), "hangPolicy": dice.choice(("Restart", "Report"))}
        plan.hangs = dice.choice((0.0, 0.3))
    if dice.random() < 0.7:
        spec["quotaAdmission"] = "Gang"
        job["metadata"]["labels"] = {kueue.LABEL: kueue.QUEUE}


def _rule(dice: Random) -> Object:
    what: Object = dice.choice(
        (
            {"onExitCodes": {"operator": "In", "values": [1]}},
            {"onExitCodes": {"operator": "In", "values": [137]}},
            {"onExitCodes": {"operator": "NotIn", "values": [1]}},
            {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        )
    )
    return {"action": dice.choice(("FailJob", "Ignore", "Ignore", "Count", "Count")), **what}


async def raise_least(world: World, job: Object) -> None:
    """The minimum, or by its sizes the least that a round may have, may be more by now than the job holds."""
    replicas = job["spec"]["replicas"]
    if world.dice.random() < 0.5 or "sizes" in job["spec"]:
        people.edit(world, job, {"minReplicas": replicas})
    else:
        people.edit(world, job, {"minReplicas": 1, "sizes": {"step": replicas}})

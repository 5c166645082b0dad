"""Lives of one small job whose workers have trouble all the time, to try the sidecars and the plug-in most."""

import asyncio

from elasticjob.api import API_VERSION
from simulation import faults, people
from simulation.claims import jobs
from simulation.containers import Plan
from simulation.programs import WholeLife
from simulation.store import Object

NAME = "job-0"
FAULTS = {
    faults.storm: 6,
    faults.server_down: 2,
    faults.watches_lag: 2,
    faults.history_forgotten: 4,
    faults.pod_cut_off: 3,
    faults.container_killed: 5,
    faults.container_frozen: 4,
}
DOINGS = {
    people.scale: 4,
    people.delete_pod: 2,
    people.delete_record: 3,
    people.spoil_record: 3,
    people.suspend: 1,
}


class WorkerLife(WholeLife):
    async def _live(self) -> None:
        world, dice = self.world, self.world.dice
        world.add_nodes(2, 8)
        keeper = asyncio.create_task(self._keep("op-a", False))
        plan = world.plans[NAME] = Plan(
            seconds=dice.choice((5.0, 20.0, 40.0)),
            fails=dice.choice((0.0, 0.2)),
            crashes=dice.choice((0.0, 0.1)),
            killed=dice.choice((0.0, 0.5)),
            hangs=dice.choice((0.0, 0.05)),
            closes=dice.choice((0.0, 0.0, 0.1)),
            sidecar_crashes=dice.choice((0.0, 0.3)),
            saves=dice.choice((0.0, 0.7)),
        )
        world.say(people.WHO, f"submits {NAME}", str(plan))
        people.ask(world, "POST", people.path_of("elasticjobs"), _job(dice.choice((1, 2, 2, 3))))
        await self._trouble(dice.choice((15.0, 40.0, 80.0)), dice.choice((2.0, 6.0)))
        await self._quiet()
        self._look_inside()
        keeper.cancel()

    async def _trouble(self, seconds: float, pace: float) -> None:
        world, dice, loop = self.world, self.world.dice, self.world.loop
        end, going = loop.time() + seconds, []
        while (wait := dice.expovariate(1 / pace)) < end - loop.time() and not self.judge.found:
            await asyncio.sleep(wait)
            if dice.random() < 0.7:
                [fault] = dice.choices(list(FAULTS), list(FAULTS.values()))
                self._count(fault.__name__)
                going.append(asyncio.create_task(fault(world)))
            elif known := jobs(world):
                [doing] = dice.choices(list(DOINGS), list(DOINGS.values()))
                self._count(doing.__name__)
                going.append(asyncio.create_task(doing(world, known[0])))
        if going:
            await asyncio.wait(going, timeout=60)
        for one in going:
            one.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        faults.all_is_well(world)
        people.tidy(world)
        world.say("judge", "from now on all is well")


def _job(replicas: int) -> Object:
    trainer = {"name": "trainer", "image": "example/train", "command": ["torchrun", "train.py"]}
    pod = {"containers": [trainer], "terminationGracePeriodSeconds": 5}
    spec = {"replicas": replicas, "minReplicas": 1, "maxRestarts": 1000, "template": {"spec": pod}}
    spec["rendezvous"] = {"lastCallSeconds": 2, "rejoinSeconds": 60, "saveSeconds": 5, "joinTimeoutSeconds": 600}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": NAME}, "spec": spec}

# SPDX-License-Identifier: Apache-2.0
"""Lives of one small job whose workers have trouble all the time, to try the sidecars and the plug-in most."""

import asyncio
from random import Random

from elasticjob.api import API_VERSION
from simulation import faults, people
from simulation.containers import Plan
from simulation.faults import Fault
from simulation.lives import Unrest
from simulation.people import Doing
from simulation.programs import WholeLife
from simulation.store import Object

NAME = "job-0"
FAULTS: dict[Fault, int] = {
    faults.storm: 6,
    faults.server_down: 2,
    faults.watches_lag: 2,
    faults.history_forgotten: 4,
    faults.pod_cut_off: 3,
    faults.link_cut: 3,
    faults.container_killed: 5,
    faults.container_frozen: 4,
}
DOINGS: dict[Doing, int] = {
    people.scale: 4,
    people.delete_pod: 2,
    people.delete_record: 3,
    people.spoil_record: 3,
    people.suspend: 1,
}
UNREST = Unrest(FAULTS, DOINGS, 0.7)


class WorkerLife(WholeLife):
    spares = 0  # beside the workers
    lasts: tuple[float | None, ...] = (5.0, 20.0, 40.0)  # seconds that the training takes

    async def _live(self) -> None:
        world, dice = self.world, self.world.dice
        world.add_nodes(2, 8)
        keeper = asyncio.create_task(self._keep("op-a", False))
        plan = world.plans[NAME] = Plan(
            seconds=dice.choice(self.lasts),
            fails=dice.choice((0.0, 0.2)),
            crashes=dice.choice((0.0, 0.1)),
            killed=dice.choice((0.0, 0.5)),
            hangs=dice.choice((0.0, 0.05)),
            closes=dice.choice((0.0, 0.0, 0.1)),
            sidecar_crashes=dice.choice((0.0, 0.3)),
            saves=dice.choice((0.0, 0.7)),
            uploads=dice.choice((0.0, 0.0, 10.0)),
            upload_fails=dice.choice((0.0, 0.2)),
        )
        # what is closed has no next stage, and no next round to live through
        plan.stages = 1 if plan.closes else dice.choice((1, 1, 2))
        if not plan.closes:  # by dice of its own, as the lives of other seeds are to stay as they are
            plan.live = Random(f"{world.seed} live").choice((0.0, 0.0, 0.5, 1.0))
            plan.busy = Random(f"{world.seed} busy").choice((0.0, 0.0, 0.3))
        world.say(people.WHO, f"submits {NAME}", str(plan))
        people.ask(world, "POST", people.path_of("elasticjobs"), _job(dice.choice((1, 2, 2, 3)), self.spares))
        seconds, pace = dice.choice((15.0, 40.0, 80.0)), dice.choice((2.0, 6.0))
        await self._unrest(seconds, pace, UNREST, lambda known: known[0])
        await self._quiet()
        self._look_inside()
        keeper.cancel()


class SpareLife(WorkerLife):
    """The same, with a spare beside the workers; when all is quiet again most trainings go on, and have one."""

    spares = 1
    lasts = (20.0, None, None)


def _job(replicas: int, spares: int) -> Object:
    trainer = {"name": "trainer", "image": "example/train", "command": ["torchrun", "train.py"]}
    pod = {"containers": [trainer], "terminationGracePeriodSeconds": 5}
    spec = {"replicas": replicas, "minReplicas": 1, "maxRestarts": 1000, "template": {"spec": pod}}
    spec["spareReplicas"] = spares
    spec["rendezvous"] = {"lastCallSeconds": 2, "rejoinSeconds": 60, "saveSeconds": 5, "joinTimeoutSeconds": 600}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": NAME}, "spec": spec}

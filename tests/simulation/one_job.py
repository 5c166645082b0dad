# SPDX-License-Identifier: Apache-2.0
"""A world with one operator and one job that trains without an end. What happens to the job, a test does itself."""

from collections.abc import Awaitable, Callable

from elasticjob.api import API_VERSION, ElasticJobStatus
from elasticjob.terms import Outcome, RendezvousPhase
from simulation import people
from simulation.containers import Plan, Programs
from simulation.judge import Judge
from simulation.store import Object
from simulation.world import NAMESPACE, World
from support.waiting import until

NAME = "job-0"
TRAINER: Object = {"name": "trainer", "image": "example/train", "command": ["torchrun", "train.py"]}


class OneJob:
    def __init__(self, seed: int, programs: Programs, *, nodes: int, capacity: int) -> None:
        self.world = World(seed, programs)
        self.judge = Judge(self.world)
        self.world.on_mistake = self.judge.complain
        self.world.plans[NAME] = Plan(seconds=None)
        self.world.add_nodes(nodes, capacity)

    def run(self, live: Callable[["OneJob"], Awaitable[None]]) -> None:
        """Has `live` happen while the operator runs. Raises AssertionError if a rule was broken meanwhile."""
        with self.world.running(), self.judge.watching():
            operator = self.world.start_operator("op-a")
            self.world.run(live(self))
            operator.process.kill()
        assert self.judge.found == []
        assert operator.mistakes == []

    def submit(self, *, labels: Object | None = None, grace: int = 5, **spec: object) -> None:
        """Makes the job. `grace`: its pods' terminationGracePeriodSeconds."""
        meta = {"name": NAME, "namespace": NAMESPACE, "labels": labels or {}}
        pod = {"containers": [TRAINER], "terminationGracePeriodSeconds": grace}
        spec["template"] = {"spec": pod}
        job = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": meta, "spec": spec}
        people.ask(self.world, "POST", people.path_of("elasticjobs"), job)

    def edit(self, **change: object) -> None:
        people.edit(self.world, self.body, change)

    def delete(self, plural: str, name: str) -> None:
        people.ask(self.world, "DELETE", people.path_of(plural, name), {})

    @property
    def body(self) -> Object:
        found = self.world.server.get("elasticjobs", NAMESPACE, NAME)
        assert found is not None
        return found

    @property
    def status(self) -> ElasticJobStatus:
        return ElasticJobStatus.parse(self.body.get("status"))

    @property
    def pods(self) -> list[Object]:
        """Of the workers, those that terminate included."""
        return [one.body for one in self.world.server.store.all("pods", NAMESPACE)]

    async def formed(self, size: int, *, after: int = 0, seconds: float) -> float:
        """How long it takes from now to a round of `size` with a number above `after`. Raises Deadline after
        `seconds`."""
        began = self.world.loop.time()

        def stands() -> bool:
            agreed = self.status.rendezvous
            assert agreed.outcome is not Outcome.FAILED, agreed.reason
            return (agreed.phase, agreed.world_size) == (RendezvousPhase.FORMED, size) and agreed.round > after

        await until(stands, f"a round of {size} after round {after}", seconds=seconds, pause=0.2)
        return self.world.loop.time() - began

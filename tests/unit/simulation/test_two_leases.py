# SPDX-License-Identifier: Apache-2.0
"""Two installations in one namespace, each with its Lease: one goes on, nothing is lost, and the other comes back."""

import asyncio

import pytest

from elasticjob.api import API_VERSION, ElasticJobStatus
from simulation import people
from simulation.claims import claims
from simulation.containers import Plan
from simulation.judge import Judge
from simulation.operators import LEASE
from simulation.store import Object
from simulation.stubs import StubPrograms
from simulation.world import NAMESPACE, World
from support.pod_life import new_credentials
from support.waiting import until

OTHER = "another-release"
TRAINER: Object = {"name": "trainer", "image": "example/train", "command": ["torchrun", "train.py"]}
JOB: Object = {
    "apiVersion": API_VERSION,
    "kind": "ElasticJob",
    "metadata": {"name": "job-0", "namespace": NAMESPACE},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [TRAINER]}}},
}
SETTLED_SECONDS, GONE_SECONDS = 60.0, 600.0


class TwoInstallations:
    """`op-a` has the older Lease, `op-b` the younger; the training has no end."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, StubPrograms(new_credentials().certificate))
        self.judge = Judge(self.world)
        self.world.on_mistake = self.judge.complain

    async def live(self) -> None:
        world = self.world
        world.add_nodes(2, 8)
        world.plans["job-0"] = Plan(seconds=None)
        older = world.start_operator("op-a")
        people.ask(world, "POST", people.path_of("elasticjobs"), JOB)
        await until(lambda: self.members == 2, seconds=SETTLED_SECONDS, pause=0.5)
        younger = world.start_operator("op-b", lease=OTHER)
        await until(lambda: self.left_by == {"op-b"}, seconds=SETTLED_SECONDS, pause=0.5)
        await self.is_calm(SETTLED_SECONDS)
        await self.scaled(3, LEASE, 0.0, SETTLED_SECONDS)
        assert not claims(world)

        older.process.kill()
        await self.is_calm(2 * GONE_SECONDS)  # nothing is due, so it stays away
        await self.scaled(4, OTHER, GONE_SECONDS, GONE_SECONDS + 2 * SETTLED_SECONDS)

        world.start_operator("op-a")  # the first installation is back, and goes on with what is its own
        await until(
            lambda: self.status.lease is not None and self.status.lease.name == LEASE,
            seconds=2 * SETTLED_SECONDS,
            pause=0.5,
        )
        await self.is_calm(SETTLED_SECONDS)
        assert self.members == 4
        assert not younger.process.dead

    @property
    def status(self) -> ElasticJobStatus:
        job = self.world.server.get("elasticjobs", NAMESPACE, "job-0")
        assert job is not None
        return ElasticJobStatus.parse(job.get("status"))

    @property
    def members(self) -> int:
        return self.status.rendezvous.world_size

    @property
    def left_by(self) -> set[str]:
        return {line.split()[1] for line in self.world.history.lines if "leaves the namespace alone" in line}

    @property
    def writes(self) -> int:
        return sum(self.judge.writes.values())

    async def scaled(self, replicas: int, lease: str, earliest: float, latest: float) -> None:
        """The job has this size, by the holder of `lease`, and no sooner than `earliest` seconds from now."""
        job, began = self.world.server.get("elasticjobs", NAMESPACE, "job-0"), self.world.loop.time()
        assert job is not None
        people.edit(self.world, job, {"replicas": replicas})
        await until(lambda: self.members == replicas, seconds=latest, pause=0.5)
        assert self.world.loop.time() - began >= earliest
        assert self.status.lease is not None
        assert self.status.lease.name == lease

    async def is_calm(self, seconds: float) -> None:
        """Nobody writes to the job."""
        await asyncio.sleep(SETTLED_SECONDS)  # a status may be written late, by who goes on
        before = self.writes
        await asyncio.sleep(seconds)
        assert self.writes == before


@pytest.mark.parametrize("seed", range(2))
def test_one_of_two_installations_stands_aside_and_comes_back_when_something_is_due(seed: int) -> None:
    life = TwoInstallations(seed)
    with life.world.running(), life.judge.watching():
        life.world.run(life.live())
        for operator in life.world.operators:
            operator.process.kill()
    assert life.left_by == {"op-b"}
    assert life.judge.found == []
    assert [mistake for operator in life.world.operators for mistake in operator.mistakes] == []

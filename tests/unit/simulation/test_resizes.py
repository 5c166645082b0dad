# SPDX-License-Identifier: Apache-2.0
"""A job that is scaled a thousand times under Kueue gives all its quota back, whenever it stops."""

import asyncio

from simulation.kueue import LABEL, QUEUE, Kueue, held
from simulation.one_job import NAME, OneJob
from simulation.stubs import StubPrograms
from support.pod_life import new_credentials
from support.waiting import until

RESIZES, MOST, QUOTA = 1000, 9, 6
PAUSES = (0.0, 0.05, 0.3, 1.0, 2.0)  # seconds between two: some come before the one before is answered
SETTLED_SECONDS = 300.0


async def live(job: OneJob) -> None:
    world, kueue = job.world, Kueue(job.world)
    kueue.start()
    kueue.quota = QUOTA
    queue = asyncio.create_task(kueue.run())

    async def gives_all_back(what: str) -> None:
        await until(lambda: not usage() and not job.pods, what, seconds=SETTLED_SECONDS, pause=0.5)
        await asyncio.sleep(SETTLED_SECONDS / 10)
        assert usage() == 0, "and takes none again"

    def usage() -> int:
        return sum(map(held, kueue.workloads))

    job.submit(labels={LABEL: QUEUE}, replicas=3, minReplicas=1, quotaAdmission="Gang")
    await job.formed(3, seconds=SETTLED_SECONDS)
    sizes = set()
    for _ in range(RESIZES):
        job.edit(replicas=world.dice.randint(1, MOST))
        await asyncio.sleep(world.dice.choice(PAUSES))
        sizes.add(job.status.rendezvous.world_size)
    assert sizes >= {1, QUOTA}, "it trained with little and with all that there is"
    job.edit(replicas=MOST)
    await job.formed(QUOTA, seconds=SETTLED_SECONDS)
    assert usage() == QUOTA

    job.edit(suspend=True)
    await gives_all_back("a suspended job to give its quota back")
    job.edit(suspend=False, replicas=2)
    await job.formed(2, seconds=SETTLED_SECONDS)
    job.delete("elasticjobs", NAME)
    await gives_all_back("a deleted job to give its quota back")
    assert kueue.workloads == []
    queue.cancel()


def test_a_thousand_resizes_leave_no_quota_in_use() -> None:
    programs = StubPrograms(new_credentials().certificate)
    OneJob(11, programs, nodes=3, capacity=8).run(live)

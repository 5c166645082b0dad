# SPDX-License-Identifier: Apache-2.0
"""A hundred pods that take an hour to terminate are nobody's concern but the cluster's: the others go on at once."""

import asyncio

from elasticjob.pods import pod_key_of
from simulation.containers import Program, Sandbox
from simulation.one_job import NAME, OneJob
from simulation.store import Object
from simulation.stubs import LOOK_SECONDS, StubPrograms, StubTrainer
from support.pod_life import new_credentials

SLOW, STAYING = 100, 2
GRACE_SECONDS = 3600
# in which new pods come, virtual seconds: a pod starts within ten
FORMED_SECONDS = 30.0


class Stubborn(StubTrainer):
    """It does not react to SIGTERM."""

    def terminate(self) -> None: ...


class StubbornPrograms(StubPrograms):
    def trainer(self, pod: Sandbox) -> Program:
        return Stubborn(pod)


def is_slow(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def live(job: OneJob) -> None:
    job.submit(replicas=SLOW + STAYING, grace=GRACE_SECONDS, rendezvous={"lastCallSeconds": 600})
    await job.formed(SLOW + STAYING, seconds=2 * FORMED_SECONDS)
    await asyncio.sleep(5 * LOOK_SECONDS)  # a stub takes part in no round that ends before it looks

    round = job.status.rendezvous.round
    for pod in job.pods:
        key = pod_key_of(NAME, pod["metadata"]["name"])
        if key is not None and key[0] >= STAYING:
            job.delete("pods", pod["metadata"]["name"])
    await job.formed(SLOW + STAYING, after=round, seconds=FORMED_SECONDS)
    assert sum(map(is_slow, job.pods)) == SLOW, "they still terminate"
    assert job.status.restarts == 0

    await asyncio.sleep(5 * LOOK_SECONDS)
    round = job.status.rendezvous.round
    job.edit(replicas=STAYING)
    await job.formed(STAYING, after=round, seconds=FORMED_SECONDS)
    assert sum(map(is_slow, job.pods)) >= SLOW
    assert job.status.restarts == 0


def test_a_round_waits_for_no_pod_that_terminates() -> None:
    programs = StubbornPrograms(new_credentials().certificate)
    OneJob(7, programs, nodes=4, capacity=100).run(live)

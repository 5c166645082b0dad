# SPDX-License-Identifier: Apache-2.0
"""A node loses its power just as a round of living processes ends by plan: the others are in a collective with its
member, and hear of the loss as soon as in a round that stands."""

import asyncio
from functools import partial

import pytest

from elasticjob.api import INDEX_LABEL
from elasticjob.terms import RoundCause
from elasticjob_sidecar.membership.view import view_of
from elasticjob_torch import wire
from simulation.one_job import NAME, OneJob
from simulation.programs import RealPrograms
from simulation.workers import Workers
from support.waiting import until

SIZE, SEED = 4, 11
FORMED_SECONDS, LIVE_SECONDS = 60.0, 30.0
HEARD_SECONDS = 10.0  # workerLostSeconds, by default 4, and the ways to and from the API server; busy processes have 60
BUSY_SECONDS = 30.0


def told(job: OneJob, index: int) -> wire.View | None:
    """What the sidecar of that worker's first pod tells its trainer."""
    (pod,) = (one for one in job.pods if one["metadata"]["name"] == f"{NAME}-{index}-0")
    run = job.world.nodes.run_of(pod["metadata"]["uid"])
    assert run is not None
    return view_of(run.sandbox.files["sidecar"].sidecar.driver.standing)


def is_broken(job: OneJob, index: int) -> bool:
    view = told(job, index)
    return view is not None and view.broken


async def live(silent: int | None, job: OneJob) -> None:
    job.submit(replicas=SIZE)
    await job.formed(SIZE, seconds=FORMED_SECONDS)
    await until(lambda: len(job.status.rendezvous.live) == SIZE, "all to live", LIVE_SECONDS, pause=0.2)
    await asyncio.sleep(LIVE_SECONDS)  # until the links are made
    round, nodes = job.status.rendezvous.round, job.world.nodes
    job.edit(replicas=SIZE - 1)
    if silent is not None:
        pods = {one["metadata"]["labels"][INDEX_LABEL]: one["metadata"]["uid"] for one in job.pods}
        nodes.kill_node(next(one for one in nodes.all if pods[str(silent)] in one.pods))
    others = [index for index in range(SIZE - 1) if index != silent]  # the last is told to leave
    await until(lambda: job.status.rendezvous.round > round, "the end of the round", HEARD_SECONDS, pause=0.2)
    assert job.status.rendezvous.cause == RoundCause.SCALED
    assert not any(is_broken(job, index) for index in others)
    if silent is None:
        await asyncio.sleep(HEARD_SECONDS)
        assert not any(is_broken(job, index) for index in others)
    else:
        what = f"the others to hear of the loss of worker {silent}"
        await until(lambda: all(is_broken(job, index) for index in others), what, HEARD_SECONDS, pause=0.2)
    assert job.status.restarts == 0


@pytest.mark.parametrize("silent", [0, 1, SIZE - 1, None], ids=["rank 0", "one that stays", "the leaver", "nobody"])
def test_a_loss_during_a_planned_change_is_heard_as_soon_as_any(
    monkeypatch: pytest.MonkeyPatch, silent: int | None
) -> None:
    monkeypatch.setattr(Workers, "busy_for", lambda self: (BUSY_SECONDS, False))
    programs = RealPrograms()
    job = OneJob(SEED, programs, nodes=SIZE + 1, capacity=1)
    job.world.plans[NAME].live = 1.0
    programs.views.complain = job.judge.complain
    job.world.server.store.observers.append(lambda change: programs.views.see(change, job.world.loop.time()))
    with programs.in_place():
        job.run(partial(live, silent))

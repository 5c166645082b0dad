# SPDX-License-Identifier: Apache-2.0
"""The sidecar's streams never fall silent for longer than their listeners wait, whatever changes. In virtual time."""

import asyncio
import itertools
from typing import Any, cast

import pytest
from aiohttp import web

from elasticjob.api import Member, RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.membership.concerns import Concerns
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.scripts import Scripts
from elasticjob_sidecar.membership.stalls import Stalls
from elasticjob_sidecar.membership.view import view_of
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.trainer_api.routes import TrainerApi
from elasticjob_torch.wire import COMMENT_SECONDS, SILENCE_SECONDS
from support.faulty_kube import FaultyKube

pytestmark = pytest.mark.looptime

ME = Identity(pod_name="job-0-0", pod_uid="1", job="job", index=0, id="0", certificate="", address="10.0.0.7:27601")


class Written:
    """The stream's other end: what came, and when."""

    def __init__(self) -> None:
        self.all: list[tuple[float, bytes]] = []

    async def write(self, data: bytes) -> None:
        self.all.append((asyncio.get_running_loop().time(), data))

    def longest_silence(self, until: float) -> float:
        times = [at for at, _ in self.all] + [until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def status(waiting: int = 0) -> RendezvousStatus:
    return RendezvousStatus(phase=RendezvousPhase.FORMING, round=1, waiting=waiting)


@pytest.mark.parametrize("pace", [0.2, 5.0, COMMENT_SECONDS - 0.1, 3600.0])
@pytest.mark.parametrize("changes", [False, True], ids=["nothing changes", "each rings with a change"])
async def test_a_stream_says_something_however_often_the_job_is_written(pace: float, changes: bool) -> None:
    """Progress, an annotation, a label: each status or metadata of the job wakes them, and few are of interest."""
    metrics, written, loop = Metrics(), Written(), asyncio.get_running_loop()
    record = WorkerRecord(FaultyKube(), ME, metrics.api_failed)
    driver = Driver(Membership(Member(0, "0")), Concerns(Scripts(), Stalls()), record, metrics)
    driver.job_seen(status())
    api = TrainerApi(driver, cast("Any", None), ("127.0.0.1", 1), "job", "uid", 600.0)
    following = asyncio.create_task(
        api._follow(cast("web.StreamResponse", written), lambda: view_of(driver.standing), lambda: True)
    )
    began = loop.time()
    rung = 0
    while loop.time() < began + 120:
        await asyncio.sleep(min(pace, began + 120 - loop.time()))
        rung += 1
        driver.job_seen(status(rung if changes else 0))
    following.cancel()
    assert written.longest_silence(began + 120) <= COMMENT_SECONDS + 0.01 < SILENCE_SECONDS / 2
    comments = [data for _, data in written.all if data.startswith(b":")]
    assert len(comments) <= 120 / COMMENT_SECONDS

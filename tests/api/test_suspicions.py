# SPDX-License-Identifier: Apache-2.0
"""Two real sidecars and a real API server: links, suspects, pings, answers. The job's status is the test's, or
that of a real operator."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api import chart
from api.operators import GROUP, JOBS, Leader, Operators, new_job
from api.pods import CORE, pod_client
from elasticjob.certificates import der_of, fingerprint_of
from elasticjob.objects import Object
from elasticjob.reading import Pod
from elasticjob_operator import memory
from elasticjob_operator.job import network
from elasticjob_sidecar.app import Ports, Sidecar
from elasticjob_sidecar.config import Config
from support import ControlPlane, kubelet
from support.link import linked
from support.pod_life import new_credentials
from support.ports import free_port, free_ports, loopback_addresses
from support.waiting import within

SECONDS = 90.0


class Worker:
    """One pod's sidecar, at ports of its own."""

    def __init__(self, plane: ControlPlane, job: str, index: int, directory: Path, address: str = "127.0.0.1") -> None:
        self._plane, self.name, self.index, self.address = plane, f"{job}-{index}-0", index, address
        self.path = f"{GROUP}/namespaces/default/elasticworkers/{self.name}"
        pod: Object = plane.request("GET", f"{CORE}/pods/{self.name}")
        uid = plane.request("GET", f"{JOBS}/{job}")["metadata"]["uid"]
        config = Config.model_validate(
            {
                "job": job,
                "job_uid": uid,
                "index": index,
                "batch": Pod.read(pod).batch,
                "namespace": "default",
                "pod_name": self.name,
                "pod_uid": pod["metadata"]["uid"],
                "pod_ip": address,
            }
        )
        self.kube, self.ports = pod_client(plane, job, pod, directory), Ports(*free_ports(4), forwarded=0)
        self.id, self.credentials = f"{config.batch}.0", new_credentials()
        self.sidecar = Sidecar(config, self.id, self.kube, self.credentials, self.ports)
        self.stopping = asyncio.Event()
        self.events: aiohttp.ClientResponse | None = None

    @property
    def member(self) -> str:
        return f"{self.index}/{self.id}"

    @property
    def store(self) -> str:
        return f"127.0.0.1:{self.ports.tunnel}/{fingerprint_of(der_of(self.credentials.certificate))}"

    @property
    def links(self) -> int:
        return int(self.sidecar.metrics.links._value.get())

    def said(self, field: str) -> Any:
        return self._plane.request("GET", self.path).get("status", {}).get(field)

    async def join(self, http: aiohttp.ClientSession) -> None:
        """Its trainer joins, and trains in the round that it is handed, whose store it serves as rank 0."""
        url = f"http://127.0.0.1:{self.ports.trainer_api}/v1"
        # it has to stay open, and what nobody refers to is closed at a garbage collection
        self.events = await http.get(f"{url}/rendezvous/events?trainer=t{self.index}")
        assert self.events.status == 200
        async with http.post(f"{url}/rendezvous", json={"trainer": f"t{self.index}", "timeout": SECONDS}) as answer:
            handed = await answer.json()
        if handed["rank"] == 0:
            served = {"trainer": f"t{self.index}", "round": handed["round"], "port": free_port()}
            async with http.post(f"{url}/store", json=served) as answer:
                assert answer.status == 204

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        await self.sidecar.serve()
        task = asyncio.create_task(self.sidecar.run(self.stopping))
        try:
            yield
        finally:
            self.stopping.set()
            await asyncio.gather(task, return_exceptions=True)
            await self.sidecar.close()
            await self.kube.close()


@contextlib.asynccontextmanager
async def leads(leader: Leader) -> AsyncIterator[None]:
    """It renews its Lease: only time that it has led counts."""
    holding = asyncio.create_task(leader.leadership.hold())
    try:
        yield
    finally:
        holding.cancel()


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.1)


async def test_a_sidecar_that_is_gone_is_suspected_and_who_is_asked_answers(
    operators: Operators, plane: ControlPlane, tmp_path: Path
) -> None:
    """Under the chart's admission policy, with the pods' own tokens."""
    chart.install(plane, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    job = new_job(plane)
    plane.request("PATCH", f"{JOBS}/{job}", {"spec": {"replicas": 2}}, content_type="application/merge-patch+json")
    await (await operators.lead()).see(job)
    zero, one = (Worker(plane, job, index, tmp_path) for index in (0, 1))

    def ask(number: int, *members: str) -> None:
        stands = {"phase": "Formed", "round": 1, "worldSize": 2, "participants": f"{zero.member} {one.member}"}
        ping = {"number": number, "members": " ".join(members)}
        status = {"rendezvous": {**stands, "store": zero.store, "ping": ping}}
        plane.request("PATCH", f"{JOBS}/{job}/status", {"status": status}, content_type="application/merge-patch+json")

    async with within("the suspects, questions and answers", SECONDS), zero.runs():
        async with one.runs():
            await until(lambda: zero.sidecar.driver.ready and one.sidecar.driver.ready)
            ask(0)
            await until(lambda: zero.links == one.links == 1)
            ask(1, one.member)
            await until(lambda: one.said("ack") == 1)
        await until(lambda: zero.said("suspects") == one.member)
        ask(2, zero.member, one.member)
        await until(lambda: zero.said("ack") == 2)
        assert one.said("ack") == 1


async def test_members_that_rank_0_does_not_hear_any_more_are_told_and_keep_their_places(
    operators: Operators, plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of rank 0's sidecar is closed by a firewall while they train, and opened again."""
    monkeypatch.setattr(memory, "ACCESS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(network, "STANDS_SECONDS", 3.0)
    job, addresses = new_job(plane), loopback_addresses()
    plane.request("PATCH", f"{JOBS}/{job}", {"spec": {"replicas": 2}}, content_type="application/merge-patch+json")
    leader = await operators.lead()
    await leader.see(job)
    zero, one = (Worker(plane, job, index, tmp_path, next(addresses)) for index in (0, 1))
    for worker in (zero, one):
        path = f"{CORE}/pods/{worker.name}"
        pod = plane.request("GET", path)
        status = kubelet.status(kubelet.running(pod["spec"], worker.address, time.time()))
        plane.request("PUT", f"{path}/status", {**pod, "status": status})

    async def come_to(connected: str) -> tuple[str, str, tuple[int, str]]:
        """Once the condition Connected is so, empty for none, while both train: REASON, what is told, and the round."""
        while True:
            status = await leader.see(job)
            conditions = {one["type"]: one for one in status["conditions"]}
            found, agreed = conditions.get("Connected", {"status": "", "message": ""}), status["rendezvous"]
            if found["status"] == connected and agreed["worldSize"] == 2:
                return status.get("reason", ""), found["message"], (agreed["round"], agreed["participants"])
            await asyncio.sleep(0.2)

    async with (
        within("the fault of the network, and its end", SECONDS),
        linked((zero.address, 27601), (zero.address, zero.ports.tunnel)) as link,
        aiohttp.ClientSession() as http,
        leads(leader),
        zero.runs(),
        one.runs(),
    ):
        joins = asyncio.gather(zero.join(http), one.join(http))
        _, _, formed = await come_to("")
        await joins
        await until(lambda: zero.links == one.links == 1)
        link.cut = True
        reason, told, round = await come_to("False")
        assert (reason, round) == ("NetworkFault", formed)
        where = f"pod {one.name} does not reach pod {zero.name} at {zero.address}:27601, and both live: "
        assert told.startswith(where)
        link.cut = False
        assert await come_to("True") == ("", "", formed)

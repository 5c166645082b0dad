"""Two real sidecars and a real API server, whose job's status the test writes: lines, doubts, challenges, answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from api import chart
from api.operators import GROUP, JOBS, Operators, new_job
from api.pods import CORE, pod_client
from elasticjob.certificates import der_of, fingerprint_of
from elasticjob.objects import Object
from elasticjob.pods import batch_of
from elasticjob_sidecar.app import Ports, Sidecar
from elasticjob_sidecar.config import Config
from support import ControlPlane
from support.pod_life import new_credentials
from support.ports import free_ports
from support.waiting import within

SECONDS = 90.0


class Worker:
    """One pod's sidecar, at ports of its own."""

    def __init__(self, plane: ControlPlane, job: str, index: int, directory: Path) -> None:
        self._plane, self.name, self.index = plane, f"{job}-{index}-0", index
        self.path = f"{GROUP}/namespaces/default/elasticworkers/{self.name}"
        pod: Object = plane.request("GET", f"{CORE}/pods/{self.name}")
        uid = plane.request("GET", f"{JOBS}/{job}")["metadata"]["uid"]
        config = Config.model_validate(
            {
                "job": job,
                "job_uid": uid,
                "index": index,
                "batch": batch_of(pod),
                "namespace": "default",
                "pod_name": self.name,
                "pod_uid": pod["metadata"]["uid"],
                "pod_ip": "127.0.0.1",
            }
        )
        self.kube, self.ports = pod_client(plane, job, pod, directory), Ports(*free_ports(4), forwarded=0)
        self.id, self.credentials = f"{config.batch}.0", new_credentials()
        self.sidecar = Sidecar(config, self.id, self.kube, self.credentials, self.ports)
        self.stopping = asyncio.Event()

    @property
    def member(self) -> str:
        return f"{self.index}/{self.id}"

    @property
    def store(self) -> str:
        return f"127.0.0.1:{self.ports.tunnel}/{fingerprint_of(der_of(self.credentials.certificate))}"

    @property
    def lines(self) -> int:
        return int(self.sidecar.metrics.lines._value.get())

    def said(self, field: str) -> Any:
        return self._plane.request("GET", self.path).get("status", {}).get(field)

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


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.1)


async def test_a_sidecar_that_is_gone_is_doubted_and_who_is_asked_answers(
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
        challenge = {"number": number, "members": " ".join(members)}
        status = {"rendezvous": {**stands, "store": zero.store, "challenge": challenge}}
        plane.request("PATCH", f"{JOBS}/{job}/status", {"status": status}, content_type="application/merge-patch+json")

    async with within("the doubts, questions and answers", SECONDS), zero.runs():
        async with one.runs():
            await until(lambda: zero.sidecar.driver.ready and one.sidecar.driver.ready)
            ask(0)
            await until(lambda: zero.lines == one.lines == 1)
            ask(1, one.member)
            await until(lambda: one.said("answer") == 1)
            await until(lambda: zero.said("answer") == 0)
        await until(lambda: zero.said("doubts") == one.member)
        ask(2, zero.member, one.member)
        await until(lambda: zero.said("answer") == 2)
        assert one.said("answer") == 1

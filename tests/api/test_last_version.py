# SPDX-License-Identifier: Apache-2.0
"""What the last version's sidecars and operator wrote, read by this version's, and what this one writes under its CRDs.

While an upgrade goes on, and after it until their pods end, sidecars of one version work with an operator of the next;
a rollback turns that round. `last_version/` has what the last version wrote, its CRDs and its chart. A release writes
it anew: RECORD_LAST_VERSION=1 make api K=last_version.
"""

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from api import chart
from api.conftest import CRDS
from api.operators import GROUP, Leader, Operators, Witness, new_job
from api.test_record import CORE, Worker
from elasticjob.api import RendezvousStatus, RequestType, WorkerRequest
from elasticjob.objects import Object
from elasticjob.reading import Pod
from elasticjob_operator import memory as memory_module
from support import ControlPlane, kubelet
from support.waiting import until, within

LAST = Path(__file__).with_name("last_version")
WRITTEN = LAST / "written.json"
RECORD = bool(os.environ.get("RECORD_LAST_VERSION"))
SECONDS = 60.0
MERGE = "application/merge-patch+json"
WORKERS = f"{GROUP}/namespaces/default/elasticworkers"


class Story:
    """A job of one worker: it joins, is handed its round, and finishes. The test is the kubelet."""

    def __init__(self, plane: ControlPlane, leader: Leader) -> None:
        self.plane, self.leader = plane, leader
        self.job = new_job(plane)
        self.pod = f"{self.job}-0-0"

    async def start(self) -> None:
        await self.leader.see(self.job)
        pod = self.plane.request("GET", f"{CORE}/pods/{self.pod}")
        self._put_status(kubelet.running(pod["spec"], "10.0.0.1", time.time()))

    def end(self) -> None:
        """Its trainer's container ends in success."""
        spec, now = self.plane.request("GET", f"{CORE}/pods/{self.pod}")["spec"], time.time()
        self._put_status(kubelet.ended(kubelet.running(spec, "10.0.0.1", now), "trainer", now, 0))

    def _put_status(self, said: kubelet.Pod) -> None:
        pod = self.plane.request("GET", f"{CORE}/pods/{self.pod}")
        self.plane.request("PUT", f"{CORE}/pods/{self.pod}/status", {**pod, "status": kubelet.status(said)})

    async def come_to(self, phase: str) -> Object:
        """The job's status once its rendezvous is at `phase`."""
        async with within("the job's phase", SECONDS):
            while (status := await self.leader.see(self.job))["rendezvous"]["phase"] != phase:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return status

    def put_record(self, record: Object) -> None:
        """As the last version's sidecar has written it, but for the names of this job."""
        pod = self.plane.request("GET", f"{CORE}/pods/{self.pod}")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": pod["metadata"]["uid"]}
        meta = {**record["metadata"], "name": self.pod, "ownerReferences": [owner]}
        meta["labels"] = {**meta["labels"], "elasticjob.io/job": self.job}
        spec = {**record["spec"], "job": self.job, "id": f"{Pod.read(pod).batch}.0"}
        path, status = f"{WORKERS}/{self.pod}", {"status": record.get("status", {})}
        body = {**record, "metadata": meta, "spec": spec}
        known = [one["metadata"]["name"] for one in self.plane.request("GET", WORKERS)["items"]]
        if self.pod in known:
            self.plane.request("PATCH", f"{path}?fieldValidation=Strict", {"spec": spec}, content_type=MERGE)
        else:
            self.plane.request("POST", f"{WORKERS}?fieldValidation=Strict", body)
        self.plane.request("PATCH", f"{path}/status?fieldValidation=Strict", status, content_type=MERGE)

    def kept_record(self) -> Object:
        found = self.plane.request("GET", f"{WORKERS}/{self.pod}")
        meta = {"labels": found["metadata"]["labels"]}
        return {
            **{key: found[key] for key in ("apiVersion", "kind", "spec", "status") if key in found},
            "metadata": meta,
        }


@pytest.fixture(autouse=True)
def looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator looks at the workers' access at each step."""
    monkeypatch.setattr(memory_module, "ACCESS_SECONDS", (0.0, 0.0))


@pytest.fixture
async def under_last_crds() -> AsyncIterator[Story]:
    """This version's operator in a cluster whose CRDs are the last version's."""
    with ControlPlane() as plane:
        plane.install_crds(*sorted(LAST.glob("elastic*.yaml")))
        configuration = Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        kube = Witness.of(configuration)
        kube.asked = []
        yield Story(plane, await Operators(kube).lead())
        await kube.close()


def written() -> Any:
    return json.loads(WRITTEN.read_text())


async def tell(story: Story) -> None:
    """The last version's sidecar, from its first record to its last."""
    await story.start()
    joined, handed, finished = written()["records"]
    story.put_record(joined)
    assert (await story.come_to("Formed"))["rendezvous"]["worldSize"] == 1
    story.put_record(handed)
    assert (await story.come_to("Formed"))["rendezvous"]["round"] == 1
    story.put_record(finished)
    story.end()
    assert (await story.come_to("Closed"))["rendezvous"]["outcome"] == "Complete"


async def test_the_last_versions_sidecars_train_under_this_operator(operators: Operators, plane: ControlPlane) -> None:
    await tell(Story(plane, await operators.lead()))


async def test_so_they_do_while_the_crds_are_still_the_last_versions(under_last_crds: Story) -> None:
    """All that this operator writes is what the last version's sidecars know, or is dropped by their CRDs."""
    await tell(under_last_crds)


def test_this_sidecar_reads_what_the_last_versions_operator_wrote() -> None:
    """After a rollback of the operator pods of this version are still there."""
    forming, formed, closed = (RendezvousStatus.parse(one["rendezvous"]) for one in written()["statuses"])
    assert (forming.phase, formed.phase, closed.phase) == ("Forming", "Formed", "Closed")
    assert formed.round == formed.world_size == len(formed.participants) == 1
    assert formed.store is not None
    assert closed.outcome == "Complete"


async def test_this_versions_records_are_taken_under_the_last_versions_crds(
    under_last_crds: Story, tmp_path: Path
) -> None:
    """Sidecars of this version before the CRDs are, where those are brought up to date by hand."""
    await live(under_last_crds, tmp_path)


@pytest.mark.skipif(not RECORD, reason="a release writes down what its version writes")
async def test_write_it_down(operators: Operators, plane: ControlPlane, tmp_path: Path) -> None:
    told = await live(Story(plane, await operators.lead()), tmp_path)
    LAST.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(told, indent=1) + "\n")
    for crd in CRDS.glob("*.yaml"):
        shutil.copy(crd, LAST / crd.name)
    (LAST / "chart.yaml").write_text(yaml.safe_dump_all(chart.render("--no-hooks")))


async def live(story: Story, folder: Path) -> Any:
    """The story as this version's sidecar and operator write it."""
    records, statuses = [], []
    await story.start()
    statuses.append(await story.leader.see(story.job))
    worker = Worker(story.plane, story.job)
    async with worker.runs(folder) as record, within("the record and the phases", SECONDS):
        record.want(WorkerRequest(type=RequestType.JOIN, after=0, cause="Started"))
        await record.written()
        records.append(story.kept_record())
        statuses.append(await story.come_to("Formed"))
        record.say(handed=(1, 0))
        await until(lambda: worker.status().get("round") == 1)
        records.append(story.kept_record())
        record.want(WorkerRequest(type=RequestType.FINISH, round=1))
        await record.written()
        records.append(story.kept_record())
    story.end()
    statuses.append(await story.come_to("Closed"))
    return {"records": records, "statuses": statuses}

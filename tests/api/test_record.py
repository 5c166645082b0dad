# SPDX-License-Identifier: Apache-2.0
"""A worker's record under the chart's admission policy: what an administrator takes from it comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from api import chart
from api.operators import GROUP, JOBS, Operators, new_job
from api.pods import pod_client
from elasticjob.api import RequestCause, RequestType, WorkerRequest
from elasticjob.reading import Pod
from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from support import ControlPlane
from support.control_plane import Refused
from support.pod_life import new_credentials
from support.waiting import within

CORE = "/api/v1/namespaces/default"
SECONDS = 60.0


class Worker:
    """A job's one worker, whose pod the operator has made; its sidecar keeps the record."""

    def __init__(self, plane: ControlPlane, job: str) -> None:
        self.plane, self.name = plane, f"{job}-0-0"
        self.path = f"{GROUP}/namespaces/default/elasticworkers/{self.name}"
        self._job = job

    @contextlib.asynccontextmanager
    async def runs(self, directory: Path) -> AsyncIterator[WorkerRecord]:
        pod = self.plane.request("GET", f"{CORE}/pods/{self.name}")
        uid = pod["metadata"]["uid"]
        kube = pod_client(self.plane, self._job, pod, directory)
        me = Identity(
            pod_name=self.name,
            pod_uid=uid,
            job=self._job,
            index=0,
            id=f"{Pod.read(pod).batch}.0",
            certificate=new_credentials().certificate,
            address="10.0.0.1:27601",
        )
        record = WorkerRecord(kube, me, lambda _operation, _failure: None)
        task = asyncio.create_task(record.run())
        try:
            yield record
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kube.close()

    def marks(self) -> Any:
        meta = self.plane.request("GET", self.path)["metadata"]
        return {key: meta.get(key) for key in ("uid", "labels", "ownerReferences")}

    def status(self) -> Any:
        return self.plane.request("GET", self.path).get("status", {})

    def beats(self) -> int:
        return int(self.status().get("heartbeat", 0))


@pytest.mark.parametrize(
    "taken",
    [{"labels": None}, {"labels": {"elasticjob.io/index": "7"}}, {"ownerReferences": None}],
    ids=["labels", "index", "owner"],
)
async def test_what_an_administrator_takes_from_a_record_comes_back(
    operators: Operators, plane: ControlPlane, tmp_path: Path, taken: Any
) -> None:
    chart.install(plane, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    worker = Worker(plane, new_job(plane))
    await (await operators.lead()).see(worker.name.removesuffix("-0-0"))
    async with worker.runs(tmp_path) as record, within("the record", SECONDS):
        await record.written()
        before = worker.marks()
        plane.request("PATCH", worker.path, {"metadata": taken}, content_type="application/merge-patch+json")
        assert worker.marks() != before
        while worker.marks() != before:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.1)
        beats = worker.beats()
        while worker.beats() == beats:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_no_account_is_kept_of_who_manages_a_records_fields(
    operators: Operators, plane: ControlPlane, tmp_path: Path
) -> None:
    """It would be two fifths of what a join costs the API server (`make bench-joins`)."""
    worker = Worker(plane, new_job(plane))
    await (await operators.lead()).see(worker.name.removesuffix("-0-0"))
    async with worker.runs(tmp_path) as record, within("the record", SECONDS):
        await record.written()
        record.want(WorkerRequest(type=RequestType.JOIN, after=0, cause=RequestCause.STARTED))
        await record.written()
        beats = worker.beats()
        while worker.beats() == beats:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        stored = plane.request("GET", worker.path)
    assert "managedFields" not in stored["metadata"]
    assert stored["spec"]["request"] == {"type": "Join", "after": 0, "cause": "Started"}


async def test_an_edit_of_somebody_elses_loses_no_request_and_no_edit(
    operators: Operators, plane: ControlPlane, tmp_path: Path
) -> None:
    worker = Worker(plane, new_job(plane))
    await (await operators.lead()).see(worker.name.removesuffix("-0-0"))
    merge = "application/merge-patch+json"
    async with worker.runs(tmp_path) as record, within("the record", SECONDS):
        await record.written()
        plane.request("PATCH", worker.path, {"metadata": {"annotations": {"a": "b"}}}, content_type=merge)
        record.want(WorkerRequest(type=RequestType.JOIN, after=0, cause=RequestCause.STARTED))
        await record.written()
    stored = plane.request("GET", worker.path)
    assert stored["metadata"]["annotations"] == {"a": "b"}
    assert stored["spec"]["request"]["type"] == "Join"


async def test_the_jobs_next_pod_is_told_what_the_script_of_another_imports(
    operators: Operators, plane: ControlPlane, tmp_path: Path
) -> None:
    worker = Worker(plane, new_job(plane))
    job = worker.name.removesuffix("-0-0")

    def grow(**spec: Any) -> None:
        plane.request("PATCH", f"{JOBS}/{job}", {"spec": spec}, content_type="application/merge-patch+json")

    grow(warmRestart="Enabled")
    await (await operators.lead()).see(job)
    async with worker.runs(tmp_path) as record, within("the record", SECONDS):
        await record.written()
        record.say(imports="torch,sklearn.datasets")
        while "imports" not in worker.status():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    grow(replicas=2)
    await (await operators.lead()).see(job)
    trainers = [plane.request("GET", f"{CORE}/pods/{job}-{index}-0")["spec"]["containers"][0] for index in (0, 1)]
    told = [{one["name"]: one.get("value") for one in trainer["env"]} for trainer in trainers]
    assert [one["ELASTICJOB_WARM_RESTART"] for one in told] == ["Enabled", "Enabled"]
    assert [one.get("ELASTICJOB_WARM_IMPORTS") for one in told] == [None, "torch,sklearn.datasets"]


SCOPE = {
    "apiGroups": ["elasticjob.io"],
    "apiVersions": ["*"],
    "operations": ["CREATE"],
    "resources": ["elasticworkers"],
}
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RECORDS = {"count/elasticworkers.elasticjob.io": "0"}


def full(plane: ControlPlane, worker: str) -> Callable[[], Any]:
    """A quota in force without the controller that would write its status."""
    path = f"{CORE}/resourcequotas"
    body = {"metadata": {"name": "records"}, "spec": {"hard": RECORDS}}
    made = plane.request("POST", path, body)
    plane.request("PUT", f"{path}/records/status", made | {"status": {"hard": RECORDS, "used": RECORDS}})
    return lambda: plane.request("DELETE", f"{path}/records")


def no_rights(plane: ControlPlane, worker: str) -> Callable[[], Any]:
    path = f"{RBAC}/rolebindings/{worker.removesuffix('-0-0')}-worker"
    taken = plane.request("GET", path)
    plane.request("DELETE", path)
    back = {key: taken["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    return lambda: plane.request("POST", path.rpartition("/")[0], taken | {"metadata": back})


def policy(plane: ControlPlane, worker: str) -> Callable[[], Any]:
    matches = {"resourceRules": [SCOPE]}
    rule = {"expression": f"object.metadata.name != '{worker}'", "message": "not here"}
    named = {"metadata": {"name": "no-records"}}
    spec = {"matchConstraints": matches, "validations": [rule]}
    bound = {"policyName": "no-records", "validationActions": ["Deny"]}
    made = {"validatingadmissionpolicies": spec, "validatingadmissionpolicybindings": bound}
    for kind, one in made.items():
        plane.request("POST", f"{ADMISSION}/{kind}", named | {"spec": one})
    return lambda: [plane.request("DELETE", f"{ADMISSION}/{kind}/no-records") for kind in made]


def webhook(plane: ControlPlane, worker: str) -> Callable[[], Any]:
    """It is away."""
    hook = {
        "name": "guard.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [SCOPE],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "one", "expression": f"object.metadata.name == '{worker}'"}],
    }
    path = f"{ADMISSION}/validatingwebhookconfigurations"
    plane.request("POST", path, {"metadata": {"name": "guard"}, "webhooks": [hook]})
    return lambda: plane.request("DELETE", f"{path}/guard")


@pytest.mark.parametrize(
    ("obstacle", "remedy"),
    [
        (full, "raise count/elasticworkers.elasticjob.io in spec.hard of the ResourceQuota records"),
        (no_rights, "-worker give system:serviceaccount:default:"),
        (policy, "let the ValidatingAdmissionPolicy no-records allow the workers' pods elasticworkers.elasticjob.io"),
        (webhook, "let the webhook guard.example.com allow elasticworkers.elasticjob.io"),
    ],
    ids=["quota", "rights", "policy", "webhook"],
)
async def test_why_a_record_is_refused_is_known_by_the_api_servers_words(
    operators: Operators,
    plane: ControlPlane,
    tmp_path: Path,
    obstacle: Callable[[ControlPlane, str], Callable[[], Any]],
    remedy: str,
) -> None:
    """And once nothing is in its way the record is written."""
    worker = Worker(plane, new_job(plane))
    await (await operators.lead()).see(worker.name.removesuffix("-0-0"))
    mended = obstacle(plane, worker.name)
    try:
        async with worker.runs(tmp_path) as record, within("the refusal, and then the record", SECONDS):
            while not record.trouble and not record.established:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            while record.established:  # a policy is in force a moment later
                with contextlib.suppress(Refused):
                    plane.request("DELETE", worker.path)
                record.want(WorkerRequest(type=RequestType.JOIN, after=0, cause=RequestCause.STARTED))
                await asyncio.sleep(0.5)
            while remedy not in record.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            mended()
            await record.written()
            assert record.trouble == ""
    finally:
        with contextlib.suppress(Refused):
            mended()

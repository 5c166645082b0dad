# SPDX-License-Identifier: Apache-2.0
"""The access of a job's workers, kept with no more rights than the chart gives to the operator."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from api import chart
from api.operators import JOBS, Operators, Witness, job_body, new_job
from elasticjob_operator import memory as memory_module
from elasticjob_operator.actions import access as access_module
from support import ControlPlane
from support.waiting import until

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
PATHS = [ACCOUNTS, f"{RBAC}/roles", f"{RBAC}/rolebindings"]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def confined(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operators]:
    """Operators that are the chart's service account, and look again at all at once."""
    chart.install(plane, "ClusterRole", "ClusterRoleBinding")
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    kind = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": chart.OPERATOR, "namespace": chart.NAMESPACE}
    role = {"apiGroup": kind, "kind": "Role", "name": "lease"}
    chart.ensure(plane, f"{RBAC}/roles", {"metadata": {"name": "lease"}, "rules": [lease]})
    chart.ensure(plane, f"{RBAC}/rolebindings", {"metadata": {"name": "lease"}, "roleRef": role, "subjects": [subject]})
    for name in ("ACCESS_SECONDS", "ACCESS_KEPT_SECONDS"):
        monkeypatch.setattr(access_module, name, 0.0)
    monkeypatch.setattr(memory_module, "ACCESS_SECONDS", (0.0, 0.0))
    for name in ("SOON_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(access_module, name, 0.001)
    configuration = Configuration(host=plane.server)
    configuration.ssl_ca_cert = str(plane.authority)
    token = chart.token(plane, chart.NAMESPACE, chart.OPERATOR)
    chart.wait_for_right(plane, token, "create", "pods")
    chart.wait_for_right(plane, token, "create", "leases", "coordination.k8s.io", "default")
    configuration.api_key = {"BearerToken": token}
    configuration.api_key_prefix = {"BearerToken": "Bearer"}
    kube = Witness.of(configuration)
    kube.asked = []
    yield Operators(kube)
    await kube.close()


def access(plane: ControlPlane, name: str) -> list[Any]:
    return [plane.request("GET", f"{path}/{name}-worker") for path in PATHS]


def owners(plane: ControlPlane, name: str) -> set[str]:
    return {body["metadata"]["ownerReferences"][0]["uid"] for body in access(plane, name)}


async def test_a_job_made_again_under_its_name_has_an_access_of_its_own(
    confined: Operators, plane: ControlPlane
) -> None:
    """No garbage collector runs here: what the first job leaves stays until somebody takes it away."""
    name = new_job(plane)
    leader = await confined.lead()
    await leader.see(name)
    plane.request("DELETE", f"{JOBS}/{name}")
    plane.request("DELETE", f"{PODS}/{name}-0-0?gracePeriodSeconds=0")
    new_job(plane, name=name)
    await leader.see(name)
    assert owners(plane, name) == {plane.request("GET", f"{JOBS}/{name}")["metadata"]["uid"]}
    assert plane.request("GET", f"{PODS}/{name}-0-0")


async def test_a_job_that_is_made_suspended_has_its_access_at_once(confined: Operators, plane: ControlPlane) -> None:
    leader = await confined.lead()
    await leader.see(new_job(plane))  # takes over what there is
    name = f"job-{secrets.token_hex(3)}"
    body = job_body(name)
    plane.request("POST", JOBS, {**body, "spec": {**body["spec"], "suspend": True}})
    await leader.see(name)
    assert owners(plane, name) == {plane.request("GET", f"{JOBS}/{name}")["metadata"]["uid"]}


async def test_what_somebody_deletes_or_edits_is_put_right(confined: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    leader = await confined.lead()
    await leader.see(name)
    before = access(plane, name)
    plane.request("DELETE", f"{ACCOUNTS}/{name}-worker")
    merge = "application/merge-patch+json"
    plane.request("PATCH", f"{RBAC}/roles/{name}-worker", {"rules": []}, content_type=merge)
    binding = plane.request("DELETE", f"{RBAC}/rolebindings/{name}-worker") and before[2]
    meta = {key: binding["metadata"][key] for key in ("name", "ownerReferences")}
    changed = {**binding, "metadata": meta, "roleRef": {**binding["roleRef"], "name": "lease"}}
    plane.request("POST", f"{RBAC}/rolebindings", changed)

    await leader.see(name)  # is listed alone from now on
    await leader.see(name)

    def content(body: Any) -> Any:
        return {key: value for key, value in body.items() if key != "metadata"}

    assert [content(body) for body in access(plane, name)] == [content(body) for body in before]


async def test_a_running_jobs_role_of_an_earlier_version_is_brought_up_to_date_once(
    confined: Operators, plane: ControlPlane
) -> None:
    """By the next leader, without a word of anybody; and where nothing differs nothing is written."""
    name = new_job(plane)
    leader = await confined.lead()
    await leader.see(name)
    path = f"{RBAC}/roles/{name}-worker"
    role = plane.request("GET", path)
    older = [{**one, "verbs": [verb for verb in one["verbs"] if verb != "update"]} for one in role["rules"]]
    meta = {key: value for key, value in role["metadata"].items() if key != "labels"}
    plane.request("PUT", path, {**role, "rules": older, "metadata": meta})

    successor = await confined.lead()
    for _ in range(3):
        await successor.see(name)
    mended = plane.request("GET", path)
    assert (mended["rules"], mended["metadata"]["labels"]) == (role["rules"], {"elasticjob.io/job": name})
    written = [one for one in successor.kube.asked if one.endswith(f" {name}-worker") and not one.startswith("GET")]
    assert written == [f"PUT {name}-worker"]
    versions = [one["metadata"]["resourceVersion"] for one in access(plane, name)]
    await successor.see(name)
    assert [one["metadata"]["resourceVersion"] for one in access(plane, name)] == versions


async def test_a_foreign_object_of_the_name_is_told_and_no_pod_is_made(
    confined: Operators, plane: ControlPlane
) -> None:
    name = new_job(plane)
    theirs = plane.request("POST", f"{RBAC}/roles", {"metadata": {"name": f"{name}-worker"}, "rules": []})
    leader = await confined.lead()

    async def told() -> bool:
        status = await leader.see(name)
        (message,) = [one["message"] for one in status["conditions"] if one["type"] == "Rendezvoused"]
        return f"the Role {name}-worker exists and is not this job's: delete it" in message

    await until(told, pause=0.2)
    assert "POST pods" not in leader.kube.asked
    assert plane.request("GET", f"{RBAC}/roles/{name}-worker") == theirs

    plane.request("DELETE", f"{RBAC}/roles/{name}-worker")

    async def made() -> bool:
        await leader.see(name)
        return "POST pods" in leader.kube.asked

    await until(made, pause=0.2)

# SPDX-License-Identifier: Apache-2.0
"""What the cluster refuses of a good template is told, tried again, and forgotten when it has passed."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from api.operators import JOBS, Leader, Operators, job_body, new_job
from elasticjob.kube.retry import RetryPolicy
from elasticjob.objects import Object
from elasticjob_operator.actions.worker_pods import PATIENCE
from elasticjob_operator.job import refusals as refusals_module
from elasticjob_operator.objects.pods import SIDECAR_RESOURCES, SIDECAR_SECURITY
from support import ControlPlane
from support.control_plane import Refused
from support.waiting import until

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CREATION_OF_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
SECONDS, STEP = 180.0, 0.1  # what the server caches of limits and quotas it may keep for half a minute

Obstacle = Callable[[ControlPlane], str]


def limit_range(limits: Object) -> Obstacle:
    def make(plane: ControlPlane) -> str:
        body = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", **limits}]}}
        plane.request("POST", f"{CORE}/limitranges", body)
        return f"{CORE}/limitranges/small"

    return make


def quota(plane: ControlPlane, resource: str = "pods", most: str = "0") -> str:
    hard = {resource: most}
    path = f"{CORE}/resourcequotas"
    made = plane.request("POST", path, {"metadata": {"name": "full"}, "spec": {"hard": hard}})
    plane.request("PUT", f"{path}/full/status", {**made, "status": {"hard": hard, "used": {resource: "0"}}})
    return f"{path}/full"


def quota_of_limits(plane: ControlPlane) -> str:
    return quota(plane, "limits.cpu", "8")


def user_ids(plane: ControlPlane) -> str:
    """As clusters have it that assign them."""
    assigned = "!has(one.securityContext.runAsUser) || one.securityContext.runAsUser >= 1000660000"
    expression = f"!has(object.spec.initContainers) || object.spec.initContainers.all(one, {assigned})"
    return policy(plane, "ids", expression, "runAsUser must be in the ranges: [1000660000, 1000669999]")


def broken_webhook(plane: ControlPlane) -> str:
    webhook = {
        "name": "broken.example.com",
        "rules": [CREATION_OF_PODS],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path = f"{ADMISSION}/validatingwebhookconfigurations"
    plane.request("POST", path, {"metadata": {"name": "broken"}, "webhooks": [webhook]})
    return f"{path}/broken"


def policy(plane: ControlPlane, name: str = "days", expression: str = "false", message: str = "not on Sundays") -> str:
    rules = {"resourceRules": [CREATION_OF_PODS]}
    spec = {"matchConstraints": rules, "validations": [{"expression": expression, "message": message}]}
    with suppress(Refused):
        plane.request("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    path = f"{ADMISSION}/validatingadmissionpolicybindings"
    binding = {"policyName": name, "validationActions": ["Deny"]}
    plane.request("POST", path, {"metadata": {"name": name}, "spec": binding})
    return f"{path}/{name}"


def containers(**resources: Any) -> list[Object]:
    command = ["torchrun", "train.py"]
    return [{"name": "trainer", "image": "train:1", "command": command, "resources": resources}]


def is_refused(plane: ControlPlane, pod_containers: list[Object], *of_init: Object) -> bool:
    try:
        spec = {"containers": pod_containers, "initContainers": of_init}
        body = {"metadata": {"name": "tried"}, "spec": spec}
        plane.request("POST", f"{PODS}?dryRun=All", body)
    except Refused:
        return True
    return False


async def seen(leader: Leader, name: str, what: str, found: Callable[[str], bool]) -> Object:
    """The status once the condition Rendezvoused is as `found` says; it is written a little later than it is known."""
    status: Object = {}

    async def is_seen() -> bool:
        nonlocal status
        status = await leader.see(name)
        return found(condition(status, "Rendezvoused")["message"])

    await until(is_seen, what, seconds=SECONDS, pause=STEP)
    return status


def condition(status: Object, type: str) -> Object:
    found: Object = next(one for one in status["conditions"] if one["type"] == type)
    return found


def events(plane: ControlPlane, name: str) -> list[Object]:
    every: list[Object] = plane.request("GET", f"{CORE}/events")["items"]
    return [event for event in every if event["involvedObject"]["name"] == name]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals_module, "RETRY", RetryPolicy(0.0, 0.0))


@pytest.fixture
def obstacle(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of an object that stands in the way of pods; deleted in the end, if not before."""
    path = request.param(plane)
    yield path
    with suppress(Refused):
        plane.request("DELETE", path)


@pytest.mark.parametrize(
    ("obstacle", "resources", "sentence"),  # of which only what the obstacle was given is ours
    [
        (limit_range({"default": {"cpu": "123m"}}), {"requests": {"cpu": "1"}}, "123m"),
        (limit_range({"max": {"cpu": "123m"}}), {"limits": {"cpu": "1"}}, "123m"),
        (quota, {}, ": full"),
        (broken_webhook, {}, "broken.example.com"),
        (policy, {}, "not on Sundays"),
    ],
    ids=["limit by default", "largest limit", "quota", "webhook", "policy"],
    indirect=["obstacle"],
)
async def test_what_this_cluster_refuses_now_is_no_fault_of_the_template(
    operators: Operators, plane: ControlPlane, at_once: None, obstacle: str, resources: Object, sentence: str
) -> None:
    given = containers(**resources)
    await until(lambda: is_refused(plane, given), "the refusal")
    name, leader = new_job(plane, containers=given), await operators.lead()
    status = await seen(
        leader, name, "the refusal", lambda message: "cannot be made: " in message and sentence in message
    )
    assert condition(status, "TemplateValid")["status"] == "True"
    await until(lambda: any(sentence in event["message"] for event in events(plane, name)), "an event")
    assert [event["reason"] for event in events(plane, name)].count("CreateFailed") == 1

    plane.request("DELETE", obstacle)
    await until(lambda: not is_refused(plane, given), "its end")
    await leader.see(name)
    assert plane.request("GET", f"{PODS}/{name}-0-0")["metadata"]["ownerReferences"]
    await seen(leader, name, "its end in the condition", lambda message: "cannot be made" not in message)


LIMITED: Object = {"limits": {"cpu": "1", "memory": "1Gi"}}
AS_THE_SIDECAR = {
    "name": "elasticjob-sidecar",
    "image": "sidecar:1",
    "restartPolicy": "Always",
    "resources": SIDECAR_RESOURCES,
    "securityContext": SIDECAR_SECURITY,
}


@pytest.mark.parametrize(
    ("obstacle", "remedy"),
    [
        (quota_of_limits, "set limits.cpu of the container elasticjob-sidecar by the chart's value"),
        (limit_range({"min": {"memory": "100Mi"}}), "that is requests.memory of the container elasticjob-sidecar"),
        (limit_range({"default": {"cpu": "20m"}}), "spec.initContainers[0] is the container elasticjob-sidecar; set"),
    ],
    ids=["quota", "least limit", "limit by default"],
    indirect=["obstacle"],
)
async def test_what_is_refused_for_the_sidecar_says_where_to_set_it(
    operators: Operators, plane: ControlPlane, at_once: None, obstacle: str, remedy: str
) -> None:
    given = containers(**LIMITED)
    await until(lambda: is_refused(plane, given, AS_THE_SIDECAR), "the refusal")
    name, leader = new_job(plane, containers=given), await operators.lead()
    await seen(leader, name, "the remedy", lambda message: remedy in message)
    await forgotten(plane, obstacle, given)


@pytest.mark.parametrize("obstacle", [user_ids], indirect=True)
async def test_where_the_cluster_assigns_user_ids_the_job_may_name_the_sidecars(
    operators: Operators, plane: ControlPlane, at_once: None, obstacle: str
) -> None:
    given = containers(**LIMITED)
    await until(lambda: is_refused(plane, given, AS_THE_SIDECAR), "the refusal")
    name, leader = new_job(plane, containers=given), await operators.lead()
    remedy = "has the user id 65532 and the group id 65532: set spec.sidecar.securityContext"
    await seen(leader, name, "the remedy", lambda message: remedy in message)
    ids = {"spec": {"sidecar": {"securityContext": {"runAsUser": 1000660000}}}}
    plane.request("PATCH", f"{JOBS}/{name}", ids, content_type="application/merge-patch+json")
    await seen(leader, name, "its end in the condition", lambda message: "cannot be made" not in message)
    sidecar = plane.request("GET", f"{PODS}/{name}-0-0")["spec"]["initContainers"][-1]
    assert sidecar["securityContext"]["runAsUser"] == 1000660000
    await forgotten(plane, obstacle, given)


async def forgotten(plane: ControlPlane, obstacle: str, given: list[Object]) -> None:
    """Deleted, and not in the way of the next test."""
    plane.request("DELETE", obstacle)
    await until(lambda: not is_refused(plane, given, AS_THE_SIDECAR), "its end", seconds=SECONDS)


@pytest.mark.parametrize(
    ("resources", "begins", "ends"),
    [
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            "spec.template is not valid: template.spec.containers[0].resources.requests: ",
            "",
        ),
        (
            {"requests": {"cpu": "one"}},
            "spec.template is not valid: ",
            "; spec.template.spec.containers[0].resources.requests.cpu is 'one'",
        ),
        (
            {"requests": {"memory": "20GB"}},
            "spec.template is not valid: ",
            "; spec.template.spec.containers[0].resources.requests.memory is '20GB'",
        ),
    ],
    ids=["above its limit", "no number", "no unit"],
)
async def test_what_is_wrong_anywhere_is_the_templates_fault_whatever_the_cluster_says(
    operators: Operators, plane: ControlPlane, resources: Object, begins: str, ends: str
) -> None:
    bad = containers(**resources)
    leader = await operators.lead()
    found = condition(await leader.see(new_job(plane, containers=bad)), "TemplateValid")
    assert found["status"] == "False"
    assert found["message"].startswith(begins)
    assert found["message"].endswith(ends)
    assert "POST pods" not in leader.kube.asked


def foreign_pod(plane: ControlPlane, name: str, **metadata: Any) -> str:
    body = {"metadata": {"name": name, **metadata}, "spec": {"containers": containers()}}
    plane.request("POST", PODS, body)
    return f"{PODS}/{name}"


@pytest.mark.parametrize("labelled", [False, True])
async def test_a_pod_name_that_is_taken_is_passed_over(
    operators: Operators, plane: ControlPlane, labelled: bool
) -> None:
    name = f"job-{secrets.token_hex(3)}"
    labels = {"elasticjob.io/job": name, "elasticjob.io/index": "0"} if labelled else {}
    path = foreign_pod(plane, f"{name}-0-0", labels=labels)
    new_job(plane, name=name)
    leader = await operators.lead()
    for _ in range(3):
        await leader.see(name)
    assert plane.request("GET", f"{PODS}/{name}-0-1")["metadata"]["ownerReferences"][0]["name"] == name
    assert "ownerReferences" not in plane.request("GET", path)["metadata"]


async def test_a_pod_name_whose_owner_may_yet_go_is_told(operators: Operators, plane: ControlPlane) -> None:
    name = f"job-{secrets.token_hex(3)}"
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"{name}-0", "uid": "theirs"}
    foreign_pod(plane, f"{name}-0-0", ownerReferences=[owner])
    new_job(plane, name=name)
    leader = await operators.lead()
    sentence = f"there is a pod {name}-0-0 that is not of this job: {PATIENCE}"
    await seen(leader, name, "the name", lambda message: sentence in message)
    await until(lambda: any(sentence in event["message"] for event in events(plane, name)), "an event")


@pytest.mark.parametrize("owned", [False, True])
async def test_a_pod_that_is_on_its_way_out_is_waited_for_in_silence(
    operators: Operators, plane: ControlPlane, owned: bool
) -> None:
    name = new_job(plane)
    job = plane.request("GET", f"{JOBS}/{name}")["metadata"]
    owner = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "name": name, "uid": job["uid"]}
    path = foreign_pod(plane, f"{name}-0-0", finalizers=["example.com/held"], ownerReferences=[owner] if owned else [])
    plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
    leader = await operators.lead()
    await leader.see(name)
    await leader.see(name)
    merge = "application/merge-patch+json"
    plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=merge)
    await leader.see(name)
    assert plane.request("GET", path)["spec"]["initContainers"]
    assert not [event for event in events(plane, name) if event["reason"] == "CreateFailed"]


@pytest.mark.parametrize("looks", [0, 3], ids=["a new job", "a job whose pods are deleted"])
async def test_in_a_namespace_that_is_being_deleted_one_try_is_refused_and_told(
    operators: Operators, plane: ControlPlane, caplog: pytest.LogCaptureFixture, looks: int
) -> None:
    namespace, leader = f"going-{secrets.token_hex(3)}", await operators.lead()
    here = f"/api/v1/namespaces/{namespace}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    plane.request("POST", JOBS.replace("default", namespace), job_body("job"))
    for _ in range(looks):
        await leader.look("job", namespace)
    pods = plane.request("GET", f"{here}/pods")["items"]
    assert bool(pods) is bool(looks)
    plane.request("DELETE", here)  # no controller takes what is in it, so it stays, being deleted
    for pod in pods:
        plane.request("DELETE", f"{here}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")

    leader.kube.asked.clear()
    caplog.set_level("INFO")
    for _ in range(3):
        assert await leader.look("job", namespace) is None
    tried = [one for one in leader.kube.asked if one.startswith("POST") and one != "POST events"]
    assert len(tried) == 1
    assert [message for message in caplog.messages if namespace in message][-1:] == [
        f"{namespace}/job: its namespace is being deleted, and nothing more is done for it"
    ]
    assert not [one for one in caplog.records if one.levelname == "WARNING"]

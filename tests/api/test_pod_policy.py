"""Who may put a pod into a worker's place: the chart's admission policy, as the API server applies it."""

import secrets
from typing import Any, NamedTuple

import pytest

from api import chart
from support import ControlPlane
from support.control_plane import Refused
from support.waiting import wait_until

PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"
LABELS = {"elasticjob.io/job": "digits", "elasticjob.io/index": "1"}
SAID = "mark the workers of an ElasticJob, and only who may write its status"


class People(NamedTuple):
    plane: ControlPlane
    operator: str
    user: str

    def may(self, token: str, method: str, path: str, body: Any) -> bool:
        """Whether it gets through; a refusal has to be the policy's."""
        kind = MERGE if method == "PATCH" else "application/json"
        try:
            self.plane.request(method, path, body, content_type=kind, token=token)
        except Refused as refused:
            if refused.code != 403 or SAID not in str(refused):
                raise
            return False
        return True

    def create(self, token: str, name: str, labels: dict[str, str], **spec: Any) -> bool:
        return self.may(token, "POST", PODS, pod(name, labels, **spec))

    def label(self, token: str, name: str, labels: dict[str, str | None], part: str = "") -> bool:
        return self.may(token, "PATCH", f"{PODS}/{name}{part}", {"metadata": {"labels": labels}})


def pod(name: str, labels: dict[str, str], **spec: Any) -> Any:
    containers = [{"name": "trainer", "image": "none"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, **spec}}


@pytest.fixture(scope="module")
def people(with_crds: ControlPlane) -> People:
    """The operator, and a user who may do anything with pods; the policy is in force."""
    plane, user = with_crds, f"user-{secrets.token_hex(3)}"
    policy = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    chart.install(plane, "ClusterRole", "ClusterRoleBinding", *policy)
    chart.ensure(plane, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": user}})
    rule = {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/ephemeralcontainers"], "verbs": ["*"]}
    subject = {"kind": "ServiceAccount", "name": user, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    there = f"{RBAC}/namespaces/default"
    plane.request("POST", f"{there}/roles", {"metadata": {"name": user}, "rules": [rule]})
    plane.request("POST", f"{there}/rolebindings", {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]})
    made = People(plane, chart.token(plane, chart.NAMESPACE, chart.OPERATOR), chart.token(plane, "default", user))
    wait_until(
        "the policy to come into force",
        lambda: not made.create(made.user, f"early-{secrets.token_hex(3)}", LABELS),
        pause=0.1,
    )
    return made


@pytest.fixture
def name() -> str:
    return f"digits-1-{secrets.randbelow(10**9)}"


def test_the_operator_makes_workers(people: People, name: str) -> None:
    assert people.create(people.operator, name, LABELS)


def test_an_administrator_may(people: People, name: str) -> None:
    people.plane.request("POST", PODS, pod(name, LABELS))


def test_nobody_else_does_whatever_the_pod_claims(people: People, name: str) -> None:
    assert not people.create(people.user, name, LABELS)
    assert not people.create(people.user, name, LABELS, serviceAccountName="digits-worker")
    assert not people.create(people.user, name, {"elasticjob.io/job": "digits"})


def test_other_pods_are_nobodys_business(people: People, name: str) -> None:
    assert people.create(people.user, name, {"app": "digits"})
    assert people.create(people.user, f"{name}-bare", {})
    assert people.label(people.user, name, {"app": "other"})


@pytest.mark.parametrize("part", ["", "/status"])
def test_no_pod_becomes_a_worker_later(people: People, name: str, part: str) -> None:
    assert people.create(people.user, name, {"app": "digits"})
    assert not people.label(people.user, name, {"elasticjob.io/job": "digits"}, part)


@pytest.mark.parametrize("part", ["", "/status"])
@pytest.mark.parametrize(
    "labels",
    [{"elasticjob.io/job": "other"}, {"elasticjob.io/job": None}, {"elasticjob.io/index": "7"}],
    ids=["another job", "none", "another index"],
)
def test_a_worker_stays_one(people: People, name: str, labels: dict[str, str | None], part: str) -> None:
    assert people.create(people.operator, name, LABELS)
    assert not people.label(people.user, name, labels, part)


def test_a_workers_status_and_other_labels_are_written_as_ever(people: People, name: str) -> None:
    """By the kubelet, by controllers, by people."""
    assert people.create(people.operator, name, LABELS)
    assert people.may(people.user, "PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    assert people.label(people.user, name, {"team": "a"})

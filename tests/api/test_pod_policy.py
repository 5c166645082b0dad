# SPDX-License-Identifier: Apache-2.0
"""Who may put a pod into a worker's place: the chart's admission policy, as the API server applies it."""

import secrets
from typing import Any, NamedTuple

import pytest

from api.pod_policy import LABELS, PODS, enforce, may, pod, user
from support import ControlPlane


class People(NamedTuple):
    plane: ControlPlane
    operator: str
    user: str

    def may(self, token: str, method: str, path: str, body: Any) -> bool:
        return may(self.plane, token, method, path, body)

    def create(self, token: str, name: str, labels: dict[str, str], **spec: Any) -> bool:
        return self.may(token, "POST", PODS, pod(name, labels, **spec))

    def label(self, token: str, name: str, labels: dict[str, str | None], part: str = "") -> bool:
        return self.may(token, "PATCH", f"{PODS}/{name}{part}", {"metadata": {"labels": labels}})


@pytest.fixture(scope="module")
def people(with_crds: ControlPlane) -> People:
    """The operator, and a user who may do anything with pods; the policies are in force."""
    operator = enforce(with_crds)
    return People(with_crds, operator, user(with_crds, ["pods", "pods/status", "pods/ephemeralcontainers"], ["*"]))


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

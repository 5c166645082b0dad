# SPDX-License-Identifier: Apache-2.0
"""A user with a single right on pods makes no worker, and gets into one only by a right that Kubernetes has for that.

docs/security.md lists the same rights.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api import chart
from api.pod_policy import LABELS, NAMESPACE, PODS, enforce, may, pod, user
from support import ControlPlane
from support.control_plane import Refused

OWNER = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "name": "digits", "uid": "of-the-job"}
ENTERS = [{"name": "in", "image": "mine", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]
DOCS = Path(__file__).parents[2] / "docs/security.md"


class Scene(NamedTuple):
    """`bait`: a pod of nobody's with the name of the next worker; `worker`: one that the operator made."""

    plane: ControlPlane
    operator: str
    bait: str
    worker: str


@pytest.fixture(scope="module")
def operator(with_crds: ControlPlane) -> str:
    return enforce(with_crds)


@pytest.fixture
def scene(with_crds: ControlPlane, operator: str) -> Scene:
    bait, worker = (f"digits-1-{secrets.randbelow(10**9)}" for _ in range(2))
    with_crds.request("POST", PODS, pod(bait, {}))
    made = pod(worker, LABELS)
    made["metadata"]["ownerReferences"] = [OWNER]
    with_crds.request("POST", PODS, made, token=operator)
    return Scene(with_crds, operator, bait, worker)


class Try(NamedTuple):
    """`done`: the request gets through, and changes nothing that counts; else a policy refuses it."""

    method: str
    path: str
    body: Any
    done: bool = False
    since: int = 0  # the minor version that has it


Tries = Callable[[Scene], Iterator[Try]]


def creating(scene: Scene) -> Iterator[Try]:
    name = f"digits-1-{secrets.randbelow(10**9)}"
    for labels, owners in ((LABELS, []), (LABELS, [OWNER]), ({}, [OWNER]), ({"elasticjob.io/job": "digits"}, [])):
        body = pod(name, labels, serviceAccountName="digits-worker")
        yield Try("POST", PODS, {**body, "metadata": {**body["metadata"], "ownerReferences": owners}})


def changing(scene: Scene) -> Iterator[Try]:
    yield from marking("")(scene)
    for name, owners in ((scene.bait, [OWNER]), (scene.worker, None), (scene.worker, [OWNER | {"uid": "other"}])):
        yield Try("PATCH", f"{PODS}/{name}", {"metadata": {"ownerReferences": owners}})
    trainer = {"name": "trainer", "image": "mine"}
    yield Try("PATCH", f"{PODS}/{scene.worker}", {"spec": {"containers": [trainer]}})


def replacing(scene: Scene) -> Iterator[Try]:
    for one in changing(scene):
        found = scene.plane.request("GET", one.path)
        found["metadata"] |= one.body.get("metadata", {})
        for container in one.body.get("spec", {}).get("containers", ()):
            found["spec"]["containers"][0] |= container
        yield Try("PUT", one.path, found)


def marking(part: str, *, done: bool = False, since: int = 0) -> Tries:
    def tries(scene: Scene) -> Iterator[Try]:
        for name, labels in ((scene.bait, LABELS), (scene.worker, LABELS | {"elasticjob.io/index": "7"})):
            yield Try("PATCH", f"{PODS}/{name}{part}", {"metadata": {"labels": labels}}, done, since)

    return tries


def binding(path: str) -> Tries:
    def tries(scene: Scene) -> Iterator[Try]:
        node = {"target": {"apiVersion": "v1", "kind": "Node", "name": "node"}}
        for name, labels in ((scene.bait, LABELS), (scene.worker, {"elasticjob.io/index": "7"})):
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "labels": labels}}
            yield Try("POST", path.format(name), body | node)
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": scene.bait, "labels": {"app": "x"}}}
        yield Try("POST", path.format(scene.bait), body | node, done=True)

    return tries


def entering(scene: Scene) -> Iterator[Try]:
    path = f"{PODS}/{scene.worker}/ephemeralcontainers"
    yield Try("PATCH", path, {"spec": {"ephemeralContainers": ENTERS}})
    body = {"metadata": {"labels": LABELS}, "spec": {"ephemeralContainers": ENTERS}}
    yield Try("PATCH", f"{PODS}/{scene.bait}/ephemeralcontainers", body, done=True)


def evicting(scene: Scene) -> Iterator[Try]:
    meta = {"name": scene.bait, "labels": LABELS, "ownerReferences": [OWNER]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    yield Try("POST", f"{PODS}/{scene.bait}/eviction", body, done=True)


def asking_for_a_token(scene: Scene) -> Iterator[Try]:
    chart.ensure(scene.plane, f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "digits-worker"}})
    bound = {"apiVersion": "v1", "kind": "Pod", "name": scene.worker}
    path = f"{NAMESPACE}/serviceaccounts/digits-worker/token"
    yield Try("POST", path, {"spec": {"boundObjectRef": bound}})
    yield Try("POST", path, {"spec": {}}, done=True)


RIGHTS: dict[str, tuple[list[str], list[str], Tries]] = {
    "create pods": (["pods"], ["create"], creating),
    "patch pods": (["pods"], ["get", "patch"], changing),
    "update pods": (["pods"], ["get", "update"], replacing),
    "patch pods/status": (["pods/status"], ["patch"], marking("/status")),
    "patch pods/resize": (["pods/resize"], ["patch"], marking("/resize", done=True, since=32)),
    "patch pods/ephemeralcontainers": (["pods/ephemeralcontainers"], ["patch"], entering),
    "create pods/binding": (["pods/binding"], ["create"], binding(f"{PODS}/{{}}/binding")),
    "create bindings": (["bindings"], ["create"], binding(f"{NAMESPACE}/bindings")),
    "create pods/eviction": (["pods/eviction"], ["create"], evicting),
    "create serviceaccounts/token": (["serviceaccounts/token"], ["create"], asking_for_a_token),
}
# whose users Kubernetes lets into any pod, or lets them read of it
OPEN = {
    "create pods/exec": "POST {}/exec?command=sh",
    "create pods/attach": "POST {}/attach",
    "create pods/portforward": "POST {}/portforward?ports=1",
    "get pods/proxy": "GET {}/proxy/",
    "get pods/log": "GET {}/log?container=none",
}
SERVED = "does not have a host assigned|container none is not valid for pod|address not allowed"
# who makes the pods of other kinds, of whatever a user has written into their templates
CONTROLLERS = ["replicaset", "replication", "statefulset", "daemon-set", "job"]


def what_counts(plane: ControlPlane, name: str) -> Any:
    """By what a pod is taken for a worker, and what runs in it; None where it is no more."""
    try:
        found = plane.request("GET", f"{PODS}/{name}")
    except Refused as refused:
        if refused.code != 404:
            raise
        return None
    meta, spec = found["metadata"], found["spec"]
    labels = {key: text for key, text in meta.get("labels", {}).items() if key in LABELS}
    images = [one["image"] for one in spec["containers"]]
    return labels, meta.get("ownerReferences"), images, spec.get("serviceAccountName")


@pytest.mark.parametrize("right", RIGHTS)
def test_a_single_right_makes_nobody_a_worker(scene: Scene, right: str) -> None:
    resources, verbs, tries = RIGHTS[right]
    token, pods = user(scene.plane, resources, verbs), (scene.bait, scene.worker)
    before = [what_counts(scene.plane, name) for name in pods]
    for one in tries(scene):
        if scene.plane.minor_version >= one.since:
            assert may(scene.plane, token, one.method, one.path, one.body) == one.done, one
    after = [what_counts(scene.plane, name) for name in pods]
    assert all(now in (then, None) for now, then in zip(after, before, strict=True))


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_no_controller_makes_a_worker_for_a_user(scene: Scene, controller: str) -> None:
    system = "/api/v1/namespaces/kube-system"
    chart.ensure(scene.plane, "/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    name = f"{controller}-controller"
    chart.ensure(scene.plane, f"{system}/serviceaccounts", {"metadata": {"name": name}})
    token = chart.token(scene.plane, "kube-system", name)
    made = f"made-{secrets.token_hex(3)}"
    assert not may(scene.plane, token, "POST", PODS, pod(made, LABELS))
    assert may(scene.plane, token, "POST", PODS, pod(made, {"app": "theirs"}))


@pytest.mark.parametrize("right", OPEN)
def test_what_kubernetes_has_for_getting_into_pods_is_left_to_it(scene: Scene, right: str) -> None:
    verb, resource = right.split()
    method, _, path = OPEN[right].partition(" ")
    token = user(scene.plane, [resource], [verb])
    with pytest.raises(Refused, match=SERVED) as refused:
        scene.plane.request(method, f"{PODS}/{path.format(scene.worker)}", token=token)
    assert refused.value.code != 403


def test_each_subresource_of_pods_is_tried(plane: ControlPlane) -> None:
    served = {one["name"] for one in plane.request("GET", "/api/v1")["resources"]}
    tried = {right.split()[1] for right in (*RIGHTS, *OPEN)}
    assert {name for name in served if name.startswith("pods/")} | {"pods", "bindings"} <= tried


def test_the_documents_list_these_rights() -> None:
    listed = set(re.findall(r"^\| `([a-z]+ [a-z/]+)`", DOCS.read_text(), re.MULTILINE))
    assert listed == {*RIGHTS, *OPEN}

# SPDX-License-Identifier: Apache-2.0
"""The chart's hook that brings CRDs up to date: with exactly its rights, against a real API server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.chart import CHART, NAMESPACE, ensure, render, token, wait_for_right
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from support import ControlPlane, waiting
from support.control_plane import Refused
from support.waiting import wait_until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "elasticjobs.elasticjob.io"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
ACCOUNT = "elasticjob-crds"
SCRIPT = CHART / "files" / "apply_crds.py"


@pytest.fixture
def account(plane: ControlPlane, tmp_path: Path) -> Path:
    """The hook's service account, as it is mounted into its pod."""
    ensure(plane, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    ensure(plane, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    for body in render():
        if body["kind"] in ("ClusterRole", "ClusterRoleBinding") and body["metadata"]["name"] == ACCOUNT:
            ensure(plane, f"/apis/rbac.authorization.k8s.io/v1/{body['kind'].lower()}s", body)
    (tmp_path / "token").write_text(shown := token(plane, NAMESPACE, ACCOUNT))
    wait_for_right(plane, shown, "patch", "customresourcedefinitions", "apiextensions.k8s.io", name=NAME)
    (tmp_path / "ca.crt").write_bytes(plane.authority.read_bytes())
    server = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    (tmp_path / "server").write_text(server)
    return tmp_path


@pytest.fixture
def own_plane(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Puts back what a test has changed of the CRDs."""
    yield plane
    for file in (CHART / "crds").glob("*.yaml"):
        path = f"{CRDS}/{file.stem}.elasticjob.io?fieldManager=test&force=true"
        plane.request("PATCH", path, file.read_bytes(), content_type="application/apply-patch+yaml")


def run(account: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "ACCOUNT": str(account), "SERVER": (account / "server").read_text()}
    command = [sys.executable, str(SCRIPT), str(folder)]
    return waiting.run(command, 90, env=environment)


def described(plane: ControlPlane) -> str:
    (version,) = plane.request("GET", f"{CRDS}/{NAME}")["spec"]["versions"]
    return str(version["schema"]["openAPIV3Schema"]["description"])


def test_an_old_crd_becomes_the_charts_and_no_job_is_touched(own_plane: ControlPlane, account: Path) -> None:
    plane = own_plane
    container = {"name": "trainer", "image": "x", "command": ["torchrun", "train.py"]}
    body = {
        "apiVersion": "elasticjob.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "stays"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
    }
    made = plane.request("POST", JOBS, body)
    wanted, uid = described(plane), plane.request("GET", f"{CRDS}/{NAME}")["metadata"]["uid"]
    old = plane.request("GET", f"{CRDS}/{NAME}")
    (version,) = old["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["description"] = "an older one"
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["forgotten"] = {"type": "string"}
    plane.request("PUT", f"{CRDS}/{NAME}", old)
    done = run(account, CHART / "crds")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is up to date") == 2
    found = plane.request("GET", f"{CRDS}/{NAME}")
    assert (described(plane), found["metadata"]["uid"]) == (wanted, uid)
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "forgotten" not in spec
    assert asked_again(plane, f"{JOBS}/stays")["metadata"]["uid"] == made["metadata"]["uid"]
    plane.request("DELETE", f"{JOBS}/stays")


BOUNDS = {"minLength", "maxLength", "pattern", "format", "minimum", "maximum", "maxItems", "maxProperties"}
# of which that version knew nothing, and whose rules need the bounds
LATER = {"podFailurePolicy", "sizes", "rankOrder", "drain", "avoidNodes", "nodeFailures"}


def without_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Of a version before there were these."""
    kept = {key: value for key, value in schema.items() if key not in BOUNDS}
    fields = schema.get("properties", {}).items()
    kept["properties"] = {name: field if name in LATER else without_bounds(field) for name, field in fields}
    if "items" in schema:
        kept["items"] = without_bounds(schema["items"])
        kept["items"]["required"] = ["type"] if "type" in kept["items"].get("properties", {}) else []
    if "metadata" in kept["properties"]:
        kept["x-kubernetes-validations"] = []
    if "template" in kept["properties"]:
        kept["properties"]["template"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        rules = kept["x-kubernetes-validations"]
        kept["x-kubernetes-validations"] = [one for one in rules if "self.template" not in one["rule"]]
    return {key: value for key, value in kept.items() if value != {}}


OF_BEFORE = {
    "phase": "Running",
    "reason": "two words",
    "conditions": [
        {"type": "Rendezvoused", "status": "True", "reason": "two words", "lastTransitionTime": "yesterday"}
    ],
    "rendezvous": {"round": 1, "phase": "Formed", "reason": "r" * 5000, "failure": "f" * 5000},
    "history": [{"round": 1, "size": 1, "cause": "c" * 5000, "seconds": 1.0, "time": "yesterday"}] * 20,
}


def test_what_an_earlier_version_has_stored_can_still_be_changed(own_plane: ControlPlane, account: Path) -> None:
    """Kubernetes, from 1.30 on, asks of a change only that it makes nothing wrong that was right."""
    plane, name = own_plane, "n" * 60
    old = plane.request("GET", f"{CRDS}/{NAME}")
    (version,) = old["spec"]["versions"]
    version["schema"]["openAPIV3Schema"] = without_bounds(version["schema"]["openAPIV3Schema"])
    plane.request("PUT", f"{CRDS}/{NAME}", old)
    body = {
        "apiVersion": "elasticjob.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "maxRestarts": 10**12,
            "ttlSecondsAfterFinished": 10**12,
            "rendezvous": {"workerLostSeconds": 1},
            "template": {"spec": {}},
        },
    }
    until_taken(plane, "POST", JOBS, body)
    until_taken(plane, "PUT", f"{JOBS}/{name}/status", {**asked_again(plane, f"{JOBS}/{name}"), "status": OF_BEFORE})

    assert run(account, CHART / "crds").returncode == 0
    wrong = {**body, "metadata": {"name": "wrong"}}
    until_refused(plane, f"{JOBS}?dryRun=All", wrong)

    merge = "application/merge-patch+json"
    plane.request("PATCH", f"{JOBS}/{name}", {"metadata": {"labels": {"a": "b"}}}, content_type=merge)
    plane.request("PATCH", f"{JOBS}/{name}/scale", {"spec": {"replicas": 2}}, content_type=merge)
    stored = plane.request("GET", f"{JOBS}/{name}")
    assert (stored["spec"]["replicas"], stored["status"]) == (2, OF_BEFORE)
    # as the operator does, which reads what is there and makes another of it
    spec, status = ElasticJobSpec.parse(stored["spec"]), ElasticJobStatus.parse(stored["status"])
    assert (spec.max_restarts, spec.rendezvous.worker_lost_seconds) == (10**12, 1)
    now = status.dump() | {"reason": "", "conditions": [], "history": []}
    plane.request("PUT", f"{JOBS}/{name}/status", {**stored, "status": now})
    plane.request("DELETE", f"{JOBS}/{name}")


def until_taken(plane: ControlPlane, method: str, path: str, body: dict[str, Any]) -> None:
    wait_until(f"{method} {path} to be taken", lambda: answer_to(plane, method, path, body) == 200, pause=0.1)


def until_refused(plane: ControlPlane, path: str, body: dict[str, Any]) -> None:
    what = "the new CRD to refuse what the old one took"
    wait_until(what, lambda: answer_to(plane, "POST", path, body) == 422, pause=0.1)


def answer_to(plane: ControlPlane, method: str, path: str, body: Any = None) -> int:
    """The HTTP status; of all that is taken 200."""
    try:
        plane.request(method, path, body)
    except Refused as refused:
        return refused.code
    return 200


def asked_again(plane: ControlPlane, path: str) -> Any:
    """The API server makes a kind's storage anew when its CRD has changed, and refuses meanwhile."""
    wait_until(f"{path} to be served", lambda: answer_to(plane, "GET", path) != 429, pause=0.1)
    return plane.request("GET", path)


def test_its_account_can_delete_nothing_and_touch_no_other_crd(
    plane: ControlPlane, account: Path, tmp_path: Path
) -> None:
    for verb, name, allowed in (
        ("patch", NAME, True),
        ("patch", "others.example.org", False),
        ("delete", NAME, False),
        ("create", "", False),
        ("update", NAME, False),
        ("deletecollection", "", False),
    ):
        review = {
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {
                    "group": "apiextensions.k8s.io",
                    "resource": "customresourcedefinitions",
                    "verb": verb,
                    "name": name,
                },
            }
        }
        answer = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert answer["status"]["allowed"] is allowed, (verb, name)


def test_a_crd_that_is_refused_is_named(plane: ControlPlane, account: Path, tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    folder.mkdir()
    (folder / "elasticjobs.yaml").write_text(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        f"metadata: {{name: {NAME}}}\nspec: {{group: elasticjob.io, scope: Cluster}}\n"
    )
    done = run(account, folder)
    assert done.returncode == 1
    assert "elasticjobs: 4" in done.stderr
    assert described(plane)

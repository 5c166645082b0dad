# SPDX-License-Identifier: Apache-2.0
"""What values of the chart do to what helm renders; only the notes ask an API server."""

from itertools import pairwise
from typing import Any

import pytest
import yaml

from api.chart import CHART, render
from support import ControlPlane
from support.waiting import run


def one(objects: list[Any], kind: str) -> Any:
    (found,) = [body for body in objects if body["kind"] == kind]
    return found


def container(*options: str) -> Any:
    (found,) = one(render(*options), "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize(
    ("options", "account"),
    [
        ((), "elasticjob-operator"),
        (("--set", "serviceAccount.name=mine"), "mine"),
        (("--set", "serviceAccount.create=false"), "default"),
        (("--set", "serviceAccount.create=false,serviceAccount.name=theirs"), "theirs"),
    ],
)
def test_whose_account_the_operator_has(options: tuple[str, ...], account: str) -> None:
    objects = render("--no-hooks", *options)
    made = [body["metadata"]["name"] for body in objects if body["kind"] == "ServiceAccount"]
    assert made == ([account] if "serviceAccount.create=false" not in "".join(options) else [])
    assert one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account
    bound = [body["subjects"] for body in objects if body["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert bound
    assert {subject["name"] for subjects in bound for subject in subjects} == {account}


def test_roles_that_somebody_else_makes() -> None:
    every = "metrics.secure.enabled=true,kueue.gang=true,namespaces={a}"
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    assert [body for body in render("--no-hooks", "--set", every) if body["kind"] in kinds]
    left = render("--no-hooks", "--set", f"{every},rbac.create=false")
    assert [body["metadata"]["name"] for body in left if body["kind"] in kinds] == []
    assert one(left, "ServiceAccount")


def test_the_operators_disruption_budget() -> None:
    assert one(render(), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    half = one(render("--set", "podDisruptionBudget.maxUnavailable=50%"), "PodDisruptionBudget")
    assert half["spec"]["maxUnavailable"] == "50%"
    without = render("--set", "podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {body["kind"] for body in without}


def test_the_operators_probes() -> None:
    plain = container()
    assert plain["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert (plain["livenessProbe"]["initialDelaySeconds"], plain["readinessProbe"]["periodSeconds"]) == (10, 2)
    slow = container("--set", "livenessProbe.failureThreshold=9,readinessProbe.timeoutSeconds=7")
    assert slow["livenessProbe"] == {**plain["livenessProbe"], "failureThreshold": 9}
    assert slow["readinessProbe"] == {**plain["readinessProbe"], "timeoutSeconds": 7}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("serviceAccount.create=maybe", "/serviceAccount/create"),
        ("rbac.create=1", "/rbac/create"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget.maxUnavailable=0%", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget.minAvailable=1", "/podDisruptionBudget"),
        ("livenessProbe.periodSeconds=0", "/livenessProbe/periodSeconds"),
        ("readinessProbe.httpGet.path=/x", "/readinessProbe"),
    ],
)
def test_a_wrong_value_is_named(value: str, field: str) -> None:
    done = run(["helm", "template", "elasticjob", str(CHART), "--kube-version", "1.35", "--set", value])
    assert done.returncode
    assert f"'{field}'" in done.stderr


@pytest.mark.parametrize("options", [(), ("--set", "test.enabled=false"), ("--set", "crds.upgrade=false")])
def test_the_notes_are_paragraphs(options: tuple[str, ...], with_crds: ControlPlane) -> None:
    # a name of its own, as other tests leave an installation's roles and accounts
    command = ["helm", "install", "notes", str(CHART), "--namespace", "notes", "--dry-run=server"]
    done = run([*command, "--kubeconfig", str(with_crds.kubeconfig), "--set", "allowOverlap=true", *options])
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:\n")[2].splitlines()
    assert len(notes) > 20
    for before, line in pairwise(notes):
        assert before or line, "one blank line between two paragraphs, and not two"
        assert not (before.startswith("    ") and line[:1].strip()), f"no blank line before: {line}"


def test_the_annotations_for_artifact_hub() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    told = chart["annotations"]
    images = {one["name"]: one["image"] for one in yaml.safe_load(told["artifacthub.io/images"])}
    rendered = container()
    assert images["operator"] == rendered["image"]
    assert f"--sidecar-image={images['sidecar']}" in rendered["args"]
    (example,) = yaml.safe_load(told["artifacthub.io/crdsExamples"])
    assert (told["artifacthub.io/prerelease"] == "true") == ("alpha" in example["apiVersion"])
    assert (CHART.parents[1] / "docs" / "assets" / chart["icon"].rpartition("/")[2]).exists()

"""The chart: what it renders, how it refuses wrong values, and what an uninstall leaves."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from e2e.kube import Namespace, Object, kubectl, run, succeed

pytestmark = pytest.mark.patient

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "elasticjob")


def render(*options: str) -> list[Object]:
    command = ["helm", "template", "elasticjob", CHART, "--namespace", "elasticjob-system", *options]
    return [body for body in yaml.safe_load_all(succeed(*command)) if body]


def one(objects: list[Object], kind: str) -> Object:
    (found,) = [body for body in objects if body["kind"] == kind]
    return found


def policies(objects: list[Object]) -> list[Object]:
    found = [body for body in objects if body["kind"] == "ValidatingAdmissionPolicy"]
    assert len(found) == 2
    return found


def test_lint() -> None:
    succeed("helm", "lint", "--strict", CHART)


def test_it_renders_everything_that_an_installation_needs() -> None:
    kinds = Counter(body["kind"] for body in render("--include-crds"))
    assert kinds == {
        "CustomResourceDefinition": 2,
        "Deployment": 1,
        "ServiceAccount": 1,
        "ClusterRole": 3,
        "ClusterRoleBinding": 1,
        "Role": 1,
        "RoleBinding": 1,
        "PodDisruptionBudget": 1,
        "ValidatingAdmissionPolicy": 2,
        "ValidatingAdmissionPolicyBinding": 2,
        "PriorityLevelConfiguration": 1,
        "FlowSchema": 3,
        "ConfigMap": 1,
    }


def test_the_images_have_the_charts_version_unless_a_tag_is_set() -> None:
    version = yaml.safe_load(Path(CHART, "Chart.yaml").read_text())["appVersion"]
    (container,) = one(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"elasticjob/operator:{version}"
    assert f"--sidecar-image=elasticjob/sidecar:{version}" in container["args"]

    tags = ["--set", "image.operator.tag=a", "--set", "image.sidecar.tag=b"]
    (container,) = one(render(*tags), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "elasticjob/operator:a"
    assert "--sidecar-image=elasticjob/sidecar:b" in container["args"]


def test_the_sidecars_resources_are_handed_to_the_operator() -> None:
    wanted = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}
    (container,) = one(render("--set-json", f"sidecar.resources={json.dumps(wanted)}"), "Deployment")["spec"][
        "template"
    ]["spec"]["containers"]
    (given,) = [arg for arg in container["args"] if arg.startswith("--sidecar-resources=")]
    assert json.loads(given.partition("=")[2]) == wanted


def test_it_can_be_confined_to_namespaces() -> None:
    objects = render("--set", "namespaces={team-a,team-b}")
    assert not [body for body in objects if body["kind"] == "ClusterRoleBinding"]
    bound = {body["metadata"]["namespace"] for body in objects if body["kind"] == "RoleBinding"}
    assert bound == {"elasticjob-system", "team-a", "team-b"}
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=team-a,team-b" in container["args"]
    for policy in policies(objects):
        (selected,) = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert (selected["operator"], selected["values"]) == ("In", ["team-a", "team-b"])


def test_the_admission_policy_can_be_switched_off() -> None:
    kinds = {body["kind"] for body in render("--set", "admissionPolicy.enabled=false")}
    assert not {kind for kind in kinds if kind.startswith("ValidatingAdmission")}


def test_flow_control_can_be_switched_off() -> None:
    kinds = {body["kind"] for body in render("--set", "flowControl.enabled=false")}
    assert kinds.isdisjoint({"FlowSchema", "PriorityLevelConfiguration"})


def test_who_is_exempt_from_the_admission_policy() -> None:
    backup = "system:serviceaccount:backup:restore"
    for policy in policies(render("--set", f"admissionPolicy.exempt={{{backup}}}")):
        (*_, exempt) = policy["spec"]["matchConditions"]
        assert f'"{backup}"' in exempt["expression"]
        assert '"system:serviceaccount:kube-system:generic-garbage-collector"' in exempt["expression"]


def test_network_policies_are_made_only_where_they_are_wanted() -> None:
    def makes(*options: str) -> tuple[bool, bool]:
        objects = render(*options)
        (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        rules = [rule for body in objects if body["kind"] == "ClusterRole" for rule in body["rules"]]
        may = any("networkpolicies" in rule["resources"] for rule in rules)
        return may, "--worker-network-policy=true" in container["args"]

    assert makes() == (False, False)
    assert makes("--set", "workerNetworkPolicy.enabled=true") == (True, True)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("replicas=two", "'/replicas': got string, want integer"),
        ("logLevel=loud", "'/logLevel': value must be one of 'debug', 'info', 'warning', 'error'"),
        ("image.operator.repository=", "'/image/operator/repository'"),
        ("image.tag=dev", "'/image': additional properties 'tag' not allowed"),
        ("namespaces=team-a", "'/namespaces': got string, want array"),
        ("sidecar.resources.limits.cpu=true", "'/sidecar/resources/limits/cpu': got boolean"),
        ("admissionPolicy.exempt={me}", "'/admissionPolicy/exempt/0': 'me' does not match pattern"),
    ],
)
def test_a_wrong_value_is_named(value: str, sentence: str) -> None:
    answer = run("helm", "template", "elasticjob", CHART, "--set", value)
    assert answer.code
    assert sentence in answer.errors


def test_an_uninstall_says_what_it_leaves(namespace: Namespace) -> None:
    """A release without replicas, confined to its own namespace, so that it disturbs nobody."""
    here = ["--namespace", namespace.name]
    confined = ["--set", "replicas=0", "--set", f"namespaces={{{namespace.name}}}"]
    notes = succeed("helm", "install", "aside", CHART, *here, *confined)
    assert "`helm uninstall` removes the operator and leaves the CRDs and all ElasticJobs" in notes
    said = succeed("helm", "uninstall", "aside", *here)
    assert "These resources were kept due to the resource policy:" in said
    assert "aside-elasticjob-crds-and-jobs-are-kept" in said
    kubectl("get", "crd", "elasticjobs.elasticjob.io", "elasticworkers.elasticjob.io")

    # what is left does not stand in the way of the next installation
    succeed("helm", "install", "aside", CHART, *here, *confined)
    succeed("helm", "uninstall", "aside", *here)

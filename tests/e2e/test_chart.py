# SPDX-License-Identifier: Apache-2.0
"""The chart: what it renders, how it refuses wrong values, and what an uninstall leaves."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from e2e.job import Job
from e2e.kube import Namespace, Object, kubectl, run, succeed, wait_until
from e2e.operator import leader
from support.waiting import settled

pytestmark = pytest.mark.patient

SELECTED = "app.kubernetes.io/instance=elasticjob,app.kubernetes.io/name=elasticjob"

KUBERNETES = ("--kube-version", "1.35")  # a Helm without a cluster may take it for an old one
CHART = str(Path(__file__).resolve().parents[2] / "charts" / "elasticjob")


def render(*options: str) -> list[Object]:
    command = ["helm", "template", "elasticjob", CHART, "--namespace", "elasticjob-system", *KUBERNETES, *options]
    return [body for body in yaml.load_all(succeed(*command), yaml.CSafeLoader) if body]


def one(objects: list[Object], kind: str) -> Object:
    (found,) = [body for body in objects if body["kind"] == kind]
    return found


def policies(objects: list[Object]) -> list[Object]:
    found = [body for body in objects if body["kind"] == "ValidatingAdmissionPolicy"]
    assert len(found) == 3
    return found


def test_lint() -> None:
    succeed("helm", "lint", "--strict", *KUBERNETES, CHART)


def test_it_renders_everything_that_an_installation_needs() -> None:
    kinds = Counter(body["kind"] for body in render("--include-crds", "--no-hooks"))
    assert kinds == {
        "CustomResourceDefinition": 2,
        "Deployment": 1,
        "ServiceAccount": 1,
        "ClusterRole": 4,
        "ClusterRoleBinding": 2,
        "Role": 1,
        "RoleBinding": 1,
        "PodDisruptionBudget": 1,
        "ValidatingAdmissionPolicy": 3,
        "ValidatingAdmissionPolicyBinding": 3,
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


def test_the_images_can_be_pinned_by_their_digests() -> None:
    operator, sidecar = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    objects = render("--set", f"image.operator.digest={operator},image.operator.tag=a,image.sidecar.digest={sidecar}")
    images = set(re.findall(r"elasticjob/(?:operator|sidecar)[:@][\w.:-]+", json.dumps(objects)))
    assert images == {f"elasticjob/operator@{operator}", f"elasticjob/sidecar@{sidecar}"}


def test_the_sidecars_resources_are_handed_to_the_operator() -> None:
    wanted = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}
    (container,) = one(render("--set-json", f"sidecar.resources={json.dumps(wanted)}"), "Deployment")["spec"][
        "template"
    ]["spec"]["containers"]
    (given,) = [arg for arg in container["args"] if arg.startswith("--sidecar-resources=")]
    assert json.loads(given.partition("=")[2]) == wanted


def test_user_ids_are_left_to_the_cluster_where_the_values_are_null() -> None:
    def given(*arguments: str) -> Object:
        (container,) = one(render(*arguments), "Deployment")["spec"]["template"]["spec"]["containers"]
        (found,) = [arg for arg in container["args"] if arg.startswith("--sidecar-security-context=")]
        context: Object = json.loads(found.partition("=")[2])
        return context

    ids = ("runAsUser", "runAsGroup")
    nulls = ",".join(f"sidecar.securityContext.{name}=null" for name in ids)
    assert given("--set", nulls) == {name: value for name, value in given().items() if name not in ids}


def test_it_can_be_confined_to_namespaces() -> None:
    confined = ("--no-hooks", "--set", "namespaces={team-a,team-b}")
    objects = render(*confined)
    assert one(objects, "ClusterRoleBinding")["roleRef"]["name"] == "elasticjob-operator-nodes", "nodes are in none"
    without = render(*confined, "--set", "nodes.watch=false")
    assert not [body for body in without if body["kind"] == "ClusterRoleBinding"]
    assert "--watch-nodes=false" in one(without, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    bound = {body["metadata"]["namespace"] for body in objects if body["kind"] == "RoleBinding"}
    assert bound == {"elasticjob-system", "team-a", "team-b"}
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=team-a,team-b" in container["args"]
    for policy in policies(objects):
        (selected,) = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert (selected["operator"], selected["values"]) == ("In", ["team-a", "team-b"])


def test_the_operator_has_no_business_with_kueue_unless_it_is_asked_to() -> None:
    def rules(*options: str) -> list[Object]:
        roles = [body for body in render(*options) if body["kind"] == "ClusterRole"]
        return [rule for role in roles for rule in role["rules"] if "kueue.x-k8s.io" in rule["apiGroups"]]

    assert rules() == []
    assert "priorityclasses" not in str(render())
    assert "priorityclasses" in str(render("--set", "kueue.gang=true"))
    gangs = {rule["resources"][0]: rule["verbs"] for rule in rules("--set", "kueue.gang=true")}
    assert gangs == {
        "workloads": ["list", "create", "patch", "delete"],
        "workloads/status": ["patch"],
        "workloadpriorityclasses": ["get"],
        "resourceflavors": ["get"],
    }


def test_values_of_a_release_that_lacks_the_newer_ones_are_taken() -> None:
    """As after `helm upgrade --reuse-values`: what is missing has its default."""
    assert render("--set", "nodes=null,kueue=null") == render()
    assert render("--set", "nodes.watch=null,kueue.gang=null") == render()


def test_the_admission_policy_can_be_switched_off() -> None:
    kinds = {body["kind"] for body in render("--set", "admissionPolicy.enabled=false")}
    assert not {kind for kind in kinds if kind.startswith("ValidatingAdmission")}


def test_flow_control_can_be_switched_off() -> None:
    kinds = {body["kind"] for body in render("--set", "flowControl.enabled=false")}
    assert kinds.isdisjoint({"FlowSchema", "PriorityLevelConfiguration"})


def test_who_is_exempt_from_the_admission_policy() -> None:
    backup = "system:serviceaccount:backup:restore"
    for policy in policies(render("--set", f"admissionPolicy.exempt={{{backup}}}")):
        (exempt,) = [one for one in policy["spec"]["matchConditions"] if one["name"] == "not-exempt"]
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
        ("image.sidecar.digest=abc", "'/image/sidecar/digest': 'abc' does not match pattern"),
        ("image.tag=dev", "'/image': additional properties 'tag' not allowed"),
        ("namespaces=team-a", "'/namespaces': got string, want array"),
        ("sidecar.resources.limits.cpu=true", "'/sidecar/resources/limits/cpu': got boolean"),
        ("admissionPolicy.exempt={me}", "'/admissionPolicy/exempt/0': 'me' does not match pattern"),
    ],
)
def test_a_wrong_value_is_named(value: str, sentence: str) -> None:
    answer = run("helm", "template", "elasticjob", CHART, *KUBERNETES, "--set", value)
    assert answer.code
    assert sentence in answer.errors


def test_names_and_labels_can_be_chosen() -> None:
    plain = {(body["kind"], body["metadata"]["name"]) for body in render()}
    assert {name for _, name in plain if not name.startswith("elasticjob")} == set()
    objects = render("--set", "fullnameOverride=ej,commonLabels.team=ml,nameOverride=training")
    assert {body["metadata"]["name"].startswith("ej-") for body in objects} == {True}
    assert {body["metadata"]["labels"]["team"] for body in objects} == {"ml"}
    deployment = one(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert (labels["app.kubernetes.io/name"], labels["team"]) == ("training", "ml")
    objects = render("--set-json", 'commonLabels={"app.kubernetes.io/name": "mine"}')
    assert {body["metadata"]["labels"]["app.kubernetes.io/name"] for body in objects} == {
        "elasticjob",
        "elasticjob-hook",
    }


def test_the_operators_container_can_be_extended() -> None:
    mount, volume = {"name": "ca", "mountPath": "/ca"}, {"name": "ca", "configMap": {"name": "ca"}}
    extra = {
        "extraArgs": ["--lease-namespace=other"],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "x"}],
        "extraVolumes": [volume],
        "extraVolumeMounts": [mount],
    }
    options = [part for name, value in extra.items() for part in ("--set-json", f"{name}={json.dumps(value)}")]
    pod = one(render(*options, "--set", "logFormat=json,metrics.jobs=false"), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--lease-namespace=other", "--log-format=json", "--job-metrics=false"} <= set(container["args"])
    assert [one["name"] for one in container["env"]] == ["POD_NAME", "HTTPS_PROXY"]
    assert (container["volumeMounts"], pod["volumes"]) == ([mount], [volume])


MONITORED = {
    "metrics.service.enabled": {"Service"},
    "metrics.serviceMonitor.enabled": {"Service", "ServiceMonitor"},
    "metrics.podMonitor.enabled": {"PodMonitor"},
    "metrics.rules.enabled": {"PrometheusRule"},
    "metrics.dashboard.enabled": {"ConfigMap"},
    "networkPolicy.enabled": {"NetworkPolicy"},
}


@pytest.mark.parametrize("value", MONITORED)
def test_what_watches_the_operator_is_made_where_it_is_wanted(value: str) -> None:
    before = Counter(body["kind"] for body in render())
    after = Counter(body["kind"] for body in render("--set", f"{value}=true"))
    assert after - before == Counter(MONITORED[value])


def test_what_finds_the_operator_finds_its_pods_and_no_others() -> None:
    objects = render("--set", ",".join(f"{value}=true" for value in MONITORED))
    (service, monitor) = one(objects, "Service"), one(objects, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    operators = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    others = [one(objects, "Pod")["metadata"]["labels"], one(objects, "Job")["spec"]["template"]["metadata"]["labels"]]
    selectors = [
        service["spec"]["selector"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= operators.items()
        assert not any(selector.items() <= labels.items() for labels in others)


def test_nobody_may_read_the_metrics_unless_told() -> None:
    assert one(render("--set", "networkPolicy.enabled=true"), "NetworkPolicy")["spec"]["ingress"][0]["from"]
    closed = render("--set", "networkPolicy.enabled=true", "--set-json", "networkPolicy.metricsFrom=[]")
    assert one(closed, "NetworkPolicy")["spec"]["ingress"] == []


def test_metrics_are_secured_where_it_is_wanted() -> None:
    def kinds(*options: str) -> Counter[str]:
        return Counter(body["kind"] for body in render("--set", "metrics.serviceMonitor.enabled=true", *options))

    assert kinds("--set", "metrics.secure.enabled=true") - kinds() == {"ClusterRole": 2, "ClusterRoleBinding": 1}
    # values of a release that knows nothing of it
    assert kinds("--set", "metrics.secure=null") == kinds()
    told = "metrics.secure.enabled=true,networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true"
    objects = render("--set", told, "--set", "metrics.secure.certificateSecret=pair")
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--metrics-secure=true", "--metrics-certificate=/metrics-certificate"} <= set(container["args"])
    assert container["volumeMounts"] == [
        {"name": "metrics-certificate", "mountPath": "/metrics-certificate", "readOnly": True}
    ]
    assert pod["volumes"] == [{"name": "metrics-certificate", "secret": {"secretName": "pair"}}]
    (port,) = [one for one in container["ports"] if one["name"] == "metrics"]
    (served,) = one(objects, "Service")["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port["containerPort"], "metrics")
    (ingress,) = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    name = one(objects, "Service")["metadata"]["name"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == f"{name}.elasticjob-system.svc"
    assert "insecureSkipVerify" not in endpoint["tlsConfig"]


def test_no_hook_and_no_role_of_the_chart_can_delete_a_crd() -> None:
    for body in render():
        for rule in body.get("rules", ()) if body["kind"] in ("Role", "ClusterRole") else ():
            if {"customresourcedefinitions", "*"} & set(rule.get("resources", ())):
                assert set(rule["verbs"]) <= {"get", "patch"}, body["metadata"]["name"]
    assert not [body for body in render("--include-crds", "--no-hooks") if "CustomResource" in body["kind"]][2:]
    assert not Path(CHART, "templates", "crds").exists()


def test_hooks_can_be_switched_off() -> None:
    hooks = [body for body in render() if "helm.sh/hook" in body["metadata"].get("annotations", {})]
    assert {body["metadata"]["annotations"]["helm.sh/hook"] for body in hooks} == {"test", "pre-upgrade"}
    without = render("--set", "crds.upgrade=false,test.enabled=false")
    assert not [body for body in without if "helm.sh/hook" in body["metadata"].get("annotations", {})]


@pytest.mark.real
@pytest.mark.on_workers
def test_an_installation_is_tested_upgraded_and_removed_and_leaves_crds_and_jobs(operator: Namespace, job: Job) -> None:
    """A release without replicas, confined to its own namespace, so that it disturbs nobody: the installed operator
    looks after its jobs."""
    here = ["--namespace", job.namespace.name]
    confined = ["--set", "replicas=0,allowOverlap=true", "--set", f"namespaces={{{job.namespace.name}}}"]
    notes = succeed("helm", "install", "aside", CHART, *here, *confined)
    assert "`helm uninstall` removes the operator and leaves the CRDs and all ElasticJobs" in notes
    assert "helm test --namespace" in notes
    job.apply(replicas=1)
    round = job.wait_for_round(1)

    succeed("helm", "test", "aside", *here, "--timeout=120s", seconds=130)
    left = settled(job.namespace.list("elasticjobs"), "the test deletes its job before it ends")
    assert [one["metadata"]["name"] for one in left] == [job.name]

    uids = crds()
    succeed("helm", "upgrade", "aside", CHART, *here, *confined, "--timeout=120s", seconds=130)
    for crd in crd_objects():
        assert "elasticjob-chart" in {field["manager"] for field in crd["metadata"]["managedFields"]}

    said = succeed("helm", "uninstall", "aside", *here)
    assert "These resources were kept due to the resource policy:" in said
    assert "aside-elasticjob-crds-and-jobs-are-kept" in said
    assert crds() == uids
    assert job.told(round) is None, "the round is over"

    # what is left does not stand in the way of the next installation
    succeed("helm", "install", "aside", CHART, *here, *confined)
    succeed("helm", "uninstall", "aside", *here)


def crd_objects() -> list[Object]:
    names = ("elasticjobs.elasticjob.io", "elasticworkers.elasticjob.io")
    found = kubectl("get", "crd", *names, "--output=json", "--show-managed-fields")
    items: list[Object] = json.loads(found)["items"]
    return items


def crds() -> set[str]:
    return {crd["metadata"]["uid"] for crd in crd_objects()}


def operators(operator: Namespace) -> set[str]:
    return {pod["metadata"]["uid"] for pod in operator.list("pods", labelSelector=SELECTED)}


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.disruptive("operator")
def test_a_round_goes_on_while_the_operator_is_upgraded_and_rolled_back(operator: Namespace, job: Job) -> None:
    job.apply(replicas=2)
    formed = job.wait_for_round(2)
    job.wait_for_training(2)
    term, before = job.status["term"], operators(operator)
    here = ["elasticjob", "--namespace", operator.name, "--wait", "--timeout=120s"]
    changed = ["--set-string", "podAnnotations.upgraded=once"]
    succeed("helm", "upgrade", here[0], CHART, *here[1:], "--reset-then-reuse-values", *changed, seconds=130)
    wait_until("the operators of before to be gone", lambda: operators(operator).isdisjoint(before), 60)
    job.edit()
    wait_until("a term of the new operators", lambda: job.status["term"] > term, 60, job.summary)
    succeed("helm", "rollback", *here, seconds=130)
    leader(operator)
    assert job.told(formed) is None, "the round is over"
    job.scale(3)
    job.wait_for_round(3, after=formed)

# SPDX-License-Identifier: Apache-2.0
"""Manifests as charts, GitOps tools and autoscalers leave them, with a real API server and kubectl."""

import ast
import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob_operator.job import status
from support import ControlPlane
from support.control_plane import Refused
from support.waiting import run

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
COLLECTION = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train:1", "command": ["torchrun", "a"]}]}}


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    body = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "metadata": meta}
    return {**body, "spec": {"template": TEMPLATE, **spec}}


def kubectl(plane: ControlPlane, *arguments: str, given: Any = None) -> str:
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
    done = run(["kubectl", *arguments], 60, input=json.dumps(given), env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spec_of(plane: ControlPlane, name: str) -> Any:
    return plane.request("GET", f"{COLLECTION}/{name}")["spec"]


def nulls(*path: str) -> dict[str, Any]:
    """All fields at that path that may be left out, as null."""
    (version,) = yaml.load((CRDS / "elasticjobs.yaml").read_text(), yaml.CSafeLoader)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return dict.fromkeys(set(schema["properties"]).difference(schema.get("required", ())))


def test_null_in_any_field_of_the_spec_is_as_good_as_left_out(with_crds: ControlPlane) -> None:
    parts = ("drain", "rendezvous", "avoidNodes")
    template = {"metadata": {"labels": None, "annotations": None, "creationTimestamp": None}, **TEMPLATE}
    null = {**nulls("spec"), **{part: nulls("spec", part) for part in parts}, "template": template}
    found = []
    for name, spec in (("plain", {part: {} for part in parts}), ("null", null)):
        kubectl(with_crds, "create", "--validate=false", "--filename=-", given=manifest(name, **spec))
        found.append(spec_of(with_crds, name))
        assert found[-1].pop("template")["spec"] == TEMPLATE["spec"]
    assert len(null) > 20
    assert found[0] == found[1]


@pytest.mark.parametrize("apply", [["apply"], ["apply", "--server-side", "--field-manager=flux"]], ids=" ".join)
def test_a_size_that_the_manifest_leaves_out_stays_as_others_set_it(with_crds: ControlPlane, apply: list[str]) -> None:
    name = f"sized-{len(apply)}"
    for wanted in (1, 3):
        kubectl(with_crds, *apply, "--filename=-", given=manifest(name, maxReplicas=4))
        assert spec_of(with_crds, name)["replicas"] == wanted
        kubectl(with_crds, "scale", f"elasticjob/{name}", "--replicas=3")


@pytest.mark.parametrize("bound", [{"minReplicas": 2}, {"sizes": {"step": 2}}], ids=str)
def test_a_manifest_for_which_the_default_size_is_none_says_what_to_set(
    with_crds: ControlPlane, bound: dict[str, Any]
) -> None:
    with pytest.raises(Refused, check=lambda it: it.names("spec.replicas", ": set spec.replicas, whose default is 1")):
        with_crds.request("POST", COLLECTION, manifest("bound", **bound))


def test_lists_are_stored_as_they_are_written(with_crds: ControlPlane) -> None:
    """A default within one would be a difference from the manifest that no apply removes."""
    rules = [
        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    given = manifest("listed", podFailurePolicy={"rules": rules})
    kubectl(with_crds, "apply", "--filename=-", given=given)
    assert spec_of(with_crds, "listed")["podFailurePolicy"] == {"rules": rules}


NAMES = ("config", "secret", "data", "account", "urgent", "claim", "sized")
REFERENCES = [
    {"configMapRef": {"name": "config"}},
    {"secretRef": {"name": "secret"}},
]
VALUES = [
    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "a"}}},
    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "a"}}},
]
POD = {
    "containers": [{"name": "trainer", "image": "train:1", "env": VALUES, "envFrom": REFERENCES}],
    "initContainers": [{"name": "fetch", "image": "train:1", "env": VALUES, "envFrom": REFERENCES}],
    "serviceAccountName": "account",
    "priorityClassName": "urgent",
    "imagePullSecrets": [{"name": "secret"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "claim"}],
    "volumes": [
        {"name": "a", "configMap": {"name": "config"}},
        {"name": "b", "secret": {"secretName": "secret"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "projected": {"sources": [{"configMap": {"name": "config"}}, {"secret": {"name": "secret"}}]}},
        {"name": "e", "csi": {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "secret"}}},
    ],
}
SCALER = {
    "scaleTargetRef": {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "name": "sized"},
    "maxReplicas": 4,
}
OTHERS = [
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1},
    {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "claim"}, "spec": {}},
    {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler"},
        "spec": SCALER,
    },
]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from strings(one)
    if isinstance(value, str):
        yield value


def test_kustomize_follows_every_name_in_a_job_by_the_configuration_of_the_project(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/gitops", tmp_path / "gitops")
    (tmp_path / "app").mkdir()
    objects = [manifest("sized", template={"spec": POD}), *OTHERS]
    (tmp_path / "app" / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    literals = {"literals": ["a=b"]}
    kustomization = {
        "namePrefix": "dev-",
        "resources": ["objects.yaml"],
        "components": ["../gitops/kustomize"],
        "configMapGenerator": [{"name": "config", **literals}],
        "secretGenerator": [{"name": "secret", **literals}],
        "images": [{"name": "train", "newTag": "2"}],
        "replicas": [{"name": "sized", "count": 3}],
        "labels": [{"pairs": {"team": "ml"}, "includeTemplates": True}],
    }
    (tmp_path / "app" / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    made = list(yaml.safe_load_all(run(["kubectl", "kustomize", str(tmp_path / "app")], 60, check=True).stdout))
    of_tools = [one for one in made if one["kind"] in ("ElasticJob", "HorizontalPodAutoscaler")]
    assert len(of_tools) == 2
    assert set(strings(of_tools)).isdisjoint(NAMES)
    (job,) = (one for one in made if one["kind"] == "ElasticJob")
    assert job["spec"]["replicas"] == 3
    assert job["spec"]["template"]["metadata"]["labels"] == {"team": "ml"}
    pod = job["spec"]["template"]["spec"]
    assert {one["image"] for one in (*pod["containers"], *pod["initContainers"])} == {"train:2"}


def test_argo_cd_is_told_of_every_phase() -> None:
    told = yaml.safe_load((ROOT / "examples/gitops/argocd/argocd-cm.yaml").read_text())["data"]
    health = told["resource.customizations.health.elasticjob.io_ElasticJob"]
    source = ast.parse(inspect.getsource(status._phase))
    phases = {one.value for one in ast.walk(source) if isinstance(one, ast.Constant)}
    assert len(phases) == 6
    assert set(re.findall(r'([A-Z]\w+) = "(?:Progressing|Healthy|Suspended|Degraded)",', health)) == phases
    differences = yaml.safe_load(told["resource.customizations.ignoreDifferences.elasticjob.io_ElasticJob"])
    assert differences == {"jsonPointers": ["/spec/replicas"]}


def test_a_step_of_argo_workflows_ends_as_its_job_ends(with_crds: ControlPlane) -> None:
    workflow, *access = yaml.safe_load_all((ROOT / "examples/gitops/argo-workflows/train.yaml").read_text())
    (template,) = workflow["spec"]["templates"]
    resource = template["resource"]
    ends = {name: resource[name] for name in ("successCondition", "failureCondition")}
    assert list(ends.values()) == ["status.phase == Complete", "status.phase == Failed"]
    for body in (yaml.safe_load(resource["manifest"]), *access):
        kubectl(with_crds, "create", "--dry-run=server", "--validate=strict", "--filename=-", given=body)
    account = {body["kind"]: body["metadata"]["name"] for body in access}["ServiceAccount"]
    assert workflow["spec"]["serviceAccountName"] == account
    page = (ROOT / "docs/argo.md").read_text()
    for name, condition in ends.items():
        assert f"| `{name}` | `{condition}` |" in page

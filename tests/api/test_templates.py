# SPDX-License-Identifier: Apache-2.0
"""What `kubectl apply` refuses of a job's template, and what it takes of what tools write."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api import API_VERSION
from elasticjob.objects import without_nulls
from support import ControlPlane
from support.waiting import run

sys.path.append(str(Path(__file__).parents[2] / "hack"))
import pod_template

TRAINER = {"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py"]}
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers[0]"
TERM = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def of_trainer(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{**TRAINER, **fields}]}}


def of_pod(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [TRAINER], **fields}}


def required_nodes(term: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return of_pod(affinity={"nodeAffinity": required})


def manifest(template: Any, **spec: Any) -> str:
    job = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": "digits"}}
    return json.dumps({**job, "spec": {"template": template, **spec}})


def apply(plane: ControlPlane, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), "apply", "--filename", "-", *options]
    return run(command, input=text)


# each template, and the field that the refusal names
BROKEN: dict[str, tuple[Any, str]] = {
    "no template": (None, "spec.template"),
    "no spec": ({}, POD),
    "typo of spec": ({**of_pod(), "specs": {}}, "spec.template.specs"),
    "typo in metadata": ({**of_pod(), "metadata": {"label": {}}}, "spec.template.metadata.label"),
    "label that is a number": ({**of_pod(), "metadata": {"labels": {"a": 1}}}, "spec.template.metadata.labels.a"),
    "no containers": ({"spec": {}}, f"{POD}.containers"),
    "empty containers": ({"spec": {"containers": []}}, f"{POD}.containers"),
    "containers as a map": ({"spec": {"containers": {"trainer": TRAINER}}}, f"{POD}.containers"),
    "null for a container": ({"spec": {"containers": [None]}}, CONTAINER),
    "no trainer": ({"spec": {"containers": [{**TRAINER, "name": "main"}]}}, f"{POD}.containers"),
    "two trainers": ({"spec": {"containers": [TRAINER, TRAINER]}}, f"{POD}.containers[1]"),
    "container without a name": ({"spec": {"containers": [TRAINER, {"image": "a"}]}}, f"{POD}.containers[1].name"),
    "typo in a container": (of_trainer(imagee="a"), f"{CONTAINER}.imagee"),
    "command that is a text": (of_trainer(command="torchrun train.py"), f"{CONTAINER}.command"),
    "number in args": (of_trainer(args=["torchrun", 1]), f"{CONTAINER}.args[1]"),
    "env as a map": (of_trainer(env={"A": "1"}), f"{CONTAINER}.env"),
    "variable that is a number": (of_trainer(env=[{"name": "A", "value": 1}]), f"{CONTAINER}.env[0].value"),
    "variable twice": (of_trainer(env=[{"name": "A"}, {"name": "A"}]), f"{CONTAINER}.env[1]"),
    "typo in a source": (
        of_trainer(env=[{"name": "A", "valueFrom": {"secretKeyReff": {}}}]),
        f"{CONTAINER}.env[0].valueFrom.secretKeyReff",
    ),
    "secret without a key": (
        of_trainer(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
        f"{CONTAINER}.env[0].valueFrom.secretKeyRef.key",
    ),
    "typo in resources": (of_trainer(resources={"limit": {"cpu": 1}}), f"{CONTAINER}.resources.limit"),
    "quantity that is an object": (
        of_trainer(resources={"limits": {"cpu": {"value": 1}}}),
        f"{CONTAINER}.resources.limits.cpu",
    ),
    "port that is a name": (of_trainer(ports=[{"containerPort": "http"}]), f"{CONTAINER}.ports[0].containerPort"),
    "protocol": (of_trainer(ports=[{"containerPort": 80, "protocol": "HTTP"}]), f"{CONTAINER}.ports[0].protocol"),
    "pull policy": (of_trainer(imagePullPolicy="Sometimes"), f"{CONTAINER}.imagePullPolicy"),
    "mount without a path": (of_trainer(volumeMounts=[{"name": "data"}]), f"{CONTAINER}.volumeMounts[0].mountPath"),
    "typo in a probe": (
        of_trainer(livenessProbe={"httpGet": {"port": 1, "pth": "/"}}),
        f"{CONTAINER}.livenessProbe.httpGet.pth",
    ),
    "probe without a port": (of_trainer(livenessProbe={"httpGet": {}}), f"{CONTAINER}.livenessProbe.httpGet.port"),
    "typo in a security context": (
        of_trainer(securityContext={"capabilities": {"dropp": ["ALL"]}}),
        f"{CONTAINER}.securityContext.capabilities.dropp",
    ),
    "restartPolicy": (of_pod(restartPolicy="Never"), f"{POD}.restartPolicy"),
    "debugging containers": (of_pod(ephemeralContainers=[]), f"{POD}.ephemeralContainers"),
    "volume without a name": (of_pod(volumes=[{"emptyDir": {}}]), f"{POD}.volumes[0].name"),
    "typo in a volume": (
        of_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claim": "c"}}]),
        f"{POD}.volumes[0].persistentVolumeClaim.claim",
    ),
    "key of a toleration": (of_pod(tolerations=[{"kee": "gpu"}]), f"{POD}.tolerations[0].kee"),
    "effect of a toleration": (of_pod(tolerations=[{"effect": "Never"}]), f"{POD}.tolerations[0].effect"),
    "operator of an affinity": (
        required_nodes({"matchExpressions": [{"key": "gpu", "operator": "Has"}]}),
        f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
        ".matchExpressions[0].operator",
    ),
    "typo in an affinity": (
        required_nodes({"matchExpression": []}),
        f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
        ".matchExpression",
    ),
    "spread": (of_pod(topologySpreadConstraints=[{"maxSkew": 1}]), f"{POD}.topologySpreadConstraints[0].topologyKey"),
    "period": (of_pod(terminationGracePeriodSeconds="1m"), f"{POD}.terminationGracePeriodSeconds"),
    "pull secret without a name": (of_pod(imagePullSecrets=[{}]), f"{POD}.imagePullSecrets[0].name"),
}


@pytest.mark.parametrize(("template", "field"), BROKEN.values(), ids=BROKEN)
def test_kubectl_apply_refuses_a_broken_template_and_names_the_field(
    with_crds: ControlPlane, template: Any, field: str
) -> None:
    done = apply(with_crds, manifest(template), "--dry-run=server")
    assert done.returncode == 1
    assert field in done.stderr


WHOLE = {
    "metadata": {"creationTimestamp": None, "labels": {"a": "b"}, "annotations": None},
    "spec": {
        "restartPolicy": "OnFailure",
        "containers": [
            {
                **TRAINER,
                "resources": {"limits": {"cpu": 0.5, "memory": 1073741824}, "requests": {"cpu": "500m", "a.b/c": 1}},
                "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "name": "http"}],
                "livenessProbe": {"httpGet": {"port": "http"}},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "env": [{"name": "A"}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            },
            {"name": "log", "image": "log:1"},
        ],
        "initContainers": [{"name": "load", "image": "load:1", "restartPolicy": "Always"}],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": 1073741824}}, {"name": "shm", "emptyDir": {}}],
        "topologySpreadConstraints": [SPREAD],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "imagePullSecrets": [{"name": "registry"}],
    },
}


def test_what_tools_write_is_taken_and_kept_as_it_came(with_crds: ControlPlane) -> None:
    """Numbers for quantities, ports by number and by name, null for nothing; and no default beside them, as a tool that
    compares lists as a whole would put that right for ever."""
    done = apply(with_crds, manifest(WHOLE), "--dry-run=server", "--output=json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["spec"]["template"] == without_nulls(WHOLE)


def test_null_is_as_good_as_absent_at_every_place(with_crds: ControlPlane) -> None:
    template = copy.deepcopy(WHOLE)
    nulls = nulled(template, json.loads(pod_template.FILE.read_text()))
    assert nulls > 100
    done = apply(with_crds, manifest(template), "--dry-run=server", "--output=json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["spec"]["template"] == without_nulls(WHOLE)


def nulled(value: Any, schema: dict[str, Any]) -> int:
    """How many fields of `schema` that `value` has not are null in it now."""
    count = 0
    if isinstance(value, list):
        return sum(nulled(one, schema["items"]) for one in value)
    for name, field in schema.get("properties", {}).items():
        if value.get(name) is None:
            value[name] = None
            count += 1
        elif isinstance(value[name], dict | list):
            count += nulled(value[name], field)
    return count


def test_another_manager_adds_a_variable_without_a_conflict(with_crds: ControlPlane) -> None:
    name = "two-managers"
    path = f"/apis/{API_VERSION}/namespaces/default/elasticjobs/{name}"

    def write(manager: str, **trainer: Any) -> Any:
        body = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": name}}
        spec = {"suspend": True, "template": {"spec": {"containers": [{"name": "trainer", **trainer}]}}}
        query = f"?fieldManager={manager}"
        kind = "application/apply-patch+yaml"
        return with_crds.request("PATCH", path + query, {**body, "spec": spec}, content_type=kind)

    write("team", image="train:1", env=[{"name": "A", "value": "1"}])
    found = write("platform", env=[{"name": "B", "value": "2"}])
    (trainer,) = found["spec"]["template"]["spec"]["containers"]
    assert trainer == {
        "name": "trainer",
        "image": "train:1",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    }


def test_the_schema_is_that_of_the_api_server(with_crds: ControlPlane) -> None:
    if f"1.{with_crds.minor_version}" != pod_template.KUBERNETES:
        pytest.skip(
            f"the schema is of Kubernetes {pod_template.KUBERNETES}, the API server of 1.{with_crds.minor_version}"
        )
    assert pod_template.text_of(with_crds) == pod_template.FILE.read_text()


CHANGED = {
    "quantity": (of_trainer(resources={"limits": {"cpu": 1}}), of_trainer(resources={"limits": {"cpu": 1.5}})),
    "name of a quantity": (
        of_trainer(resources={"limits": {"cpu": 1}}),
        of_trainer(resources={"limits": {"memory": 1}}),
    ),
    "limit of a folder": (
        of_pod(volumes=[{"name": "a", "emptyDir": {"sizeLimit": 1}}]),
        of_pod(volumes=[{"name": "a", "emptyDir": {"medium": "Memory"}}]),
    ),
    "port": (of_trainer(ports=[{"containerPort": 80}]), of_trainer(ports=[{"containerPort": 81}])),
}


@pytest.mark.parametrize(("old", "new"), CHANGED.values(), ids=CHANGED)
def test_a_running_jobs_template_stays_in_every_field(with_crds: ControlPlane, old: Any, new: Any) -> None:
    path = f"/apis/{API_VERSION}/namespaces/default/elasticjobs"
    body = json.loads(manifest(old))
    body["metadata"] = {"generateName": "stays-"}
    made = with_crds.request("POST", path, body)
    for template, taken in ((new, False), (old, True)):
        done = run(
            ["kubectl", "--kubeconfig", str(with_crds.kubeconfig), "replace", "--filename", "-"],
            input=json.dumps({**made, "spec": {**made["spec"], "template": template}}),
        )
        assert (done.returncode == 0) == taken, done

# SPDX-License-Identifier: Apache-2.0
"""Started outside of a worker pod, the sidecar and the torchrun plug-in end with one sentence that says so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.job import IMAGE
from e2e.kube import Namespace, Object, run, succeed, wait_until

pytestmark = [pytest.mark.on_workers, pytest.mark.patient, pytest.mark.real]

CHART = Path(__file__).parents[2] / "charts" / "elasticjob" / "Chart.yaml"
VERSION = yaml.safe_load(CHART.read_text())["appVersion"]
SIDECAR_IMAGE, PLUGIN_IMAGE = f"elasticjob/sidecar:{VERSION}", f"elasticjob/torch-plugin:{VERSION}"
PLUGIN = {"name": "plugin", "mountPath": "/elasticjob/trainer"}
TORCH = {"name": "torch", "mountPath": "/opt/torch", "readOnly": True}

SIDECAR_SETTINGS = {
    "ELASTICJOB_JOB": "none",
    "ELASTICJOB_JOB_UID": "00000000-0000-0000-0000-000000000000",
    "ELASTICJOB_INDEX": "0",
    "ELASTICJOB_BATCH": "00000000",
    "ELASTICJOB_STATE_DIR": "/dev/shm",
    "ELASTICJOB_NAMESPACE": "default",
    "ELASTICJOB_POD_NAME": "none-0-0",
    "ELASTICJOB_POD_UID": "00000000-0000-0000-0000-000000000000",
    "ELASTICJOB_POD_IP": "127.0.0.1",
}


def pod(name: str, container: Object, **spec: Any) -> Object:
    env = [{"name": key, "value": value} for key, value in container.pop("env", {}).items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "env": env, **container}], **spec},
    }


def sidecar(name: str, **spec: Any) -> Object:
    return pod(name, {"image": SIDECAR_IMAGE, **spec.pop("container", {})}, **spec)


def torchrun(name: str, *options: str) -> Object:
    """A pod with torch and the plug-in, but without a sidecar."""
    copy = ["cp", "-r", "/opt/elasticjob/trainer/.", "/elasticjob/trainer/"]
    return pod(
        name,
        {
            "image": IMAGE,
            "command": ["torchrun", *options, "/no/script.py"],
            "env": {"PYTHONPATH": "/elasticjob/trainer"},
            "volumeMounts": [PLUGIN, TORCH],
        },
        initContainers=[{"name": "copy", "image": SIDECAR_IMAGE, "command": copy, "volumeMounts": [PLUGIN]}],
        volumes=[
            {"name": "plugin", "emptyDir": {}},
            {"name": "torch", "hostPath": {"path": "/opt/torch", "type": "Directory"}},
        ],
    )


PODS = [
    (
        sidecar("sidecar-alone"),
        "elasticjob-sidecar: ELASTICJOB_JOB is not set: the sidecar is meant to be started by the elasticjob operator",
    ),
    (
        sidecar("sidecar-without-token", container={"env": SIDECAR_SETTINGS}, automountServiceAccountToken=False),
        "elasticjob-sidecar: no access to the Kubernetes API",
    ),
    (
        torchrun("torchrun-alone", "--rdzv-backend=elasticjob", "--rdzv-conf=sidecar_timeout=5"),
        "elasticjob: no ElasticJob sidecar at 127.0.0.1:27600",
    ),
    (
        torchrun("torchrun-elsewhere", "--rdzv-backend=elasticjob", "--rdzv-endpoint=head:29400"),
        "elasticjob: --rdzv-endpoint 'head:29400' is not the sidecar's loopback address",
    ),
]


@pytest.fixture(scope="module")
def pods(operator: Namespace, module_namespace: Namespace) -> Namespace:
    """All of them, started at once."""
    module_namespace.apply(*(body for body, _ in PODS))
    return module_namespace


@pytest.mark.parametrize(
    ("name", "sentence"),
    [pytest.param(name := body["metadata"]["name"], sentence, id=name) for body, sentence in PODS],
)
def test_it_says_where_it_belongs(pods: Namespace, name: str, sentence: str) -> None:
    def ended() -> Object | None:
        (status,) = pods.get("pod", name)["status"].get("containerStatuses", [{"state": {}}])
        terminated: Object | None = status["state"].get("terminated")
        return terminated

    terminated = wait_until(f"pod {name} to end", ended, 120, lambda: pods.kubectl("logs", name))

    def said() -> list[str]:
        return pods.kubectl("logs", name).splitlines()

    wait_until(f"{sentence!r} as the last words", lambda: said()[-1:] and said()[-1].startswith(sentence), 30, said)
    assert terminated["exitCode"] == 1
    assert not any("Traceback" in line for line in said())


def test_the_image_of_the_plug_in_has_what_the_sidecar_brings_and_no_more(tmp_path: Path) -> None:
    find = ["--entrypoint=find", SIDECAR_IMAGE, "/opt/elasticjob/trainer", "-type", "f", "-printf", "%P\\n"]
    brought = set(succeed("docker", "run", "--rm", "--network=none", *find).split())
    container = succeed("docker", "create", PLUGIN_IMAGE, "none").strip()
    try:
        succeed("docker", "cp", f"{container}:/", str(tmp_path))
    finally:
        run("docker", "rm", container)
    files = {file.relative_to(tmp_path) for file in tmp_path.rglob("*") if file.is_file()}
    engines = {file for file in files if file.parts[0] in (".dockerenv", "dev", "etc", "proc", "sys")}
    assert {str(file) for file in files - engines} == brought
    assert "sitecustomize.py" in brought

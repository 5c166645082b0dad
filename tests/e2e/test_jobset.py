# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend in jobs of other controllers, real ones: JobSet's and Kubeflow Trainer's, as the examples have
it. No pod is one on which the others depend, and the ConfigMaps go with the job."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.disruption import NODE
from e2e.job import STARTED_SECONDS
from e2e.jobset import EXAMPLE, FixedJob, bodies, jobset, pod_spec
from e2e.kube import Namespace, kubectl, run, wait_until
from e2e.trainjob import TrainJob, trainer

pytestmark = [pytest.mark.on_workers, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

PODS = 3
GONE_SECONDS = 60  # for the garbage collector, on a machine of two busy cores


@pytest.fixture(scope="module")
def controllers(module_namespace: Namespace) -> Iterator[None]:
    with jobset(module_namespace), trainer(module_namespace):
        yield


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize(
    ("kind", "container", "made"),
    [("jobset", "trainer", FixedJob), ("trainjob", "node", TrainJob)],
    ids=["jobset", "trainjob"],
)
def test_the_group_forms_anew_without_its_first_pod_and_leaves_nothing(
    namespace: Namespace, kind: str, container: str, made: type[FixedJob]
) -> None:
    job = made(namespace, container)
    job.apply()
    first = job.wait_for_group(PODS, STARTED_SECONDS)
    job.wait_for_checkpoint(STARTED_SECONDS)
    before = job.state()
    struck = job.delete_first()
    second = job.wait_for_group(PODS, STARTED_SECONDS, other_than=first)
    print(f"{kind}: {job.began(second) - struck:.1f} s from the deletion of pod 0 to the first step of the new group")
    after = job.state()
    assert after["runId"] == before["runId"]
    assert after["round"] > before["round"]
    assert min(step.step for step in job.last_steps().values()) > 1, "the training went on from its checkpoint"

    assert job.config_maps() >= {"digits", "digits-store"}
    job.finish()
    namespace.kubectl("wait", kind, "digits", f"--for=condition={job.done}", f"--timeout={STARTED_SECONDS}s")
    assert job.state()["closed"] is True
    namespace.kubectl("delete", kind, "digits")
    wait_until("the ConfigMaps to go with the job", lambda: not job.config_maps(), GONE_SECONDS, job.config_maps)
    job.forget_checkpoint(before["runId"])


@pytest.mark.usefixtures("controllers")
def test_a_node_that_mounts_no_images_is_named_by_the_command(namespace: Namespace, tmp_path: Path) -> None:
    """The nodes' containerd is older than 2.1: the volume is empty, and nothing else tells of it."""
    version = run("docker", "exec", NODE, "containerd", "--version").output
    assert " 1." in version, "newer nodes mount the image: this test then wants an empty volume instead"
    folder = shutil.copytree(EXAMPLE, tmp_path / "example")
    file = folder / "kustomization.yaml"
    file.write_text(file.read_text().replace("# components:", "components:"))
    found = bodies(kubectl("kustomize", str(folder)))
    pod = pod_spec(next(body for body in found if body["kind"] == "JobSet"))
    assert "initContainers" not in pod
    pod["volumes"] = [{"name": "checkpoints", "emptyDir": {}} if "image" not in one else one for one in pod["volumes"]]
    namespace.apply(*found)
    job = FixedJob(namespace)

    def told() -> bool:
        name = job.pods()[0]["metadata"]["name"]
        return "use the init container in place of the image volume" in namespace.try_kubectl("logs", name).output

    wait_until("the sentence in the log", told, STARTED_SECONDS, job.describe)

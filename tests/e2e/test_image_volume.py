# SPDX-License-Identifier: Apache-2.0
"""The image of the plug-in as a volume of pods whose own image does not have it: docs/moving.md's recipe for an Indexed
Job. It takes a containerd that mounts images; the local cluster has one from Kubernetes 1.36 on."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from e2e import api
from e2e.job import STARTED_SECONDS
from e2e.jobset import FixedJob, with_test_script
from e2e.kube import Failed, Namespace, Object, wait_until
from support import image_volume
from support.waiting import settled

pytestmark = [pytest.mark.on_workers, pytest.mark.patient, pytest.mark.real]

PODS = 3
GONE_SECONDS = 60  # for the garbage collector, on a machine of two busy cores
# what an Indexed Job has in place of what a JobSet has
OF_A_JOB = {
    "jobset.sigs.k8s.io/jobset-name": "batch.kubernetes.io/job-name",
    "jobset.sigs.k8s.io/jobset-uid": "batch.kubernetes.io/controller-uid",
    "owner=jobset.x-k8s.io/v1alpha2/JobSet/": "owner=batch/v1/Job/",
}
FOUND = """
import elasticjob_torch
from importlib.metadata import entry_points
print(elasticjob_torch.__file__, *sorted(entry.name for entry in entry_points(group="torchrun.handlers")))
"""


@pytest.fixture
def mounts_images(namespace: Namespace) -> None:
    """Skips on a cluster that cannot."""
    minor = int(re.findall(r"\d+", api.call("GET", "/version")["minor"])[0])
    if minor < 35:
        pytest.skip(f"Kubernetes 1.{minor} has image volumes behind a feature gate, or not at all")
    for node in namespace.list("nodes"):
        runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"]
        name, version = runtime.split("://")
        if name == "containerd" and tuple(map(int, version.split(".")[:2])) < (2, 1):
            pytest.skip(f"an image volume takes containerd 2.1, as with KUBERNETES=v1.37.2; a node has {version}")


class IndexedJob(FixedJob):
    """The pods of the example's JobSet with its component `image-volume`, as a Job of Kubernetes' own."""

    done = "Complete"

    def apply(self, **env: str) -> None:
        with TemporaryDirectory() as folder:
            objects = image_volume.objects(Path(folder, "jobset"))
        made = [as_indexed_job(body, env) if body["kind"] == "JobSet" else body for body in objects]
        self.namespace.apply(*(body for body in made if body["kind"] != "PersistentVolumeClaim"))

    def python(self, pod: str, script: str, *before: str) -> str:
        """What a script prints in a pod, whose Python is the one that torchrun has."""
        return self.namespace.kubectl(
            "exec", pod, f"--container={self.container}", "--", *before, "python", "-c", script
        )


def as_indexed_job(jobset: Object, env: Mapping[str, str]) -> Object:
    text = json.dumps(jobset)
    for old, new in OF_A_JOB.items():
        assert old in text
        text = text.replace(old, new)
    (replicated,) = json.loads(text)["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    with_test_script(spec["template"]["spec"], env)
    meta = {"name": jobset["metadata"]["name"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec | {"completionMode": "Indexed"}}


@pytest.mark.usefixtures("mounts_images")
def test_the_plug_in_of_an_image_volume_trains_and_outlives_the_first_pod(
    namespace: Namespace,
) -> None:
    job = IndexedJob(namespace)
    job.apply()
    first = job.wait_for_group(PODS, STARTED_SECONDS)
    pod = job.pods()[1]["metadata"]["name"]
    file, *backends = job.python(pod, FOUND).split()
    assert file == "/plugin/elasticjob_torch/__init__.py"
    assert "kubernetes" in backends, "torchrun finds a backend by its entry point"
    with pytest.raises(Failed, match="No module named 'elasticjob_torch'"):
        job.python(pod, FOUND, "env", "--unset=PYTHONPATH")
    with pytest.raises(Failed, match="Read-only file system"):
        job.python(pod, "open('/plugin/new', 'w')")

    job.wait_for_checkpoint(STARTED_SECONDS)
    before = job.state()
    struck = job.delete_first()
    second = job.wait_for_group(PODS, STARTED_SECONDS, other_than=first)
    print(f"{job.began(second) - struck:.1f} s from the deletion of pod 0 to the first step of the new group")
    after = job.state()
    uid = settled(namespace.get("job", "digits")["metadata"]["uid"], "an object keeps its uid")
    assert after["runId"] == before["runId"] == uid
    assert after["round"] > before["round"]
    assert min(step.step for step in job.last_steps().values()) > 1, "the training went on from its checkpoint"

    job.finish()
    namespace.kubectl("wait", "job", "digits", f"--for=condition={job.done}", f"--timeout={STARTED_SECONDS}s")
    assert job.state()["closed"] is True
    namespace.kubectl("delete", "job", "digits")
    wait_until("the ConfigMaps to go with the job", lambda: not job.config_maps(), GONE_SECONDS, job.config_maps)
    job.forget_checkpoint(before["runId"])

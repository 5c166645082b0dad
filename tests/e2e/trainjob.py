# SPDX-License-Identifier: Apache-2.0
"""A real Kubeflow Trainer on the control plane's node, beside JobSet, which it uses; and the runtime of its example."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.controllers import ON_THE_CONTROL_PLANE, SECONDS, forget, get_ready, installed, is_taken
from e2e.jobset import FixedJob, pod_spec, with_test_script
from e2e.kube import Namespace, Object, wait_until
from support.others import version

NAME = "trainer"
# a runtime goes after the jobs that use it
KINDS = [f"{kind}.trainer.kubeflow.org" for kind in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")]
VALUES = {
    "fullnameOverride": NAME,
    "image": {
        "registry": "docker.io",
        "repository": f"elasticjob/{NAME}",
        "tag": version(NAME),
        "pullPolicy": "Never",
    },
    "manager": {
        "config": {"leaderElection": {"leaderElect": False}},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        **ON_THE_CONTROL_PLANE,
    },
}
EXAMPLE = Path(__file__).parents[2] / "examples/trainjob"


@contextmanager
def trainer(home: Namespace) -> Iterator[None]:
    """It runs in the namespace `home`, beside JobSet."""
    with installed(home, NAME, VALUES):
        try:
            get_ready(home, f"{NAME}-controller-manager", "kubeflow-trainer-webhook-cert")
            probe = bodies("runtime.yaml")[0]
            wait_until("Trainer's webhooks to be reached", lambda: is_taken(home, probe, dry_run=True), SECONDS)
            yield
        finally:
            forget(*KINDS)


def bodies(file: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLE / file).read_text()))


class TrainJob(FixedJob):
    """The TrainJob of the example, whose runtime has the script and the torch of these tests."""

    done = "Complete"

    def apply(self, **env: str) -> None:
        (runtime,) = bodies("runtime.yaml")
        pod = pod_spec(runtime["spec"]["template"])
        with_test_script(pod, {"CHECKPOINTS": "/checkpoints", **env})
        self.namespace.apply(runtime)
        objects = [body for body in bodies("trainjob.yaml") if body["kind"] != "PersistentVolumeClaim"]
        trainer = next(body for body in objects if body["kind"] == "TrainJob")["spec"]["trainer"]
        trainer |= {"command": ["torchrun", "/test/train.py"]}
        del trainer["resourcesPerNode"]
        self.namespace.apply(*objects)

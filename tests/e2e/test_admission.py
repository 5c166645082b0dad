# SPDX-License-Identifier: Apache-2.0
"""What kubectl says when the API server refuses: a sentence that names the field. No pod runs in these tests.

What may be changed when is tested in `tests/api/test_admission.py`.
"""

from typing import Any

import pytest

from e2e.job import manifest
from e2e.kube import Failed, Namespace, kubectl


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"replicas": 0}, "spec.replicas: Invalid value: 0"),
        ({"replicas": 5000}, "spec.replicas: Invalid value: 5000"),
        ({"replicas": "two"}, "spec.replicas: Invalid value"),
        ({"replicas": 1, "minReplicas": 2}, "spec.replicas: Invalid value: replicas 1 is below minReplicas 2"),
        ({"replicas": 3, "maxReplicas": 2}, "spec.replicas: Invalid value: replicas 3 is above maxReplicas 2"),
        ({"spareReplicas": -1}, "spec.spareReplicas: Invalid value: -1"),
        (
            {"replicas": 4000, "spareReplicas": 97},
            "spareReplicas 97 and up to 4000 replicas are more than the 4096 workers that a job may have",
        ),
        ({"minReplicas": 3, "maxReplicas": 2}, "spec.minReplicas: Invalid value: minReplicas 3 is above maxReplicas 2"),
        ({"minReplicas": 0}, "spec.minReplicas: Invalid value: 0"),
        ({"nprocPerNode": 0}, "spec.nprocPerNode: Invalid value: 0: nprocPerNode is a number of at least 1"),
        ({"nprocPerNode": "many"}, "spec.nprocPerNode: Invalid value: many: nprocPerNode is a number of at least 1"),
        ({"nprocPerNode": 1.5}, "spec.nprocPerNode"),
        ({"maxRestarts": -1}, "spec.maxRestarts: Invalid value: -1"),
        ({"progressDeadlineSeconds": 5}, "spec.progressDeadlineSeconds: Invalid value: 5"),
        ({"hangPolicy": "Kill"}, 'spec.hangPolicy: Unsupported value: "Kill"'),
        ({"hangPolicy": "Restart"}, "spec.hangPolicy: Invalid value: hangPolicy Restart needs progressDeadlineSeconds"),
        ({"trainerContainer": ""}, "spec.trainerContainer: Invalid value"),
        ({"rendezvous": {"lastCallSeconds": 0}}, "spec.rendezvous.lastCallSeconds: Invalid value: 0"),
        (
            {"rendezvous": {"saveSeconds": 65}},
            "spec.rendezvous.saveSeconds: Invalid value: saveSeconds 65 and stopSeconds 10 together must be less than "
            "rejoinSeconds 75",
        ),
        (
            {"rendezvous": {"rejoinSeconds": 25}},
            "saveSeconds 15 and stopSeconds 10 together must be less than rejoinSeconds 25",
        ),
        ({"rendezvous": {"stopSeconds": 0}}, "spec.rendezvous.stopSeconds: Invalid value: 0"),
        (
            {"rendezvous": {"workerLostSeconds": 80, "rejoinSeconds": 80}},
            "spec.rendezvous.workerLostSeconds: Invalid value: workerLostSeconds 80 must be less than rejoinSeconds 80",
        ),
        ({"rendezvous": {"workerLostSeconds": 75}}, "workerLostSeconds 75 must be less than rejoinSeconds 75"),
        ({"template": None}, "spec.template: Required value"),
        ({"template": "none"}, "spec.template: Invalid value"),
        ({"template": {"metadata": {"labels": ["a"]}, "spec": {}}}, "spec.template.metadata.labels: Invalid value"),
        ({"minReplica": 1}, 'unknown field "spec.minReplica"'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_spec_is_refused(module_namespace: Namespace, spec: dict[str, Any], sentence: str) -> None:
    wrong = manifest("wrong", **spec)
    with pytest.raises(Failed) as refused:
        module_namespace.apply(wrong, dry_run=True)
    message = str(refused.value).replace('"', "")
    assert sentence.replace('"', "") in message


def test_a_name_that_leaves_no_room_for_the_pods_is_refused(module_namespace: Namespace) -> None:
    with pytest.raises(Failed, match=r"metadata\.name"):
        module_namespace.apply(manifest("n" * 53), dry_run=True)


@pytest.fixture(scope="module")
def idle(module_namespace: Namespace) -> Namespace:
    """A namespace with the job `idle`, 2 of 2 to 4 workers and no pod, as it is suspended."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}
    module_namespace.apply(manifest("idle", minReplicas=2, maxReplicas=4, suspend=True, template=template))
    return module_namespace


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [(99, "replicas 99 is above maxReplicas 4"), (1, "replicas 1 is below minReplicas 2")],
    ids=["above", "below"],
)
def test_kubectl_scale_beyond_the_bounds_is_refused(idle: Namespace, replicas: int, sentence: str) -> None:
    refusal = idle.refusal("scale", "elasticjob/idle", f"--replicas={replicas}")
    assert f"spec.replicas: Invalid value: {sentence}" in refusal.replace('"', "")
    assert idle.get("elasticjob", "idle")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("elasticjob", "torchrun agents in pods"),
        ("ej.spec.replicas", "`kubectl scale` changes it"),
        ("ej.spec.rendezvous.lastCallSeconds", "workers that are still on their way"),
        ("ej.status.rendezvous", "Every sidecar of the job watches it"),
        ("elasticworker.spec.request", "Absent until the trainer asks for something"),
        ("ew.status.heartbeat", "Grows by one while the sidecar lives"),
    ],
)
def test_kubectl_explain(cluster: None, field: str, sentence: str) -> None:
    assert sentence in " ".join(kubectl("explain", field).split())

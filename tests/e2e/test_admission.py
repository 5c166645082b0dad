"""What the API server refuses, each time with a sentence that names the field. No pod runs in these tests."""

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
        ({"minReplicas": 3, "maxReplicas": 2}, "spec.minReplicas: Invalid value: minReplicas 3 is above maxReplicas 2"),
        ({"minReplicas": 0}, "spec.minReplicas: Invalid value: 0"),
        ({"nprocPerNode": 0}, "spec.nprocPerNode: Invalid value: 0: nprocPerNode is a number of at least 1"),
        ({"nprocPerNode": "many"}, "spec.nprocPerNode: Invalid value: many: nprocPerNode is a number of at least 1"),
        ({"nprocPerNode": 1.5}, "spec.nprocPerNode"),
        ({"maxRestarts": -1}, "spec.maxRestarts: Invalid value: -1"),
        ({"trainerContainer": ""}, "spec.trainerContainer: Invalid value"),
        ({"rendezvous": {"lastCallSeconds": 0}}, "spec.rendezvous.lastCallSeconds: Invalid value: 0"),
        (
            {"rendezvous": {"saveSeconds": 75}},
            "spec.rendezvous.saveSeconds: Invalid value: saveSeconds 75 must be less than rejoinSeconds 75",
        ),
        ({"rendezvous": {"rejoinSeconds": 10}}, "saveSeconds 15 must be less than rejoinSeconds 10"),
        ({"template": None}, "spec.template: Required value"),
        ({"template": "none"}, "spec.template: Invalid value"),
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


def test_a_name_that_is_too_long_for_a_label_is_refused(module_namespace: Namespace) -> None:
    with pytest.raises(Failed, match=r"metadata\.name"):
        module_namespace.apply(manifest("n" * 64), dry_run=True)


@pytest.fixture(scope="module")
def idle(module_namespace: Namespace) -> Namespace:
    """A namespace with the job `idle`, 2 of 2 to 4 workers and no pod by its template, and `asleep`, suspended."""
    template = {"spec": {"containers": [{"name": "not-the-trainer", "image": "none"}]}}
    module_namespace.apply(
        manifest("idle", minReplicas=2, maxReplicas=4, template=template),
        manifest("asleep", suspend=True),
    )
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


CHANGES = pytest.mark.parametrize(
    ("field", "value"),
    [
        ("template", '{"metadata": {"labels": {"a": "b"}}}'),
        ("nprocPerNode", "2"),
        ("trainerContainer", '"main"'),
    ],
    ids=["template", "nprocPerNode", "trainerContainer"],
)


@CHANGES
def test_what_running_pods_were_made_from_cannot_be_changed(idle: Namespace, field: str, value: str) -> None:
    patch = f'{{"spec": {{"{field}": {value}}}}}'
    refusal = idle.refusal("patch", "elasticjob", "idle", "--type=merge", f"--patch={patch}")
    assert f"spec.{field}" in refusal
    assert f"{field} can be changed only while the job is suspended: set spec.suspend to true first" in refusal


@CHANGES
def test_it_can_be_changed_while_the_job_is_suspended(idle: Namespace, field: str, value: str) -> None:
    patch = f'{{"spec": {{"{field}": {value}}}}}'
    idle.kubectl("patch", "elasticjob", "asleep", "--type=merge", f"--patch={patch}", "--dry-run=server")


def test_suspend_and_template_change_in_one_edit_are_refused(idle: Namespace) -> None:
    """The pods that run would be those of another template than the one that the job then shows."""
    patch = '{"spec": {"suspend": true, "nprocPerNode": 2}}'
    refusal = idle.refusal("patch", "elasticjob", "idle", "--type=merge", f"--patch={patch}", "--dry-run=server")
    assert "nprocPerNode can be changed only while the job is suspended" in refusal


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("elasticjob", "torchrun agents in pods"),
        ("ej.spec.replicas", "`kubectl scale` changes it"),
        ("ej.spec.rendezvous.lastCallSeconds", "workers that are still on their way"),
        ("ej.status.rendezvous", "Every sidecar of the job watches it"),
        ("elasticworker.spec.request", "Absent until the trainer asks for something"),
        ("ew.status.heartbeat", "Grows by one every five seconds"),
    ],
)
def test_kubectl_explain(cluster: None, field: str, sentence: str) -> None:
    assert sentence in " ".join(kubectl("explain", field).split())

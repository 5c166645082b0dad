"""Pod templates that cannot work: the job says what to change, and is cured by the change."""

import json
from collections.abc import Callable

import pytest

from e2e.job import Job, manifest
from e2e.kube import Object, wait_until

Change = Callable[[Object], None]


def wrong_template(change: Change) -> Object:
    template: Object = manifest("train")["spec"]["template"]
    change(template["spec"])
    return template


def another_name(pod: Object) -> None:
    pod["containers"][0]["name"] = "main"


def no_containers(pod: Object) -> None:
    pod["containers"] = []


def words_for_containers(pod: Object) -> None:
    pod["containers"] = ["trainer"]


def unknown_field(pod: Object) -> None:
    pod["containers"][0]["comand"] = ["torchrun", "/test/train.py"]


def bad_quantity(pod: Object) -> None:
    pod["containers"][0]["resources"] = {"requests": {"memory": "1 gigabyte"}}


def restart_always(pod: Object) -> None:
    pod["restartPolicy"] = "Always"


def own_backend(pod: Object) -> None:
    pod["containers"][0]["command"] = ["torchrun", "--rdzv-backend=c10d", "/test/train.py"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (another_name, "no container named 'trainer' (it has: main): name one so, or set spec.trainerContainer"),
        (no_containers, "spec.containers: Required value"),
        (words_for_containers, "containers"),
        (unknown_field, 'unknown field "spec.containers[0].comand"'),
        (bad_quantity, "quantities must match the regular expression"),
        (restart_always, "spec.template.spec.restartPolicy must be OnFailure or left out"),
        (own_backend, "remove --rdzv-backend from the trainer's command"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_wrong_template_is_told(job: Job, change: Change, sentence: str) -> None:
    job.apply(template=wrong_template(change))
    condition = job.wait_for_condition("TemplateValid", "False", seconds=30)
    assert condition["reason"] == "Invalid"
    assert sentence in condition["message"]

    def told() -> bool:
        return any(event["reason"] == "TemplateInvalid" and sentence in event["message"] for event in job.events())

    wait_until("the event TemplateInvalid", told, 30, job.events)
    assert not job.pods()


def test_a_corrected_template_starts_the_job(job: Job) -> None:
    job.apply(replicas=1, template=wrong_template(another_name))
    job.wait_for_condition("TemplateValid", "False", seconds=30)
    job.patch('{"spec": {"suspend": true}}')
    job.patch(json.dumps({"spec": {"suspend": False, "template": wrong_template(lambda pod: None)}}))
    job.wait_for_condition("TemplateValid", seconds=30)
    job.wait_for_round(1)


def image_from_nowhere(pod: Object) -> None:
    pod["containers"][0]["image"] = "localhost:1/nowhere:1"  # where nothing answers


def too_many_cpus(pod: Object) -> None:
    pod["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(image_from_nowhere, "localhost:1/nowhere:1"), (too_many_cpus, "Insufficient cpu")],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_why_workers_do_not_start_is_told(job: Job, change: Change, sentence: str) -> None:
    job.apply(replicas=2, template=wrong_template(change))

    def told() -> bool:
        condition = job.condition("Rendezvoused")
        return condition["reason"] == "InsufficientMembers" and sentence in condition["message"]

    wait_until(f"{sentence!r} in the condition Rendezvoused", told, 60, job.summary)


def test_a_refusal_that_has_passed_is_forgotten(job: Job) -> None:
    """Not the template is wrong, but the time: the job starts as soon as there is room."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    job.namespace.apply(quota)
    job.apply(replicas=1)

    def told() -> bool:
        return any("exceeded quota: full" in event["message"] for event in job.events())

    wait_until("an event that names the quota", told, 30, job.events)
    job.namespace.kubectl("delete", "resourcequota", "full")
    job.wait_for_round(1)

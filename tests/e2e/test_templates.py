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
        (no_containers, "spec.template.spec.containers is missing"),
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


def test_an_image_that_is_not_there_is_named(job: Job) -> None:
    def unknown_image(pod: Object) -> None:
        pod["containers"][0] |= {"image": "elasticjob/nowhere:1", "imagePullPolicy": "Never"}

    job.apply(replicas=2, template=wrong_template(unknown_image))

    def told() -> bool:
        condition = job.condition("Rendezvoused")
        return condition["reason"] == "InsufficientMembers" and "elasticjob/nowhere:1" in condition["message"]

    wait_until("the image in the condition Rendezvoused", told, 60, job.summary)

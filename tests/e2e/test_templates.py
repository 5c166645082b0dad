# SPDX-License-Identifier: Apache-2.0
"""Pod templates that cannot work: the job says what to change, and is cured by the change."""

from collections.abc import Callable

import pytest

from e2e.job import ROUND_SECONDS, Job, manifest
from e2e.kube import Object, wait_until
from support.waiting import settled

Change = Callable[[Object], None]


def wrong_template(change: Change) -> Object:
    template: Object = manifest("train")["spec"]["template"]
    change(template["spec"])
    return template


def bad_quantity(pod: Object) -> None:
    pod["containers"][0]["resources"] = {"requests": {"memory": "1 gigabyte"}}


def node_name(pod: Object) -> None:
    pod["nodeName"] = "node-a"


def own_backend(pod: Object) -> None:
    pod["containers"][0]["command"] = ["bash", "-c", "cd /test && torchrun --rdzv_backend c10d train.py"]


def accelerate(pod: Object) -> None:
    pod["containers"][0]["command"] = ["accelerate", "launch", "/test/train.py"]


def deepspeed(pod: Object) -> None:
    pod["containers"][0]["command"] = ["deepspeed", "/test/train.py"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (bad_quantity, "quantities must match the regular expression"),
        (node_name, "spec.template.spec.nodeName must be left out"),
        (own_backend, "remove --rdzv-backend from the trainer's command"),
        (accelerate, "accelerate launch needs --rdzv_backend elasticjob"),
        (deepspeed, "starts deepspeed, which knows nothing of elastic rendezvous"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_wrong_template_is_told(job: Job, change: Change, sentence: str) -> None:
    job.apply(template=wrong_template(change))
    condition = job.wait_for_condition("TemplateValid", "False", seconds=30)
    assert condition["reason"] == "Invalid"
    assert sentence in condition["message"]
    job.wait_for_event("TemplateInvalid", sentence)
    assert not settled(job.pods(), "a wrong template makes none")


def test_a_corrected_template_starts_the_job(job: Job) -> None:
    job.apply(replicas=1, template=wrong_template(own_backend))
    job.wait_for_condition("TemplateValid", "False", seconds=30)
    job.apply(replicas=1)
    job.wait_for_condition("TemplateValid", seconds=30)
    job.wait_for_round(1)


def test_a_refusal_that_has_passed_is_forgotten(job: Job) -> None:
    """The template is right, only the time is not: the job starts as soon as there is room."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    job.namespace.apply(quota)
    job.wait_for_quotas()
    job.apply(replicas=1)

    def told() -> bool:
        return any("exceeded quota: full" in event["message"] for event in job.events())

    wait_until("an event that names the quota", told, 30, job.events)
    job.namespace.delete("resourcequota", "full")
    job.wait_for_round(1)


def test_pods_that_an_earlier_job_left_behind_do_not_keep_another_from_training(job: Job) -> None:
    """Nor from being replaced: it takes other numbers. What was left stays, as was asked for."""
    job.apply(replicas=2)
    job.wait_for_round(2)
    former = job.uid
    left = {pod["metadata"]["uid"] for pod in settled(job.pods(), "both train").values()}
    job.namespace.kubectl("delete", "elasticjob", job.name, "--cascade=orphan")
    job.apply(replicas=2)

    def trains() -> bool:
        return job.uid != former and job.rendezvous.get("phase") == "Formed"

    wait_until("the new job's round", trains, ROUND_SECONDS, job.summary)
    pods = settled(job.namespace.list("pods"), "all train, or were left behind")
    names = {pod["metadata"]["name"] for pod in pods}
    assert names == {f"{job.name}-{index}-{number}" for index in (0, 1) for number in (0, 1)}
    assert left < {pod["metadata"]["uid"] for pod in pods}
    assert job.restarts == 0
    job.namespace.kubectl("delete", "pod", f"{job.name}-1-1", "--now")

    def replaced() -> bool:
        return f"{job.name}-1-2" in {pod["metadata"]["name"] for pod in job.namespace.list("pods")}

    wait_until("the replacement", replaced, ROUND_SECONDS, job.summary)

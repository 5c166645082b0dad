# SPDX-License-Identifier: Apache-2.0
"""What a script says by its exit code, and what a job's podFailurePolicy makes of it."""

import json
from typing import Any

import pytest

from e2e.job import Job
from e2e.kube import Object
from support.waiting import settled

FAILS = {"FAIL_AT_STEP": "3", "EXIT_CODE": "42"}  # the other rank fails as a consequence, or is told
FAILED_SECONDS = 180


def policy(action: str, *codes: int, **of: Any) -> Object:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(codes), **of}}]}


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
def test_a_script_ends_the_job_by_its_exit_code(job: Job) -> None:
    job.apply(replicas=2, env=FAILS, podFailurePolicy=policy("FailJob", 42, containerName="trainer"))
    failed = job.wait_for_condition("Failed", seconds=FAILED_SECONDS)
    assert failed["reason"] == "PodFailurePolicy"
    assert failed["message"].startswith("worker 1's training process failed with exit code 42: on ")
    assert failed["message"].endswith(": spec.podFailurePolicy.rules[0] says FailJob")
    status = settled(job.status, "written with the condition")
    assert (status["reason"], status["restarts"]) == ("PodFailurePolicy", 0)
    assert len(job.rounds()) == 1, "there was another try"
    job.wait_for_event("Failed", "exit code 42")


def test_an_exit_code_that_is_ignored_does_not_count_until_the_policy_says_otherwise(job: Job) -> None:
    job.apply(replicas=2, maxRestarts=0, env=FAILS, podFailurePolicy=policy("Ignore", 42))
    second = job.wait_for_round(2, after=job.wait_for_round(2))
    job.wait_for_round(2, after=second)
    status = settled(job.status, "nothing counts before the policy is another")
    assert status["restarts"] == 0
    assert not any(one["counted"] for one in status["history"])
    assert settled(job.condition("Failed")["status"], "nothing counts") == "Unknown"
    job.wait_for_event("FailureIgnored", "exit code 42")

    job.patch(json.dumps({"spec": {"podFailurePolicy": policy("FailJob", 42)}}))
    assert job.wait_for_condition("Failed", seconds=FAILED_SECONDS)["reason"] == "PodFailurePolicy"


def test_an_init_container_ends_a_job_that_could_never_train(job: Job) -> None:
    template: Any = job.manifest()["spec"]["template"]
    image = template["spec"]["containers"][0]["image"]
    command = ["sh", "-c", "echo no such bucket; exit 9"]
    template["spec"]["initContainers"] = [{"name": "fetch", "image": image, "command": command}]
    job.apply(replicas=2, template=template, podFailurePolicy=policy("FailJob", 9, containerName="fetch"))
    failed = job.wait_for_condition("Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert "container fetch failed: exit code 9: no such bucket: spec.podFailurePolicy.rules[0]" in failed["message"]


def test_a_rule_for_a_container_that_is_not_there_is_told(job: Job) -> None:
    job.apply(replicas=1, podFailurePolicy=policy("FailJob", 42, containerName="tariner"))
    told = job.wait_for_condition("TemplateValid", status="False")["message"]
    assert "spec.podFailurePolicy.rules[0].onExitCodes.containerName: spec.template has no container named" in told
    job.patch(json.dumps({"spec": {"podFailurePolicy": None}}))
    job.wait_for_round(1)

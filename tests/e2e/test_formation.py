# SPDX-License-Identifier: Apache-2.0
"""A job's first round, and what kubectl shows of it."""

import re

import pytest

from e2e.job import SIDECAR, TOLD_SECONDS, TRAINER, Job, container_status
from e2e.kube import Namespace, Object, in_url, wait_until
from elasticjob.members import Members
from support.waiting import settled

pytestmark = [pytest.mark.torchrun, pytest.mark.real]


def test_all_workers_form_one_round_and_train_in_it(module_job: Job) -> None:
    assert [(one.number, one.members, one.reason) for one in module_job.rounds()] == [(1, (0, 1), "first formation")]
    pods = module_job.member_pods()
    assert [pod["metadata"]["name"] for pod in pods] == ["train-0-0", "train-1-0"]
    status = settled(module_job.status, "nothing changes this job")
    assert status["rendezvous"]["store"].startswith(f"{in_url(pods[0]['status']['podIP'])}:27601/")
    assert (status["replicas"], status["phase"]) == (2, "Running")


def test_the_trainer_runs_the_templates_command_and_keeps_the_images_pythonpath(module_job: Job) -> None:
    for pod in module_job.member_pods():
        (trainer,) = pod["spec"]["containers"]
        assert (trainer["name"], trainer["command"][-2:]) == (TRAINER, ["torchrun", "/test/train.py"])
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        command, environment = first_process(module_job, pod)
        assert command[-2:] == ["/opt/torch/bin/torchrun", "/test/train.py"]
        assert environment["PYTHONPATH"] == "/elasticjob/trainer:/app"


def test_a_pythonpath_that_comes_from_a_config_map_is_kept(job: Job) -> None:
    """Of which the operator sees the ConfigMap's name and no more."""
    data = {"PYTHONPATH": "/test:/from/a/config map"}
    job.namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data})
    job.apply(replicas=1, trainer={"envFrom": [{"configMapRef": {"name": "settings"}}]})
    job.wait_for_training(1)
    _, environment = first_process(job, job.pod(0))
    assert environment["PYTHONPATH"] == f"/elasticjob/trainer:{data['PYTHONPATH']}"


def first_process(job: Job, pod: Object) -> tuple[list[str], dict[str, str]]:
    """The words and the variables of a trainer container's first process."""
    name = pod["metadata"]["name"]
    show = ["cat", "/proc/1/cmdline", "/proc/1/environ"]
    words = job.namespace.kubectl("exec", name, "--container", TRAINER, "--", *show).split("\0")
    command = [word for word in words if "=" not in word and word]
    return command, dict(word.split("=", 1) for word in words if "=" in word)


def test_kubectl_wait_works_on_the_conditions(module_job: Job) -> None:
    module_job.namespace.kubectl(
        "wait", "elasticjob/train", "--for=condition=Rendezvoused", "--for=condition=TemplateValid", "--timeout=240s"
    )


def test_an_event_tells_of_the_round(module_job: Job) -> None:
    formed = module_job.wait_for_the_only_event("RoundFormed")
    assert formed["type"] == "Normal"
    assert formed["message"].startswith("round 1 formed with 2 workers in ")


GROWING = {"STEP": "", "AGE": ""}


def test_kubectl_get_shows_jobs_and_workers(module_job: Job) -> None:
    shown = {
        "NAME": "train",
        "PHASE": "Running",
        "ROUND": "1",
        "WORLD": "2",
        "WAITING": "0",
        "READY": "2",
        "TARGET": "2",
        **GROWING,
    }

    def job() -> dict[str, str]:
        return row(module_job.namespace, "ej", "train") | GROWING

    wait_until("the job's row", lambda: job() == shown, TOLD_SECONDS, job)  # READY follows the kubelet
    wanted = {
        "NAME": "train-1-0",
        "JOB": "train",
        "RANK": "1",
        "ROUND": "1",
        "REQUEST": "Join",
        "NODE": module_job.pod(1)["spec"]["nodeName"],
        **GROWING,
    }

    def worker() -> dict[str, str]:
        return row(module_job.namespace, "ew", "train-1-0") | GROWING

    # written some seconds after the round was formed
    wait_until("the worker's round and rank", lambda: worker() == wanted, TOLD_SECONDS, worker)


def row(namespace: Namespace, kind: str, name: str) -> dict[str, str]:
    """The line of `name` in what `kubectl get` prints, by column; a column without a value is left out."""
    header, *lines = namespace.kubectl("get", kind).splitlines()
    starts = [(found.group(), found.start()) for found in re.finditer(r"\S+", header)]
    line = next(line for line in lines if line.split()[0] == name)
    cells = {column: line[start:].split(" ", 1)[0] for column, start in starts}
    return {column: cell for column, cell in cells.items() if cell}


def test_a_worker_record_belongs_to_its_pod(module_job: Job) -> None:
    pod = module_job.pod(0)
    record = settled(module_job.namespace.get("elasticworker", pod["metadata"]["name"]), "nothing changes this job")
    (owner,) = record["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
    participants = settled(module_job.rendezvous["participants"], "nothing changes this job")
    assert record["spec"]["id"] == Members.read(participants)[0].id


def test_only_the_sidecar_has_a_token(module_job: Job) -> None:
    pod = module_job.pod(0)
    name, directory = pod["metadata"]["name"], "/var/run/secrets/kubernetes.io/serviceaccount"
    namespace = module_job.namespace
    assert "token" in namespace.kubectl("exec", name, "--container", SIDECAR, "--", "ls", directory)
    refusal = namespace.refusal("exec", name, "--container", TRAINER, "--", "ls", directory)
    assert "No such file or directory" in refusal


def test_each_job_has_a_service_account_of_its_own(module_job: Job) -> None:
    namespace, pod = module_job.namespace, module_job.pod(0)
    assert pod["spec"]["serviceAccountName"] == "train-worker"
    account = settled(namespace.get("serviceaccount", "train-worker"), "nothing changes this job")
    assert [owner["kind"] for owner in account["metadata"]["ownerReferences"]] == ["ElasticJob"]

    def may(verb: str, what: str) -> bool:
        as_worker = f"--as=system:serviceaccount:{namespace.name}:train-worker"
        return namespace.try_kubectl("auth", "can-i", verb, what, as_worker).output.strip() == "yes"

    assert may("watch", "elasticjobs/train")
    assert may("patch", "elasticworkers/train-0-0")
    assert not may("patch", "elasticjobs/train")
    assert not may("watch", "elasticjobs/another")
    assert not may("get", "pods")
    assert not may("list", "secrets")


def test_the_sidecar_runs_without_privileges(module_job: Job) -> None:
    pod = module_job.pod(0)
    (sidecar,) = [one for one in pod["spec"]["initContainers"] if one["name"] == SIDECAR]
    context = sidecar["securityContext"]
    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert container_status(pod, SIDECAR)["restartCount"] == 0

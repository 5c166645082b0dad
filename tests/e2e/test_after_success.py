# SPDX-License-Identifier: Apache-2.0
"""What a trainer's container does after its torchrun has ended in success: an upload, or the next torchrun."""

import shlex
from typing import Any

import pytest

from e2e.disruption import container_status, touch
from e2e.job import AGENT, STARTED_SECONDS, TRAINER, Job, restarts
from e2e.kube import Object, wait_until
from elasticjob.members import Members
from support.waiting import settled

TRAINS = shlex.join(AGENT)
UPLOAD = "/tmp/upload"
WAITS = "until [ -e ${TMPDIR:-/tmp}/upload ]; do sleep 0.1; done"
FAILS_TWICE = (
    "tries=/checkpoints/$PET_RDZV_ID.tries; echo >> $tries; [ $(wc -l < $tries) -gt 2 ] && rm $tries || exit 3"
)
SHORT = {"STEPS": "3"}


def after(command: str) -> dict[str, Any]:
    """A container whose shell goes on with `command` after a success."""
    return {"command": ["sh", "-c", f"{TRAINS} && {{ {command}; }}"]}


def ends(job: Job, name: str) -> list[int]:
    """The exit codes of the trainer's container that were seen, in order."""
    states = [container_status(one.body, TRAINER) for one in job.pod_states.of(name) if has_statuses(one.body)]
    return [state["state"]["terminated"]["exitCode"] for state in states if "terminated" in state["state"]]


def has_statuses(pod: Object) -> bool:
    return bool(pod["status"].get("containerStatuses"))


def test_an_upload_that_fails_is_tried_again_without_training_again(job: Job) -> None:
    job.apply(replicas=1, maxRestarts=2, env=SHORT, trainer=after(FAILS_TWICE))
    job.wait_for_event("ContainerFailed", "exit code 3")
    job.wait_for_condition("Complete")
    job.wait_for_the_end_of_all_pods()
    assert restarts(job.pod_states.of("train-0-0")[-1].body) == 2
    assert [one.number for one in job.rounds()] == [1]
    assert settled(job.rendezvous["stage"], "the job has ended") == 1
    assert job.restarts == 0


def test_an_upload_that_fails_again_and_again_fails_the_job(job: Job) -> None:
    job.apply(replicas=1, maxRestarts=1, env=SHORT, trainer=after("exit 3"))
    said = job.wait_for_condition("Failed")["message"]
    assert "failed 2 times after its torchrun had ended in success (exit code 3), and maxRestarts is 1" in said
    assert [one.number for one in job.rounds()] == [1]


def test_an_upload_is_not_cut_off_by_what_cleans_up(job: Job) -> None:
    """Times to live count from the job's end, and that is the containers'."""
    spec = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
    job.apply(replicas=1, env=SHORT, trainer=after(WAITS), **spec)
    job.wait_for_condition("Finishing")
    assert not settled(job.condition("Complete")["reason"], "the container waits to upload")
    touch(job.pod(0), TRAINER, UPLOAD)
    wait_until("the job to be gone", lambda: not job.jobs.present(), 120, job.summary)
    job.wait_for_no_pods()
    assert set(ends(job, "train-0-0")) == {0}


def test_containers_that_go_on_for_too_long_are_named(job: Job) -> None:
    job.apply(replicas=2, finishSeconds=2, env=SHORT, trainer=after("sleep 600"))
    said = job.wait_for_condition("Failed")["message"]
    assert "containers of workers 0, 1 go on 2 s" in said
    assert "spec.finishSeconds" in said


def test_who_is_scaled_away_does_not_upload(job: Job) -> None:
    job.apply(replicas=2, trainer=after("echo uploads; sleep 600"))
    job.wait_for_round(2)
    job.wait_for_training(2)
    (gone,) = job.member_pods()[1:]
    name = gone["metadata"]["name"]
    with job.namespace.following(name, TRAINER) as followed:
        job.scale(1)
        log = followed.whole()
    assert "told to leave" in log
    assert "uploads" not in log
    job.until("its pod to be gone", lambda: name not in job.pod_states.present(), 60)


def test_a_scale_down_takes_others_than_those_that_go_on(job: Job) -> None:
    """Ranks 0 and 1 save after the last step until they are told, and rank 2 has succeeded."""
    job.apply(replicas=3, env={"FINISH_SECONDS": "inf,inf,0"}, trainer=after(WAITS))
    first = job.wait_for_round(3)
    job.wait_for_training(3)
    zero, one, two = job.member_pods()
    job.finish_training()
    job.until("rank 2 to have succeeded", lambda: finishing(job) == first.members[2:], 60)
    job.scale(2)
    assert job.wait_for_round(1, after=first).members == first.members[:1]
    job.until("rank 1 to go", lambda: one["metadata"]["name"] not in job.pod_states.present(), 60)
    touch(zero, TRAINER, "/tmp/saved")
    for pod in (two, zero):
        touch(pod, TRAINER, UPLOAD)
    job.wait_for_condition("Complete")
    finished = {member.index for member in Members.read(settled(job.rendezvous, "the job has ended")["finished"])}
    assert finished == {first.members[0], first.members[2]}
    assert [restarts(pod) for pod in settled(job.pods(), "the job has ended").values()] == [0, 0]


def finishing(job: Job) -> tuple[int, ...]:
    return tuple(member.index for member in Members.read(job.rendezvous.get("finishing", "")))


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
def test_torchruns_and_an_upload_in_one_container(job: Job) -> None:
    """Worker 1's container fails once between the two."""
    script = """set -e
torchrun --no-python sh -c 'echo prepares as $RANK of $WORLD_SIZE'
case $HOSTNAME in *-1-0) [ -e /state/failed ] || { touch /state/failed; exit 3; } ;; esac
torchrun /test/train.py
until [ -e /tmp/upload ]; do sleep 0.1; done
echo uploaded"""
    body = job.manifest(replicas=2, trainer={"command": ["sh", "-c", script]})
    template = body["spec"]["template"]["spec"]
    template["containers"][0]["volumeMounts"].append({"name": "state", "mountPath": "/state"})
    template["volumes"].append({"name": "state", "emptyDir": {}})
    job.namespace.apply(body)
    first = job.wait_for_round(2, seconds=STARTED_SECONDS)
    second = job.wait_for_round(2, after=first, seconds=STARTED_SECONDS)
    assert (second.number, settled(job.rendezvous["stage"], "this one goes on")) == (2, 2)
    job.wait_for_training(2)
    job.finish_training()
    job.wait_for_condition("Finishing")
    pods = job.pods()
    for pod in pods.values():
        touch(pod, TRAINER, UPLOAD)
    job.wait_for_condition("Complete")
    for pod in pods.values():
        job.logged(pod, "uploaded")
    job.wait_for_the_end_of_all_pods()
    assert [restarts(pod) for _, pod in sorted(settled(job.pods(), "all have ended").items())] == [0, 1]
    assert job.restarts == 0
    assert [one.number for one in job.rounds()] == [1, 2]

# SPDX-License-Identifier: Apache-2.0
"""What scripts and images do in a trainer's container, with real kubelets: children, late starts, long saves."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.disruption import from_its_node, touch
from e2e.job import STARTED_SECONDS, TOLD_SECONDS, TRAINER, Job
from e2e.kube import ENVIRONMENT, Object, wait_until
from e2e.scene import bring

pytestmark = [pytest.mark.real, pytest.mark.torchrun]

ROUNDS = 10


@pytest.mark.extended
@pytest.mark.parametrize("warm", ["Auto", "Disabled"])
def test_what_rounds_start_ends_with_them(job: Job, warm: str) -> None:
    """torchrun is the container's first process. A torchrun inside the training disturbs no round."""
    bring(job, "parent_train.py")
    job.apply(replicas=1, maxReplicas=2, warmRestart=warm)
    formed, training = job.wait_for_round(1), job.wait_for_training(1)
    (pod,) = job.member_pods()
    job.logged(pod, "evaluated as 0 of 1")
    for number in range(2, ROUNDS + 1):
        size = 2 - number % 2
        job.scale(size)
        formed = job.wait_for_round(size, after=formed)
        training = job.wait_for_training(size, other_than=training)

    assert (formed.number, job.restarts) == (ROUNDS, 0)
    job.logged(pod, "ending processes that an earlier round left behind")
    wait_until("no zombie to be left", lambda: not zombies(pod), TOLD_SECONDS, lambda: zombies(pod))
    job.finish_training()
    job.wait_for_condition("Complete")


def zombies(pod: Object) -> list[str]:
    stats = from_its_node(pod, TRAINER, "cat /proc/$first/root/proc/[0-9]*/stat 2> /dev/null; true").splitlines()
    return [stat for stat in stats if stat.rpartition(")")[2].split()[0] == "Z"]


# one with torch's join_timeout, one that starts late, and one in a new environment, as `su -` and ssh make it
STARTS = """case $HOSTNAME in
  *-0-0) exec torchrun --rdzv-conf=join_timeout=2 /test/train.py ;;
  *-1-0) until [ -e /tmp/start ]; do sleep 0.1; done; torchrun /test/train.py ;;
  *) exec env -i PATH="$PATH" torchrun --no-python sh -c 'echo "rank $RANK of $WORLD_SIZE"; exec sleep 600' ;;
esac"""
JOIN_TIMEOUT = 2


@pytest.mark.extended
def test_a_torchrun_that_has_not_spoken_is_named_and_waited_for(job: Job) -> None:
    times = {"joinTimeoutSeconds": JOIN_TIMEOUT, "lastCallSeconds": 1}
    trainer = {"command": ["sh", "-c", STARTS]}
    job.apply(replicas=3, minReplicas=2, maxRestarts=0, trainer=trainer, rendezvous=times)
    assert_named(job, "no torchrun of worker 1, 2 has spoken to its sidecar")
    job.wait_for_condition("Rendezvoused", "False", message="spec.rendezvous.startTimeoutSeconds")
    job.logged(job.pod(2), "rank 0 of 1")
    time.sleep(2 * JOIN_TIMEOUT)  # if it ran, or torch's did, the job would have failed by then

    touch(job.pod(1), TRAINER, "/tmp/start")
    assert job.wait_for_round(2, seconds=STARTED_SECONDS).members == (0, 1)
    job.wait_for_training(2)
    assert job.restarts == 0
    assert_named(job, "no torchrun of worker 2 has spoken to its sidecar")


def assert_named(job: Job, sentence: str) -> None:
    """`why` says it."""
    place = ("--kubeconfig", ENVIRONMENT["KUBECONFIG"], "--namespace", job.namespace.name)

    def why() -> str:
        command = [sys.executable, "-m", "elasticjob_cli", "why", job.name, *place]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    wait_until(f"`why` to say {sentence!r}", lambda: sentence in " ".join(why().split()), STARTED_SECONDS, why)


# torch's own limit is 30 seconds: that of a round's end, and the one of a torchrun that is told to end
SAVES = "trap 'sleep 33; echo saved; exit 0' TERM; echo trains; while :; do sleep 0.1; done"
LIMITS = {"stopSeconds": 60, "saveSeconds": 5, "rejoinSeconds": 120}


@pytest.mark.extended
def test_a_save_at_sigterm_has_the_time_that_job_and_pod_allow(job: Job) -> None:
    """In the deleted pod by its grace period, and in the other by stopSeconds, at the end of the round."""
    trainer = {"command": ["torchrun", "--shutdown-timeout=100", "--no-python", "sh", "-c", SAVES]}
    body = job.manifest(replicas=2, trainer=trainer, rendezvous=LIMITS)
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 120
    job.namespace.apply(body)
    first = job.wait_for_round(2, seconds=STARTED_SECONDS)
    stays, goes = job.member_pods()
    for pod in (stays, goes):
        job.logged(pod, "trains")
    logs = ("logs", goes["metadata"]["name"], "--container", TRAINER, "--follow")
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(job.namespace.kubectl, *logs)
        job.delete_pod(goes)
        assert "saved" in told.result()
    job.wait_for_round(2, after=first, seconds=STARTED_SECONDS)
    job.logged(stays, "saved")
    assert job.restarts == 0

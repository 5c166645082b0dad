# SPDX-License-Identifier: Apache-2.0
"""Why a worker is not there yet, read from its pod: each cause has its word, its object and its remedy."""

import re
from pathlib import Path
from typing import Any

import pytest

from elasticjob.blocker_reasons import REMEDIES, Reason
from elasticjob.reading import Pod, Termination
from elasticjob.reading.waits import KINDS, Wait, exit_of, wait_of
from elasticjob.rendezvous import PodState
from elasticjob_operator.job.absent import MOST_SENTENCES, AnnouncedReasons
from elasticjob_operator.job.observe import Observer
from support.operator_objects import Object, job, pod, record, trainer, view_of
from support.waiting_pods import BACK_OFF, CAUSES, ENDED, STAGE_FINISHED, init, unscheduled


def test_what_torchrun_says_of_its_success_is_no_reason_for_a_containers_end() -> None:
    assert exit_of(Termination.read(STAGE_FINISHED)) == "exit code 3"


@pytest.mark.parametrize(("status", "reason", "said"), CAUSES)
def test_each_cause_has_its_word_its_object_and_its_remedy(status: Object, reason: Reason, said: str) -> None:
    found = wait_of(Pod.read(pod(**status)), "trainer")
    assert found is not None
    assert found.reason is reason
    assert said in found.message
    assert found.sentence == f"{found.message}; {REMEDIES[reason]}"


def test_an_init_container_that_has_failed_and_is_not_called_a_crash_loop_yet() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no route"}}
    found = wait_of(
        Pod.read(pod(initContainerStatuses=[{"name": "fetch", "restartCount": 4, "state": ended}])), "trainer"
    )
    assert found == Wait(Reason.INIT_CRASHES, "the init container fetch fails: exit code 3: no route", 4)
    done = {"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}
    again = wait_of(Pod.read(pod(initContainerStatuses=[done])), "trainer")
    assert again is not None
    assert again.reason is Reason.POD_STARTING


def test_every_cause_of_a_pod_is_walked_through() -> None:
    assert {reason for _, reason, _ in CAUSES} == KINDS.keys() - {
        Reason.POD_BACK_OFF,  # there is no pod then
        Reason.DEVICE_UNHEALTHY,  # its devices say so, while its trainer runs
        Reason.NODE_DRAINING,  # its node says so
        Reason.QUOTA_PENDING,  # its gates say so
        Reason.SIDECAR_NOT_READY,  # its sidecar says so
        Reason.POD_MISSING,  # there is no pod then
        Reason.NOT_JOINED,  # its record says so
    }


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [trainer(running={})]},
        {"containerStatuses": [trainer(terminated={"exitCode": 1})]},
        {"phase": "Failed", "reason": "Evicted"},
        {"phase": "Succeeded"},
    ],
)
def test_who_runs_or_has_ended_waits_for_nothing(status: Object) -> None:
    assert wait_of(Pod.read(pod(**status)), "trainer") is None


def observed(said: Object | None = None, hint: str = "", **status: Any) -> tuple[Any, Wait | None]:
    body = pod(**status)
    observer = Observer("trainer", hint=hint)
    (worker,) = observer.observe(view_of(job(), {"digits-0-0": body}, {"digits-0-0": said} if said else {}))[0]
    return worker, observer.waits.get((0, 0))


def test_a_crashing_init_container_counts_as_the_trainer_would() -> None:
    worker, _ = observed(initContainerStatuses=[init("fetch", 4, ENDED, waiting=BACK_OFF)])
    assert (worker.pod, worker.crashes) == (PodState.CRASH_LOOP, 4)
    assert worker.detail == "the init container fetch fails: exit code 3: no route to the data"


def test_a_crashing_sidecar_is_told_and_not_counted() -> None:
    crashing = {"initContainerStatuses": [init("elasticjob-sidecar", 4, ENDED, waiting=BACK_OFF)]}
    worker, wait = observed(**crashing)
    assert (worker.pod, worker.crashes) == (PodState.BLOCKED, 0)
    worker, wait = observed(containerStatuses=[trainer(running={})], **crashing)
    assert worker.pod is PodState.RUNNING, "it trains on"
    assert wait is not None
    assert wait.reason is Reason.SIDECAR_CRASHES


def test_the_others_do_not_wait_for_a_gated_pod() -> None:
    assert observed(**unscheduled("SchedulingGated", "blocked due to gates"))[0].pod is PodState.UNSCHEDULABLE


def test_a_pod_that_kueue_holds_back_waits_for_quota_in_its_queue() -> None:
    gated = pod(0, **unscheduled("SchedulingGated", "blocked due to gates"))
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    gated["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gpus"
    wait = wait_of(Pod.read(gated), "trainer")
    assert wait is not None
    assert (wait.reason, wait.message, wait.is_fault) == (Reason.QUOTA_PENDING, "in the queue gpus", False)
    assert KINDS[wait.reason].state is PodState.UNSCHEDULABLE, "nobody waits for it"


def test_a_trainer_that_runs_again_says_why_it_ended_until_it_asks_for_something() -> None:
    again = {"containerStatuses": [trainer(1, running={}, last=ENDED)]}
    worker, wait = observed(**again)
    assert worker.pod is PodState.RUNNING
    assert wait == Wait(Reason.TRAINER_CRASHES, "exit code 3: no route to the data", 1)
    asked = record(0, request={"type": "Join", "after": 0, "cause": "Started"})
    assert observed(asked, **again)[1] is None


def test_a_worker_that_asks_has_started_whatever_the_kubelet_has_told_by_now() -> None:
    starting = {"containerStatuses": [trainer(waiting={"reason": "PodInitializing"})]}
    assert observed(**starting)[1] == Wait(Reason.POD_STARTING, "no scheduler has placed its pod yet")
    asked = record(0, request={"type": "Join", "after": 0, "cause": "Started"})
    worker, wait = observed(asked, **starting)
    assert (worker.pod, wait) == (PodState.RUNNING, None)


def test_a_trainer_that_could_not_be_started_once_and_runs_has_not_crashed() -> None:
    never = {"exitCode": 128, "reason": "StartError", "message": "unable to freeze"}
    assert observed(containerStatuses=[trainer(1, running={}, last=never)])[1] is None
    _, wait = observed(containerStatuses=[trainer(1, waiting=BACK_OFF, last=never)])
    assert wait == Wait(Reason.TRAINER_CRASHES, "exit code 128, StartError: unable to freeze", 1)


def test_a_command_that_never_joins_gets_the_hint() -> None:
    looping = {"containerStatuses": [trainer(4, waiting=BACK_OFF, last=ENDED)]}
    worker, _ = observed(hint="the command must be torchrun", **looping)
    assert worker.detail == "exit code 3: no route to the data; the command must be torchrun"
    left = record(0, request={"type": "Leave", "cause": "AgentLost"})
    assert observed(left, hint="the command must be torchrun", **looping)[0].detail.endswith("no route to the data")


def test_the_api_page_has_the_reasons_in_their_order() -> None:
    section = (Path(__file__).parents[4] / "docs" / "api.md").read_text().split("## Why a job waits")[1].split("## ")[0]
    announced = [
        word for first in re.findall(r"^\| (`.*?) \|", section, re.M) for word in re.findall(r"`(\w+)`", first)
    ]
    assert announced == [*Reason, "Suspended"]


NO_IMAGE, BACK_OFF_IMAGE = Wait(Reason.IMAGE_PULL, "ErrImagePull: x"), Wait(Reason.IMAGE_PULL, "ImagePullBackOff: x")
NO_ROOM, STARTING = Wait(Reason.UNSCHEDULABLE, "0/3 nodes"), Wait(Reason.POD_STARTING, "")


def test_each_cause_is_told_once_however_its_message_changes() -> None:
    announced = AnnouncedReasons()
    assert announced.to_announce(0, "", {0: STARTING, 1: NO_IMAGE, 2: NO_IMAGE, 3: NO_ROOM}) == [
        (1, NO_IMAGE),
        (3, NO_ROOM),
    ]
    assert announced.to_announce(0, "ImagePull", {0: BACK_OFF_IMAGE}) == []
    assert announced.to_announce(0, "PodStarting", {}) == []
    assert announced.to_announce(0, "PodStarting", {0: NO_IMAGE}) == []
    assert announced.to_announce(1, "", {0: NO_IMAGE}) == [(0, NO_IMAGE)], "another round, another news"


def test_what_a_sidecar_says_is_told_though_it_did_not_answer_before() -> None:
    """A sidecar's trouble is known late, and may become another one."""
    silent, unknown, full = (
        Wait(Reason.SIDECAR_NOT_READY, said) for said in ("does not answer", "quota not counted", "quota exceeded")
    )
    announced = AnnouncedReasons()
    for wait in (silent, unknown, full):
        assert announced.to_announce(0, "", {0: wait, 1: wait}) == [(0, wait)]
    assert announced.to_announce(0, "", {0: silent, 1: full}) == []
    changing = [Wait(Reason.SIDECAR_NOT_READY, f"{number} s") for number in range(100)]
    told = [wait for wait in changing if announced.to_announce(0, "", {0: wait})]
    assert told == changing[: MOST_SENTENCES - 3], "events have an end"
    assert AnnouncedReasons().to_announce(0, "SidecarNotReady", {0: full}) == []


def test_a_new_leader_does_not_tell_again_what_the_status_says() -> None:
    assert AnnouncedReasons().to_announce(0, "ImagePull", {0: NO_IMAGE, 1: NO_ROOM}) == [(1, NO_ROOM)]

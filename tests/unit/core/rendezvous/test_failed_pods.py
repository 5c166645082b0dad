# SPDX-License-Identifier: Apache-2.0
"""Which pods a step finds failed, by their own or their nodes' fault, story by story."""

from dataclasses import replace

import pytest

from elasticjob.rendezvous import Decision, Failed, Matched, PodState, Request
from elasticjob.terms import PolicyAction, RequestCause, RequestType
from support.job_on_paper import JobOnPaper, formed

COUNT, IGNORE = (Matched(0, action, "it says so") for action in (PolicyAction.COUNT, PolicyAction.IGNORE))


def seen(job: JobOnPaper, index: int, **changes: object) -> tuple[Failed, ...]:
    """What the step finds that sees the change of worker `index`."""
    pod_key = job.pod_key(index)
    job.workers[pod_key] = replace(job.workers[pod_key], **changes)  # type: ignore[arg-type]
    return job.step().failed


def rejoins(cause: RequestCause) -> Request:
    return Request(type=RequestType.JOIN, after=1, cause=cause)


def test_a_node_that_rejects_a_pod_is_at_fault() -> None:
    for job in (formed(2), JobOnPaper(replicas=2)):
        assert seen(job, 1, pod=PodState.FAILED, rejected=True) == (Failed((1, 0), judged=True),)


@pytest.mark.parametrize("pod", [PodState.FAILED, PodState.OOM_KILLED, PodState.CRASH_LOOP])
def test_a_member_whose_pod_failed_by_itself(pod: PodState) -> None:
    assert seen(formed(2), 1, pod=pod) == (Failed((1, 0), judged=True),)


def test_a_pod_that_failed_before_it_joined() -> None:
    assert seen(JobOnPaper(replicas=2), 1, pod=PodState.FAILED) == (Failed((1, 0), judged=True),)


@pytest.mark.parametrize(
    "changes",
    [
        {"deleting": True},
        {"pod": PodState.FAILED, "disrupted": True},
        {"pod": PodState.FAILED, "matched": IGNORE},
        {"deleting": True, "matched": COUNT},
        {"outdated": True},
        {"draining": True},
    ],
    ids=["deleted", "evicted", "ignored", "deleted, and counted by the policy", "outdated", "draining"],
)
def test_a_pod_that_others_have_ended_or_that_the_policy_ignores_has_not(changes: dict[str, object]) -> None:
    assert seen(formed(2), 1, **changes) == ()


def test_a_pod_that_is_deleted_as_the_cluster_hears_nothing_of_its_node_has() -> None:
    found = seen(formed(2), 1, deleting=True, disrupted=True, unready=True)
    assert found == (Failed((1, 0), judged=True),)


def test_a_worker_that_does_not_answer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    job, found = formed(3), list[Failed]()
    step = job.step

    def noting() -> Decision:
        decision = step()
        found.extend(decision.failed)
        return decision

    monkeypatch.setattr(job, "step", noting)
    job.suspect(0, 2)
    job.wait(20, living=(0, 1))
    assert "worker 2 lost: no ack of a ping for" in " ".join(job.log)
    assert found == [Failed((2, 0), judged=True)]


@pytest.mark.parametrize("cause", [RequestCause.AGENT_LOST, RequestCause.TRAINER_LEFT])
def test_a_member_that_leaves_as_it_failed_is_yet_to_be_judged(cause: RequestCause) -> None:
    found = seen(formed(2), 1, request=Request(type=RequestType.LEAVE, cause=cause))
    assert found == (Failed((1, 0), judged=False),)


def test_so_is_one_whose_processes_failed_and_of_several_it_is_the_one_that_is_told() -> None:
    job = formed(3)
    for index in (1, 2):
        pod_key = job.pod_key(index)
        job.workers[pod_key] = replace(job.workers[pod_key], request=rejoins(RequestCause.WORKER_FAILED))
    decision: Decision = job.step()
    assert decision.failed == (Failed((1, 0), judged=False),)
    assert decision.state.failure == "worker 1's processes failed"


def test_one_that_comes_back_for_another_cause_has_not_failed() -> None:
    assert seen(formed(2), 1, request=rejoins(RequestCause.RENEWED)) == ()


def test_of_a_training_that_hangs_it_is_not_sure_whose_fault_it_is() -> None:
    job = formed(2)
    assert seen(job, 1, hung="no member has reported") == ()
    assert job.state.failure == "no member has reported"


def test_a_loss_is_told_once_though_the_round_has_ended_by_it() -> None:
    job = formed(2)
    assert seen(job, 1, pod=PodState.FAILED) == (Failed((1, 0), judged=True),)
    assert job.step().failed == ()


def test_a_replacement_is_told_by_its_own_number() -> None:
    job = formed(2)
    seen(job, 1, pod=PodState.FAILED)
    job.start(1)
    assert seen(job, 1, pod=PodState.FAILED) == (Failed((1, 1), judged=True),)

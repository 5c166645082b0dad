# SPDX-License-Identifier: Apache-2.0
"""Beside a controller that quarantines faulty nodes as NVSentinel does: workers move before it takes their pods."""

import pytest

from e2e.disruption import cordoned, worker_nodes
from e2e.job import Job
from e2e.nvsentinel import Mode, quarantined
from e2e.test_drain import apply_spread, node_of, told
from support.waiting import settled

pytestmark = [pytest.mark.disruptive("nodes"), pytest.mark.on_workers]

DRAINED_SECONDS = 60
TIMEOUT_SECONDS = 8
TAINT = "nvidia.com/gpu-error"  # a key of the examples in NVSentinel's documentation


@pytest.mark.parametrize(
    "mode",
    [
        Mode.ALLOW_COMPLETION,
        pytest.param(Mode.IMMEDIATE, marks=pytest.mark.extended),
        pytest.param(Mode.DELETE_AFTER_TIMEOUT, marks=pytest.mark.extended),
    ],
)
def test_workers_leave_a_faulty_node_by_themselves(job: Job, mode: Mode) -> None:
    apply_spread(job)
    first, before = job.wait_for_round(2), job.wait_for_training(2)
    job.wait_for_protection(2)
    node = node_of(job.member_pods()[1])
    with quarantined(node, job.namespace, mode, timeout=DRAINED_SECONDS * 10) as drainer:
        job.until("the node to be drained", drainer.is_drained, DRAINED_SECONDS)
        after = job.wait_for_round(2, after=first)
        job.wait_for_training(2, other_than=before)
        assert node not in [node_of(pod) for pod in job.member_pods()]
    assert "whose node is draining" in after.reason
    assert (drainer.refused > 0) is (mode is Mode.IMMEDIATE), "no eviction was granted before others had come"
    assert job.restarts == 0
    assert "WorkerLost" not in settled(told(job), "what was told stays")


def test_a_taint_without_a_cordon_drains_the_jobs_that_name_it(job: Job) -> None:
    apply_spread(job, drain={"taints": ["node.kubernetes.io/unschedulable", TAINT]})
    first = job.wait_for_round(2)
    node = node_of(job.member_pods()[1])
    taint = f"{TAINT}=fatal:NoSchedule"
    with quarantined(node, job.namespace, Mode.ALLOW_COMPLETION, cordons=False, taint=taint) as drainer:
        job.until("the node to be drained", drainer.is_drained, DRAINED_SECONDS)
        job.wait_for_round(2, after=first)
    job.wait_for_event("NodeDraining", f"its node {node} is draining ({TAINT})")
    assert job.restarts == 0


def test_pods_that_are_deleted_by_force_where_no_other_node_has_room_are_no_failure(job: Job) -> None:
    """The budget still refuses evictions then, and nobody asks it."""
    apply_spread(job, minReplicas=1, maxRestarts=0)
    first, before = job.wait_for_round(2), job.wait_for_training(2)
    gone, stays = job.member_pods()[1], job.member_pods()[0]
    node, others = node_of(gone), [one for one in worker_nodes() if one != node_of(gone)]
    with (
        cordoned(others),
        quarantined(node, job.namespace, Mode.DELETE_AFTER_TIMEOUT, timeout=TIMEOUT_SECONDS) as drainer,
    ):
        job.until("the node to be drained", drainer.is_drained, DRAINED_SECONDS)
        smaller = job.wait_for_round(1, after=first)
        assert [pod["metadata"]["name"] for pod in job.member_pods()] == [stays["metadata"]["name"]]
        alone = job.wait_for_training(1, other_than=before)
    job.wait_for_round(2, after=smaller)
    job.wait_for_training(2, other_than=alone)
    assert job.restarts == 0

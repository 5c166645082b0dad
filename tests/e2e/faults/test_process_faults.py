# SPDX-License-Identifier: Apache-2.0
"""A worker's processes and containers are killed: one after the other in one training, with --whole in one each."""

from collections.abc import Callable
from typing import Any

import pytest

from e2e.disruption import kill_container, signal_worker_process, touch
from e2e.faults.fault import Fault
from e2e.job import SIDECAR, TOLD_SECONDS, TRAINER, restarts
from e2e.kube import Object, wait_until

pytestmark = [pytest.mark.torchrun, pytest.mark.usefixtures("module_namespace", "warm")]

SHARED_JOB: dict[str, Any] = {"trainer": {"resources": {"limits": {"memory": "2Gi"}}}, "maxRestarts": 10}


@pytest.fixture
def fault_of_two(begin_with_two: Callable[..., Fault]) -> Fault:
    """Of a job of two workers that train."""
    return begin_with_two(**SHARED_JOB)


def formed_again(fault: Fault) -> list[Object]:
    """The pods once the same two train in the next round, in the same order, after one failure more."""
    new = fault.formed(2)
    assert new.number == fault.next_number
    assert new.members == (0, 1)
    pods = fault.job.member_pods()
    assert [pod["metadata"]["uid"] for pod in pods] == [pod["metadata"]["uid"] for pod in fault.pods]
    assert fault.job.restarts == fault.restarts + 1
    return pods


@pytest.mark.real
@pytest.mark.fault("worker-process-killed", told=1.0, warm=True)
def test_worker_process_killed(fault_of_two: Fault) -> None:
    fault = fault_of_two
    victim = fault.pods[1]
    fault.strike(victim)
    signal_worker_process(victim, TRAINER)
    pods = formed_again(fault)
    assert list(map(restarts, pods)) == list(map(restarts, fault.pods)), "torchrun starts the processes again"


@pytest.mark.extended
@pytest.mark.fault("agent-killed", told=1.0, warm=True)
def test_agent_killed(fault_of_two: Fault) -> None:
    fault = fault_of_two
    victim = fault.pods[1]
    fault.strike(victim)
    fault.job.kill_trainer(victim)
    formed_again(fault)
    wanted = restarts(victim) + 1
    wait_until("the restart in the pod's status", lambda: restarts(fault.job.pod(1)) == wanted, TOLD_SECONDS)
    assert restarts(fault.job.pod(1), SIDECAR) == restarts(victim, SIDECAR), "the membership stayed"


@pytest.mark.real
@pytest.mark.fault("oom-killed", told=2.0, warm=True)
def test_oom_killed(fault_of_two: Fault) -> None:
    """The kernel kills the training process, or with cgroups of version 2 all of its container."""
    fault = fault_of_two
    victim = fault.pods[1]
    fault.strike(victim)
    touch(victim, TRAINER, "/tmp/grow")
    formed_again(fault)
    reason = fault.job.rounds()[-1].reason
    assert "SIGKILL" in reason or "AgentLost" in reason


@pytest.mark.real
@pytest.mark.fault("sidecar-killed", told=3.0, warm=True)
def test_sidecar_killed(fault_of_two: Fault) -> None:
    """Rank 0's, through which all reach the store."""
    fault = fault_of_two
    before = fault.job.restarts
    fault.strike()
    kill_container(fault.pods[0], SIDECAR)
    new = fault.formed(2)

    assert new.number == fault.next_number
    assert new.reason == "worker 0's sidecar was restarted"
    assert len(fault.survivors()) == 2, "the trainer's container ran on"
    assert fault.job.restarts == before

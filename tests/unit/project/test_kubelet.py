# SPDX-License-Identifier: Apache-2.0
"""What a kubelet makes of its containers, in the words of its status."""

from typing import Any

import pytest

from support import kubelet
from support.kubelet import Pod

SPEC: dict[str, Any] = {
    "restartPolicy": "OnFailure",
    "initContainers": [
        {"name": "fetch", "image": "i"},
        {"name": "sidecar", "image": "i", "restartPolicy": "Always", "readinessProbe": {}},
    ],
    "containers": [{"name": "trainer", "image": "i"}],
}


def ready(pod: Pod) -> str:
    return next(one["status"] for one in kubelet.status(pod)["conditions"] if one["type"] == "Ready")


def test_a_pod_from_its_first_container_to_its_last() -> None:
    pod = Pod.of(SPEC, "10.0.0.1", 0)
    assert (kubelet.phase(pod), kubelet.sidecars(SPEC)) == ("Pending", {"sidecar"})
    pod = kubelet.ended(kubelet.started(pod, "fetch", 1), "fetch", 2, 0)
    assert (kubelet.next_start(pod, "fetch"), kubelet.initialized(pod)) == (None, False)
    pod = kubelet.started(kubelet.started(pod, "sidecar", 3), "trainer", 4)
    assert (kubelet.phase(pod), ready(pod)) == ("Running", "False")
    pod = kubelet.is_ready(pod, "sidecar")
    assert ready(pod) == "True"
    pod = kubelet.ended(pod, "trainer", 9, 0)
    assert (kubelet.next_start(pod, "trainer"), kubelet.phase(pod)) == (None, "Running"), "its sidecar runs"
    pod = kubelet.ended(pod, "sidecar", 10, 0)
    assert (kubelet.phase(pod), ready(pod), kubelet.has_ended(pod)) == ("Succeeded", "False", True)


def test_a_container_that_fails_is_started_again_at_once_and_then_ever_later() -> None:
    pod, waited = kubelet.running(SPEC, "10.0.0.1", 0), []
    for at in range(8):
        pod = kubelet.ended(pod, "trainer", at, 3, message="no data")
        waited.append(kubelet.next_start(pod, "trainer"))
        told = kubelet.status(kubelet.backs_off(pod, "trainer"))["containerStatuses"][0]
        assert told["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert (told["lastState"]["terminated"]["exitCode"], told["restartCount"]) == (3, at)
        pod = kubelet.started(pod, "trainer", at)
    assert waited == [0, 10, 20, 40, 80, 160, 300, 300]
    pod = kubelet.ended(pod, "trainer", 7 + kubelet.FORGIVEN_AFTER + 1, 3)
    assert kubelet.next_start(pod, "trainer") == 0, "it ran for long"


@pytest.mark.parametrize(
    ("policy", "code", "phase", "again"),
    [
        ("Always", 0, "Running", 0),
        ("OnFailure", 1, "Running", 0),
        ("Never", 1, "Failed", None),
        ("Never", 0, "Succeeded", None),
    ],
)
def test_the_restart_policy(policy: str, code: int, phase: str, again: float | None) -> None:
    spec = {"restartPolicy": policy, "containers": SPEC["containers"]}
    pod = kubelet.ended(kubelet.running(spec, "10.0.0.1", 0), "trainer", 1, code)
    assert (kubelet.phase(pod), kubelet.next_start(pod, "trainer")) == (phase, again)


def test_a_pod_that_its_kubelet_ends_has_failed_for_good() -> None:
    """It says so once, when no container runs any more: never that all have ended, and not why."""
    pod = kubelet.fails(kubelet.running(SPEC, "10.0.0.1", 0), "DeadlineExceeded")
    for name in ("trainer", "sidecar"):
        assert (kubelet.phase(pod), "reason" in kubelet.status(pod), kubelet.has_ended(pod)) == (
            "Running",
            False,
            False,
        )
        pod = kubelet.ended(pod, name, 1, 137)
        assert kubelet.next_start(pod, name) is None
    assert (kubelet.status(pod)["phase"], kubelet.status(pod)["reason"]) == ("Failed", "DeadlineExceeded")

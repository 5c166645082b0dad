# SPDX-License-Identifier: Apache-2.0
"""What the tests on a cluster take for the condition of a stock alert: each can be met."""

from typing import Any

import pytest

from support.stock_alerts import of_budgets, of_pods

POD = {"metadata": {"name": "digits-0-0", "ownerReferences": [{"kind": "ElasticJob"}]}}


def waiting(reason: str, kind: str = "containerStatuses") -> dict[str, Any]:
    return {"phase": "Running", kind: [{"name": "trainer", "state": {"waiting": {"reason": reason}}}]}


@pytest.mark.parametrize(
    ("status", "alerts"),
    [
        ({"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {"running": {}}}]}, []),
        ({"phase": "Pending"}, ["KubePodNotReady"]),
        ({"phase": "Unknown"}, ["KubePodNotReady"]),
        ({"phase": "Failed"}, []),
        ({"phase": "Succeeded"}, []),
        (waiting("CrashLoopBackOff"), ["KubePodCrashLooping"]),
        (waiting("ImagePullBackOff", "initContainerStatuses"), ["KubeContainerWaiting"]),
    ],
)
def test_pods(status: dict[str, Any], alerts: list[str]) -> None:
    assert [alert for alert, _ in of_pods([POD | {"status": status}])] == alerts


@pytest.mark.parametrize(("desired", "current", "met"), [(8192, 2, True), (3, 2, True), (2, 2, False), (2, 3, False)])
def test_budgets(desired: int, current: int, met: bool) -> None:
    status = {"desiredHealthy": desired, "currentHealthy": current}
    assert bool(list(of_budgets([{"metadata": {"name": "digits-worker"}, "status": status}]))) is met

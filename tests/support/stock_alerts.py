# SPDX-License-Identifier: Apache-2.0
"""The conditions of the alerts that clusters have of their own, by kubernetes-mixin, on objects instead of on metrics.

Those of pods, containers and budgets; a job of ours is no batch/v1 Job. An alert fires when its condition
has held for a while, of which nothing is said here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

Object = dict[str, Any]


def of_pods(pods: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Alert and object."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status", {})
        owners = [one["kind"] for one in pod["metadata"].get("ownerReferences", ())]
        if status.get("phase") in ("Pending", "Unknown") and owners and "Job" not in owners:
            yield "KubePodNotReady", name
        for field in ("initContainerStatuses", "containerStatuses"):
            for container in status.get(field, ()):
                reason = container.get("state", {}).get("waiting", {}).get("reason")
                if reason:
                    alert = "KubePodCrashLooping" if reason == "CrashLoopBackOff" else "KubeContainerWaiting"
                    yield alert, f"{name} {container['name']}"


def of_budgets(budgets: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Alert and object."""
    for budget in budgets:
        status = budget.get("status", {})
        if status.get("desiredHealthy", 0) > status.get("currentHealthy", 0):
            yield "KubePdbNotEnoughHealthyPods", budget["metadata"]["name"]

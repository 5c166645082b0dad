# SPDX-License-Identifier: Apache-2.0
"""What explains a failed test: the objects, the events and the ends of the logs, while they are still there."""

import json
from collections.abc import Iterator

import yaml

from e2e.kube import Namespace, Object, run

SYSTEM = Namespace("elasticjob-system")
POD_LINES, OPERATOR_LINES = 30, 80

EVENT_COLUMNS = (
    "TIME:.metadata.creationTimestamp,OBJECT:.involvedObject.name,TYPE:.type,REASON:.reason,MESSAGE:.message"
)


def explain(namespace: Namespace) -> Iterator[tuple[str, str]]:
    """Titles and texts. Asks one thing at a time and takes what it gets: the cluster may be in a bad state."""
    yield "objects", _say(namespace, "get", "elasticjobs,elasticworkers,pods", "--output", "wide")
    for job in _items(namespace, "elasticjobs"):
        yield f"status of {job['metadata']['name']}", yaml.safe_dump(job.get("status"), sort_keys=False, width=200)
    sorted_by = "--sort-by=.metadata.creationTimestamp"
    yield "events", _say(namespace, "get", "events", sorted_by, "--output", f"custom-columns={EVENT_COLUMNS}")
    for pod in _items(namespace, "pods"):
        yield from _logs(namespace, pod)
    yield "operator", _operator(namespace)


def _say(namespace: Namespace, *arguments: str) -> str:
    answer = namespace.try_kubectl(*arguments)
    return answer.output + answer.errors


def _items(namespace: Namespace, kind: str) -> list[Object]:
    answer = namespace.try_kubectl("get", kind, "--output", "json")
    items: list[Object] = json.loads(answer.output)["items"] if not answer.code else []
    return items


def _logs(namespace: Namespace, pod: Object) -> Iterator[tuple[str, str]]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for container in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        logs = ["logs", name, "--container", container["name"], f"--tail={POD_LINES}"]
        if container["restartCount"]:
            yield f"{name} {container['name']}, the life before", _say(namespace, *logs, "--previous")
        yield f"{name} {container['name']}", _say(namespace, *logs)


def _operator(namespace: Namespace) -> str:
    """What the operators logged about `namespace`, and all that they warned of."""
    selector = "app.kubernetes.io/name=elasticjob"
    logs = run("kubectl", "logs", "--namespace", SYSTEM.name, "--selector", selector, "--prefix", "--tail=2000")
    telling = [
        line
        for line in logs.output.splitlines()
        if namespace.name in line or not any(level in line for level in (" INFO ", " DEBUG ", "being terminated"))
    ]
    pods = _say(SYSTEM, "get", "pods,leases", "--output", "wide")
    return "\n".join([pods, *telling[-OPERATOR_LINES:], logs.errors])

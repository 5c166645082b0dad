# SPDX-License-Identifier: Apache-2.0
"""Which rule of `spec.podFailurePolicy` matches what has happened to a worker. Pure; when that counts say the rules.

Conditions are those of a pod that is on its way out. Exit codes of a pod that was deleted, or that the cluster has
ended, are those of its stop, and say nothing of the training.
"""

from collections.abc import Mapping
from typing import NamedTuple

from elasticjob.api import PodFailurePolicy, RequestType, WorkerRequest
from elasticjob.failure_policy import OnExitCodes, PolicyRule
from elasticjob.pods import SIDECAR
from elasticjob.reading import Container, End, Pod
from elasticjob.reading.waits import joined
from elasticjob.rendezvous import Matched
from elasticjob.terms import Cause


class Failed(NamedTuple):
    """How a container has failed, or the training processes in it."""

    code: int
    said: str


def matched_rule(
    policy: PodFailurePolicy | None,
    pod: Pod,
    trainer: str,
    index: int,
    request: WorkerRequest | None,
    detail: str,
    *,
    is_out: bool,
) -> Matched | None:
    """The first rule that matches the worker `index`, whose record has `request` and of whose failure it says `detail`.

    `is_out`: the pod has ended, or is about to.
    """
    if policy is None:
        return None
    stopped = pod.deleting or pod.disruption
    failed = {} if stopped else failures_of(pod, trainer, request, detail)
    for place, rule in enumerate(policy.rules):
        if why := _of_exit_codes(rule.on_exit_codes, failed) or (_of_conditions(rule, pod) if is_out else ""):
            says = f"spec.podFailurePolicy.rules[{place}] says {rule.action}"
            return Matched(place, rule.action, f"worker {index}'s {why}: {says}")
    return None


def failures_of(pod: Pod, trainer: str, request: WorkerRequest | None, detail: str) -> dict[str, Failed]:
    """By container, those that have failed; the trainer first. What ends beside it while it runs is no failure."""
    its = pod.container(trainer)
    found = {trainer: _of_trainer(its, request, detail)}
    for one in () if its.runs else pod.containers:
        if one.name not in (trainer, SIDECAR):
            found[one.name] = _of_end(_end_of(one))
    return {name: failed for name, failed in found.items() if failed and failed.code}


def _end_of(container: Container) -> End | None:
    """How one that does not run has failed."""
    return container.ended or (container.crashed_before if container.waits else None)


def _of_trainer(container: Container, request: WorkerRequest | None, detail: str) -> Failed | None:
    """What torchrun has told of its training processes, unless its container has ended after that; else how that has
    ended. How it ended before it was started again counts when a new torchrun has joined, or none ever has: of one that
    leaves the kubelet may not have said yet how it ends, and one that served no store runs on."""
    told = None
    if request is not None and request.exit_code is not None:
        told = Failed(request.exit_code, joined(f"training process failed with exit code {request.exit_code}", detail))
    if told and request and request.type is RequestType.LEAVE:
        return told
    if not container.runs:
        return _of_end(_end_of(container))
    starts = request is None or request.cause == Cause.STARTED
    return told or (_of_end(container.crashed_before) if starts else None)


def _of_end(end: End | None) -> Failed | None:
    return Failed(end.code, joined(end.told)) if end else None


def _of_exit_codes(wanted: OnExitCodes | None, failed: Mapping[str, Failed]) -> str:
    """What of it matches, in words; empty if nothing does."""
    if wanted is None:
        return ""
    for name, one in failed.items():
        if wanted.container_name in (None, name) and (one.code in wanted.values) is (wanted.operator == "In"):
            return one.said if one.said.startswith("training process") else f"container {name} failed: {one.said}"
    return ""


def _of_conditions(rule: PolicyRule, pod: Pod) -> str:
    for wanted in rule.on_pod_conditions or ():
        found = pod.condition(wanted.type)
        status = wanted.status or "True"
        if found.status == status:
            said = joined(found.reason, found.message)
            return f"pod has the condition {wanted.type}={status}" + (f" ({said})" if said else "")
    return ""

# SPDX-License-Identifier: Apache-2.0
"""Which rule of `spec.podFailurePolicy` matches what has happened to a worker. Pure. The rules of the rendezvous decide
when a match counts.

Only the conditions of a pod that is on its way out are matched. The exit codes of a pod that was deleted, or that the
cluster has ended, come from its stop and say nothing about the training.
"""

from collections.abc import Mapping
from typing import NamedTuple

from elasticjob.api import PodFailurePolicy, RequestType, WorkerRequest
from elasticjob.failure_policy import OnExitCodes, PolicyRule
from elasticjob.pods import SIDECAR
from elasticjob.reading import Container, Pod, Termination
from elasticjob.reading.waits import joined
from elasticjob.rendezvous import Matched
from elasticjob.terms import RequestCause


class ContainerFailure(NamedTuple):
    """How a container has failed, or a training process in it, if torchrun has reported it."""

    code: int
    message: str
    is_of_process: bool = False


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
    """The first rule that matches the worker `index`. `request`: the request in its record. `detail`: what the record
    says of its failure. `is_out`: the pod has ended, or is about to."""
    if policy is None:
        return None
    stopped = pod.deleting or pod.disruption
    failed = {} if stopped else failures_of(pod, trainer, request, detail)
    for place, rule in enumerate(policy.rules):
        if why := _of_exit_codes(rule.on_exit_codes, failed) or (_of_conditions(rule, pod) if is_out else ""):
            says = f"spec.podFailurePolicy.rules[{place}] says {rule.action}"
            return Matched(place, rule.action, f"worker {index}'s {why}: {says}")
    return None


def failures_of(pod: Pod, trainer: str, request: WorkerRequest | None, detail: str) -> dict[str, ContainerFailure]:
    """The containers that have failed, by name, the trainer first. A container that ends while the trainer runs has not
    failed."""
    its = pod.container(trainer)
    found = {trainer: _of_trainer(its, request, detail)}
    for one in () if its.runs else pod.containers:
        if one.name not in (trainer, SIDECAR):
            found[one.name] = _of_end(_end_of(one))
    return {name: failed for name, failed in found.items() if failed and failed.code}


def _end_of(container: Container) -> Termination | None:
    """How a container that does not run has failed."""
    return container.ended or (container.crashed_before if container.waits else None)


def _of_trainer(container: Container, request: WorkerRequest | None, detail: str) -> ContainerFailure | None:
    """How the trainer's container has failed. What torchrun has reported of its training processes comes first, unless
    the container has ended after that report.

    The container's previous end counts if a new torchrun has joined, or none ever has. After a torchrun leaves, the
    kubelet may not have reported its end yet, and a torchrun that could not serve the store runs on.
    """
    failure = None
    if request is not None and request.exit_code is not None:
        message = joined(f"training process failed with exit code {request.exit_code}", detail)
        failure = ContainerFailure(request.exit_code, message, is_of_process=True)
    if failure and request and request.type is RequestType.LEAVE:
        return failure
    if not container.runs:
        return _of_end(_end_of(container))
    starts = request is None or request.cause == RequestCause.STARTED
    return failure or (_of_end(container.crashed_before) if starts else None)


def _of_end(end: Termination | None) -> ContainerFailure | None:
    return ContainerFailure(end.code, joined(end.summary)) if end else None


def _of_exit_codes(wanted: OnExitCodes | None, failed: Mapping[str, ContainerFailure]) -> str:
    """The failure that matches, in words; empty if none does."""
    if wanted is None:
        return ""
    for name, one in failed.items():
        if wanted.container_name in (None, name) and (one.code in wanted.values) is (wanted.operator == "In"):
            return one.message if one.is_of_process else f"container {name} failed: {one.message}"
    return ""


def _of_conditions(rule: PolicyRule, pod: Pod) -> str:
    for wanted in rule.on_pod_conditions or ():
        found = pod.condition(wanted.type)
        status = wanted.status or "True"
        if found.status == status:
            message = joined(found.reason, found.message)
            return f"pod has the condition {wanted.type}={status}" + (f" ({message})" if message else "")
    return ""

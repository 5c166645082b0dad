# SPDX-License-Identifier: Apache-2.0
"""The project's own requirements on a pod template that is a valid pod. Pure; each problem says what to change."""

import re
from collections.abc import Iterator
from typing import Any

from elasticjob.api import HEALTH_PORT, STORE_PORT, TRAINER_API_PORT, TUNNEL_PORT, ElasticJobSpec
from elasticjob.objects import Object
from elasticjob.pods import SIDECAR
from elasticjob_operator.objects import launchers
from elasticjob_operator.objects.pods import RESERVED_ENVIRONMENT, VOLUMES

QUANTITY = re.compile(r"[+-]?[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")


def problem(spec: ElasticJobSpec) -> str | None:
    """What has to be changed in `spec.template`, in one sentence; None if nothing has."""
    return "; ".join(_problems(spec)) or None


def hint(spec: ElasticJobSpec) -> str | None:
    """What a user should check first if trainers end before they join, in one sentence; None if nothing is unusual."""
    trainer = _trainer(spec)
    return launchers.hint(trainer) if trainer else None


def odd_quantities(template: Object) -> Iterator[str]:
    """Fields that should hold a quantity and do not, with their values: the API server does not name them."""
    yield from _odd_quantities(template, "spec.template")


def _odd_quantities(value: Any, place: str, *, is_quantity: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, field in value.items():
            has_them = name in ("requests", "limits", "sizeLimit", "divisor")
            yield from _odd_quantities(field, f"{place}.{name}", is_quantity=is_quantity or has_them)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _odd_quantities(one, f"{place}[{number}]")
    elif is_quantity and value is not None and not QUANTITY.fullmatch(str(value)):
        yield f"{place} is {value!r}"


def _trainer(spec: ElasticJobSpec) -> Object | None:
    return next((one for one in spec.template["spec"]["containers"] if one.get("name") == spec.trainer_container), None)


def _problems(spec: ElasticJobSpec) -> Iterator[str]:
    pod = spec.template["spec"]
    trainer = _trainer(spec)
    if trainer is None:
        names = ", ".join(str(one.get("name")) for one in pod["containers"])
        yield (
            f"spec.template has no container named {spec.trainer_container!r} (it has: {names}): "
            "name one so, or set spec.trainerContainer"
        )
        return
    if pod.get("restartPolicy", "OnFailure") != "OnFailure":
        yield "spec.template.spec.restartPolicy must be OnFailure or left out: a failed trainer restarts in its pod"
    if trainer.get("restartPolicy") == "Always":
        yield (
            "spec.template: restartPolicy of the trainer container must be OnFailure or left out: after its success it "
            "would be started again"
        )
    if pod.get("hostNetwork") and spec.host_network is None:
        yield (
            "spec.template.spec.hostNetwork must be left out, or allowed by spec.hostNetwork.acknowledged: true, as "
            "other processes of the node reach the round's store then (docs/security.md)"
        )
    if spec.host_network and not pod.get("hostNetwork"):
        yield "spec.hostNetwork is for a template with hostNetwork: true: set that, or leave spec.hostNetwork out"
    if pod.get("nodeName"):
        yield (
            "spec.template.spec.nodeName must be left out: all workers would go there, even while it is drained; name "
            "it in nodeSelector, as kubernetes.io/hostname"
        )
    yield from _names(pod)
    yield from _ports(spec, pod)
    yield from _failure_policy(spec, pod)
    yield from _environment(trainer)
    yield from launchers.problems(trainer)


def _names(pod: Object) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        if any(one.get("name") == SIDECAR for one in pod.get(kind) or ()):
            yield f"spec.template.spec.{kind}: the name {SIDECAR} is taken by the operator: choose another"
    for volume in pod.get("volumes") or ():
        if volume.get("name") in VOLUMES:
            yield f"spec.template.spec.volumes: the name {volume['name']} is taken by the operator: choose another"


def _ports(spec: ElasticJobSpec, pod: Object) -> Iterator[str]:
    """Conflicts with the sidecar's ports. A pod's containers share their ports, so one container would not get its
    own."""
    own, ours = spec.host_network, {STORE_PORT, TRAINER_API_PORT, TUNNEL_PORT, HEALTH_PORT}
    if own:
        ours = {own.store_port, own.tunnel_port, own.health_port}
    for container in (*pod["containers"], *(pod.get("initContainers") or ())):
        for port in container.get("ports") or ():
            if port.get("containerPort") in ours:
                yield (
                    f"spec.template: port {port['containerPort']} of container {container.get('name')} is the "
                    "sidecar's, in the same pod: choose another"
                )


def _failure_policy(spec: ElasticJobSpec, pod: Object) -> Iterator[str]:
    names = [str(one.get("name")) for kind in ("containers", "initContainers") for one in pod.get(kind) or ()]
    for place, rule in enumerate(spec.pod_failure_policy.rules if spec.pod_failure_policy else ()):
        name = rule.on_exit_codes.container_name if rule.on_exit_codes else None
        if name is not None and name not in names:
            yield (
                f"spec.podFailurePolicy.rules[{place}].onExitCodes.containerName: spec.template has no container named "
                f"{name!r} (it has: {', '.join(names)}): name one of them, or leave it out"
            )


def _environment(trainer: Object) -> Iterator[str]:
    for variable in trainer.get("env") or ():
        name = variable.get("name")
        if name in RESERVED_ENVIRONMENT:
            yield f"spec.template: {name} is set by the operator: remove it from the trainer container's env"
        if name == "PYTHONPATH" and "valueFrom" in variable:
            yield "spec.template: PYTHONPATH must be a plain value: the rendezvous plug-in is put in front of it"

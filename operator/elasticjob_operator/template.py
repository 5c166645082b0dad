"""What this project itself asks of a pod template that is a valid pod. Pure; each problem says what to change."""

from collections.abc import Iterator
from typing import Any

from elasticjob.api import ElasticJobSpec
from elasticjob_operator.pods import RESERVED_ENVIRONMENT, SIDECAR, VOLUMES

Object = dict[str, Any]

# given on the command line they win over the environment, and the agent would meet nobody
FOREIGN_FLAGS = ("--standalone", "--rdzv-backend", "--rdzv_backend", "--rdzv-endpoint", "--rdzv_endpoint")


def problem(spec: ElasticJobSpec) -> str | None:
    """The first thing in `spec.template` that has to be changed, or None."""
    return next(_problems(spec), None)


def _problems(spec: ElasticJobSpec) -> Iterator[str]:
    pod = spec.template["spec"]
    trainer = next((one for one in pod["containers"] if one.get("name") == spec.trainer_container), None)
    if trainer is None:
        names = ", ".join(str(one.get("name")) for one in pod["containers"])
        yield (
            f"spec.template has no container named {spec.trainer_container!r} (it has: {names}): "
            "name one so, or set spec.trainerContainer"
        )
        return
    if pod.get("restartPolicy", "OnFailure") != "OnFailure":
        yield "spec.template.spec.restartPolicy must be OnFailure or left out: a failed trainer restarts in its pod"
    if pod.get("hostNetwork"):
        yield "spec.template.spec.hostNetwork must be left out: workers on one node would share the rendezvous ports"
    yield from _names(pod)
    yield from _environment(trainer)
    yield from _command(trainer)


def _names(pod: Object) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        if any(one.get("name") == SIDECAR for one in pod.get(kind) or ()):
            yield f"spec.template.spec.{kind}: the name {SIDECAR} is taken by the operator: choose another"
    for volume in pod.get("volumes") or ():
        if volume.get("name") in VOLUMES:
            yield f"spec.template.spec.volumes: the name {volume['name']} is taken by the operator: choose another"


def _environment(trainer: Object) -> Iterator[str]:
    for variable in trainer.get("env") or ():
        name = variable.get("name")
        if name in RESERVED_ENVIRONMENT:
            yield f"spec.template: {name} is set by the operator: remove it from the trainer container's env"
        if name == "PYTHONPATH" and "valueFrom" in variable:
            yield "spec.template: PYTHONPATH must be a plain value: the rendezvous plug-in is put in front of it"


def _command(trainer: Object) -> Iterator[str]:
    words = " ".join(str(word) for word in [*(trainer.get("command") or ()), *(trainer.get("args") or ())]).split()
    for flag in FOREIGN_FLAGS:
        if any(word == flag or word.startswith(f"{flag}=") for word in words):
            yield f"spec.template: remove {flag} from the trainer's command: it passes over the job's own rendezvous"

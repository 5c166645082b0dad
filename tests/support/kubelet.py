# SPDX-License-Identifier: Apache-2.0
"""What a kubelet makes of a pod's containers: the pod's status, and when a container is started again. Pure.

The one such function of all tests. Drivers bring the containers to life: in virtual time, as processes beside a real
API server, or not at all where the events are a test's own.

What it knows was read in Kubernetes' own kubelet (`getPhase`, `doBackOff`, the status manager): the phase goes by the
containers that are not sidecars, and none is a pod's last while a sidecar runs; a container is started again at once
after its first end, then after 10 s and twice as long each time up to 300 s, and at once again after it has run for 10
minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

FIRST_BACK_OFF, LONGEST_BACK_OFF, FORGIVEN_AFTER = 10.0, 300.0, 600.0
KILLED = 137
LOG_TAIL_BYTES = 2048  # of a log that explains a container's end


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod. Times are seconds since the epoch; `back_off` is how long its next start waits after its
    newest end, None before the first; `devices` is what the health of its devices is reported to be."""

    name: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last: Object = field(default_factory=dict)
    starts: int = 0
    ready: bool = False
    back_off: float | None = None
    began: float = 0.0
    id: str = ""
    devices: tuple[Object, ...] = ()

    @property
    def runs(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """That of its newest end; None while it runs or before it has."""
        end: Object = self.state.get("terminated") or self.last.get("terminated") or {}
        return None if self.runs else end.get("exitCode")


@dataclass(frozen=True, slots=True)
class Pod:
    """`containers` are all of the spec, in its order; `failed` is why the kubelet ends the whole pod."""

    spec: Object
    containers: Mapping[str, Container]
    address: str = ""
    began: float = 0.0
    failed: str = ""

    @classmethod
    def of(cls, spec: Object, address: str, now: float) -> Pod:
        names = [one["name"] for one in (*_initial(spec), *spec["containers"])]
        return cls(spec, {name: Container(name) for name in names}, address, now)

    def replace(self, name: str, **changes: Any) -> Pod:
        changed = replace(self.containers[name], **changes)
        return replace(self, containers={**self.containers, name: changed})


def running(spec: Object, address: str, now: float) -> Pod:
    """A pod whose containers all run and are ready, those of init apart that are done."""
    pod = Pod.of(spec, address, now)
    for name in pod.containers:
        pod = is_ready(started(pod, name, now), name)
        if name in _done(pod):
            pod = ended(pod, name, now, 0)
    return pod


# --- events


def waits(pod: Pod, name: str, reason: str, message: str = "") -> Pod:
    """A container cannot be started, or not yet: an image is pulled, a ConfigMap is missing."""
    told = {"reason": reason, **({"message": message} if message else {})}
    return pod.replace(name, state={"waiting": told}, last=_end(pod.containers[name]))


def started(pod: Pod, name: str, now: float, id: str = "") -> Pod:
    """It is ready as well, unless a probe has to say so."""
    one, ready = pod.containers[name], "readinessProbe" not in _spec(pod, name)
    state = {"running": {"startedAt": stamp(now)}}
    return pod.replace(
        name, state=state, last=_end(one), starts=one.starts + 1, began=now, ready=ready, id=id or one.id
    )


def is_ready(pod: Pod, name: str, ready: bool = True) -> Pod:
    """A readiness probe has said so."""
    return pod.replace(name, ready=ready)


def has_devices(pod: Pod, name: str, resource: str, health: Mapping[str, str]) -> Pod:
    """A device plugin has reported the health of a container's devices, by their ids."""
    reported = [{"resourceID": id, "health": found} for id, found in health.items()]
    return pod.replace(name, devices=({"name": resource, "resources": reported},))


def ended(pod: Pod, name: str, now: float, code: int, reason: str = "", message: str = "") -> Pod:
    """A container's first process ended. `message` is its termination message, or the end of its log."""
    one = pod.containers[name]
    told = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": stamp(one.began),
        "finishedAt": stamp(now),
        **({"message": message[-LOG_TAIL_BYTES:]} if message else {}),
    }
    if one.back_off is None or now - one.began > FORGIVEN_AFTER:
        back_off = 0.0
    else:
        back_off = min(max(2 * one.back_off, FIRST_BACK_OFF), LONGEST_BACK_OFF)
    return pod.replace(name, state={"terminated": told}, ready=False, back_off=back_off)


def backs_off(pod: Pod, name: str) -> Pod:
    """It is held back until its next start."""
    one = pod.containers[name]
    told = {"reason": "CrashLoopBackOff", "message": f"back-off {one.back_off:g}s restarting failed container={name}"}
    return pod.replace(name, state={"waiting": told}, last=_end(one))


def gives_up(pod: Pod, name: str) -> Pod:
    """It is held back no more, as its pod ends: its newest end is its state."""
    one = pod.containers[name]
    return pod.replace(name, state=_end(one) or one.state, last={})


def fails(pod: Pod, reason: str) -> Pod:
    """The kubelet ends the whole pod: DeadlineExceeded, Evicted. It says so when no container runs any more."""
    return replace(pod, failed=reason)


# --- what follows


def next_start(pod: Pod, name: str) -> float | None:
    """After a container's end: the seconds until it is started again; None where it has ended for good."""
    one = pod.containers[name]
    policy = _spec(pod, name).get("restartPolicy") or pod.spec.get("restartPolicy", "Always")
    if name in {one["name"] for one in _initial(pod.spec)} - sidecars(pod.spec) and policy == "Always":
        policy = "OnFailure"  # an init container that succeeded is done
    if pod.failed or policy == "Never" or (policy == "OnFailure" and one.exit_code == 0):
        return None
    return one.back_off or 0.0


def initialized(pod: Pod) -> bool:
    """Whether the init containers have done what they are for."""
    ours = sidecars(pod.spec)
    init = [pod.containers[one["name"]] for one in _initial(pod.spec)]
    return all(one.starts > 0 if one.name in ours else one.exit_code == 0 for one in init)


def phase(pod: Pod) -> str:
    if _has_failed(pod):
        return "Failed"
    mains = [pod.containers[one["name"]] for one in pod.spec["containers"]]
    policy = pod.spec.get("restartPolicy", "Always")
    init = [pod.containers[one["name"]] for one in _initial(pod.spec) if one["name"] not in sidecars(pod.spec)]
    if policy == "Never" and any(one.exit_code for one in init):
        return "Failed"
    if not initialized(pod) or any(one.starts == 0 for one in mains):
        return "Pending"
    if policy == "Always" or any(one.exit_code is None for one in mains):
        return "Running"
    if any(pod.containers[name].runs for name in sidecars(pod.spec)):
        return "Running"
    if all(one.exit_code == 0 for one in mains):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _has_failed(pod: Pod) -> bool:
    return pod.failed != "" and not any(one.runs for one in pod.containers.values())


def has_ended(pod: Pod) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def sidecars(spec: Object) -> set[str]:
    """The names of the init containers that stay."""
    return {one["name"] for one in _initial(spec) if one.get("restartPolicy") == "Always"}


def status(pod: Pod, others: Iterator[Object] | tuple[Object, ...] = ()) -> Object:
    """The pod's status as the kubelet writes it; `others` are conditions that it has from others, and keeps."""
    now = phase(pod)
    ready = now == "Running" and all(
        one.runs and one.ready for one in pod.containers.values() if one.name not in _done(pod)
    )
    held = {
        "PodScheduled": True,
        "Initialized": initialized(pod),
        "ContainersReady": ready,
        "Ready": ready,
    }
    conditions: list[Object] = [{"type": name, "status": str(holds)} for name, holds in held.items()]
    conditions += [one for one in others if one["type"] not in held]
    init = [_container_status(pod, one["name"]) for one in _initial(pod.spec)]
    return {
        "phase": now,
        **({"reason": pod.failed} if _has_failed(pod) else {}),
        **({"podIP": pod.address, "podIPs": [{"ip": pod.address}]} if pod.address else {}),
        "startTime": stamp(pod.began),
        "conditions": conditions,
        **({"initContainerStatuses": init} if init else {}),
        "containerStatuses": [_container_status(pod, one["name"]) for one in pod.spec["containers"]],
    }


def stamp(at: float) -> str:
    """A moment as the API has it: whole seconds."""
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")


def _container_status(pod: Pod, name: str) -> Object:
    one = pod.containers[name]
    return {
        "name": name,
        "image": _spec(pod, name)["image"],
        "imageID": "",
        **({"containerID": one.id} if one.id else {}),
        "started": one.runs,
        "ready": (one.ready and one.runs) or (name in _done(pod) and one.exit_code == 0),
        "restartCount": max(0, one.starts - 1),
        "state": one.state,
        **({"lastState": one.last} if one.last else {}),
        **({"allocatedResourcesStatus": list(one.devices)} if one.devices else {}),
    }


def _end(one: Container) -> Object:
    """Its newest end, once its state is another."""
    return {"terminated": one.state["terminated"]} if "terminated" in one.state else one.last


def _done(pod: Pod) -> set[str]:
    """Init containers that are to end."""
    return {one["name"] for one in _initial(pod.spec)} - sidecars(pod.spec)


def _initial(spec: Object) -> tuple[Object, ...]:
    return tuple(spec.get("initContainers") or ())


def _spec(pod: Pod, name: str) -> Object:
    found: Object = next(one for one in (*_initial(pod.spec), *pod.spec["containers"]) if one["name"] == name)
    return found

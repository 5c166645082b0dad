# SPDX-License-Identifier: Apache-2.0
"""Why a worker is not there yet or cannot stay, as its pod says it. Pure.

Only pod statuses are read. A cause that the kubelet reports in events alone (a volume that cannot be mounted) shows as
`PodStarting`, whose sentence says where to look.
"""

from collections.abc import Mapping
from typing import NamedTuple

from elasticjob.blocker_reasons import REMEDIES, Reason
from elasticjob.pods import CRASHES
from elasticjob.reading.container import Fault, Termination
from elasticjob.reading.pod import Pod
from elasticjob.rendezvous import PodState
from elasticjob.text import cut, printable

TEXT_LENGTH = 300


class Kind(NamedTuple):
    """What a cause means for the rendezvous. `several`: the phrase for a number of workers with this cause; such a wait
    is no fault. `passes`: it ends by itself, as far as is known."""

    state: PodState
    several: str = ""
    passes: bool = False


KINDS: Mapping[Reason, Kind] = {
    Reason.IMAGE_PULL: Kind(PodState.BLOCKED),
    Reason.CONFIG_MISSING: Kind(PodState.BLOCKED),
    Reason.CONTAINER_ERROR: Kind(PodState.BLOCKED),
    Reason.INIT_CRASHES: Kind(PodState.CRASH_LOOP),
    Reason.SIDECAR_CRASHES: Kind(PodState.BLOCKED),
    Reason.SIDECAR_NOT_READY: Kind(PodState.RUNNING),
    Reason.TRAINER_CRASHES: Kind(PodState.CRASH_LOOP),
    Reason.POD_BACK_OFF: Kind(PodState.CRASH_LOOP),
    Reason.CLAIM_NOT_READY: Kind(PodState.UNSCHEDULABLE),
    Reason.QUOTA_PENDING: Kind(PodState.UNSCHEDULABLE, several="wait for quota", passes=True),
    Reason.SCHEDULING_GATED: Kind(PodState.UNSCHEDULABLE),
    Reason.UNSCHEDULABLE: Kind(PodState.UNSCHEDULABLE),
    Reason.DEVICE_UNHEALTHY: Kind(PodState.RUNNING, passes=True),
    Reason.NODE_DRAINING: Kind(PodState.RUNNING, passes=True),
    Reason.POD_MISSING: Kind(PodState.PENDING, passes=True),
    Reason.POD_STARTING: Kind(PodState.PENDING, passes=True),
    Reason.NOT_JOINED: Kind(PodState.RUNNING, passes=True),
}
# in most jobs these last only a moment after a worker is wanted: they are shown, but not reported as events
PASSING = frozenset({Reason.POD_MISSING, Reason.POD_STARTING, Reason.NOT_JOINED})

BLOCKED: Mapping[Fault, Reason] = {
    "image": Reason.IMAGE_PULL,
    "reference": Reason.CONFIG_MISSING,
    "container": Reason.CONTAINER_ERROR,
}


class Wait(NamedTuple):
    """Why a worker is not there or cannot stay: Kubernetes' message; how often the crashing container was restarted;
    whether the worker would be a spare, which the others do not await; the object at fault, as Kind/name, if it is
    known and not the pod."""

    reason: Reason
    message: str
    crashes: int = 0
    spare: bool = False
    object: str = ""

    @property
    def whose(self) -> str:
        return "spare" if self.spare else "worker"

    @property
    def has_event(self) -> bool:
        """Whether to report it as an event."""
        return self.reason not in PASSING

    @property
    def is_fault(self) -> bool:
        return not self.several

    @property
    def several(self) -> str:
        return KINDS[self.reason].several

    @property
    def sentence(self) -> str:
        return "; ".join(part for part in (self.message, REMEDIES.get(self.reason)) if part)


def wait_of(pod: Pod, trainer: str, *, asked: bool = False) -> Wait | None:
    """Why the trainer of `pod` does not run, or runs without joining; None if it has joined or has ended for good.

    `asked`: it has sent a request, so it has started, and earlier crashes are irrelevant.
    """
    if pod.is_over:
        return None
    for one in pod.containers:
        if one.fault:
            return Wait(BLOCKED[one.fault], joined(one.reason, one.message or one.image))
    return _init_crash(pod) or _trainer_wait(pod, trainer, asked)


def exit_of(end: Termination | None) -> str:
    """How a container failed; empty if it has not."""
    return joined(end.summary) if end and end.code else ""


def joined(*parts: str | None) -> str:
    return cut(printable(": ".join(part for part in parts if part)), TEXT_LENGTH)


def _trainer_wait(pod: Pod, trainer: str, asked: bool) -> Wait | None:
    found = pod.container(trainer)
    last = exit_of(found.crashed_before)
    if found.restarts and (found.reason == CRASHES or (last and not asked)):
        return Wait(Reason.TRAINER_CRASHES, last or "its trainer ends again and again", found.restarts)
    if found.has_started or asked:  # the pod's status may lag behind the request by seconds
        return None
    return _unscheduled(pod) or Wait(Reason.POD_STARTING, _starting(pod, trainer))


def _init_crash(pod: Pod) -> Wait | None:
    """Why an init container keeps the pod waiting: it fails again and again, or it is a sidecar that should stay and
    ends."""
    for one in pod.init_containers:
        now = exit_of(one.ended)  # the kubelet then reports nothing else for a long time
        stays = one.name in pod.staying
        if one.reason != CRASHES and (stays or not now):
            continue
        end = now or exit_of(one.ended_before) or "it ends"
        if stays:
            return Wait(Reason.SIDECAR_CRASHES, joined(f"the sidecar {one.name} crashes", end))
        return Wait(Reason.INIT_CRASHES, joined(f"the init container {one.name} fails", end), one.restarts)
    return None


def _unscheduled(pod: Pod) -> Wait | None:
    if queue := pod.awaited_queue:
        return Wait(Reason.QUOTA_PENDING, f"in the queue {queue}", object=f"LocalQueue/{queue}")
    found = pod.condition("PodScheduled")
    if found.reason not in ("Unschedulable", "SchedulingGated"):
        return None
    reason = Reason(found.reason)
    if reason is Reason.UNSCHEDULABLE and "persistentvolumeclaim" in found.message.lower():
        claim = f"PersistentVolumeClaim/{pod.claims[0]}" if len(pod.claims) == 1 else ""
        return Wait(Reason.CLAIM_NOT_READY, joined(found.reason, found.message), object=claim)
    return Wait(reason, joined(found.reason, found.message))


def _starting(pod: Pod, trainer: str) -> str:
    """How far the pod's start has come."""
    if pod.condition("PodScheduled").status != "True":
        return "no scheduler has placed its pod yet"
    for one in pod.init_containers:
        if one.runs and not one.started:
            return f"its init container {one.name} runs"
    return joined("its pod is being set up", pod.container(trainer).reason)

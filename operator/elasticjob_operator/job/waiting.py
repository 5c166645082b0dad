"""Why a worker is not there yet: each cause with its word, and what to do about it. Pure.

A pod's status is all that is read, so what the kubelet tells in events alone (a volume that cannot be mounted) shows as
`PodStarting`, whose sentence says where to look.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from elasticjob.rendezvous import PodState
from elasticjob_operator.cluster.client import Object
from elasticjob_operator.objects.pods import SIDECAR

TEXT_LENGTH = 300


class Reason(StrEnum):
    """A word for people, in the column REASON: the worst comes first."""

    TEMPLATE_INVALID = "TemplateInvalid"
    POD_REFUSED = "PodRefused"
    IMAGE_PULL = "ImagePull"
    CONFIG_MISSING = "ConfigMissing"
    CONTAINER_ERROR = "ContainerError"
    INIT_CRASHES = "InitContainerCrashes"
    SIDECAR_CRASHES = "SidecarCrashes"
    TRAINER_CRASHES = "TrainerCrashes"
    POD_BACK_OFF = "PodBackOff"
    CLAIM_NOT_READY = "ClaimNotReady"
    SCHEDULING_GATED = "SchedulingGated"
    UNSCHEDULABLE = "Unschedulable"
    INVALID_RECORD = "InvalidRecord"
    POD_STARTING = "PodStarting"
    INSUFFICIENT_MEMBERS = "InsufficientMembers"
    FORMING = "Forming"


class Kind(NamedTuple):
    """What the cause of a pod's wait is to the rendezvous, and to people."""

    state: PodState
    remedy: str


KINDS: Mapping[Reason, Kind] = {
    Reason.IMAGE_PULL: Kind(
        PodState.BLOCKED, "name an image that the nodes can pull, or the imagePullSecrets of its registry"
    ),
    Reason.CONFIG_MISSING: Kind(PodState.BLOCKED, "make what the container refers to, or change the reference"),
    Reason.CONTAINER_ERROR: Kind(PodState.BLOCKED, "correct the container's command, mounts or security context"),
    Reason.INIT_CRASHES: Kind(PodState.CRASH_LOOP, "mend the init container: each of its ends counts as the trainer's"),
    Reason.SIDECAR_CRASHES: Kind(
        PodState.BLOCKED, "its log says more (kubectl logs --previous); it does not count against maxRestarts"
    ),
    Reason.TRAINER_CRASHES: Kind(PodState.CRASH_LOOP, "its log says more (kubectl logs --previous)"),
    Reason.POD_BACK_OFF: Kind(PodState.CRASH_LOOP, "each next pod is made later, at most 300 s after the last failed"),
    Reason.CLAIM_NOT_READY: Kind(
        PodState.UNSCHEDULABLE, "make the PersistentVolumeClaim, or see why it is not bound: kubectl describe pvc"
    ),
    Reason.SCHEDULING_GATED: Kind(
        PodState.UNSCHEDULABLE, "it waits until its scheduling gates are removed; the others go on without it"
    ),
    Reason.UNSCHEDULABLE: Kind(PodState.UNSCHEDULABLE, "make room or add nodes, or ask for less in the template"),
    Reason.POD_STARTING: Kind(PodState.PENDING, "should it last, kubectl describe pod says why"),
}

# the kubelet's words after which only a change by the user helps
BLOCKED: Mapping[str, Reason] = {
    "ErrImagePull": Reason.IMAGE_PULL,
    "ImagePullBackOff": Reason.IMAGE_PULL,
    "ErrImageNeverPull": Reason.IMAGE_PULL,
    "InvalidImageName": Reason.IMAGE_PULL,
    "ImageInspectError": Reason.IMAGE_PULL,
    "CreateContainerConfigError": Reason.CONFIG_MISSING,
    "CreateContainerError": Reason.CONTAINER_ERROR,
    "RunContainerError": Reason.CONTAINER_ERROR,
}
CRASHES = "CrashLoopBackOff"
STARTED = frozenset({"running", "terminated"})


class Wait(NamedTuple):
    """Why a worker is not there: what Kubernetes says of it; how often what crashes was started again."""

    reason: Reason
    said: str
    crashes: int = 0

    @property
    def is_news(self) -> bool:
        """Whether it is announced: that a pod is about to start is none."""
        return self.reason is not Reason.POD_STARTING

    @property
    def sentence(self) -> str:
        return f"{self.said}; {KINDS[self.reason].remedy}"


@dataclass(slots=True)
class AnnouncedReasons:
    """The causes that were announced as events: each once between two rounds, however often it goes and comes back."""

    round: int = -1
    reasons: set[str] = field(default_factory=set)

    def news(self, round: int, before: str, waits: Mapping[int, Wait]) -> list[tuple[int, Wait]]:
        """Those of a job's waits, by index, to announce now; `before` is what its status says already."""
        if round != self.round:
            self.round, self.reasons = round, {before}
        found = []
        for index, wait in waits.items():
            if wait.is_news and wait.reason not in self.reasons:
                self.reasons.add(wait.reason)
                found.append((index, wait))
        return found


def wait_of(pod: Object, trainer: str, *, asked: bool = False) -> Wait | None:
    """Why the trainer of `pod` does not run, or runs and does not join; None where it does, or has ended for good.

    `asked`: it has asked something of the rendezvous, so that its crashes before that are of no interest.
    """
    status = pod.get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        return None
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting", {})
        if reason := BLOCKED.get(waiting.get("reason", "")):
            return Wait(reason, joined(waiting["reason"], waiting.get("message")))
    return _init_crash(pod, status) or _trainer_wait(status, trainer, asked)


def container_of(status: Object, name: str) -> Object:
    """The status of the container `name`; empty before there is one."""
    return next((one for one in status.get("containerStatuses", ()) if one["name"] == name), {})


def has_started(container: Object) -> bool:
    return not STARTED.isdisjoint(container.get("state", {}))


def exit_of(ended: Object | None) -> str:
    """`exit code 1: last line of its message`, or the signal's or OOM's name where there is one."""
    if not ended or ended["exitCode"] == 0:
        return ""
    reason = ended.get("reason", "Error")
    said = [line for line in ended.get("message", "").splitlines() if line.strip()]
    code = f"exit code {ended['exitCode']}" + ("" if reason == "Error" else f", {reason}")
    return joined(code, said[-1].strip() if said else None)


def joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)[:TEXT_LENGTH]


def _trainer_wait(status: Object, trainer: str, asked: bool) -> Wait | None:
    found = container_of(status, trainer)
    crashes, last = found.get("restartCount", 0), exit_of(_last(found))
    if crashes and (_waits_for(found) == CRASHES or (last and not asked)):
        return Wait(Reason.TRAINER_CRASHES, last or "its trainer ends again and again", crashes)
    if has_started(found):
        return None
    return _unscheduled(status) or Wait(Reason.POD_STARTING, _starting(status, trainer))


def _init_crash(pod: Object, status: Object) -> Wait | None:
    """Why an init container is waited for: it fails again and again, or is a sidecar, which should stay, and ends."""
    for container in status.get("initContainerStatuses", ()):
        now = exit_of(container.get("state", {}).get("terminated"))  # for a long time the kubelet says no more
        stays = container["name"] in _staying(pod)
        if _waits_for(container) != CRASHES and (stays or not now):
            continue
        ended = now or exit_of(_last(container)) or "it ends"
        if stays:
            return Wait(Reason.SIDECAR_CRASHES, joined(f"the sidecar {container['name']} crashes", ended))
        said = joined(f"the init container {container['name']} fails", ended)
        return Wait(Reason.INIT_CRASHES, said, container.get("restartCount", 0))
    return None


def _staying(pod: Object) -> set[str]:
    of_init = pod.get("spec", {}).get("initContainers", ())
    return {SIDECAR} | {one["name"] for one in of_init if one.get("restartPolicy") == "Always"}


def _unscheduled(status: Object) -> Wait | None:
    for condition in status.get("conditions", ()):
        if condition["type"] != "PodScheduled" or condition.get("reason") not in ("Unschedulable", "SchedulingGated"):
            continue
        message = condition.get("message", "")
        reason = Reason(condition["reason"])
        if reason is Reason.UNSCHEDULABLE and "persistentvolumeclaim" in message.lower():
            reason = Reason.CLAIM_NOT_READY
        return Wait(reason, joined(condition["reason"], message))
    return None


def _starting(status: Object, trainer: str) -> str:
    """How far its start has come."""
    if not any(one["type"] == "PodScheduled" and one["status"] == "True" for one in status.get("conditions", ())):
        return "no scheduler has placed its pod yet"
    for container in status.get("initContainerStatuses", ()):
        if "running" in container.get("state", {}) and not container.get("started", False):
            return f"its init container {container['name']} runs"
    return joined("its pod is being set up", _waits_for(container_of(status, trainer)))


def _containers(status: Object) -> Iterator[Object]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind, ())


def _waits_for(container: Object) -> str:
    reason: str = container.get("state", {}).get("waiting", {}).get("reason", "")
    return reason


def _last(container: Object) -> Object | None:
    ended: Object | None = container.get("lastState", {}).get("terminated")
    return ended

# SPDX-License-Identifier: Apache-2.0
"""What can happen next in a composed system.

Free is what must happen some day if nothing comes between. Costly are faults, changes of the target, long waits, and
ends: what makes one run differ from another.
"""

from collections.abc import Callable, Iterator

from elasticjob.api import RequestCause, RequestType
from elasticjob.rendezvous import PodState
from model import composed_pod_moves as pod_moves
from model.composed_pods import (
    DEAD,
    ENTERING,
    FAILED,
    FINISHED,
    JOINING,
    TRAINING,
    Pod,
    Trainer,
    asks,
    perceives_change,
    reads,
    sight_of,
)
from model.composed_system import JobSystem
from model.search import Move
from model.state_key import asks_anew

# What happens in a pod: the sentence that tells it, and the function that does it.
IN_PODS: dict[str, tuple[str, Callable[[Pod], Pod]]] = {
    "start": ("starts, and its trainer joins", lambda pod: pod_moves.with_trainer(pod_moves.with_sidecar(pod))),
    "reconnect": ("its trainer finds the new sidecar", pod_moves.reconnected),
    "enter": ("its trainer takes the round into use", pod_moves.entering),
    "rejoin": (
        "its trainer is told, and joins again",
        lambda pod: pod_moves.asking(pod, RequestCause.MEMBERSHIP_CHANGED),
    ),
    "exit": ("its container ends in success", lambda pod: pod_moves.stopped(pod, PodState.SUCCEEDED)),
    "next": ("its container's next torchrun starts", pod_moves.with_next),
    "end badly": ("its container fails after torchrun's success", pod_moves.ending_badly),
    "restart": ("its container is started again", pod_moves.with_container),
    "notice": ("its sidecar notices that the trainer is gone", pod_moves.noticed),
    "stop": ("its trainer is stopped, then its sidecar", lambda pod: pod_moves.stopped(pod, PodState.RUNNING)),
    "gone": ("is gone", lambda pod: pod._replace(gone=True, sidecar=None, output=None, trainer=None, lag=0)),
    "finish": ("its trainer has finished", pod_moves.finishing),
    "kill": ("its trainer is killed", pod_moves.killed),
    "swallow": (
        "its trainer is killed in a shell that exits with code 0",
        lambda pod: pod_moves.stopped(pod, PodState.SUCCEEDED),
    ),
    "crash": ("its sidecar crashes and starts anew", pod_moves.with_sidecar),
    "delete": ("is deleted", lambda pod: pod._replace(deleting=True)),
    "fail": ("its processes fail", lambda pod: pod_moves.asking(pod, RequestCause.WORKER_FAILED)),
    "give up": ("its trainer gives up", pod_moves.failing),
    "close": ("its trainer closes the rendezvous", pod_moves.closing),
    "again": ("its trainer is interrupted, and asks again", pod_moves.asked_again),
    "timer": ("a timer of its sidecar goes off", pod_moves.with_timer),
}


def free_moves(system: JobSystem, torchruns: int) -> Iterator[Move]:
    """What happens some day, if nothing comes between, where each container runs so many torchruns."""
    if system.looks:
        yield ("look",)
    if system.old is not None:
        yield ("old",)
    ending = bool(system.state.done) or any(pod.trainer and pod.trainer.state == FINISHED for pod in system.pods)
    for at, pod in enumerate(system.pods):
        if not pod.gone:
            yield from ((name, at, 0) for name in _owed(pod, ending, torchruns))
        if reads(pod):
            yield from (("read", at, lag) for lag in range(pod.lag + (pod.read is None)))
        yield from (("hear", at, what) for what in _news(pod))
    yield from (("restart", at, 0) for at, pod in enumerate(system.pods) if _is_held_back(pod))


def _owed(pod: Pod, ending: bool, torchruns: int) -> Iterator[str]:
    trainer = pod.trainer
    if pod.deleting:
        yield "gone"
        if trainer is not None and trainer.state != DEAD:
            yield "stop"
    elif pod.phase is PodState.PENDING:
        yield "start"
    if trainer is None:
        return
    if trainer.state == FINISHED:
        if not pod.deleting:
            yield "next" if trainer.place < torchruns else "exit"
    elif trainer.state == DEAD:
        if trainer.connected:
            yield "notice"
        elif not pod.deleting and pod.phase is PodState.RUNNING:  # else the new one's stream waits for that
            yield "restart"
    else:
        yield from _owed_by_living(pod, trainer, ending)


def _owed_by_living(pod: Pod, trainer: Trainer, ending: bool) -> Iterator[str]:
    if not trainer.connected:
        if trainer.state != FAILED:
            yield "reconnect"
    elif trainer.state == ENTERING:
        yield "enter"
    elif trainer.state == TRAINING:
        if perceives_change(pod):
            yield "rejoin"
        if ending:
            yield "finish"


def _is_held_back(pod: Pod) -> bool:
    """Whether the kubelet starts its container again after a while: it has failed after a torchrun's success. Who left
    is deleted by the operator, or let alone."""
    if pod.gone or pod.deleting or pod.trainer is None:
        return False
    return pod.trainer.state == FAILED and asks(pod, RequestType.FINISH)


def costly_moves(system: JobSystem, most: int, torchruns: int) -> Iterator[Move]:
    yield from (("scale", size) for size in range(1, most + 1) if size != system.spec.replicas)
    yield ("suspend",)
    if not asks_anew(system.spec, system.state):
        yield ("anew",)
    yield ("new operator",)
    if system.wake is not None:
        yield ("wait",)
    for at, pod in enumerate(system.pods):
        if not pod.gone:
            yield from ((name, at, 1) for name in _faults(pod, torchruns))


def _faults(pod: Pod, torchruns: int) -> Iterator[str]:
    trainer = pod.trainer
    if not pod.deleting:
        yield "delete"
    yield "gone"
    if trainer is None or trainer.state == DEAD:
        return
    if trainer.state == FAILED:
        if not pod.deleting and not _is_held_back(pod):
            yield "restart"
        return
    if trainer.state == FINISHED and not pod.deleting:
        yield from ("end badly", "exit" if trainer.place < torchruns else "next")
    yield "kill"
    yield "crash"
    if not pod.deleting:
        yield "swallow"
    if not trainer.connected:
        return
    if trainer.state in (JOINING, ENTERING):
        yield "again"
    if pod.output is not None and pod.output.wake_at is not None:
        yield "timer"
    if trainer.state == TRAINING:
        yield from ("give up", "finish", "close")
        if not perceives_change(pod):
            yield "fail"


def _news(pod: Pod) -> Iterator[str]:
    """What the operator does not know yet."""
    now, seen = sight_of(pod), pod.seen
    if pod.gone or seen is None:
        yield "all"
    elif now is not seen:
        yield "all"
        if now.pod != seen.pod and now.record != seen.record:
            yield from ("pod", "record")

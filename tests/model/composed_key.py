# SPDX-License-Identifier: Apache-2.0
"""When two states of the composed model are the same.

Nothing is renamed here: runs are short, and pods, sidecars and trainers are numbered in the order in which they start.
"""

from collections.abc import Callable
from typing import Any

from elasticjob.api import WorkerRequest
from elasticjob.rendezvous import State
from elasticjob_sidecar.membership.machine import Membership
from model.composed_pods import Pod, Trainer
from model.composed_system import JobSystem
from model.state_key import asks_anew, must_know

# no process lives through changes in this model, so `_live_in` is always 0
must_know(
    Membership,
    "me store_ready_seconds recalled mode job trainer handed store_port _rank _torchruns "
    "_claimed _latest _replaced _stream _waiter _joined_after _live_in _request _closing _stopping _timers _answers",
)


def key_of(system: JobSystem, state_key: Callable[[State], tuple[Any, ...]]) -> tuple[Any, ...]:
    old = system.old
    return (
        system.spec.replicas,
        system.spec.suspend,
        asks_anew(system.spec, system.state),
        state_key(system.state),
        tuple(_pod(pod) for pod in system.pods),
        system.history,
        system.looks,
        old and (old.spec.replicas, old.spec.suspend, asks_anew(old.spec, old.state), state_key(old.state), old.valid),
        system.spent,
    )


def _pod(pod: Pod) -> tuple[Any, ...]:
    return (
        pod.index,
        pod.number,
        pod.phase._value_,
        pod.deleting,
        pod.gone,
        pod.lives,
        pod.starts,
        pod.containers,
        pod.read,
        pod.lag,
        pod.given,
        pod.finished,
        pod.seen and pod.seen.number,
        pod.sidecar and _sidecar(pod.sidecar),
        pod.trainer and _trainer(pod.trainer),
    )


def _trainer(trainer: Trainer) -> tuple[Any, ...]:
    cause = trainer.cause._value_ if trainer.state == "joining" else ""
    number = (trainer.place, trainer.used, trainer.handed, trainer.asked)
    return (trainer.name, trainer.state, *number, cause, trainer.connected)


def _sidecar(machine: Membership) -> tuple[Any, ...]:
    """But for what the pod's key holds, what follows from it, the number of the stream, which is always the
    last, and what a torchrun says of itself, which follows from its place in its container."""
    handed, waiter = machine.handed, machine._waiter
    return (
        machine.mode._value_,
        machine.trainer,
        handed and (handed.trainer, handed.round, handed.rank, tuple(member.id for member in handed.members)),
        machine.store_port is not None,
        machine._torchruns.stage,
        machine._torchruns.passed,
        machine._torchruns.succeeded,
        machine._claimed,
        machine._latest,
        tuple(sorted(machine._replaced)),
        waiter and (waiter.ticket, waiter.after, waiter.cause._value_),
        machine._joined_after,
        _request(machine._request),
        machine._closing,
        machine._stopping,
        tuple(sorted(machine._timers)),
    )


def _request(request: WorkerRequest | None) -> tuple[Any, ...] | None:
    if request is None:
        return None
    numbers = (request.after, request.round, request.stage, request.container)
    return (request.type._value_, *numbers, (request.cause or "") + "")

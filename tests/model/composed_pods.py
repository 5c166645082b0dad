# SPDX-License-Identifier: Apache-2.0
"""A worker's pod in the composed model: the real sidecar machine and a small trainer, and what is known of them.

An immutable value, without a kubelet: of time, containers and their status a model has only what `decide` is given.
"""

from dataclasses import fields, replace
from functools import cache
from itertools import count
from typing import Any, NamedTuple

from elasticjob.api import RequestCause, RequestType
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.output import Output
from elasticjob_sidecar.membership.view import view_of

# what a trainer is at
JOINING, ENTERING, TRAINING, FINISHED, DEAD, FAILED = "joining", "entering", "training", "finished", "dead", "failed"
SLOTS = tuple(field.name for field in fields(Membership))
_numbers = count()


Seen = tuple[int, int, PodState, bool, int]


class Sight(NamedTuple):
    """A worker as it is seen: its pod and its record. Equal ones are one object, known by its number."""

    pod: "Seen"
    record: tuple[Any, ...]
    worker: Worker
    number: int


class Trainer(NamedTuple):
    """One torchrun process, by its `place` among those of its container. `used` is the round that it has last used or
    given up, `handed` the last that it was told, `asked` how often it has asked for one; `connected`: the sidecar holds
    its stream."""

    name: str
    place: int = 1
    state: str = JOINING
    used: int = 0
    handed: int = 0
    asked: int = 0
    cause: RequestCause = RequestCause.STARTED
    connected: bool = True


class Pod(NamedTuple):
    """`seen` is what the operator knows of it, None before its first sight. `output` is the sidecar's last one. `read`
    is the number of the status that it knows, and `lag` how many were written since. `lives`, `starts` and `containers`
    count its sidecars, its trainers and their containers; `given` is the round last handed out in this pod, and to
    whom; `finished`: a trainer of its has said so, or found its stage finished."""

    index: int  # type: ignore[assignment]  # a field, and not the method of a tuple
    number: int
    seen: Sight | None
    phase: PodState = PodState.PENDING
    deleting: bool = False
    gone: bool = False
    lives: int = 0
    starts: int = 0
    containers: int = 1
    sidecar: Membership | None = None
    output: Output | None = None
    read: int | None = None
    lag: int = 0
    trainer: Trainer | None = None
    given: tuple[int, str] = (0, "")
    finished: bool = False


def sight_of(pod: Pod) -> Sight:
    """The pod and its record as they are."""
    return _sight((pod.index, pod.number, pod.phase, pod.deleting, pod.containers - 1), _record_of(pod))


def half_seen(pod: Pod, *, record: bool) -> Sight:
    """Pods and records are watched apart: one of the two is known as it is, the other as it was seen before."""
    now, before = sight_of(pod), pod.seen
    assert before is not None
    return _sight(before.pod, now.record) if record else _sight(now.pod, before.record)


def reads(pod: Pod) -> bool:
    """Whether its sidecar follows the job's status."""
    return pod.sidecar is not None and not pod.sidecar._stopping


def asks(pod: Pod, type: RequestType) -> bool:
    """Whether its record does."""
    return pod.output is not None and pod.output.request is not None and pod.output.request.type is type


def perceives_change(pod: Pod) -> bool:
    """Whether the trainer knows that the round in use has ended: the rule of the plug-in's `View.ends_round`."""
    output, trainer = pod.output, pod.trainer
    if output is None or trainer is None or not trainer.connected or not trainer.used:
        return False
    view = view_of(output.standing)
    if view is None:
        return False
    return view.ends_round(trainer.used)


def address_of(id: str) -> str:
    return f"{id}:27601"


def copied(pod: Pod) -> Membership:
    """The sidecar's machine, free to be changed."""
    machine = Membership.__new__(Membership)
    for name in SLOTS:
        value = getattr(pod.sidecar, name)
        setattr(machine, name, value.copy() if isinstance(value, (set, dict, list)) else value)
    return machine


def _record_of(pod: Pod) -> tuple[Any, ...]:
    if pod.output is None:
        return ()
    asked = pod.output.request
    if asked is None:
        return (pod.output.standing.me.id, None)
    request = (asked.type, asked.after or 0, asked.round or 0, asked.stage or 1, asked.cause or "")
    return (pod.output.standing.me.id, request)


@cache
def _sight(pod: Seen, record: tuple[Any, ...]) -> Sight:
    index, number, phase, deleting, crashes = pod
    worker = Worker(index=index, replacement=number, pod=phase, deleting=deleting, crashes=crashes)
    if record:
        id, asked = record
        request = asked and Request(type=asked[0], after=asked[1], round=asked[2], stage=asked[3], cause=asked[4])
        worker = replace(worker, id=id, address=address_of(id), request=request)
    return Sight(pod, record, worker, next(_numbers))

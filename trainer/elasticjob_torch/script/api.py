# SPDX-License-Identifier: Apache-2.0
"""The functions for training scripts: `current`, `wants_restart` and `report`. All of them are optional.

Each call reads and writes memory, in microseconds; threads that start at the first call use the network (`client`).
Outside an ElasticJob the calls do nothing. A forked child, such as a worker of a DataLoader, starts afresh: it has no
threads and no connection unless it makes a call of its own.
"""

from __future__ import annotations

import atexit
import logging
import math
import operator
import os
import re
import threading
import time
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, SupportsFloat, SupportsIndex

from elasticjob_torch import wire
from elasticjob_torch.agent.settings import SettingsError, parse_settings
from elasticjob_torch.environment import endpoint_of, master_address_of
from elasticjob_torch.script.client import ReportedProgress, ScriptClient

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_./-]{{0,{wire.METRIC_NAME_LENGTH - 1}}}")


@dataclass(frozen=True)
class Current:
    """The round that this process trains in, as far as it is known; None or 0 otherwise.

    Attributes:
        round: the round's number.
        rank, local_rank, world_size: of this process, as torchrun sets RANK, LOCAL_RANK and WORLD_SIZE.
        group_rank, group_world_size: the rank of its worker (the pod), and the number of workers.
        waiting: the number of workers that have joined and wait for the next round.
        reason: why the last round ended and this one was formed.
        master_address: of rank 0's pod, for servers of rank 0 at ports of their own. In an ElasticJob MASTER_ADDR is
            each pod's own loopback, and leads to rank 0 only with MASTER_PORT and the 128 ports after it.
    """

    round: int = 0
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    group_rank: int | None = None
    group_world_size: int | None = None
    waiting: int = 0
    reason: str = ""
    master_address: str | None = None


def current() -> Current:
    """Return what is known of the round that this process trains in.

    The first call waits for the sidecar's first message, some milliseconds and at most one second; later calls do not
    wait.
    """
    client = _client if _decided else _connect()
    if client is None:
        return _seen(None)
    global _known
    view = client.first_view()
    if _known is None or _known[0] is not view:
        _known = view, _seen(view)
    return _known[1]


def forget_round() -> None:
    """This process is in another round now: the next `current` reads its variables again."""
    global _known
    _known = None


def wants_restart() -> bool:
    """Say whether this round is going to be replaced by plan, so that the script should save its checkpoint now.

    To be called by all ranks after each step. True for newcomers, a scale-down, a suspension, a restart; not after a
    loss, when the training processes are stopped at once. It stays True until the process is stopped, which is when
    every process that has ever called this has called it again after saving, or at last after
    ``spec.rendezvous.saveSeconds``.

        for step in range(start, total):
            train(step)  # ends with a collective, such as DDP's all-reduce
            if elasticjob_torch.wants_restart() and rank == 0:
                save(step)

    While rank 0 saves the others wait for it in the next step's collective, so their next call shows that it has saved.
    The ranks may learn of the plan one step apart. For a save in which all take part, let them agree first:

            stop = torch.tensor(float(elasticjob_torch.wants_restart()), device=device)
            torch.distributed.all_reduce(stop, torch.distributed.ReduceOp.MAX)
            if stop:
                torch.distributed.checkpoint.save(...)
    """
    client = _client if _decided else _connect()
    return client is not None and client.wants_restart()


def report(
    *,
    step: SupportsIndex | None = None,
    total: SupportsIndex | None = None,
    waited: SupportsFloat | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Show how far the training is, in ``kubectl get elasticjobs`` and the status.

    Sent at most once a second and once at exit, with the last values only; omitted arguments keep their values. The
    job's status has the values of rank 0's worker, each ElasticWorker its own. If several processes of one worker
    report, those of the lowest local rank count. No number's value ends a training: a step or total outside 0 to 2**53
    - 1 is shown as the nearer bound, and an infinite or NaN metric is not shown.

    `waited`: the seconds since the last call for which this process waited for others, such as in a collective. The
    status shows their share of the time since the first call with this argument.

    Each call shows that the script goes on, for the job's ``spec.progressDeadlineSeconds``; the first step starts that
    clock. So a script may call this without arguments while it evaluates or saves.

    Raises:
        TypeError: an argument is no number; the message names it.
        ValueError: a metric's name cannot be shown, or there are too many.
    """
    global _progress
    known = _progress
    shown = _shown(known.metrics, metrics) if metrics else known.metrics
    _progress = ReportedProgress(
        known.step if step is None else _count("step", step),
        known.total if total is None else _count("total", total),
        shown,
        known.waits if waited is None else _waits(waited),
    )
    client = _client if _decided else _connect()
    if client is not None:
        client.report(_progress)


def _shown(known: Mapping[str, float], new: Mapping[str, SupportsFloat]) -> Mapping[str, float]:
    shown = dict(known)
    for name, given in new.items():
        value = given if type(given) is float and name in known else _metric(name, given)
        if math.isfinite(value):
            shown[name] = value
        else:
            shown.pop(name, None)
    if len(shown) > wire.MAX_METRICS:
        raise ValueError(
            f"report(): {list(shown)[-1]} is one more than the {wire.MAX_METRICS} metrics that can be shown"
        )
    return shown


def _count(name: str, value: SupportsIndex) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"report(): {name} must be a whole number, not {type(value).__name__}") from None
    return min(max(int(number), 0), wire.MAX_JSON_INTEGER)  # bool is a number too


def _waits(waited: SupportsFloat) -> float | None:
    """Return the share of time for which this process waits; None if not yet known."""
    global _waited, _waiting_since
    seconds, now = _metric("waited", waited), time.monotonic()
    if _waiting_since is None:  # the time it is a share of is unknown
        _waiting_since = now
        return None
    _waited += max(0.0, seconds) if math.isfinite(seconds) else 0.0
    return min(1.0, _waited / max(now - _waiting_since, 1e-6))


def _metric(name: str, value: SupportsFloat) -> float:
    if not _NAME.fullmatch(name):
        most = wire.METRIC_NAME_LENGTH - 1
        raise ValueError(f"report(): {name!r} must be a letter, then up to {most} letters, digits or any of ._/-")
    if type(value) is float:
        return value
    if not isinstance(value, Real):
        raise TypeError(f"report(): {name} must be a number, not {type(value).__name__}; a tensor's is tensor.item()")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _seen(view: wire.ScriptView | None) -> Current:
    return Current(
        round=view.round if view else 0,
        rank=_number("RANK"),
        local_rank=_number("LOCAL_RANK"),
        world_size=_number("WORLD_SIZE"),
        group_rank=_number("GROUP_RANK"),
        group_world_size=_number("GROUP_WORLD_SIZE"),
        waiting=view.waiting if view else 0,
        reason=view.reason if view else "",
        master_address=master_address_of(os.environ) or None,
    )


def _number(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


def _connect() -> ScriptClient | None:
    """Find the sidecar of this pod; None outside of an ElasticJob."""
    global _client, _decided
    with _lock:
        if not _decided:
            _client, _decided = _find(), True
    return _client


def _find() -> ScriptClient | None:
    endpoint = endpoint_of(os.environ)
    if not endpoint:
        log.info("not in an ElasticJob: nobody wants a restart here, and nobody reads a report")
        return None
    try:
        settings = parse_settings(endpoint, "", {})
    except SettingsError as error:
        log.warning("no sidecar of an ElasticJob is to be found: %s", error)
        return None
    return ScriptClient(settings.address, _number("LOCAL_RANK") or 0)


def _begin() -> None:
    """Reset the state to that of a process that has made no call yet."""
    global _client, _decided, _known, _progress, _lock, _waited, _waiting_since
    _waited, _waiting_since = 0.0, None
    _client, _decided, _known, _progress, _lock = None, False, None, ReportedProgress(), threading.Lock()


def _at_exit() -> None:
    if _client is not None:
        _client.close()


_client: ScriptClient | None
_decided: bool
_known: tuple[wire.ScriptView | None, Current] | None
_progress: ReportedProgress
_waited: float  # seconds, since:
_waiting_since: float | None
_lock: threading.Lock
_begin()
atexit.register(_at_exit)
os.register_at_fork(after_in_child=_begin)

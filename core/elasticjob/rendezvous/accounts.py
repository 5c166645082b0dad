# SPDX-License-Identifier: Apache-2.0
"""Which of several failures in one round is its cause. The failures' own words decide, as the clocks of pods are not
comparable.

A worker that loses a peer fails with a broken connection, and may be seen before the peer, which is still stopping or
silent. The words are those of the plug-in (`elasticjob_torch.agent.failures`) and of container statuses
(`elasticjob.pods`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from elasticjob.rendezvous.live import comes_back
from elasticjob.rendezvous.losses import Lost
from elasticjob.rendezvous.model import COUNTED_CAUSES, State, Worker
from elasticjob.rendezvous.roster import current
from elasticjob.terms import Cause, RequestType, RoundCause

_EXIT_CODE = re.compile(r"exit code (\d+)(, \w+)?(: )?")
_SIGNALLED = 128
_IN_FLIGHT, _BROKEN = "failing when it was stopped: ", ", a connection broke"


class Kind(IntEnum):
    """How much a failure tells of its cause, the most telling first."""

    OWN_WORDS = 0
    EXIT_CODE = 1
    SIGNAL = 2
    UNKNOWN = 3
    BROKEN_CONNECTION = 4


class Account(NamedTuple):
    """Why a member of the last round stopped, in a word and in a sentence."""

    worker: int
    cause: str
    why: str


def kind_of(why: str) -> Kind:
    """The kind of a sentence that says why a member stopped."""
    if _BROKEN in why:
        return Kind.BROKEN_CONNECTION
    if _IN_FLIGHT in why:
        return Kind.OWN_WORDS
    if (found := _EXIT_CODE.search(why)) and int(found[1]):
        if int(found[1]) > _SIGNALLED:
            return Kind.SIGNAL
        return Kind.OWN_WORDS if found[3] else Kind.EXIT_CODE
    return Kind.SIGNAL if re.search(r"\bSIG[A-Z]+|OOMKilled|DeadlineExceeded", why) else Kind.UNKNOWN


def better_account(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> Account | None:
    """The account of a member of the last round that tells more than the waiting failure: one of a better kind, or an
    addition by the same member. None if there is none."""
    now = kind_of(state.failure)

    def is_better(one: Account) -> bool:
        kind = kind_of(one.why)
        says_more = kind is now is not Kind.UNKNOWN and one.why != state.failure and is_of(one.worker, state.failure)
        return kind < now or says_more

    found = filter(is_better, _accounts(state, workers, lost))
    return min(found, key=lambda one: kind_of(one.why), default=None)  # of equals, the first in rank order


def is_of(index: int, failure: str) -> bool:
    """Whether the failure is that worker's."""
    return failure.startswith((f"worker {index} ", f"worker {index}'s "))


def _accounts(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> Iterator[Account]:
    """The accounts of members in rank order, without members whose pods others have ended."""
    present = current(state, workers)
    for member in state.participants:
        index, worker, loss = member.index, present.get(member.index), lost.get(member.index)
        if index in state.done or member in state.leaving:
            continue
        if loss is not None and loss.was_member and loss.training_failed:
            yield Account(index, loss.cause, f"worker {index} lost: {loss.why}")
        elif worker is not None and worker.member == member and (said := _said(state, worker)):
            yield Account(index, *said)


def _said(state: State, worker: Worker) -> tuple[str, str] | None:
    request, name = worker.request, f"worker {worker.index}"
    if request is None:
        return None
    if not comes_back(worker):
        if request.type is RequestType.LEAVE and request.cause in COUNTED_CAUSES and worker.detail:
            return request.cause, f"{name} left: {request.cause} ({worker.detail})"
        if request.type is not RequestType.JOIN or request.after < state.last_formed:
            return None
    if request.detail:
        return RoundCause.WORKER_FAILED, f"{name}'s processes failed ({request.detail})"
    if request.cause == Cause.STARTED and worker.detail:
        return RoundCause.TRAINER_STARTED_AGAIN, f"{name}'s trainer was started again ({worker.detail})"
    return None

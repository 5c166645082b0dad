# SPDX-License-Identifier: Apache-2.0
"""Which of several failures in one round is its cause. The reports of the failures decide, because the clocks of pods
are not comparable.

A worker that loses a peer fails with a broken connection, and may be seen before the peer, which is still stopping or
silent. So each report of a failure has a `FailureKind`: the plug-in gives it for processes, and `elasticjob.reading`
for containers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from elasticjob.rendezvous.live import comes_back
from elasticjob.rendezvous.losses import Lost
from elasticjob.rendezvous.model import COUNTED_CAUSES, State, Worker
from elasticjob.rendezvous.roster import current
from elasticjob.terms import FailureKind, RequestCause, RequestType, RoundCause


class Account(NamedTuple):
    """Why a member of the last round stopped, in a word and in a sentence, and what that tells of the cause."""

    worker: int
    cause: str
    why: str
    kind: FailureKind


def better_account(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> Account | None:
    """The account of a member of the last round that tells more than the waiting failure: one of a better kind, or an
    addition by the same member. None if there is none."""
    now = state.failure_kind

    def is_better(one: Account) -> bool:
        is_new = one.why != state.failure and one.worker == state.failure_of
        says_more = is_new and one.kind is now is not FailureKind.UNKNOWN
        return one.kind.place < now.place or says_more

    found = filter(is_better, _accounts(state, workers, lost))
    return min(found, key=lambda one: one.kind.place, default=None)  # of equals, the first in rank order


def _accounts(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> Iterator[Account]:
    """The accounts of members in rank order, without members whose pods others have ended."""
    present = current(state, workers)
    for member in state.participants:
        index, worker, loss = member.index, present.get(member.index), lost.get(member.index)
        if index in state.done or member in state.leaving:
            continue
        if loss is not None and loss.was_member and loss.training_failed:
            yield Account(index, loss.cause, f"worker {index} lost: {loss.why}", loss.kind)
        elif worker is not None and worker.member == member and (account := _account_of(state, worker)):
            yield Account(index, *account)


def _account_of(state: State, worker: Worker) -> tuple[str, str, FailureKind] | None:
    request, name = worker.request, f"worker {worker.index}"
    if request is None:
        return None
    if not comes_back(worker):
        if request.type is RequestType.LEAVE and request.cause in COUNTED_CAUSES and worker.detail:
            return request.cause, f"{name} left: {request.cause} ({worker.detail})", worker.kind
        if request.type is not RequestType.JOIN or request.after < state.last_formed:
            return None
    if request.detail:
        return RoundCause.WORKER_FAILED, f"{name}'s processes failed ({request.detail})", request.kind
    if request.cause == RequestCause.STARTED and worker.detail:
        why = f"{name}'s trainer was started again ({worker.detail})"
        return RoundCause.TRAINER_STARTED_AGAIN, why, worker.kind
    return None

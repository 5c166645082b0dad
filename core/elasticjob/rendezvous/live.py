# SPDX-License-Identifier: Apache-2.0
"""Training processes that live through changes of the group. Pure questions: `decide` draws the consequences.

A worker whose processes have all opted in joins the next round with them as they are, so the round costs next to
nothing, and no step is lost.
"""

from collections.abc import Collection, Mapping

from elasticjob.rendezvous.model import State, Worker
from elasticjob.terms import RequestCause, RequestType

OF_A_JOIN = frozenset({RequestCause.WORKER_FAILED, RequestCause.MEMBERSHIP_CHANGED})


def lives_on(worker: Worker) -> bool:
    """Whether the worker's join is one of processes that run and live on."""
    return worker.request is not None and worker.request.type is RequestType.JOIN and worker.request.live


def comes_back(worker: Worker) -> bool:
    """Whether the worker has left until its new processes are ready, to join again: with the cause of a join."""
    return worker.request is not None and worker.request.type is RequestType.LEAVE and worker.request.cause in OF_A_JOIN


def opted_in(state: State, current: Mapping[int, Worker]) -> tuple[int, ...]:
    """The indices of the members of the formed round that live through changes, in ascending order. `current`: the
    workers that count, by index."""
    there = ((member, current.get(member.index)) for member in state.participants)
    found = (one.index for one, worker in there if worker and worker.member == one and worker.live_in == state.round)
    return tuple(sorted({*state.live, *found}))


def in_live_pods(state: State, workers: Collection[Worker]) -> list[Worker]:
    """The workers in the pods of the last round's live members: their training processes may live on. A worker whose
    sidecar was restarted since, or whose record is missing, is one of them and no member."""
    live = frozenset(state.live).intersection(worker.index for worker in workers)
    pods = {member.pod for member in state.participants if member.index in live}
    return [one for one in workers if (one.member.pod in pods if one.member else one.index in live)]


def trains_on(state: State, joined: Collection[Worker]) -> bool:
    """Whether the training goes on in the running processes of all that have joined, with what members of the last
    round know: nobody is waited for."""
    return all(map(lives_on, joined)) and any(worker.member in state.participants for worker in joined)


def goes_on(state: State) -> bool:
    """Whether the training lives through the end of the last round, in the processes of members that stay."""
    stay = (one for one in state.participants if one not in state.leaving and one.index not in state.done)
    return state.all_live and state.restart_round < state.round and any(stay)

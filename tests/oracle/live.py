# SPDX-License-Identifier: Apache-2.0
"""What must hold of training processes that live through changes of the group, after each step of `decide`."""

from collections.abc import Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.model import PodState, Request, State, Worker
from elasticjob.rendezvous.transitions import ROUND_REOPENED
from elasticjob.terms import RendezvousPhase, RequestCause, RequestType
from oracle.evidence import Step
from oracle.history import newly_formed

FORMING, FORMED, _ = RendezvousPhase


def live_members_are_known(step: Step) -> Iterator[str]:
    """The live members of a round are those that joined live and those that have opted in since. Each stays live until
    the next round is formed or the next stage begins."""
    before, after = step.before, step.after
    if newly_formed(before, after):
        of_join = {one.index for one in step.joined(after.round - 1) if one.request and one.request.live}
        least = most = of_join & {member.index for member in after.participants}
    elif after.stage > before.stage:
        least = most = set()
    elif before.phase is FORMED:
        least = set(before.live) | _opted_in(step, after)
        most = set(before.live) | _opted_in(step, before)
    else:
        least = most = set(before.live)
    if not least <= set(after.live) <= most:
        yield f"the live members of the last round are {sorted(after.live)}, and {sorted(least)} to {sorted(most)} are"


def _opted_in(step: Step, state: State) -> set[int]:
    now, members, round = step.current(state), step.before.participants, step.before.round
    return {one.index for one in now.values() if one.member in members and one.live_in == round}


def nobody_waits_where_all_live(step: Step) -> Iterator[str]:
    """While a round forms, it does not wait if all workers that have joined are live, one of them is a member of the
    last round, the minimum has joined, no other member of the last round may still join or save, and no failure may
    still be explained by the loss of a member that has left."""
    before, after = step.before, step.after
    if after.phase is not FORMING or after.stage > before.stage or step.suspended or step.failures:
        return
    placed = [one for one in step.have_places(after) if one.request]
    if not placed or not all(map(_lives, placed)) or not any(one.member in after.participants for one in placed):
        return
    saves = after.planned and after.participants[0] in after.leaving
    there = [one for one in step.current(after).values() if one.member in after.participants]
    explained = after.failure and any(_has_left_for_good(one) for one in there)
    waits = step.awaited() or saves or explained
    if len(placed) >= step.least and before.phase is FORMING and not waits:
        yield f"{len(placed)} workers have joined for round {after.round} and live on, and others are waited for"


def no_training_is_left_behind(step: Step) -> Iterator[str]:
    """A round of fewer workers than are wanted is not formed without the live processes of the last one that may still
    join, also by a sidecar that was restarted, unless some of them have joined or `rejoin` seconds have passed."""
    before, after = step.before, step.after
    if not newly_formed(before, after) or after.clocks.formed - before.clocks.opened >= step.spec.rejoin:
        return
    trained = [one for one in step.kept if any(_is_in_pod_of(one, member) for member in before.participants)]
    joined = step.joined(after.round - 1)
    if after.restart_round == after.round or any(one in trained and _lives(one) for one in joined):
        return
    coming = [one for one in trained if one.index in before.live and one not in joined]
    coming = [one for one in coming if one.pod is PodState.RUNNING and not one.asks(RequestType.LEAVE)]
    if coming and len(after.participants) < step.room:
        yield f"round {after.round} has nobody who trained in the last one, and worker {coming[0].index} still may join"


def _is_in_pod_of(worker: Worker, member: Member) -> bool:
    same_pod = worker.id is None or worker.id.split(".")[:-1] == member.id.split(".")[:-1]
    return worker.index == member.index and same_pod


def _has_left_for_good(worker: Worker) -> bool:
    match worker.request:
        case Request(type=RequestType.LEAVE, cause=cause):
            return cause not in (RequestCause.WORKER_FAILED, RequestCause.MEMBERSHIP_CHANGED)
        case Request(type=RequestType.JOIN):
            return False
    return True


def newcomers_of_live_jobs_are_let_in(step: Step) -> Iterator[str]:
    """A formed round whose members are all live is reopened at once for the first live newcomer that makes it
    larger."""
    before, after = step.before, step.after
    if before.phase is not FORMED or after.phase is not FORMED or after.round > before.round or after.done:
        return
    newcomers = [one for one in step.have_places(after) if one.member not in after.participants]
    size = len(after.participants)
    grows = step.largest(size + len(newcomers)) > size
    if newcomers and grows and len(after.live) == size and all(map(_lives, newcomers)):
        yield f"round {after.round} stands, all live through changes, and {len(newcomers)} newcomers wait"


def new_processes_where_they_are_needed(step: Step) -> Iterator[str]:
    """No process lives on into a round that was opened for a hang or for a requested restart, and a restart counts as
    done only by a round into which no process has lived on."""
    before, after = step.before, step.after
    hung = any(map(step.hung, step.breaks))
    reopened = any(event.reason == ROUND_REOPENED for event in step.decision.events)
    asked = reopened and step.spec.restarted_at not in ("", before.restarted_at)
    opened = before.phase is FORMED and after.round > before.round and after.stage == before.stage
    if after.restart_round != (after.round if opened and (hung or asked) else before.restart_round):
        number, ended = after.restart_round, before.last_formed
        yield f"the last round for new processes is {number}, and round {ended} ended otherwise"
    if not newly_formed(before, after):
        return
    lives = [one for one in step.joined(after.round - 1) if _lives(one) and one.member in after.participants]
    if lives and after.restart_round == after.round:
        yield f"worker {lives[0].index} lives on in round {after.round}, which needs new processes"
    if after.restarted_at != before.restarted_at and any(one.member in before.participants for one in lives):
        yield f"round {after.round} is taken for the restart that was asked for, and a process has lived on"


def _lives(worker: Worker) -> bool:
    return worker.request is not None and worker.request.live

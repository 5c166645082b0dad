"""What must hold after every step, as one pure function; tests call it after each."""

from collections.abc import Iterable, Iterator

from elasticjob.rendezvous.model import Decision, Member, Spec, State, Worker
from elasticjob.rendezvous.roster import current, min_members
from elasticjob.terms import Outcome, RendezvousPhase, RequestType

FORMING, FORMED, CLOSED = RendezvousPhase


def violations(spec: Spec, before: State, workers: Iterable[Worker], decision: Decision) -> list[str]:
    """Every broken rule of one step from `before`; empty when all is well."""
    workers = tuple(workers)
    after = decision.state
    return [
        *_rounds(before, after),
        *_round_members(spec, before, workers, after),
        *_finality(before, after),
        *_reasons(before, decision),
    ]


def _rounds(before: State, after: State) -> Iterator[str]:
    if not before.round <= after.round <= before.round + 1:
        yield f"round went from {before.round} to {after.round}"
    if after.round > before.round and before.phase is not FORMED:
        yield f"round {after.round} was opened while round {before.round} was {before.phase}"
    if after.restarts > before.restarts + 1:
        yield "more than one failure was counted for a round"
    if after.restarts > before.restarts and before.phase is not FORMED:
        yield "a failure was counted while no round was formed"
    if before.phase is FORMED and after.phase is FORMED and before.round == after.round:
        if before.participants != after.participants:
            yield "the members of a formed round changed"
        if before.store != after.store:
            yield "the store of a formed round changed"
    if after.phase is FORMING and after.participants != before.participants:
        yield "the last formed round was forgotten while forming"


def _round_members(spec: Spec, before: State, workers: tuple[Worker, ...], after: State) -> Iterator[str]:
    formed = after.phase is FORMED and (before.phase is not FORMED or after.round > before.round)
    if not formed:
        return
    members = after.participants
    records = {worker.member: worker for worker in current(after, workers).values()}
    if len({member.index for member in members}) != len(members):
        yield "an index has two ranks"
    if not min_members(spec, after) <= len(members) <= spec.replicas - len(after.finished):
        yield f"a round of {len(members)} was formed for {spec.min_replicas} to {spec.replicas} workers"
    for member in members:
        worker = records.get(member)
        request = worker.request if worker else None
        if request is None or request.type is not RequestType.JOIN or request.after < after.round - 1:
            yield f"{member} was taken into round {after.round} without a join that counts for it"
    if set(members) & {*after.leaving, *after.finished}:
        yield "a worker that leaves or has finished is in the round"
    yield from _rank_order(before.participants, members)


def _rank_order(before: tuple[Member, ...], after: tuple[Member, ...]) -> Iterator[str]:
    survivors = [member for member in before if member in after]
    newcomers = [member for member in after if member not in before]
    if list(after) != survivors + sorted(newcomers):
        yield "survivors do not keep their order with the newcomers behind them by index"


def _finality(before: State, after: State) -> Iterator[str]:
    if before.ended and after != before:
        yield "something changed after the end"
    if before.phase is CLOSED and after.phase is not CLOSED:
        yield "a closed rendezvous was opened again"
    if not set(before.finished) <= set(after.finished):
        yield "a finished worker was forgotten"
    for index, number in before.replacements.items():
        if after.replacements.get(index, 0) < number:
            yield f"the replacements of worker {index} went back"
    if after.outcome is Outcome.COMPLETE and before.outcome is not Outcome.COMPLETE:
        out = [member for member in after.participants if member not in after.finished and member not in after.leaving]
        if out and before.phase is not FORMING:
            yield f"Complete while {out} had not finished"


def _reasons(before: State, decision: Decision) -> Iterator[str]:
    after = decision.state
    if (after.round, after.phase) != (before.round, before.phase) and not (after.reason and decision.events):
        yield f"round {after.round} became {after.phase} without a reason"

# SPDX-License-Identifier: Apache-2.0
"""What must hold between two statuses of a job that were written one after the other, whoever wrote them.

One write holds all that one `decide` came to: a round may be broken and formed again in it. Clocks are never written
down, so nothing here reads them. Each check's docstring is copied into docs/protocol.md by `make docs`.
"""

from collections.abc import Iterator
from dataclasses import replace

from elasticjob.rendezvous.model import State
from elasticjob.terms import FailureKind, Outcome, RendezvousPhase, RoundCause

FORMING, FORMED, CLOSED = RendezvousPhase
ORDER = tuple(FailureKind)  # of how much it tells


def history_violations(before: State, after: State, *, ranks_move: bool = False) -> list[str]:
    """Every rule that the step from `before` to `after` breaks, in words; empty when all is well. `ranks_move`: the
    job's ranks are laid out by where its workers are, of which no status tells."""
    checks = (check for check in HISTORY if not (ranks_move and check is ranks_are_stable))
    return [found for check in checks for found in check(before, after)]


def newly_formed(before: State, after: State) -> bool:
    """Whether a round was formed between the two."""
    return after.phase is FORMED and (before.phase is not FORMED or after.round != before.round)


def rounds_count_up(before: State, after: State) -> Iterator[str]:
    """There is one round at a time. Its number never falls, and grows by one, only when a formed round ends."""
    if not before.round <= after.round <= before.round + 1:
        yield f"the round went from {before.round} to {after.round}"
    if after.round > before.round and before.phase is not FORMED:
        yield f"round {after.round} was opened while round {before.round} was {before.phase}"
    if after.phase is FORMING and before.phase is FORMED and after.round == before.round:
        yield f"round {after.round} forms a second time"


def told_once(before: State, after: State) -> Iterator[str]:
    """Members, store and the restart that was done change only when a round is formed, so a trainer is never told
    another version of the same round."""
    if newly_formed(before, after):
        return
    if (after.participants, after.replicas) != (before.participants, before.replicas):
        yield "the members changed, and no round was formed"
    if after.restarted_at != before.restarted_at:
        yield "a restart was taken for done, and no round was formed"
    if after.round == before.round and after.store != before.store:
        yield f"the store of round {after.round} changed"
    if after.phase is FORMING and after.store is not None:
        yield f"round {after.round} has a store before it is formed"


def ranks_are_stable(before: State, after: State) -> Iterator[str]:
    """A round has members, and each index has one rank. A survivor keeps its rank if the new round has that rank. The
    free ranks go first to the survivors with higher ranks, in their order, then to newcomers by index. With
    `spec.rankOrder` this does not hold."""
    if not newly_formed(before, after):
        return
    members = after.participants
    if not members:
        yield f"round {after.round} was formed of nobody"
    if len({member.index for member in members}) < len(members):
        yield f"an index has two ranks in round {after.round}"
    size, there, known = len(members), set(members), set(before.participants)
    stay = {rank: member for rank, member in enumerate(before.participants[:size]) if member in there}
    moved = [(rank, member) for rank, member in stay.items() if members[rank] != member]
    for rank, member in moved:
        yield f"worker {member.index} stays in round {after.round}, and has lost its rank {rank}"
    if moved:
        return
    move = [member for member in before.participants[size:] if member in there]
    newcomers = sorted(there - known)
    if [member for rank, member in enumerate(members) if rank not in stay] != move + newcomers:
        yield f"the free ranks of round {after.round} are out of order: survivors as they were, then newcomers by index"


def no_victims(before: State, after: State) -> Iterator[str]:
    """No round is formed with a worker that was told to leave or has finished."""
    if not newly_formed(before, after):
        return
    for member in after.participants:
        if member in before.leaving or member in after.leaving:
            yield f"worker {member.index} was told to leave, and is in round {after.round}"
        if member.index in after.done:
            yield f"worker {member.index} has finished, and is in round {after.round}"


def replaced_for_good(before: State, after: State) -> Iterator[str]:
    """The replacement number of an index never falls. A worker that is told to leave is replaced, a finished worker
    never."""
    grown = set()
    for index in before.replacements.keys() | after.replacements.keys():
        was, number = before.replacements.get(index, 0), after.replacements.get(index, 0)
        if number > was:
            grown.add(index)
        if number < was:
            yield f"the replacements of worker {index} fell from {was} to {number}"
    for index in sorted(grown & after.done):
        yield f"worker {index} has finished, and was replaced"
    for member in after.leaving:
        if member not in before.leaving and member.index not in grown:
            yield f"worker {member.index} was told to leave, and was not given up"


def finished_once(before: State, after: State) -> Iterator[str]:
    """A worker finishes once, and stays finished. Stages count up, by one."""
    if not before.stage <= after.stage <= before.stage + 1:
        yield f"the stage went from {before.stage} to {after.stage}"
    if not set(before.finished) <= set(after.finished):
        yield "a finished worker was forgotten"
    if len(after.finished_indices) < len(after.finished):
        yield "an index has finished twice"


def one_failure_a_round(before: State, after: State) -> Iterator[str]:
    """At most one failure is counted for a round: when the next round is formed, or when the job fails instead. A round
    that stands may reset the count."""
    stands = before.phase is FORMED and after.phase is FORMED and after.round == before.round
    judged = newly_formed(before, after) or (before.phase is not CLOSED and after.outcome is Outcome.FAILED)
    counted = after.restarts - before.restarts
    if counted > 1:
        yield f"{counted} failures were counted at once"
    if counted > 0 and not judged:
        yield "a failure was counted, and no round was formed, nor has the job failed"
    if counted > 0 and before.phase is FORMING and not before.failure:
        yield "a failure was counted, and none waited"
    if counted < 0 and not stands:
        yield "the failures were reset, and no formed round stood"
    if counted < 0 and after.restarts != 0:
        yield f"the failures fell from {before.restarts} to {after.restarts}"


def failures_wait(before: State, after: State) -> Iterator[str]:
    """A failure waits only while a round forms. It is noted when the last round breaks, then kept or dropped, and
    replaced only by an account that says more about the same failure. The members whose pods are replaced meanwhile are
    noted with it, unless their index has finished."""
    if after.failure and after.phase is not FORMING:
        yield f"a failure waits, and round {after.round} is {after.phase}"
    elif after.failure and before.phase is FORMING and not _says_more(before, after):
        yield f"another failure was noted while round {after.round} was forming"
    grown = {
        member
        for member in after.participants
        if after.replacements.get(member.index, 0) > before.replacements.get(member.index, 0)
    }
    noted = (member for member in (*before.replaced, *grown) if member.index not in after.done)
    replaced = set(noted) if after.failure else set()
    if set(after.replaced) != replaced:
        found, kept = sorted(member.index for member in replaced), [member.index for member in after.replaced]
        yield f"workers {found} of the last round were given up while a failure waits, and {kept} are noted"


def rules_go_with_failures(before: State, after: State) -> Iterator[str]:
    """The matching rule of the job's policy is kept as long as its failure waits. Only an earlier rule replaces it."""
    if after.matched and not after.failure:
        yield f"rule {after.matched.rule} matches, and no failure waits"
    if not (before.matched and before.phase is FORMING and after.failure):
        return
    if after.matched is None or after.matched.rule > before.matched.rule:
        yield f"rule {before.matched.rule} has matched, and {after.matched and after.matched.rule} is noted"


def pings_count_up(before: State, after: State) -> Iterator[str]:
    """The number of a ping never falls, and the workers pinged by one number never change."""
    if not before.ping <= after.ping <= before.ping + 1:
        yield f"the ping went from {before.ping} to {after.ping}"
    if after.ping == before.ping and after.pinged != before.pinged:
        yield f"ping {after.ping} asks others than before"
    if after.ping > before.ping and not after.pinged:
        yield f"ping {after.ping} asks nobody"


def planned_while_forming(before: State, after: State) -> Iterator[str]:
    """An end is planned, and its round intact, only while the next round forms, and only from the beginning on. A round
    whose end is planned is intact."""
    for now, then in ((after.planned, before.planned), (after.intact, before.intact)):
        if now and after.phase is not FORMING:
            yield f"an end is planned, and round {after.round} is {after.phase}"
        elif now and before.phase is FORMING and not then:
            yield f"the end before round {after.round} became planned while that was forming"
    if after.planned and not after.intact:
        yield f"the end before round {after.round} is planned, and a member may be lost"


def closed_with_an_outcome(before: State, after: State) -> Iterator[str]:
    """A closed rendezvous has an outcome: `Complete`, `Failed`, `RendezvousTimeout`, or `Closed`, which follows only a
    formed round."""
    if (after.phase is CLOSED) != (after.outcome is not None):
        yield f"the rendezvous is {after.phase}, and its outcome is {after.outcome}"
    if after.outcome is before.outcome:
        return
    out_of_formed = before.phase is FORMED and after.round == before.round
    match after.outcome:
        case Outcome.COMPLETE if after.finishing:
            yield "Complete, and containers go on"
        case Outcome.COMPLETE if not after.done:
            yield "Complete, and nobody has finished"
        case Outcome.COMPLETE if before.phase is CLOSED and _not_done(after):
            yield f"Complete after a Close, and workers {_not_done(after)} have not finished"
        case Outcome.FAILED if out_of_formed and not after.finishing and after.stage == 1:
            if after.cause != RoundCause.DEADLINE_EXCEEDED:
                yield f"Failed, and round {after.round} was formed"
        case Outcome.TIMEOUT if out_of_formed or before.phase is CLOSED:
            yield f"RendezvousTimeout, and round {after.round} was not forming"
        case Outcome.CLOSED if not out_of_formed:
            yield f"Closed, and round {after.round} was not formed before"


def closed_is_final(before: State, after: State) -> Iterator[str]:
    """`Closed` is final: neither phase nor round changes any more, and after an end nothing changes at all. Only in
    it `members_ended` is true, and it stays true."""
    if after.members_ended and after.phase is not CLOSED:
        yield f"all members have ended, and round {after.round} is {after.phase}"
    elif before.members_ended > after.members_ended:
        yield "members that have ended train again"
    if before.phase is not CLOSED:
        return
    if after.phase is not CLOSED or after.round != before.round:
        yield f"the closed rendezvous became round {after.round}, {after.phase}"
    elif before.ended and replace(after, clocks=before.clocks) != before:
        yield f"something changed after the end ({before.outcome})"


def changes_have_a_reason(before: State, after: State) -> Iterator[str]:
    """No round is opened, formed or closed without a reason that people can read."""
    moved = (after.round, after.phase, after.outcome) != (before.round, before.phase, before.outcome)
    if moved and not after.reason:
        yield f"round {after.round} became {after.phase} without a reason"


def _says_more(before: State, after: State) -> bool:
    """Or the same."""
    was, now = ORDER.index(before.failure_kind), ORDER.index(after.failure_kind)
    if after.failure == before.failure:
        return was == now
    return before.failure != "" and (now < was or now == was != ORDER.index(FailureKind.UNKNOWN))


def _not_done(state: State) -> list[int]:
    return [member.index for member in state.participants if member.index not in state.done]


HISTORY = (
    rounds_count_up,
    told_once,
    ranks_are_stable,
    no_victims,
    replaced_for_good,
    finished_once,
    one_failure_a_round,
    failures_wait,
    rules_go_with_failures,
    pings_count_up,
    planned_while_forming,
    closed_with_an_outcome,
    closed_is_final,
    changes_have_a_reason,
)

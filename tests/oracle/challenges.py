# SPDX-License-Identifier: Apache-2.0
"""What must hold of challenges: who is asked whether it lives, and when the time for its answer begins."""

from collections.abc import Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.model import State, Worker
from oracle.evidence import ENDED, Step


def asked_in_doubt(step: Step) -> Iterator[str]:
    """Who is doubted by another, or called unready, is asked in the same step, and with it others that are not doubted,
    if there are any. Only who can answer is asked."""
    before, after, able, doubted = step.before, step.after, _able(step, step.after), _doubted(step)
    if before.ended or after.ended:
        return
    asked = after.clocks.asked or {}
    for member in sorted(doubted - asked.keys()):
        yield f"worker {member.index} is doubted, and was not asked"
    if after.challenge == before.challenge:
        return
    for member in after.challenged:
        if member not in able:
            yield f"worker {member.index} is asked, and cannot answer"
    if able.keys() - doubted and len(able) > 1 and len(after.challenged) == 1:
        yield f"worker {after.challenged[0].index} is asked alone, and others could be"


def _doubted(step: Step) -> set[Member]:
    """Of whom a record or the cluster says, at the end of the step, that it is not heard of."""
    able = _able(step, step.after)
    found = {member for member, worker in able.items() if worker.unready}
    for member, worker in able.items():
        found.update(one for one in worker.doubts if one != member and one in able)
    return found


def proof_begins_with_an_answer(step: Step) -> Iterator[str]:
    """The clock of who is asked starts only when another has answered, unless nobody else was asked."""
    known, able = step.before.clocks.asked or {}, _able(step, step.before)
    for member, asked in (step.after.clocks.asked or {}).items():
        was = known.get(member)
        if asked.counting is None or (was is not None and was.counting is not None and was.number == asked.number):
            continue
        answered = any(other.answer >= asked.number for other in able.values() if other.member != member)
        if not answered and step.before.challenged != (member,):
            yield f"the clock of worker {member.index} runs, and nobody has answered"


def _able(step: Step, state: State) -> dict[Member, Worker]:
    """Who could answer a challenge: of the pods that count, those whose sidecar may live. Who was finishing may be no
    longer, as its container was started again."""
    done = state.done & step.after.done
    there = (one for one in step.current(state).values() if one.index not in done and not one.deleting)
    return {one.member: one for one in there if one.member is not None and one.pod not in ENDED}

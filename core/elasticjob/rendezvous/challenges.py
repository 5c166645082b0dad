# SPDX-License-Identifier: Apache-2.0
"""Who is doubted, who is asked to show that it lives, and who has not answered. Pure questions: `decide` draws the
consequences.

Doubt comes from anywhere and proves nothing. Proof is that a worker does not answer a challenge while another, which
was asked the same, does: then the way is sound and the worker is not. While nobody answers no clock runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from elasticjob.members import Member
from elasticjob.rendezvous.limits import AGAIN_SECONDS, proof
from elasticjob.rendezvous.model import Asked, Spec, State, Worker
from elasticjob.rendezvous.roster import ENDED, current, has_joined, is_between_stages, is_stopping
from elasticjob.terms import Loss, RendezvousPhase

CONTROLS = 2  # others that are asked with the doubted: one of them may be lost too
FEW = 16  # members that may all be asked soon: of a large group most are only slow, or have nothing to do with it

Present = Mapping[Member, Worker]
Questions = Mapping[Member, Asked]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Whom to ask; `anew`: the clocks of those that were asked before start again."""

    members: tuple[Member, ...]
    anew: bool = False


def able(state: State, workers: Iterable[Worker]) -> dict[Member, Worker]:
    """Who can answer, and whose silence means anything: in the order of their indices."""
    present = current(state, workers)
    return {
        worker.member: worker
        for _, worker in sorted(present.items())
        if worker.member and not (worker.deleting or worker.pod in ENDED or worker.index in state.done)
    }


def doubted(spec: Spec, state: State, present: Present, now: float) -> set[Member]:
    """Of whom it is doubted that they live: another hears nothing of it, the cluster calls its pod unready, it has not
    joined again, or its heartbeat has not come for long."""
    found = _unheard(present)
    found |= {member for member, worker in present.items() if worker.unready}
    found |= {member for member, beat in state.clocks.beats.items() if now - beat.since >= spec.silence}
    late = _late(state, present)
    if late and now - state.clocks.opened >= _patience(spec, state, present, late):
        found.update(late)
    return found & present.keys()


def _unheard(present: Present) -> set[Member]:
    """Of whom another hears nothing."""
    return {one for member, worker in present.items() for one in worker.doubts if one != member and one in present}


def _late(state: State, present: Present) -> list[Member]:
    """While a round forms: members of the last one that run, and have neither joined nor left, nor ended in success."""
    if state.phase is not RendezvousPhase.FORMING:
        return []
    stopping = (one for one in state.participants if one in present and is_stopping(state, present[one]))
    return [one for one in stopping if not is_between_stages(present[one])]


def _patience(spec: Spec, state: State, present: Present, late: list[Member]) -> float:
    """Seconds for which nobody asks why they have not joined again. Who did not answer may have been lost with others,
    and of those nobody has heard if it was rank 0."""
    silently = state.cause == Loss.NO_ANSWER
    if silently and state.participants[0] not in present:
        return 0.0
    few = len(late) <= max(FEW, sum(has_joined(state, worker) for worker in present.values()) // 4)
    return spec.worker_lost if few or silently else spec.rejoin


def noted(state: State, present: Present, now: float) -> dict[Member, Asked]:
    """What is open or answered now. An operator that begins takes what it finds open as asked at this moment."""
    known = state.clocks.asked
    if known is None:
        silent = _unheard(present)
        known = {one: Asked(state.challenge, now, silent=one in silent) for one in state.challenged}
    if not known:
        return {}
    latest = sorted((worker.answer, member) for member, worker in present.items())[-2:]
    questions = {}
    for member, asked in known.items():
        if member not in present:
            continue
        if asked.answered is None and present[member].answer >= asked.number:
            asked = asked._replace(answered=now, lived=_lived(state, asked, now))
        another = any(number >= asked.number for number, other in latest if other != member)
        if asked.counting is None and another:
            asked = asked._replace(counting=now)
        elif asked.counting is None and state.challenged == (member,):
            asked = asked._replace(counting=asked.since, alone=True)
        questions[member] = asked
    return questions


def _lived(state: State, asked: Asked, now: float) -> float:
    return now if asked.lived is None or asked.lived < state.clocks.opened else asked.lived


def unanswered_for(spec: Spec, state: State, worker: Worker, now: float) -> float | None:
    """How long a worker has not answered, while another has, if that is too long."""
    asked = (state.clocks.asked or {}).get(worker.member) if worker.member else None
    if asked is None or asked.answered is not None or asked.counting is None:
        return None
    limit = proof(spec, worker, asked)
    return limit if now >= _runs_from(state, asked) + limit else None


def _runs_from(state: State, asked: Asked) -> float:
    assert asked.counting is not None
    return max(asked.counting, state.clocks.settled)


def lived_on(state: State, worker: Worker) -> float | None:
    """Since when it is known that its sidecar has lived on after the last round was ended, None if it is not: nor while
    a question to it is open."""
    asked = (state.clocks.asked or {}).get(worker.member) if worker.member else None
    if asked is None or asked.answered is None or asked.lived is None or asked.lived < state.clocks.opened:
        return None
    return asked.lived


def kept(state: State, present: Present, suspects: set[Member]) -> dict[Member, Asked]:
    """Without what is settled: who has answered and is doubted no more is asked at once when it is doubted again."""
    return {
        member: asked
        for member, asked in (state.clocks.asked or {}).items()
        if member in present and (asked.answered is None or member in suspects)
    }


def to_ask(state: State, present: Present, suspects: set[Member], questions: Questions, now: float) -> Challenge | None:
    """Whom to challenge now, if anybody: who is newly doubted, or still after a while, and controls.

    Where nobody has answered for a while everybody is asked: somebody must know whether the way is sound.
    """
    open_ones = {member: asked for member, asked in questions.items() if asked.answered is None}
    waiting = [asked for asked in open_ones.values() if asked.counting is None]
    if waiting and now - min(asked.since for asked in waiting) >= AGAIN_SECONDS:
        everybody = tuple(present)
        return Challenge(everybody, anew=True) if set(everybody) != set(state.challenged) else None
    if not any(_is_due(questions.get(one), now, AGAIN_SECONDS) for one in suspects):
        return None
    # with one all that are due soon: each challenge is a status that everybody reads
    fresh = {one for one in suspects if _is_due(questions.get(one), now, AGAIN_SECONDS / 2)}
    chosen = fresh | open_ones.keys() | _controls(present, suspects, fresh)
    # rank 0 hears of the others: who was lost with it is doubted by nobody
    if len(present) <= FEW and not (fresh - questions.keys()).isdisjoint(state.participants[:1]):
        chosen = set(present)
    return Challenge(tuple(member for member in present if member in chosen))


def _is_due(asked: Asked | None, now: float, again: float) -> bool:
    return asked is None or (asked.answered is not None and now - asked.answered >= again)


def _controls(present: Present, suspects: set[Member], fresh: set[Member]) -> set[Member]:
    """Who doubts is asked first: it has just shown that it can write. Where all are doubted others of them are."""
    sound = [member for member in present if member not in suspects]
    doubters = [member for member in sound if not suspects.isdisjoint(present[member].doubts)]
    others = [member for member in present if member not in fresh]
    return set((doubters or sound or others)[:CONTROLS])


def asked_by(
    state: State, present: Present, challenge: Challenge, questions: Questions, now: float
) -> dict[Member, Asked]:
    """The questions after `challenge`. What is open stays open since it was asked first, unless it was asked alone, or
    is asked anew."""
    asked, silent = dict(questions), _unheard(present)
    for member in challenge.members:
        before = asked.get(member)
        is_open = before is not None and before.answered is None
        if challenge.anew or not is_open or state.challenged == (member,):
            lived = before.lived if before else None
            asked[member] = Asked(state.challenge + 1, now, lived=lived, silent=member in silent)
    return asked


def moments(spec: Spec, state: State, present: Present) -> Iterator[float]:
    """When time alone may make a doubt, a question or a loss."""
    yield from (beat.since + spec.silence for beat in state.clocks.beats.values())
    if _late(state, present):
        yield from (state.clocks.opened + seconds for seconds in (spec.worker_lost, spec.rejoin))
    for member, asked in (state.clocks.asked or {}).items():
        if asked.lived is not None:
            yield asked.lived + spec.rejoin
        if asked.answered is not None:
            yield asked.answered + AGAIN_SECONDS
        elif asked.counting is None:
            yield asked.since + AGAIN_SECONDS
        elif member in present:
            yield _runs_from(state, asked) + proof(spec, present[member], asked)

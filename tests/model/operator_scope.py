# SPDX-License-Identifier: Apache-2.0
"""The operator's model: the real `decide` between workers that may ask for anything and pods that may do anything."""

from collections.abc import Iterable, Iterator
from typing import Any

from elasticjob.rendezvous import Clocks, State
from model.landmarks import LANDMARKS, LIVE_LANDMARKS
from model.liveness import Liveness
from model.operator_key import key_of
from model.operator_moves import CHANGES, changed, moves_of
from model.operator_system import OperatorSystem, lines_of, looked
from model.search import Digest, Move, Violation, digest

_LANDMARKS = LANDMARKS | LIVE_LANDMARKS


class OperatorScope:
    """Begins at the landmarks named."""

    def __init__(self, landmarks: Iterable[str] = tuple(LANDMARKS)) -> None:
        self._landmarks = tuple(landmarks)
        self._tried: set[Digest] = set()
        self._liveness = Liveness()

    def starts(self) -> Iterable[OperatorSystem]:
        return map(_reached, self._landmarks)

    def moves(self, system: OperatorSystem, left: int) -> Iterator[Move]:
        return moves_of(system, left)

    def apply(self, system: OperatorSystem, move: Move) -> OperatorSystem | None:
        before = changed(system, move)
        if before.unseen:
            return before
        asked = digest(key_of(before))
        if asked in self._tried:
            return None
        self._tried.add(asked)
        after = looked(before)
        asleep = system.wake is None or before.now < system.wake
        if system.idle and asleep and move == ("time", 10.0, "none") and not after.idle:
            raise Violation("nothing happened but time, and the operator had not meant to look so soon")
        return after

    def forget(self) -> None:
        self._tried.clear()

    def key(self, system: OperatorSystem) -> tuple[Any, ...]:
        return key_of(system)

    def check(self, system: OperatorSystem) -> None:
        self._liveness.check(system)

    def notes(self) -> str:
        longest = ", ".join(f"{seconds:g} s if {calm.value}" for calm, seconds in self._liveness.longest.items())
        return f"longest way to a formed round or the end: {longest}"

    def tell(self, move: Move, after: OperatorSystem | None) -> Iterator[str]:
        if move[0] == "start":
            name = self._landmarks[move[1]]
            spec, script = _LANDMARKS[name]
            yield f"{name}: a job of {spec.replicas}, at least {spec.min_replicas}"
            yield from (f"  {in_words(step)}" for step in script)
        else:
            yield in_words(move)
        if after is not None:
            yield from lines_of(after)


def in_words(move: Move) -> str:
    match move:
        case ("time", seconds, whose):
            beats = whose if whose in ("all", "none") else f"all but worker {whose}'s"
            return f"{seconds:g} seconds pass; heartbeats that go on: {beats}"
        case ("look",):
            return "the operator looks again"
        case ("restart",):
            return "the operator starts anew"
        case ("scale", replicas, seen):
            text = f"scaled to {replicas}"
        case ("unknown", index, seen):
            text = f"somebody makes the next pod of worker {index}, and joins"
        case ("suspend", seen):
            text = "suspended, or resumed"
        case ("anew", seen):
            text = "a restart is asked for"
        case (name, index, number, seen):
            text = f"pod {index}-{number}: {CHANGES[name][0]}"
    return text + ("" if seen else " (the operator does not see it yet)")


def _reached(landmark: str) -> OperatorSystem:
    spec, script = _LANDMARKS[landmark]
    state = State(clocks=Clocks(opened=0.0, formed=0.0))
    system = looked(OperatorSystem(spec, state, lives=landmark in LIVE_LANDMARKS))
    for move in script:
        system = looked(changed(system, move))
    return system

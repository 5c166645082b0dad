# SPDX-License-Identifier: Apache-2.0
"""Breadth-first search through everything that can happen in a model, and the shortest way to what it finds.

A model (`Scope`) has states and moves between them. States with the same key are the same; only a digest of 128 bits is
kept of each, with the move that first led to it, so that the way to a state can be walked again and told.
"""

import marshal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

SystemState = TypeVar("SystemState")
Move = tuple[Any, ...]
Digest = bytes


class Violation(Exception):
    """A check has failed: the model, or the code that it runs, is wrong. `then` tells what a check of a state did."""

    def __init__(self, sentence: str, then: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.then = then


class Scope(Protocol[SystemState]):
    """What a model has to tell. `apply` and `check` raise `Violation`, or whatever the code that they run raises."""

    def starts(self) -> Iterable[SystemState]:
        """The states to begin with."""

    def moves(self, system: SystemState, left: int) -> Iterator[Move]:
        """What can happen next, when the search goes on for `left` more moves after it."""

    def apply(self, system: SystemState, move: Move) -> SystemState | None:
        """The state after `move`; None when that has been asked in a state just like this one."""

    def forget(self) -> None:
        """From now on answer `apply` as if nothing had been asked before."""

    def key(self, system: SystemState) -> tuple[Any, ...]:
        """All that matters of a state, in plain values."""

    def check(self, system: SystemState) -> None:
        """What has to hold in every state, once for each."""

    def notes(self) -> str:
        """What else a search has found out, in a few words."""

    def tell(self, move: Move, after: SystemState | None) -> Iterator[str]:
        """`move` and what came of it, for people; ("start", number) is the first. None: the check failed in it."""


class Counterexample(Exception):
    """A violation and the shortest way to it, in words."""

    def __init__(self, sentence: str, trace: tuple[str, ...]) -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace


@dataclass(slots=True)
class Count:
    """How far a search went; `cut`: there was more beyond its depth."""

    depth: int = 0
    cut: bool = True
    states: int = 0
    transitions: int = 0
    seconds: float = 0.0


class Search(Generic[SystemState]):
    def __init__(self, scope: Scope[SystemState]) -> None:
        self._scope = scope
        self._ways: dict[Digest, tuple[Digest | None, Move]] = {}
        self.count = Count()

    def run(self, depth: int) -> Count:
        """Visit all states up to `depth` moves away from the first ones. Raises Counterexample."""
        began = time.perf_counter()
        frontier: list[tuple[Digest, SystemState]] = []
        for number, system in enumerate(self._scope.starts()):
            if (here := self._visit(system, None, (number,))) is not None:
                frontier.append((here, system))
        for level in range(1, depth + 1):
            frontier = self._level(frontier, left=depth - level)
            self.count.depth = level
            if level < depth and not frontier:
                self.count.cut = False
                break
        self.count.seconds = time.perf_counter() - began
        return self.count

    def _level(self, frontier: list[tuple[Digest, SystemState]], left: int) -> list[tuple[Digest, SystemState]]:
        following = []
        for here, system in frontier:
            for move in self._scope.moves(system, left):
                self.count.transitions += 1
                try:
                    after = self._scope.apply(system, move)
                except Exception as error:
                    raise self._found(error, here, move) from error
                if after is None:
                    continue
                there = self._visit(after, here, move)
                if there is not None and left:
                    following.append((there, after))
        return following

    def _visit(self, system: SystemState, origin: Digest | None, move: Move) -> Digest | None:
        """The digest of a state that is new; None for one that is known."""
        here = digest(self._scope.key(system))
        if here in self._ways:
            return None
        self._ways[here] = (origin, move)
        self.count.states += 1
        try:
            self._scope.check(system)
        except Exception as error:
            raise self._found(error, here) from error
        return here

    def _found(self, error: Exception, at: Digest, *last: Move) -> Counterexample:
        sentence, then = in_words(error), error.then if isinstance(error, Violation) else ()
        moves = list(last)
        origin: Digest | None = at
        while origin is not None:
            origin, move = self._ways[origin]
            moves.append(move)
        start, *way = reversed(moves)
        return Counterexample(sentence, (*self._walk(start[0], way), *then))

    def _walk(self, start: int, way: list[Move]) -> Iterator[str]:
        self._scope.forget()
        system: SystemState | None = list(self._scope.starts())[start]
        yield from self._scope.tell(("start", start), system)
        for move in way:
            assert system is not None
            try:
                system = self._scope.apply(system, move)
            except Exception:
                system = None  # this is the move that it is about
            yield from self._scope.tell(move, system)


def in_words(error: Exception) -> str:
    return str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"


def digest(key: tuple[Any, ...]) -> Digest:
    # version 2 has no references, so equal values give equal bytes
    return blake2b(marshal.dumps(key, 2), digest_size=16).digest()

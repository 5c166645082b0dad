# SPDX-License-Identifier: Apache-2.0
"""Limits how many requests for pods are in progress at once, and shares them out among the jobs. It knows nothing of
either."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Slots(Generic[K]):
    """At most `most` slots are held at once, at most `share` of them by one key, so no key holds all. Waiting keys take
    turns."""

    def __init__(self, most: int, share: int) -> None:
        self._most, self._share = most, share
        self._held: Counter[K] = Counter()
        self._waiting: dict[K, deque[asyncio.Future[None]]] = {}  # in the order of their turns

    @asynccontextmanager
    async def of(self, key: K) -> AsyncIterator[None]:
        """Holds one slot, once it is the turn of `key`."""
        await self._take(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: K) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was handed out at the same moment
                self._give_back(key)
            raise

    def _give_back(self, key: K) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._held.total() < self._most and (key := self._next()) is not None:
            turns = self._waiting.pop(key)
            turn = turns.popleft()
            if turns:
                self._waiting[key] = turns  # after the others
            if not turn.cancelled():
                self._held[key] += 1
                turn.set_result(None)

    def _next(self) -> K | None:
        return next((key for key in self._waiting if self._held[key] < self._share), None)

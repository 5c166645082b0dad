"""How long to wait before the next try: growing, never more than three seconds, never in step with others."""

import random

FIRST, MOST = 0.1, 3.0


class Backoff:
    def __init__(self) -> None:
        self._next = FIRST

    def reset(self) -> None:
        self._next = FIRST

    def most(self) -> float:
        """Wait the longest time: for a refusal that only somebody else can lift."""
        self._next = MOST
        return MOST

    def next(self) -> float:
        delay, self._next = self._next, min(self._next * 2, MOST)
        return delay * random.uniform(0.5, 1.0)

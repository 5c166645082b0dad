"""How long to wait before the next try: growing, never more than three seconds, never in step with others."""

import random

FIRST_SECONDS, LONGEST_SECONDS = 0.1, 3.0


class Backoff:
    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        self._next = FIRST_SECONDS

    def longest(self) -> float:
        """Wait the longest time: for a refusal that only somebody else can lift."""
        self._next = LONGEST_SECONDS
        return LONGEST_SECONDS

    def next(self) -> float:
        delay, self._next = self._next, min(self._next * 2, LONGEST_SECONDS)
        return delay * random.uniform(0.5, 1.0)


class Tries:
    """How often one kind of thing has failed in a row, the last time by a `conflict`, and how long to wait before the
    next."""

    def __init__(self) -> None:
        self.failures, self.conflict, self.backoff = 0, False, Backoff()

    def over(self) -> None:
        """It was done."""
        self.failures, self.conflict = 0, False
        self.backoff.reset()

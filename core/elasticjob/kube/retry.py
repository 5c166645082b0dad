# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next try: each pause is twice the last, up to a longest one.

Who waits names the two, as a `RetryPolicy`. The rendezvous has a rule of its own, `rendezvous.backoff`.
"""

from collections.abc import Callable
from typing import NamedTuple

_DOUBLINGS = 64  # no larger power is taken


class RetryPolicy(NamedTuple):
    """`first`, `longest`: seconds. `jitter`: which share of a pause chance may take away, so that many who failed
    together do not try again together."""

    first: float
    longest: float
    jitter: float = 0.0

    def pause(self, failures: int, chance: float = 1.0) -> float:
        """Seconds after `failures` that came before this one; `chance` from 0 to 1 is what is drawn for the jitter."""
        least = 1.0 - self.jitter
        pause: float = min(self.first * 2.0 ** min(failures, _DOUBLINGS), self.longest)
        return pause * (least + self.jitter * chance)


class Backoff:
    """The pauses of one thing that is tried. `chance` draws a number from 0 to 1."""

    def __init__(self, policy: RetryPolicy, chance: Callable[[], float] = lambda: 1.0) -> None:
        self._policy, self._chance = policy, chance
        self._failures = 0

    def reset(self) -> None:
        """It was done."""
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._failures += 1
        return self._policy.pause(self._failures - 1, self._chance())

    def longest(self) -> float:
        """The longest wait, as for a refusal that only somebody else can lift; so the next one is, too."""
        self._failures = _DOUBLINGS
        return self._policy.longest

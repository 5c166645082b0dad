# SPDX-License-Identifier: Apache-2.0
"""Exponential backoff: each pause is twice the previous one, up to a bound.

Each caller has its own `RetryPolicy`. The rendezvous has a separate rule, `rendezvous.backoff`.
"""

from collections.abc import Callable
from typing import NamedTuple

_DOUBLINGS = 64  # bounds the exponent


class RetryPolicy(NamedTuple):
    """`first` and `longest` pause in seconds. `jitter`: the share of a pause that may be taken away at random, so that
    many callers that failed together do not retry together."""

    first: float
    longest: float
    jitter: float = 0.0

    def pause(self, failures: int, chance: float = 1.0) -> float:
        """Seconds to wait after `failures` earlier failures. `chance`: a random number from 0 to 1 for the jitter."""
        least = 1.0 - self.jitter
        pause: float = min(self.first * 2.0 ** min(failures, _DOUBLINGS), self.longest)
        return pause * (least + self.jitter * chance)


class Backoff:
    """The pauses between tries of one operation. `chance` returns a random number from 0 to 1."""

    def __init__(self, policy: RetryPolicy, chance: Callable[[], float] = lambda: 1.0) -> None:
        self._policy, self._chance = policy, chance
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._failures += 1
        return self._policy.pause(self._failures - 1, self._chance())

    def longest(self) -> float:
        """The longest pause, also for the next try: for a refusal that only someone else can lift."""
        self._failures = _DOUBLINGS
        return self._policy.longest

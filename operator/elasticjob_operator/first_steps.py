# SPDX-License-Identifier: Apache-2.0
"""A new leader's progress with the jobs that it has taken over. A job is done once it has had a step."""

from collections.abc import Awaitable, Callable

from elasticjob_operator.cluster.cache import Cache, Key


class FirstSteps:
    """To be called instead of `step`, which takes one job a step further."""

    def __init__(self, cache: Cache, step: Callable[[Key], Awaitable[float | None]]) -> None:
        self._cache, self._step = cache, step
        self._done: set[Key] = set()

    async def __call__(self, key: Key) -> float | None:
        again = await self._step(key)
        self._done.add(key)
        return again

    def awaited(self) -> int:
        """The number of known jobs that have had no step yet."""
        known = {Key.of(job) for job in self._cache.jobs()}
        self._done &= known
        return len(known - self._done)

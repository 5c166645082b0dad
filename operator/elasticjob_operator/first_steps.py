# SPDX-License-Identifier: Apache-2.0
"""How far a new leader has come with the jobs that it has taken over: those are done that have had a step."""

from collections.abc import Awaitable, Callable

from elasticjob_operator.cluster.cache import Cache, Key


class FirstSteps:
    """To be called in place of `step`, which takes one job a step further."""

    def __init__(self, cache: Cache, step: Callable[[Key], Awaitable[float | None]]) -> None:
        self._cache, self._step = cache, step
        self._done: set[Key] = set()

    async def __call__(self, key: Key) -> float | None:
        again = await self._step(key)
        self._done.add(key)
        return again

    def awaited(self) -> int:
        """How many of the known jobs have had none yet."""
        known = {Key(job["metadata"]["namespace"], job["metadata"]["name"]) for job in self._cache.jobs()}
        self._done &= known
        return len(known - self._done)

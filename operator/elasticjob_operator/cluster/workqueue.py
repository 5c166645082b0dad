# SPDX-License-Identifier: Apache-2.0
"""Runs one piece of work per key at a time, soon after it was requested, and again if it fails.

It knows nothing of jobs. If work is requested while it runs, it runs once more afterwards, after a pause three times as
long as the CPU time that it took, but of 0.2 s at most. So one key leaves CPU time to the others and to the Lease, and
one piece of work answers for many requests, as when all workers of a job join at once. After a pause without a request
a second piece may follow the first at once, and the pause after it is for both. In a small job the first piece begins a
round when one worker joins, and the second forms it, as all have joined by then.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from typing import Generic, TypeVar

from elasticjob.kube.retry import RetryPolicy

RETRY = RetryPolicy(0.05, 3.0)
RESTS = 3.0  # the length of a pause, in multiples of the CPU time of the work before it
LONGEST_REST_SECONDS = 0.2

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


class WorkQueue(Generic[K]):
    """Calls `work(key)`, which returns the seconds until it wants to be called again, or None."""

    def __init__(self, work: Callable[[K], Awaitable[float | None]]) -> None:
        self._work, self._context = work, copy_context()
        # called with the seconds by which each piece of work begins late; called for each one that is retried
        self.began: Callable[[float], None] = lambda _: None
        self.failed: Callable[[], None] = lambda: None
        self._due: dict[K, float] = {}
        self._wakes: dict[K, asyncio.Event] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._stopped = False

    def add(self, key: K, delay: float = 0.0) -> None:
        """Requests work on `key` within `delay` seconds. Does nothing after `stop`."""
        if self._stopped:
            return
        due = asyncio.get_running_loop().time() + delay
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        if key in self._tasks:
            self._wakes[key].set()
        else:
            self._wakes[key] = asyncio.Event()
            # a timer keeps its context until it is due, even if cancelled, and kopf's context holds all objects
            context = self._context.copy()
            self._tasks[key] = asyncio.create_task(self._run(key), name=f"work {key}", context=context)

    async def stop(self) -> None:
        """Cancels all work, accepts no more, and returns once none is left."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def depth(self) -> int:
        """The number of keys that are worked on, or are due and wait."""
        now = asyncio.get_running_loop().time()
        return sum(key not in self._due or self._due[key] <= now for key in self._tasks)

    async def _run(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        failures, owed, rested = 0, 0.0, True
        try:
            while key in self._due:
                await self._until_due(key)
                self.began(max(0.0, loop.time() - self._due.pop(key)))
                began = time.thread_time()
                delay, failed = await self._attempt(key, failures)
                failures = failures + 1 if failed else 0
                if delay is not None:
                    self.add(key, delay)
                owed += min(RESTS * (time.thread_time() - began), LONGEST_REST_SECONDS)
                if rested and await self._until_due(key, owed):
                    rested = False  # the second begins at once; the pause that is owed is added to its own
                    continue
                if not rested:
                    await asyncio.sleep(owed)
                owed, rested = 0.0, self._left(key) > 0
        finally:
            del self._tasks[key], self._wakes[key]

    def _left(self, key: K) -> float:
        """The seconds until work on the key is due."""
        return self._due.get(key, float("inf")) - asyncio.get_running_loop().time()

    async def _until_due(self, key: K, longest: float = float("inf")) -> bool:
        """Waits until work on the key is due, for `longest` seconds at most; returns whether it is."""
        end = asyncio.get_running_loop().time() + longest
        while (left := self._left(key)) > 0:
            longest = end - asyncio.get_running_loop().time()
            self._wakes[key].clear()
            try:
                async with asyncio.timeout(min(left, longest)):  # asyncio.wait_for may lose a cancellation before 3.12
                    await self._wakes[key].wait()
            except TimeoutError:
                return left <= longest
        return True

    async def _attempt(self, key: K, failures: int) -> tuple[float | None, bool]:
        try:
            return await self._work(key), False
        except Exception as error:
            delay = RETRY.pause(failures)
            self.failed()
            what = str(error) or type(error).__name__
            log.warning("%s: %s; again in %.2g s", key, what, delay, exc_info=failures == 3)
            return delay, True

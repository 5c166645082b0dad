# SPDX-License-Identifier: Apache-2.0
"""Puts the simulation's clock and dice in the place of those that product code takes from the standard library."""

import asyncio
import datetime as real_datetime
import random
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from simulation.loop import PROCESS, START_SECONDS

PARTS = ("elasticjob", "elasticjob_operator", "elasticjob_sidecar", "elasticjob_torch")
EPOCH = real_datetime.datetime(2026, 1, 1, tzinfo=real_datetime.UTC).timestamp() - START_SECONDS
LONGEST_TURN_SECONDS = 0.01  # of the processor, for one piece of work


class Clock:
    """`time`, `datetime`, `random`, `secrets` and `uuid` as product code uses them, in virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: random.Random) -> None:
        self._loop, self._dice = loop, dice
        self._used = 0.0
        clock = self

        class Datetime(real_datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return real_datetime.datetime.fromtimestamp(clock.wall(), tz)

        self.time = SimpleNamespace(
            monotonic=loop.time,
            time=self.wall,
            time_ns=lambda: int(self.wall() * 1e6) * 1000,
            perf_counter=loop.time,
            thread_time=self._thread_time,
            process_time=self._thread_time,
        )
        self.datetime = Datetime
        self.secrets = SimpleNamespace(
            token_hex=lambda size=32: f"{dice.getrandbits(8 * size):0{2 * size}x}",
            token_bytes=lambda size=32: dice.randbytes(size),
        )
        self.uuid = SimpleNamespace(uuid4=self.new_uuid)

    def wall(self) -> float:
        """Seconds since 1970, on the clock of the machine where this process runs."""
        process = PROCESS.get()
        return EPOCH + self._loop.time() + (process.skew if process is not None else 0.0)

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._dice.getrandbits(128), version=4)

    def stamp(self) -> str:
        """As the API server writes times: to the second."""
        now = real_datetime.datetime.fromtimestamp(EPOCH + self._loop.time(), real_datetime.UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _thread_time(self) -> float:
        self._used += self._dice.uniform(0, LONGEST_TURN_SECONDS)
        return self._used

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Every module of the product that is loaded uses these instead of the real ones."""
        stand_ins = {
            id(time): self.time,
            id(random): self._dice,
            id(secrets): self.secrets,
            id(uuid): self.uuid,
            id(real_datetime.datetime): self.datetime,
            id(time.monotonic): self.time.monotonic,
            id(time.time): self.time.time,
        }
        changed = _places(frozenset(name for name in sys.modules if name.partition(".")[0] in PARTS), tuple(stand_ins))
        for module, word, value in changed:
            setattr(module, word, stand_ins[id(value)])
        try:
            yield
        finally:
            for module, word, value in changed:
                setattr(module, word, value)


@cache
def _places(modules: frozenset[str], ids: tuple[int, ...]) -> list[tuple[ModuleType, str, Any]]:
    """Where `modules` hold the objects with these ids: the module, its word for it, and the object."""
    named = ((sys.modules[name], word, value) for name in modules for word, value in vars(sys.modules[name]).items())
    return [place for place in named if id(place[2]) in ids]

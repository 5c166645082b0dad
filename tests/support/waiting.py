"""Waiting for what sets no event."""

import asyncio
from collections.abc import Callable
from typing import Any

DEADLINE = 10.0


async def until(condition: Callable[[], Any]) -> None:
    """Return as soon as `condition()` is true. Raises TimeoutError after `DEADLINE` seconds."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.001)

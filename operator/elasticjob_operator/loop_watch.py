# SPDX-License-Identifier: Apache-2.0
"""How long the event loop stands still. While one callback runs, nothing else does, including the renewal of the
Lease."""

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.1


async def watch_loop(stalled: Callable[[float], None]) -> None:
    """Calls `stalled` with the seconds by which each look was late. Never returns."""
    while True:
        due = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        stalled(max(0.0, time.monotonic() - due))

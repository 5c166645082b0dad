# SPDX-License-Identifier: Apache-2.0
"""How long the event loop stood still: while one callback runs, nothing else does, the Lease's renewal included."""

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.1


async def watch_loop(stalled: Callable[[float], None]) -> None:
    """Tells how late each look was, for ever."""
    while True:
        due = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        stalled(max(0.0, time.monotonic() - due))

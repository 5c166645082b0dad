# SPDX-License-Identifier: Apache-2.0
"""How long the event loop stands still. While one callback runs, nothing else does, including the renewal of the
Lease."""

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.1


async def watch_loop(show: Callable[[float], None]) -> None:
    """Calls `show` with the most seconds by which a look has been late so far. Never returns."""
    longest = 0.0
    while True:
        due = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        longest = max(longest, time.monotonic() - due)
        show(longest)

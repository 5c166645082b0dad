"""Set-up of the unit tests."""

import asyncio

# Asked for a loop before one was set, Python 3.11 makes one; pytest-asyncio asks, and nobody closes it.
asyncio.set_event_loop(None)

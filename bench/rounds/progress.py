# SPDX-License-Identifier: Apache-2.0
"""Says on standard error what is being measured, and how far it is."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Of a run with so many steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._number = 0
        self._began = time.monotonic()

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """A line when it begins and one when it ends, with what was found meanwhile."""
        self._number += 1
        self.say(f"{self._number} of {self._steps}: {what}")
        began, found = time.monotonic(), list[str]()
        yield found
        self.say(f"{self._number} of {self._steps}: {', '.join([f'{time.monotonic() - began:.0f} s', *found])}")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:4.0f}s  {text}", file=sys.stderr, flush=True)

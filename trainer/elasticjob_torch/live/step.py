# SPDX-License-Identifier: Apache-2.0
"""Counts steps, and restores what a broken step has changed before the step is repeated."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Steps:
    """The number of the step that is next, or under way, from 0.

    Attributes:
        number: of that step; so many steps have been done.
        applied: the optimizer has changed the parameters in the step under way.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.applied = False
        self._restore: Callable[[], None] | None = None

    def begin(self, restore: Callable[[], None]) -> None:
        """A step begins. ``restore`` undoes what its forward pass changes."""
        self.applied = False
        self._restore = restore

    def mark_applied(self) -> None:
        """The optimizer has applied the step: from now on it counts, whatever breaks."""
        self.applied = True

    def end(self) -> None:
        """The step ended without an error: it counts, also if none was applied (AMP skips one on inf)."""
        self.number += 1
        self.applied, self._restore = False, None

    def broken(self) -> None:
        """The group broke in the step: it counts if it was applied, and is restored to be done again if not."""
        if self.applied:
            return self.end()
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()
        return None


class Beginning:
    """What a forward pass changes, as it was when the step began: buffers and the states of random generators."""

    def __init__(self, buffers: Iterable[torch.Tensor]) -> None:
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers]
        self._random = random_states()

    def restore(self, parameters: Iterable[torch.Tensor]) -> None:
        """Restore it, and drop the gradients of ``parameters``: the broken step may have left some."""
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        set_random_states(self._random)
        for parameter in parameters:
            parameter.grad = None


def random_states() -> dict[str, Any]:
    """Return the states of this process's random generators: Python's, torch's, and NumPy's where it is loaded."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = numpy.random.get_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Set what `random_states` returned."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])

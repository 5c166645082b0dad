# SPDX-License-Identifier: Apache-2.0
"""The interface between the rendezvous handler and prestarted processes for the next round.

`elasticjob_torch.warm` implements it and is optional: no other package imports it. `create_handler` receives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection


class Prestarting(Protocol):
    """Prestarted processes, and training processes that were prestarted."""

    def is_ready(self) -> bool:
        """Say whether all prestarted processes have finished their imports."""

    def has_killed(self) -> bool:
        """Say whether a training process was killed since the last call because it did not reach its script."""

    def living(self) -> Collection[str]:
        """Return the ids of the starts of all prestarted processes."""

    def close(self) -> None:
        """End all prestarted processes. May be called again."""

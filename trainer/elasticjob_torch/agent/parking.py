# SPDX-License-Identifier: Apache-2.0
"""The hook for what has processes parked for the next round: what the rendezvous handler asks of it.

`elasticjob_torch.warm` is such a thing, and optional: no other package imports it. `create_handler` is given it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Parking(Protocol):
    """Processes that are parked, and those of a round that were."""

    def is_ready(self) -> bool:
        """Say whether no parked process has anything to import any more."""

    def has_killed(self) -> bool:
        """Say whether a training process was killed since this was last asked, as it did not come to its script."""

    def living(self) -> Collection[str]:
        """Return the ids of the starts of all parked processes."""

    def close(self) -> None:
        """End all parked processes. May be called again."""


class SwitchOn(Protocol):
    """Begins to park processes."""

    def __call__(self, on_learned: Callable[[list[str]], bool]) -> Parking | None:
        """Return None where the job does not want that, or it cannot be.

        ``on_learned`` hears what the script imports, and says whether that is taken.
        """


def never_parks(on_learned: Callable[[list[str]], bool]) -> Parking | None:
    """Park nothing."""
    return None

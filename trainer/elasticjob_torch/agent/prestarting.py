"""The hook for what has processes prestarted for the next round: what the rendezvous handler asks of it.

`elasticjob_torch.warm` implements it and is optional: no other package imports it. `create_handler` receives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Prestarting(Protocol):
    """Processes that are prestarted, and those of a round that were."""

    def is_ready(self) -> bool:
        """Say whether no prestarted process has anything to import any more."""

    def has_killed(self) -> bool:
        """Say whether a training process was killed since the last call because it did not reach its script."""

    def living(self) -> Collection[str]:
        """Return the ids of the starts of all prestarted processes."""

    def close(self) -> None:
        """End all prestarted processes. May be called again."""


class SwitchOn(Protocol):
    """Begins to prestart processes."""

    def __call__(self, on_learned: Callable[[list[str]], bool]) -> Prestarting | None:
        """Return None where the job does not want that, or it cannot be.

        ``on_learned`` receives the script's imports, and returns whether they are taken.
        """


def never_prestarts(on_learned: Callable[[list[str]], bool]) -> Prestarting | None:
    """Prestart nothing."""
    return None

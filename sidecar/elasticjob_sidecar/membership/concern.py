# SPDX-License-Identifier: Apache-2.0
"""What a concern of the sidecar consists of. Pure: it writes nothing, and is told the time."""

from collections.abc import Mapping
from typing import Any

from elasticjob_sidecar.membership.output import Standing


class Concern:
    """One responsibility of the sidecar beside the rendezvous itself. `concerns` lists them all.

    The driver calls `look` after each input, also of the membership, and at `wake_at`. Then it carries out what the
    others return. What only this concern learns of reaches it by methods of its own.
    """

    def look(self, worker: Standing, now: float) -> None:
        """Draws the consequences of what it knows by now."""

    @property
    def hold(self) -> bool:
        """Whether the change of the group is withheld from the trainer."""
        return False

    @property
    def status(self) -> Mapping[str, Any]:
        """The fields of `WorkerStatus` that it decides."""
        return {}

    @property
    def sentence(self) -> str:
        """What the log is told when it changes; empty for nothing."""
        return ""

    @property
    def wake_at(self) -> float | None:
        """The time at which time alone changes something, None if none does."""
        return None

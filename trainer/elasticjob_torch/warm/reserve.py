# SPDX-License-Identifier: Apache-2.0
"""Keeps memory free for the training: whether one more process may be prestarted, and when all have to go."""

from __future__ import annotations

import logging

from elasticjob_torch.warm import room

log = logging.getLogger(__name__)

_GUESSED_BYTES = 400 << 20
_MIB = 1 << 20


class Reserve:
    """The memory that one agent keeps for the training.

    Args:
        cautious: whether a process is prestarted only if twice the reserved memory is free.

    Attributes:
        lacks_room: whether no process could be prestarted when that was last asked.
    """

    def __init__(self, *, cautious: bool) -> None:
        self.cautious = cautious
        self.lacks_room = False
        self._bytes = _GUESSED_BYTES  # of one prestarted process

    def measured(self, pid: int) -> None:
        """Take a prestarted process that has done its imports as the measure of others."""
        self._bytes = room.anonymous_bytes(pid) or self._bytes

    def has_room(self, importing: int) -> bool:
        """Say whether there is memory for one more, beside the future needs of the ``importing`` ones."""
        needed, times = self._bytes * (1 + importing), 2 if self.cautious else 1
        short = [(times * kept, free) for free, kept in room.rooms() if free < needed + times * kept]
        if not short:
            self.lacks_room = False
        elif not importing and not self.lacks_room:
            self.lacks_room = True
            log.info(
                "processes start in the ordinary way: a prestarted one needs %d MiB, beside which %d MiB are kept for "
                "the training%s; this container has room for %d MiB",
                self._bytes // _MIB,
                short[0][0] // _MIB,
                " (half of it with spec.warmRestart Enabled)" if self.cautious else "",
                max(short[0][1], 0) // _MIB,
            )
        return not short

    def shortage(self) -> str:
        """Why the prestarted processes have to go, in a sentence; empty while the training's memory is free."""
        short = [each for each in room.rooms() if each.free < each.reserve]
        if not short:
            return ""
        free, reserve = short[0]
        return (
            f"prestarted ones were ended, as this container has {max(free, 0) // _MIB} MiB of memory left, and "
            f"{reserve // _MIB} are kept for the training"
        )

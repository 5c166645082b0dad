# SPDX-License-Identifier: Apache-2.0
"""Counts how often in a row a group failed to form. Pure: the places and errors are arguments.

Failures with a cause outside the group do not count: the end of the round was announced before anything else failed,
the round ended by plan meanwhile, or a member was lost, which shows in a smaller next group. So losses in quick
succession cost no process its state. The cause of any other failure may lie in this process, and a new process may
help.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from elasticjob_torch.live.rounds import NoNextRound

if TYPE_CHECKING:
    from elasticjob_torch.live.rounds import Place

log = logging.getLogger(__name__)

_MOST = 2


class Attempts:
    """The tries to form one group."""

    def __init__(self) -> None:
        self._error: BaseException | None = None  # of the last try, if that failed
        self._place: Place | None = None
        self._failed: list[int] = []  # the rounds without a cause outside

    def begin(self, place: Place) -> None:
        """A try begins.

        Raises:
            NoNextRound: the group has failed to form twice, without a cause outside.
        """
        error, last = self._error, self._place
        self._error, self._place = None, place
        if error is None or last is None or not place.after_loss or place.size < last.size:
            return
        self._failed.append(last.round)
        log.warning("the group of round %d failed to form, and no fewer members follow it", last.round)
        if len(self._failed) >= _MOST:
            rounds = " and ".join(map(str, self._failed))
            raise NoNextRound(
                f"the groups of rounds {rounds} failed to form; this process ends, and comes back as a new one: {error}"
            ) from error

    def failed(self, error: BaseException, *, heard: bool) -> None:
        """The try failed. ``heard``: after the round's end had been heard, which ends it."""
        self._error = None if heard else error

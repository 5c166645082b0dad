# SPDX-License-Identifier: Apache-2.0
"""Which training processes have connected to the round's store, as rank 0's sidecar sees it. Pure.

A process connects when it makes its process group. An agent connects only at its end, except where workers may have
different numbers of processes: then all agents connect at the start.
"""

from collections import Counter

from elasticjob.api import Member


class Callers:
    """`processes`: of each worker, 0 if unknown."""

    def __init__(self, processes: int) -> None:
        self._needed = processes or 2  # an agent, and at least one of its processes
        self._round = 0
        self._came: Counter[Member] = Counter()

    def came(self, round: int, member: Member, members: int) -> bool:
        """Note a connection of a member of `round`. Returns whether it was the last one that all `members` needed."""
        if round != self._round:
            self._round, self._came = round, Counter()
        self._came[member] += 1
        if self._came[member] != self._needed:
            return False
        return sum(number >= self._needed for number in self._came.values()) == members

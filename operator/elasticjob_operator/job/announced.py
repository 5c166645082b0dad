# SPDX-License-Identifier: Apache-2.0
"""Which causes that keep workers away are announced as events. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.reading.waits import Wait


@dataclass(slots=True)
class AnnouncedReasons:
    """The reasons already announced as events. Each is announced once between two rounds, however often it comes and
    goes."""

    round: int = -1
    reasons: set[str] = field(default_factory=set)

    def news(self, round: int, before: str, waits: Mapping[int, Wait]) -> list[tuple[int, Wait]]:
        """The waits to announce now, as pairs of index and wait. `before`: the reason that the status already gives."""
        if round != self.round:
            self.round, self.reasons = round, {before}
        found = []
        for index, wait in waits.items():
            if wait.is_news and wait.reason not in self.reasons:
                self.reasons.add(wait.reason)
                found.append((index, wait))
        return found

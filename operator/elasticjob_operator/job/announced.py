# SPDX-License-Identifier: Apache-2.0
"""Which of the causes that keep workers away are announced as events. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.reading.waits import Wait


@dataclass(slots=True)
class AnnouncedReasons:
    """The causes that were announced as events: each once between two rounds, however often it goes and comes back."""

    round: int = -1
    reasons: set[str] = field(default_factory=set)

    def news(self, round: int, before: str, waits: Mapping[int, Wait]) -> list[tuple[int, Wait]]:
        """Those of a job's waits, by index, to announce now; `before` is what its status says already."""
        if round != self.round:
            self.round, self.reasons = round, {before}
        found = []
        for index, wait in waits.items():
            if wait.is_news and wait.reason not in self.reasons:
                self.reasons.add(wait.reason)
                found.append((index, wait))
        return found

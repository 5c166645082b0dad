"""The figures and what is made of them. None is a run whose new group did not train before the deadline."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

OURS = "ours"


@dataclass(slots=True)
class Row:
    """One event, and the seconds of each run by side."""

    event: str
    deadline: float
    seconds: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, side: str, seconds: float | None) -> None:
        self.seconds.setdefault(side, []).append(None if seconds is None else round(seconds, 2))

    @property
    def others(self) -> list[str]:
        return [side for side in self.seconds if side != OURS]

    def ratio(self, side: str) -> float | None:
        """Of the medians; none if one of them is late."""
        theirs, ours = median(self.seconds[side]), median(self.seconds[OURS])
        return round(theirs / ours, 1) if math.isfinite(theirs) and math.isfinite(ours) else None

    def as_json(self) -> dict[str, object]:
        return {
            "event": self.event,
            "deadline_seconds": self.deadline,
            **{f"{side}_seconds": values for side, values in self.seconds.items()},
            **{f"{side}_ratio_median": self.ratio(side) for side in self.others},
        }

    def cells(self) -> list[str]:
        figures = [self._figures(values) for values in self.seconds.values()]
        return [self.event, str(len(self.seconds[OURS])), *figures, *(self._ratio(side) for side in self.others)]

    def _figures(self, values: Sequence[float | None]) -> str:
        """The median and the range."""
        least, most = (self._text(of(map(known, values))) for of in (min, max))
        return f"{self._text(median(values))} s ({least} to {most})"

    def _text(self, seconds: float) -> str:
        return f"{seconds:.1f}" if math.isfinite(seconds) else f"not in {self.deadline:g}"

    def _ratio(self, side: str) -> str:
        ours = median(self.seconds[OURS])
        least = f"> {self.deadline / ours:.0f}" if math.isfinite(ours) else "-"
        return least if self.ratio(side) is None else str(self.ratio(side))


def known(value: float | None) -> float:
    """A late run took longer than any other."""
    return math.inf if value is None else value


def median(values: Sequence[float | None]) -> float:
    return statistics.median(map(known, values))


def table(rows: Sequence[Row]) -> str:
    """One or more rows, of the same sides."""
    sides = [side.replace("_", " ") for side in rows[0].seconds]
    titles = ["event", "runs", *sides, *(f"{side}/{OURS}" for side in sides[1:])]
    lines = [titles, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")

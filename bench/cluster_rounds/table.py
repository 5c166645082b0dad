# SPDX-License-Identifier: Apache-2.0
"""The figures and what is made of them. None is a run whose new group did not train before the deadline."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

OURS = "ours"


class Figure(NamedTuple):
    """Seconds from kubectl to the first epoch of the new group, and to the end of its last agent's rendezvous."""

    trained: float
    agreed: float


# of a Figure: what is printed above its table, and what its keys in the file have before `seconds` and `ratio_median`
PARTS = {
    "trained": ("seconds from kubectl to the first epoch of the new group, median (range)", ""),
    "agreed": ("of these, to the end of its agents' rendezvous; the rest is the start of the training", "agreed_"),
}


@dataclass(slots=True)
class Row:
    """One event, and its runs by side."""

    event: str
    deadline: float
    runs: dict[str, list[Figure | None]] = field(default_factory=dict)

    def add(self, side: str, figure: Figure | None) -> None:
        self.runs.setdefault(side, []).append(figure and Figure(*(round(part, 2) for part in figure)))

    @property
    def others(self) -> list[str]:
        return [side for side in self.runs if side != OURS]

    def seconds(self, side: str, part: str) -> list[float | None]:
        return [figure and getattr(figure, part) for figure in self.runs[side]]

    def ratio(self, side: str, part: str) -> float | None:
        """Of the medians; none if one of them is late."""
        theirs, ours = median(self.seconds(side, part)), median(self.seconds(OURS, part))
        return round(theirs / ours, 1) if math.isfinite(theirs) and math.isfinite(ours) else None

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {"event": self.event, "deadline_seconds": self.deadline}
        for part, (_, key) in PARTS.items():
            found |= {f"{side}_{key}seconds": self.seconds(side, part) for side in self.runs}
            found |= {f"{side}_{key}ratio_median": self.ratio(side, part) for side in self.others}
        return found

    def cells(self, part: str) -> list[str]:
        figures = [self._figures(self.seconds(side, part)) for side in self.runs]
        ratios = [self._ratio(side, part) for side in self.others]
        return [self.event, str(len(self.runs[OURS])), *figures, *ratios]

    def _figures(self, values: Sequence[float | None]) -> str:
        """The median and the range."""
        least, most = (self._text(of(map(known, values))) for of in (min, max))
        return f"{self._text(median(values))} s ({least} to {most})"

    def _text(self, seconds: float) -> str:
        return f"{seconds:.1f}" if math.isfinite(seconds) else f"not in {self.deadline:g}"

    def _ratio(self, side: str, part: str) -> str:
        ours = median(self.seconds(OURS, part))
        least = f"> {self.deadline / ours:.0f}" if math.isfinite(ours) else "-"
        ratio = self.ratio(side, part)
        return least if ratio is None else str(ratio)


def known(value: float | None) -> float:
    """A late run took longer than any other."""
    return math.inf if value is None else value


def median(values: Sequence[float | None]) -> float:
    return statistics.median(map(known, values))


def table(rows: Sequence[Row], part: str) -> str:
    """One or more rows, of the same sides."""
    sides = [side.replace("_", " ") for side in rows[0].runs]
    titles = ["event", "runs", *sides, *(f"{side}/{OURS}" for side in sides[1:])]
    lines = [titles, *(row.cells(part) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def tables(rows: Sequence[Row]) -> str:
    """Of the rows that have runs."""
    whole = [row for row in rows if row.runs]
    if not whole:
        return "no run was whole"
    return "\n\n".join(f"{title}\n{table(whole, part)}" for part, (title, _) in PARTS.items())


def write(path: Path, rows: Sequence[Row]) -> None:
    """Rows of other events that are there already stay."""
    there = {row["event"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    merged = there | {row.event: row.as_json() for row in rows if row.runs}
    path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")

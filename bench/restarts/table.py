# SPDX-License-Identifier: Apache-2.0
"""The figures of all runs, their table, and build/bench-restart.json."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restarts.parts import Restart

TITLES = [
    *("cause", "side", "runs", "seconds, median (range)", "steps redone, most", "all train, median", "from join"),
    *("warm", "parts, medians"),
]


@dataclass(slots=True)
class Row:
    """One cause on one side. None is a run whose new group took no step within the deadline.

    `failures` say why others came to no figure, which says nothing of the side.
    """

    cause: str
    side: str
    deadline: float
    runs: list[Restart | None] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def seconds(self) -> list[float | None]:
        return [run and round(run.seconds, 3) for run in self.runs]

    def from_join(self) -> list[float | None]:
        return [run and run.from_join and round(run.from_join, 3) for run in self.runs]

    def has_newcomers(self) -> bool:
        return any(run.from_join is not None for run in self.runs if run)

    def parts(self) -> dict[str, list[float | None]]:
        """By name, in order; None in a run that was late, or whose logs do not show it."""
        names = ordered(list(run.parts) for run in self.runs if run)
        return {name: [run and optional(run.parts.get(name)) for run in self.runs] for name in names}

    def redone(self) -> list[int | None]:
        return [run and run.steps_redone for run in self.runs]

    def all_seconds(self) -> list[float | None]:
        """Until every member of the new group has taken a step, where `seconds` are something else."""
        return [run and (run.seconds if run.all_seconds is None else run.all_seconds) for run in self.runs]

    def counts_steps(self) -> bool:
        """Whether processes record their steps."""
        return any(run.steps_redone is not None for run in self.runs if run)

    def lives(self) -> bool:
        """Whether processes live through the changes of this row."""
        return any(run.lived is not None for run in self.runs if run)

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {"cause": self.cause, "side": self.side, "deadline_seconds": self.deadline}
        found["seconds"] = self.seconds()
        if self.lives():
            found["steps_redone"] = self.redone()
            found["all_seconds"] = [optional(one) for one in self.all_seconds()]
            found["lived"] = [run and run.lived for run in self.runs]
            return found | {"failures": self.failures} if self.failures else found
        if self.counts_steps():
            found["steps_redone"] = self.redone()
        if self.has_newcomers():
            found["from_join_seconds"] = self.from_join()
        found["started_warm"] = [run and run.warm for run in self.runs]
        found |= {"parts": self.parts()}
        return found | {"failures": self.failures} if self.failures else found

    def cells(self) -> list[str]:
        """As `TITLES`."""
        values = self.seconds()
        least, most = (self._text(of(map(known, values))) for of in (min, max))
        whole = f"{self._text(median(values))} ({least} to {most})"
        join = self._text(median(self.from_join())) if self.has_newcomers() else "-"
        parts = [f"{name} {statistics.median(shown):.2f}" for name in self.parts() if (shown := self._shown(name))]
        warm = str(min((run.warm for run in self.runs if run), default=0))
        redone = str(max(run.steps_redone or 0 for run in self.runs if run)) if self.counts_steps() else "-"
        every = self._text(median(self.all_seconds()))
        return [self.cause, self.side, str(len(values)), whole, redone, every, join, warm, ", ".join(parts)]

    def _shown(self, part: str) -> list[float]:
        return [value for value in self.parts()[part] if value is not None]

    def _text(self, seconds: float) -> str:
        return f"{seconds:.2f}" if math.isfinite(seconds) else f"not in {self.deadline:g}"


def optional(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def ordered(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names: those of the longest list in its order, then others."""
    return list(dict.fromkeys(name for names in sorted(lists, key=len, reverse=True) for name in names))


def known(value: float | None) -> float:
    """A late run took longer than any other."""
    return math.inf if value is None else value


def median(values: Sequence[float | None]) -> float:
    return statistics.median(map(known, values))


def table(rows: Sequence[Row]) -> str:
    """Of the rows that have runs, the sides of a cause below each other; then which rows failed."""
    there = [row for row in rows if row.runs]
    failed = [
        f"FAILED: {row.side} {row.cause}, {len(row.failures)} of {len(row.failures) + len(row.runs)} runs: {why}"
        for row in rows
        for why in row.failures[-1:]
    ]
    if not there:
        return "\n".join(["no run was whole", *failed])
    causes = ordered([row.cause] for row in there)
    lines = [TITLES, *(row.cells() for cause in causes for row in there if row.cause == cause)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join([*("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines), *failed])


def write(path: Path, rows: Sequence[Row]) -> None:
    """Rows of other causes and sides that are there already stay."""
    path.parent.mkdir(exist_ok=True)
    there = {(row["cause"], row["side"]): row for row in json.loads(path.read_text())} if path.exists() else {}
    merged = there | {(row.cause, row.side): row.as_json() for row in rows if row.runs or row.failures}
    path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")

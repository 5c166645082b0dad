# SPDX-License-Identifier: Apache-2.0
"""`python -m restarts.pages`: the pages' tables with the figures of build/bench-restart.json; `--write` writes them.

A cell that the file has no row for stays as it is on the page: not every run measures all sides.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON = Path("build/bench-restart.json")
Found = Mapping[tuple[str, str], Mapping[str, Any]]  # rows of the file by side and cause


@dataclass(frozen=True, slots=True)
class Table:
    """A page's table: of the figures, the side of a column and the cause of a line."""

    page: Path
    header: str
    columns: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]]
    lines: Mapping[str, str]

    def filled(self, text: str, found: Found) -> Iterator[str]:
        """The table's lines in the page's text, with what was found. Raises ValueError where the page has none."""
        lines = text.splitlines()
        if self.header not in lines:
            raise ValueError(f"{self.page} has no table with the header {self.header!r}")
        titles = cells(self.header)
        for line in lines[lines.index(self.header) :]:
            if not line.startswith("|"):
                return
            cause = self.lines.get(cells(line)[0])
            yield line if cause is None else written(self._line(cause, titles, cells(line), found))

    def _line(self, cause: str, titles: list[str], shown: list[str], found: Found) -> Iterator[str]:
        for title, cell in zip(titles, shown, strict=True):
            side, text = self.columns.get(title, ("", str))
            row = found.get(place_of(side, cause))
            yield cell if row is None else text(row)


def place_of(side: str, cause: str) -> tuple[str, str]:
    """Side and cause in the file. What has a spare is a side of its own there; processes that live on need none for a
    lost node, and otherwise only where the job has no more workers than its minimum."""
    if side == "live":
        return side, {"pod-deleted, spare": "pod-deleted-at-minimum"}.get(cause, cause.removesuffix(", spare"))
    if cause.endswith(", spare") and not side.startswith("c10d"):
        return f"{side}_spare", cause.removesuffix(", spare")
    return side, cause.removesuffix(", spare") if cause.startswith("node") else cause


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def written(line: Iterator[str]) -> str:
    return "| " + " | ".join(line) + " |"


def median(row: Mapping[str, Any], name: str = "seconds", digits: int = 2) -> str:
    values = [float("inf") if value is None else value for value in row[name]]
    middle = statistics.median(values)
    return f"not in {row['deadline_seconds']:g}" if middle == float("inf") else f"{middle:.{digits}f}"


def short(row: Mapping[str, Any]) -> str:
    return median(row, digits=1)


def with_range(row: Mapping[str, Any]) -> str:
    known = [value for value in row["seconds"] if value is not None]
    most = max(known, default=0.0) if None not in row["seconds"] else None
    if not known or len(row["seconds"]) == 1:
        return median(row)
    return f"{median(row)} ({min(known):.2f} to {f'{most:.2f}' if most is not None else '-'})"


def own(row: Mapping[str, Any]) -> str:
    """The seconds of the script's own parts, which follow its process's start."""
    names = list(row["parts"])
    after = names[names.index("process") + 1 :] if "process" in names else []
    return f"{sum(part(row, name) for name in after):.1f}"


def starts(row: Mapping[str, Any]) -> str:
    return f"{part(row, 'process'):.1f}, and {own(row)} in the script"


def part(row: Mapping[str, Any], name: str) -> float:
    return statistics.median([value for value in row["parts"].get(name, ()) if value is not None] or [0.0])


def redone(row: Mapping[str, Any]) -> str:
    return str(max((value for value in row["steps_redone"] if value is not None), default="-"))


def lived(row: Mapping[str, Any]) -> str:
    return str(min((value for value in row["lived"] if value is not None), default="-"))


def every(row: Mapping[str, Any]) -> str:
    return median(row, "all_seconds")


TABLES = [
    Table(
        Path("README.md"),
        "| cause | live | warm | warm, with tqdm installed | without | torchrun c10d, store not shared |",
        {
            "live": ("live", short),
            "warm": ("warm", short),
            "warm, with tqdm installed": ("tqdm_warm", short),
            "without": ("fresh", short),
            "torchrun c10d, store not shared": ("c10d_unshared", short),
        },
        {
            "scaled from 4 to 3": "scale-down",
            "a training process is killed": "process-killed",
            "a pod is deleted, and replaced": "pod-deleted",
            "a pod is deleted, with `spareReplicas: 1`": "pod-deleted, spare",
            "a node freezes, with `spareReplicas: 1`": "node-lost, spare",
            "scaled from 3 to 4, with the new pod's start": "scale-up",
        },
    ),
    Table(
        Path("docs/performance.md"),
        "| cause | nobody trained for | steps done twice, at most | processes that lived | all trained after |",
        {
            "nobody trained for": ("live", with_range),
            "steps done twice, at most": ("live", redone),
            "processes that lived": ("live", lived),
            "all trained after": ("live", every),
        },
        {
            "scale-down, 4 to 3": "scale-down",
            "process-killed, one of 3": "process-killed",
            "pod-deleted, one of 3": "pod-deleted",
            "replacement, 2 to 3": "replacement",
            "drain, of the node of one of 3": "drain",
            "scale-up, 3 to 4": "scale-up",
            "node-lost, with one of 2": "node-lost",
            "pod-deleted, `replicas` = `minReplicas` = 3, with a spare": "pod-deleted-at-minimum",
        },
    ),
    Table(
        Path("docs/performance.md"),
        "| cause | warm | of it the script's own | fresh | of it the processes' start and imports "
        "| c10d, store not shared | c10d as torch comes |",
        {
            "warm": ("warm", with_range),
            "of it the script's own": ("warm", own),
            "fresh": ("fresh", with_range),
            "of it the processes' start and imports": ("fresh", starts),
            "c10d, store not shared": ("c10d_unshared", with_range),
            "c10d as torch comes": ("c10d_default", with_range),
        },
        {
            "scale-down": "scale-down",
            "process-killed": "process-killed",
            "pod-deleted": "pod-deleted",
            "pod-deleted, with a spare": "pod-deleted, spare",
            "node-lost, with a spare": "node-lost, spare",
            "scale-up": "scale-up",
        },
    ),
]


def of_file(rows: list[dict[str, Any]]) -> Found:
    """Rows that came to figures, by side and cause."""
    return {(row["side"], row["cause"]): row for row in rows if row["seconds"]}


def show(found: Found) -> Iterator[str]:
    """Each table as its page would have it. Raises ValueError."""
    for table in TABLES:
        yield f"{table.page}:\n" + "\n".join(table.filled(table.page.read_text(), found))


def put(found: Found) -> None:
    """Raises ValueError."""
    for table in TABLES:
        text = table.page.read_text()
        begin, *_ = lines = list(table.filled(text, found))
        head, _, rest = text.partition(f"{begin}\n")
        after = rest.splitlines(keepends=True)[len(lines) - 1 :]
        table.page.write_text(head + "\n".join(lines) + "\n" + "".join(after))


def main() -> None:
    parser = argparse.ArgumentParser(prog="restarts.pages", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into the pages")
    given = parser.parse_args()
    if not JSON.exists():
        sys.exit(f"{JSON} is not there: run `make bench-restart` first")
    found = of_file(json.loads(JSON.read_text()))
    try:
        print("\n\n".join(show(found)))
        if given.write:
            put(found)
    except ValueError as problem:
        sys.exit(f"{problem}; TABLES in {Path(__file__).name} say which there are")


if __name__ == "__main__":
    main()

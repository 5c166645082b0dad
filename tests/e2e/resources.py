# SPDX-License-Identifier: Apache-2.0
"""What a training process holds in each round that it lives through, as live_train.py prints it: does it grow?"""

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

LINE = re.compile(r"holds: world_size=(\d+) pid=(\d+) rss_mib=([\d.]+) threads=(\d+) descriptors=(\d+)")
GROWTH = 1.15  # of the median of the last quarter over that of the second: a process needs the first to warm up
MORE = 3  # threads or descriptors, which a collector or a connection under way may hold for a moment


class Held(NamedTuple):
    """In the first moment of a round. Threads and descriptors go with the number of peers."""

    world_size: int
    pid: int
    rss_mib: float
    threads: int
    descriptors: int


def read(lines: Iterable[str]) -> list[Held]:
    found = (LINE.search(line) for line in lines)
    return [Held(int(one[1]), int(one[2]), float(one[3]), int(one[4]), int(one[5])) for one in found if one]


def growth(series: Sequence[float]) -> float:
    """Of the last quarter over the second: a process needs the first to warm up."""
    quarter = max(1, len(series) // 4)
    return statistics.median(series[-quarter:]) / statistics.median(series[quarter : 2 * quarter] or series[:1])


def leaks(rounds: Sequence[Held]) -> Iterator[str]:
    """What grows from round to round, in words."""
    memory = [one.rss_mib for one in rounds]
    if growth(memory) >= GROWTH:
        yield f"memory grows: {' '.join(f'{one:.0f}' for one in memory)} MiB"
    for name in ("threads", "descriptors"):
        for size in sorted({one.world_size for one in rounds}):
            held = [getattr(one, name) for one in rounds if one.world_size == size]
            if statistics.median(quarter(held, -1)) > statistics.median(quarter(held, 0)) + MORE:
                yield f"{name} grow in groups of {size}: {' '.join(map(str, held))}"


def quarter(series: Sequence[float], which: int) -> Sequence[float]:
    """The first (0) or the last (-1) of it, at least one value."""
    length = max(1, len(series) // 4)
    return series[:length] if which == 0 else series[-length:]

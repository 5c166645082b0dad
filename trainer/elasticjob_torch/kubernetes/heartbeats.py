"""The nodes' heartbeats: where they are kept, and who is silent. Pure.

Each node has a key of its own for them, so that a heartbeat is written whatever the others write meanwhile. A node is
silent when another has gone on without it: what holds up all of them, a busy machine or an API server that is away,
is nobody's own silence. So a node's silence is measured by what another wrote meanwhile. Who is as slow as all others
has not been heard for up to two writes, as a heartbeat is seen when its write ends; another writes three in that time,
at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from elasticjob_torch.kubernetes.key_names import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "heartbeat."
KEPT = 8
"""How many of its last heartbeats a node keeps: enough to show that it went on while another was silent."""
_IN_TIME = 1.25
"""Intervals between two heartbeats of a node that nothing holds up."""
_LEAST = 3
"""Intervals, or heartbeats of another, that make nobody lost."""

Node = TypeVar("Node")


def key_of(node: str) -> str:
    """Return the ConfigMap's key for the heartbeats of a node (``address/pid/number``)."""
    return name_of(PREFIX + node)


def write_times(times: Sequence[datetime]) -> str:
    """Return the value of such a key: the last `KEPT` times, the newest at the end."""
    return " ".join(time.isoformat(timespec="milliseconds") for time in times[-KEPT:])


def read_times(text: str) -> list[datetime]:
    """Return the times of such a value; what is not one is passed over: the node's next heartbeat replaces it."""
    found = []
    for word in text.split()[-KEPT:]:
        try:
            time = datetime.fromisoformat(word)
        except ValueError:
            continue
        if time.tzinfo is not None and 2000 < time.year < 9000:
            found.append(time)
    return sorted(found)


@dataclass(frozen=True)
class Pace:
    """How often nodes write heartbeats, and how many may fail."""

    interval_seconds: int
    attempts: int

    @property
    def expiry_seconds(self) -> int:
        """For how long a node may be silent."""
        return self.interval_seconds * self.attempts


def judged(heard: Mapping[Node, Sequence[datetime]], now: datetime, pace: Pace) -> dict[Node, datetime]:
    """Return when each node counts as heard last; torch drops those for which that is longer ago than the expiry.

    It is the time of its last heartbeat if it has been silent for so long, and another went on meanwhile; else not
    longer ago than the interval. Another has gone on if it kept its pace for as long, or else once it has written one
    heartbeat more than may fail.

    Args:
        heard: the times of each node's last heartbeats, at least one, in order.
    """
    recently = now - timedelta(seconds=pace.interval_seconds)
    return {
        node: times[-1] if _is_lost(times[-1], heard.values(), now, pace) else max(times[-1], recently)
        for node, times in heard.items()
    }


def _is_lost(last: datetime, heard: Iterable[Sequence[datetime]], now: datetime, pace: Pace) -> bool:
    interval, attempts = timedelta(seconds=pace.interval_seconds), max(pace.attempts, _LEAST)
    if now - last < interval * attempts:
        return False
    since = [[time for time in times if time > last] for times in heard]
    return any(
        _in_time([last, *later, now], interval) >= interval * min(attempts, KEPT - 1)
        or _number(later, interval / 2) > min(attempts, KEPT - 1)
        for later in since
        if later
    )


def _in_time(times: Sequence[datetime], interval: timedelta) -> timedelta:
    """Return for how long the last of these times have been no more than about an interval apart."""
    since = times[-1]
    for begin, end in pairwise(reversed(times)):
        if begin - end > _IN_TIME * interval:
            break
        since = end
    return times[-1] - since


def _number(times: Sequence[datetime], apart: timedelta) -> int:
    """Count heartbeats; after one that was late the next follows at once, and says no more than that one."""
    counted = [times[0]]
    for time in times[1:]:
        if time - counted[-1] >= apart:
            counted.append(time)
    return len(counted)

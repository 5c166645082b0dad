# SPDX-License-Identifier: Apache-2.0
"""The nodes' heartbeats: where they are kept, and who is silent. Pure.

Each node has a key of its own for them, so that a heartbeat is written whatever the others write meanwhile. A node is
silent when another has gone on without it: what holds up all of them, a busy machine or an API server that is away,
is nobody's own silence. So a node's silence is measured by what another wrote meanwhile. Who is as slow as all others
has not been heard for up to two writes, as a heartbeat is seen when its write ends; another writes three in that time,
at most.

Where the API server answers slowly, it does not hold up all nodes alike: some writes take half a minute, others a
second. Each node sees that by its own calls, and then asks for more before it takes another for lost.
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
KEPT = 12
"""How many of its last heartbeats a node keeps: enough to show that it went on while another was silent."""
SLOW_SECONDS = 1.0
"""An answer that takes longer is a slow one."""
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

    @property
    def allowed(self) -> int:
        """How many intervals, or heartbeats of another, make nobody lost."""
        return max(self.attempts, _LEAST)


def judged(
    heard: Mapping[Node, Sequence[datetime]], now: datetime, pace: Pace, slow: datetime | None = None
) -> dict[Node, datetime]:
    """Return when each node counts as heard last; torch drops those for which that is longer ago than the expiry.

    It is the time of its last heartbeat if it has been silent for so long, and another went on meanwhile; else not
    longer ago than the interval. Another has gone on if it kept its pace for as long, or has written one heartbeat more
    than may fail; while answers are slow, only if it has written all that are kept.

    Args:
        heard: the times of each node's last heartbeats, at least one, in order.
        slow: when this node last got a slow answer. Answers count as slow until a node's time of silence has passed.
    """
    interval = timedelta(seconds=pace.interval_seconds)
    in_time = slow is None or now - slow >= interval * pace.allowed
    return {
        node: times[-1] if _is_lost(times[-1], heard.values(), now, pace, in_time) else max(times[-1], now - interval)
        for node, times in heard.items()
    }


def _is_lost(last: datetime, heard: Iterable[Sequence[datetime]], now: datetime, pace: Pace, in_time: bool) -> bool:
    interval = timedelta(seconds=pace.interval_seconds)
    if now - last < interval * pace.allowed:
        return False
    since = [later for times in heard if (later := [time for time in times if time > last])]
    if not in_time:
        return any(_number(later, interval / 2) == KEPT for later in since)
    enough = min(pace.allowed, KEPT - 1)
    return any(
        _in_time([last, *later, now], interval) >= interval * enough or _number(later, interval / 2) > enough
        for later in since
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

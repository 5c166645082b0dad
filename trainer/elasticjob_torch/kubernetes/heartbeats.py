# SPDX-License-Identifier: Apache-2.0
"""The nodes' heartbeats: their form in the ConfigMap, and which nodes are silent. Pure.

Each node has a key of its own, so that a heartbeat is written whatever the others write meanwhile. A node is silent if
another has gone on without it: a cause that delays all of them, such as a busy machine or an unavailable API server,
makes no single node silent. So a node's silence is measured by another's writes meanwhile. A node as slow as all others
is unheard for up to two writes, as a heartbeat becomes visible when its write ends; another node writes at most three
times in that time.

A slow API server does not delay all nodes alike: some writes take half a minute, others a second. Each node notices
that from its own calls, and then requires more before it considers another lost.
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
"""The number of its last heartbeats that a node keeps: enough to show that it went on while another was silent."""
SLOW_SECONDS = 1.0
"""An answer that takes longer counts as slow."""
_IN_TIME = 1.25
"""The most intervals between two heartbeats of a node without delays."""
_LEAST = 3
"""The number of intervals, or of another's heartbeats, after which no node is lost yet."""

Node = TypeVar("Node")


def key_of(node: str) -> str:
    """Return the ConfigMap's key for a node's heartbeats (``address/pid/number``)."""
    return name_of(PREFIX + node)


def write_times(times: Sequence[datetime]) -> str:
    """Return the value of such a key: the last `KEPT` times, the newest last."""
    return " ".join(time.isoformat(timespec="milliseconds") for time in times[-KEPT:])


def read_times(text: str) -> list[datetime]:
    """Return the times in such a value. Invalid ones are skipped: the node's next heartbeat replaces them."""
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
        """Seconds for which a node may be silent."""
        return self.interval_seconds * self.attempts

    @property
    def allowed(self) -> int:
        """The number of intervals, or of another's heartbeats, after which no node is lost yet."""
        return max(self.attempts, _LEAST)


def judged(
    heard: Mapping[Node, Sequence[datetime]], now: datetime, pace: Pace, slow: datetime | None = None
) -> dict[Node, datetime]:
    """Return when each node counts as last heard; torch drops those for which that is longer ago than the expiry.

    It is the time of a node's last heartbeat, if the node has been silent for that long and another went on meanwhile;
    else at most one interval ago. Another has gone on if it kept its pace for that long, or has written one heartbeat
    more than may fail; while answers are slow, only if it has written all that are kept.

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
    """Return the time for which the last of these times are at most about an interval apart."""
    since = times[-1]
    for begin, end in pairwise(reversed(times)):
        if begin - end > _IN_TIME * interval:
            break
        since = end
    return times[-1] - since


def _number(times: Sequence[datetime], apart: timedelta) -> int:
    """Count heartbeats. After a late one the next follows at once, and is not counted."""
    counted = [times[0]]
    for time in times[1:]:
        if time - counted[-1] >= apart:
            counted.append(time)
    return len(counted)

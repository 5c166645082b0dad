"""The nodes' heartbeats: where they are kept, and who is silent. Pure.

Each node has a key of its own for them, so that a heartbeat is written whatever the others write meanwhile. A node is
silent when others have gone on without it: what holds up all of them, a busy machine or an API server that is away,
is nobody's own silence.
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
KEPT = 4
"""How many of its last heartbeats a node keeps: enough to show that it went on while another was silent."""

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
    longer ago than the interval.

    Args:
        heard: the times of each node's last heartbeats, at least one, in order.
    """
    recently = now - timedelta(seconds=pace.interval_seconds)
    return {
        node: times[-1] if _is_lost(times[-1], heard.values(), now, pace) else max(times[-1], recently)
        for node, times in heard.items()
    }


def _is_lost(last: datetime, heard: Iterable[Sequence[datetime]], now: datetime, pace: Pace) -> bool:
    interval = timedelta(seconds=pace.interval_seconds)
    if now - last < interval * pace.attempts:
        return False
    enough = interval * min(pace.attempts, KEPT)
    return any(_went_on(last, times, now, interval) >= enough for times in heard)


def _went_on(since: datetime, times: Sequence[datetime], now: datetime, interval: timedelta) -> timedelta:
    """Return for how long a node has gone on since then: each of its heartbeats stands for one interval at most."""
    later = [time for time in times if time > since]
    if not later:
        return timedelta()
    return sum((min(end - begin, interval) for begin, end in pairwise([since, *later, now])), timedelta())

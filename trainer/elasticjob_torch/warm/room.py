# SPDX-License-Identifier: Apache-2.0
"""How much memory is free in this container, and how much a process holds. Without /proc nothing is known."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from elasticjob_torch.warm.files import read_text

_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"
_UNLIMITED = 1 << 60
_RESERVED = 8  # the fraction of the limit by which a training may grow within a few looks
_LEAST = 256 << 20
_MOST_OF_MACHINE = 1 << 30


class Room(NamedTuple):
    """The memory that is free before a limit, and the part of it that is reserved for the training.

    Page cache that is not in use counts as free.
    """

    free: int
    reserve: int


def rooms(v2: str = _V2, v1: str = _V1, meminfo: str = "/proc/meminfo") -> list[Room]:
    """Return the container's memory room and the machine's, as far as they are known."""
    limited = (
        _limited(f"{v2}/memory.max", f"{v2}/memory.current", f"{v2}/memory.stat", "inactive_file"),
        _limited(
            f"{v1}/memory.limit_in_bytes", f"{v1}/memory.usage_in_bytes", f"{v1}/memory.stat", "total_inactive_file"
        ),
    )
    available, total = (_field(meminfo, name, 1024) for name in ("MemAvailable:", "MemTotal:"))
    found = [Room(free, max(limit // _RESERVED, _LEAST)) for free, limit in filter(None, limited)]
    if available is not None:  # other containers share the machine's memory, and have limits of their own
        found.append(Room(available, min(max((total or 0) // _RESERVED, _LEAST), _MOST_OF_MACHINE)))
    return found


def anonymous_bytes(pid: int) -> int | None:
    """Return the size of a process's unshared memory."""
    return _field(f"/proc/{pid}/smaps_rollup", "Anonymous:", 1024)


def cpus(v2: str = _V2) -> int:
    """Return how many CPUs this container may use at once."""
    number = len(os.sched_getaffinity(0))
    quota, _, period = read_text(f"{v2}/cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        number = min(number, math.ceil(int(quota) / int(period)))
    return max(1, number)


def _limited(limit_file: str, usage_file: str, stat_file: str, cache: str) -> tuple[int, int] | None:
    """Return the memory that is free below a limit, and the limit."""
    limit, usage = read_text(limit_file).strip(), read_text(usage_file).strip()
    if not (limit.isdecimal() and usage.isdecimal()) or int(limit) >= _UNLIMITED:
        return None
    return int(limit) - int(usage) + (_field(stat_file, cache, 1) or 0), int(limit)


def _field(path: str, name: str, unit: int) -> int | None:
    for line in read_text(path).splitlines():
        words = line.split()
        if words[:1] == [name] and len(words) > 1 and words[1].isdecimal():
            return int(words[1]) * unit
    return None

"""How much memory there is room for in this container, and what a process holds. Without /proc: nothing is known."""

from __future__ import annotations

import math
import os

_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"
_UNLIMITED = 1 << 60


def free_bytes(v2: str = _V2, v1: str = _V1, meminfo: str = "/proc/meminfo") -> int | None:
    """Return what can still be used before something has to be ended: of the container's limit or the machine's.

    The page cache that is not in use counts as free. None if nothing says it.
    """
    found = [
        free
        for free in (
            _left(f"{v2}/memory.max", f"{v2}/memory.current", f"{v2}/memory.stat", "inactive_file"),
            _left(
                f"{v1}/memory.limit_in_bytes", f"{v1}/memory.usage_in_bytes", f"{v1}/memory.stat", "total_inactive_file"
            ),
            _field(meminfo, "MemAvailable:", 1024),
        )
        if free is not None
    ]
    return min(found, default=None)


def anonymous_bytes(pid: int) -> int | None:
    """Return what a process holds of memory that it shares with none."""
    return _field(f"/proc/{pid}/smaps_rollup", "Anonymous:", 1024)


def cpus(v2: str = _V2) -> int:
    """Return how many CPUs this container may use at once."""
    number = len(os.sched_getaffinity(0))
    quota, _, period = _text(f"{v2}/cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        number = min(number, math.ceil(int(quota) / int(period)))
    return max(1, number)


def _left(limit_file: str, usage_file: str, stat_file: str, cache: str) -> int | None:
    limit, usage = _text(limit_file).strip(), _text(usage_file).strip()
    if not (limit.isdecimal() and usage.isdecimal()) or int(limit) >= _UNLIMITED:
        return None
    return int(limit) - int(usage) + (_field(stat_file, cache, 1) or 0)


def _field(path: str, name: str, unit: int) -> int | None:
    for line in _text(path).splitlines():
        words = line.split()
        if words[:1] == [name] and len(words) > 1 and words[1].isdecimal():
            return int(words[1]) * unit
    return None


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

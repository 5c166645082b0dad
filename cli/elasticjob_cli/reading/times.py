# SPDX-License-Identifier: Apache-2.0
"""Times and durations, as the API server writes them and as people read them."""

import math
import re
from datetime import UTC, datetime

STAMP = re.compile(r"([0-9T:-]+)(?:[.]([0-9]+))?(Z|[+-][0-9:]+)")
MINUTE, HOUR, DAY = 60, 3600, 86400


def moment(text: str | None) -> datetime | None:
    """The time in an RFC 3339 text; None if it is absent or invalid."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def nanoseconds(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 text, whose fraction may have any number of digits; None if it is invalid.

    Such texts cannot be compared as text: `.12Z` sorts before `.1Z`.
    """
    found = STAMP.fullmatch(text)
    whole = moment(f"{found[1]}{found[3]}") if found else None
    if found is None or whole is None:
        return None
    return int(whole.timestamp()) * 10**9 + int((found[2] or "0")[:9].ljust(9, "0"))


def seconds_between(since: datetime | None, until: datetime) -> float | None:
    """The seconds between two times, at least 0, because clocks differ."""
    return None if since is None else max(0.0, (until - since).total_seconds())


def length(seconds: float | None) -> str:
    """`4.1 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; empty if it is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 2 * MINUTE:
        return f"{whole} s"
    for larger, smaller, names in ((MINUTE, 1, "min s"), (HOUR, MINUTE, "h min"), (DAY, HOUR, "d h")):
        if whole < {MINUTE: 2 * HOUR, HOUR: 2 * DAY}.get(larger, math.inf):
            first, second = names.split()
            rest = whole % larger // smaller
            return f"{whole // larger} {first}" + (f" {rest} {second}" if rest else "")
    return ""


def age(seconds: float | None) -> str:
    """The age as in kubectl's column AGE: `12s`, `5m`, `3h`, `2d`."""
    if seconds is None:
        return ""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)}{name}"
    return f"{int(seconds)}s"

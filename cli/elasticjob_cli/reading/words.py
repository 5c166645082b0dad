# SPDX-License-Identifier: Apache-2.0
"""Phrases that several sentences share."""

from collections.abc import Sequence

from elasticjob.text import plain

SHOWN = 4  # workers listed individually
TEXT_LENGTH = 400


def names(workers: Sequence[int]) -> str:
    """`worker 3`, `workers 3 and 4`, `workers 0, 1, 2, 3 and 12 more`."""
    if len(workers) == 1:
        return f"worker {workers[0]}"
    words = [str(index) for index in workers]
    if len(words) > SHOWN + 1:
        words = [*words[:SHOWN], f"{len(words) - SHOWN} more"]
    return f"workers {listed(words)}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def phrase(*parts: str | None) -> str:
    """The non-empty `parts`, on one line of limited length, without a final full stop."""
    text = plain(": ".join(part.strip() for part in parts if part and part.strip()), TEXT_LENGTH)
    return text.rstrip(".")

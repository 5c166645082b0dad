# SPDX-License-Identifier: Apache-2.0
"""Numbers of rounds, workers and other things in messages for people."""

from collections.abc import Sequence


def workers(count: int) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} worker{'s' * (count != 1)}"


def round_of(number: int, size: int) -> str:
    """`round 3 (2 workers)`: a round and its size."""
    return f"round {number} ({workers(size)})"


def have_joined(count: int) -> str:
    """`no worker has joined`, `1 worker has joined`, `2 workers have joined`."""
    return f"{workers(count) if count else 'no worker'} {'have' if count > 1 else 'has'} joined"


def first_few(things: Sequence[object], most: int = 3) -> str:
    """`a, b, c and 2 more`: `most` of the things, and the number of the others."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more

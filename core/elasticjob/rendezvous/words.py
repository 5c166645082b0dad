# SPDX-License-Identifier: Apache-2.0
"""Numbers of rounds and workers in messages for people."""


def workers(count: int) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} worker{'s' * (count != 1)}"


def round_of(number: int, size: int) -> str:
    """`round 3 (2 workers)`: a round and its size."""
    return f"round {number} ({workers(size)})"


def have_joined(count: int) -> str:
    """`no worker has joined`, `1 worker has joined`, `2 workers have joined`."""
    return f"{workers(count) if count else 'no worker'} {'have' if count > 1 else 'has'} joined"

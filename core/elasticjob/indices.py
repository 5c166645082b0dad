# SPDX-License-Identifier: Apache-2.0
"""Indices of workers in a status: `0-4 7 9-12`. The standard library only."""

from collections.abc import Iterable, Iterator
from typing import Any

MAX_RUNS = 32  # a status keeps no more runs, so that it stays small however the indices are spread
MAX_INDEX = 2**16  # more than a job may have
FORM = "indices are written as numbers or first-last, in ascending order, with a space between two"


def read_indices(text: Any) -> tuple[int, ...]:
    """Indices from the form that `written_indices` returns, or from an iterable of them: the first 32 runs, in
    ascending order. Raises ValueError."""
    if isinstance(text, str):
        return tuple(_read(text))
    if isinstance(text, tuple) and all(isinstance(one, int) and 0 <= one < MAX_INDEX for one in text):
        return tuple(index for first, last in _runs(text) for index in range(first, last + 1))
    raise ValueError(FORM)


def written_indices(indices: Iterable[int]) -> str:
    """The first 32 runs of the indices, as text."""
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(indices))


def _runs(indices: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        if found and index == found[-1][1] + 1:
            found[-1] = found[-1][0], index
        elif len(found) == MAX_RUNS:
            break
        else:
            found.append((index, index))
    return found


def _read(text: str) -> Iterator[int]:
    after = 0
    for word in text.split(" ") if text else ():
        first, dash, last = word.partition("-")
        if not all(one.isascii() and one.isdecimal() and len(one) < 6 for one in (first, last or first)):
            raise ValueError(FORM)
        if (dash and not last) or not after <= int(first) <= int(last or first) < MAX_INDEX:
            raise ValueError(FORM)
        yield from range(int(first), (after := int(last or first) + 1))

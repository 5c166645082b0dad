# SPDX-License-Identifier: Apache-2.0
"""One copy of what many pods say alike: reasons, images, conditions, tolerations."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar

from elasticjob.text import cut, printable

TEXT_LENGTH = 1000  # of a message of Kubernetes, which may hold a line for each node

T = TypeVar("T", bound=Hashable)


@lru_cache(maxsize=2**14)
def _first(value: Any) -> Any:
    return value


def shared(value: T) -> T:
    """The first value that was equal to `value`, as long as it is remembered."""
    found: T = _first(value)
    return found


def word(text: str | None) -> str:
    """A short text that comes in many objects, without what cannot be printed."""
    return shared(printable(text or ""))


def sentence(text: str | None) -> str:
    """What Kubernetes says to people, on one line and bounded."""
    return shared(cut(printable(text or ""), TEXT_LENGTH))

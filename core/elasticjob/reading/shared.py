# SPDX-License-Identifier: Apache-2.0
"""One shared copy of equal values in many pods: reasons, images, conditions, tolerations."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar

from elasticjob.text import cut, printable

TEXT_LENGTH = 1000  # of a Kubernetes message, which may have a line for each node

T = TypeVar("T", bound=Hashable)


@lru_cache(maxsize=2**14)
def _first(value: Any) -> Any:
    return value


def shared(value: T) -> T:
    """The first value equal to `value`, while it is remembered."""
    found: T = _first(value)
    return found


def word(text: str | None) -> str:
    """A short text that occurs in many objects, without unprintable characters."""
    return shared(printable(text or ""))


def sentence(text: str | None) -> str:
    """A message of Kubernetes for people, on one line and bounded."""
    return shared(cut(printable(text or ""), TEXT_LENGTH))

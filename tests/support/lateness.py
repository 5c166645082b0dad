# SPDX-License-Identifier: Apache-2.0
"""Lateness on purpose: with ELASTICJOB_LATE=SEED tests, their watches, operators and stand-in kubelets are late at
random, each for itself and each by up to three seconds (`make flakes LATE=SEED`). Within the process of a test each
thread and event loop is late now and then, too, by up to 0.3 s.

A test that asserts something about a moment passes while everybody is in time. Here it fails by running it.
"""

import os
import random
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any
from unittest import mock

SEED = "ELASTICJOB_LATE"
MOST_SECONDS = 3.0
SHARE = 0.3  # of the occasions; so that some are late while others are not

WAITS: list[tuple[Any, str]] = [(time, "sleep"), (threading.Condition, "wait"), (selectors.DefaultSelector, "select")]
WAIT_MOST_SECONDS = 0.3
TEST_SECONDS = 2.0  # for all waits of a test together

_sleep = time.sleep


@cache
def _choices(who: str) -> random.Random:
    return random.Random(f"{os.environ.get(SEED)} {who}")


def is_wanted() -> bool:
    return bool(os.environ.get(SEED))


def seconds(who: str) -> float:
    """How late `who` is this time; 0 unless lateness is wanted."""
    chosen = _choices(who)
    return chosen.uniform(0, MOST_SECONDS) if is_wanted() and chosen.random() < SHARE else 0.0


def pause(who: str) -> None:
    """Be late."""
    if late := seconds(who):
        _sleep(late)


@contextmanager
def late_waits(who: str) -> Iterator[None]:
    """Meanwhile a wait of this process may end late, and what it waited for may be over by then."""
    chosen, left = random.Random(f"{os.environ.get(SEED)} {who}"), TEST_SECONDS

    def end_late() -> None:
        nonlocal left
        if left > 0 and chosen.random() < SHARE:
            late = min(left, chosen.uniform(0, WAIT_MOST_SECONDS))
            left -= late
            _sleep(late)

    with ExitStack() as patches:
        for owner, name in WAITS:
            patches.enter_context(mock.patch.object(owner, name, _ending_late(getattr(owner, name), end_late)))
        yield


def _ending_late(wait: Callable[..., Any], end_late: Callable[[], None]) -> Callable[..., Any]:
    @wraps(wait)
    def late(*arguments: Any, **options: Any) -> Any:
        try:
            return wait(*arguments, **options)
        finally:
            end_late()

    return late

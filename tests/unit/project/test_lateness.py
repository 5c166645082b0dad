# SPDX-License-Identifier: Apache-2.0
"""Lateness on purpose is there only where it is wanted, and the same again by the same seed."""

import selectors
import threading
import time
from collections.abc import Callable

import pytest

from support import lateness


@pytest.fixture(autouse=True)
def late_waits() -> None:
    """Takes the place of the one for all tests: nobody is late here but by the test itself."""
    lateness._choices.cache_clear()


def times(who: str) -> list[float]:
    return [lateness.seconds(who) for _ in range(50)]


def test_nobody_is_late_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lateness.SEED, raising=False)
    assert times("operator") == [0.0] * 50


def test_each_is_late_by_itself_now_and_then_and_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lateness.SEED, "7")
    operator, watch = times("operator"), times("watch")
    assert operator != watch
    assert 0 < sum(map(bool, operator)) < 50
    assert max(operator) <= lateness.MOST_SECONDS
    lateness._choices.cache_clear()
    assert times("operator") == operator


@pytest.mark.parametrize(
    "wait",
    [lambda: time.sleep(0), lambda: threading.Event().wait(0), lambda: selectors.DefaultSelector().select(0)],
    ids=["sleep", "condition", "selector"],
)
def test_waits_end_late_up_to_a_total(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    monkeypatch.setenv(lateness.SEED, "7")
    late, real = list[float](), time.sleep
    monkeypatch.setattr(lateness, "_sleep", late.append)
    with lateness.late_waits("a test"):
        for _ in range(1000):
            wait()
    assert len(late) < 100
    assert sum(late) == pytest.approx(lateness.TEST_SECONDS)
    assert max(late) <= lateness.WAIT_MOST_SECONDS
    assert time.sleep is real

# SPDX-License-Identifier: Apache-2.0
"""The pauses between tries."""

from elasticjob.kube.retry import Backoff, RetryPolicy


def test_each_pause_is_twice_the_last_up_to_the_longest() -> None:
    backoff = Backoff(RetryPolicy(0.1, 3.0))
    assert [backoff.next() for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.1


def test_after_the_longest_no_shorter_one_comes() -> None:
    backoff = Backoff(RetryPolicy(0.1, 3.0))
    assert (backoff.longest(), backoff.next()) == (3.0, 3.0)
    backoff.reset()
    assert backoff.next() == 0.1


def test_chance_takes_away_a_share_at_most() -> None:
    policy = RetryPolicy(2.0, 8.0, jitter=0.5)
    assert [policy.pause(1, chance) for chance in (0.0, 0.5, 1.0)] == [2.0, 3.0, 4.0]
    assert RetryPolicy(2.0, 8.0).pause(1, 0.0) == 4.0


def test_years_of_failures_are_no_overflow() -> None:
    assert RetryPolicy(0.1, 3.0).pause(10_000) == 3.0

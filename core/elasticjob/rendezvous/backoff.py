# SPDX-License-Identifier: Apache-2.0
"""How long an index waits for its next pod when its pods fail by themselves, again and again.

The count is kept in the operator's clocks: it may be lost with it, and the first pod after that is made at once.
"""

from math import inf

from elasticjob.rendezvous.model import Clocks, Failures

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 300.0
_LONGEST_AFTER = 7  # failures in a row: no larger power is taken


def delay_of(failures: Failures) -> float:
    """Seconds from the last failure to the next pod: none after the first, then twice as long each time."""
    if failures.in_a_row < 2:
        return 0.0
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (min(failures.in_a_row, _LONGEST_AFTER) - 2))


def due(clocks: Clocks, index: int) -> float:
    """The moment from which the next pod of `index` may be made."""
    failures = clocks.failures.get(index)
    return -inf if failures is None else failures.since + delay_of(failures)


def forgotten(failures: Failures) -> float:
    """The moment from which a spare that waits is good: its pod came after the longest delay at most, and has not
    failed for as long again."""
    return failures.since + 2 * LONGEST_SECONDS


def after_one_more(
    known: Failures | None, why: str, *, was_member: bool, now: float, ignored: bool = False
) -> Failures:
    """The count after another failure; `was_member`: the pod was in the last formed round; `ignored`: it does not
    count, as the job's policy says, as its node has rejected the pod or as it has only come to a wrong place, and yet
    the next pod waits."""
    in_a_row, before_any_round = (known.in_a_row, known.before_any_round) if known is not None else (0, 0)
    if ignored and known is not None and before_any_round:
        why = known.why  # what counts is what a job may end by
    return Failures(in_a_row + 1, 0 if was_member else before_any_round + (not ignored), now, why)

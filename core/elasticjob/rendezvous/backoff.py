# SPDX-License-Identifier: Apache-2.0
"""How long an index waits for its next pod while its pods fail by themselves again and again.

The count lives in the operator's clocks. A new operator starts from zero, so it makes the first pod at once.
"""

from math import inf

from elasticjob.rendezvous.model import Clocks, Failures

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 300.0
_LONGEST_AFTER = 7  # failures in a row; bounds the exponent


def delay_of(failures: Failures) -> float:
    """Seconds from the last failure to the next pod: 0 after the first, 10 after the second, then doubled up to 300."""
    if failures.in_a_row < 2:
        return 0.0
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (min(failures.in_a_row, _LONGEST_AFTER) - 2))


def due(clocks: Clocks, index: int) -> float:
    """The time from which the next pod of `index` may be made."""
    failures = clocks.failures.get(index)
    return -inf if failures is None else failures.since + delay_of(failures)


def forgotten(failures: Failures) -> float:
    """The time from which a waiting spare is considered sound: its pod came after the longest delay at most, and has
    not failed for that long again."""
    return failures.since + 2 * LONGEST_SECONDS


def after_one_more(
    known: Failures | None, why: str, *, was_member: bool, now: float, ignored: bool = False
) -> Failures:
    """The count after another failure. `was_member`: the pod was in the last formed round. `ignored`: the failure does
    not count, because of the job's policy, because the node rejected the pod, or because the pod only came to a wrong
    place; the next pod is delayed nevertheless."""
    in_a_row, before_any_round = (known.in_a_row, known.before_any_round) if known is not None else (0, 0)
    if ignored and known is not None and before_any_round:
        why = known.why  # a job may end by a counted failure, so its reason is kept
    return Failures(in_a_row + 1, 0 if was_member else before_any_round + (not ignored), now, why)

# SPDX-License-Identifier: Apache-2.0
"""How often in a row a group may fail to form before its processes end."""

import pytest

from elasticjob_torch.live.attempts import Attempts
from elasticjob_torch.live.rounds import NoNextRound, Place


def try_all(*tries, heard=False):
    """Try to form groups: the size of each, whether its members may have lost one before, and whether it fails."""
    attempts = Attempts()
    for number, (size, after_loss, fails) in enumerate(tries, 1):
        attempts.begin(Place(number, 0, size, "127.0.0.1", 4711, after_loss))
        if fails:
            attempts.failed(RuntimeError(f"broken {number}"), heard=heard)


def test_a_group_that_fails_to_form_twice_is_given_up():
    failed = [(3, False, True), (3, True, True)]
    try_all(*failed)
    with pytest.raises(NoNextRound, match="groups of rounds 1 and 2 failed to form; this process ends"):
        try_all(*failed, (3, True, False))


def test_a_newcomer_in_the_place_of_the_lost_one_explains_nothing():
    with pytest.raises(NoNextRound, match="rounds 1 and 3"):
        try_all((3, False, True), (3, True, True), (2, True, True), (2, True, True), (2, True, True))


def test_losses_in_quick_succession_cost_nobody_the_state():
    try_all(*[(size, True, True) for size in range(9, 1, -1)], (1, True, False))


def test_a_failure_after_the_rounds_end_was_heard_does_not_count():
    try_all(*[(3, True, True)] * 9, (3, True, False), heard=True)


def test_a_plan_that_ends_the_round_meanwhile_does_not_count():
    try_all(*[(size, False, True) for size in range(2, 9)], (9, True, False))


def test_a_round_that_was_over_before_its_group_could_form_does_not_count():
    try_all((3, False, False), (3, True, False), (3, True, True), (3, True, False), (3, True, False))

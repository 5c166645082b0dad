# SPDX-License-Identifier: Apache-2.0
"""How long an agent waits for processes that are busy when their round is over."""

import pytest

from elasticjob_torch.agent.busy import BUSY_SECONDS, Patience

EVALUATES, SAVES = [False], [True]


def until_late(patience, *doing):
    """Return after how many seconds a limit is exceeded, and which. ``doing``: seconds, and what busy processes do."""
    now, why = 100.0, ""
    patience.begin(now)
    for seconds, saving in doing:
        for _ in range(seconds):
            if why := patience.look(now, saving):
                return now - 100.0, why
            now += 1.0
    return None, why


def test_a_process_that_does_not_save_has_one_limit():
    seconds, why = until_late(Patience(600), (700, EVALUATES))
    assert seconds == BUSY_SECONDS + 1
    assert "have not ended their step within 60 s" in why


@pytest.mark.parametrize(("save_seconds", "longest"), [(0, BUSY_SECONDS), (15, BUSY_SECONDS), (300, 300)])
def test_a_process_that_saves_has_the_jobs_time_and_never_less_than_another(save_seconds, longest):
    seconds, why = until_late(Patience(save_seconds), (700, SAVES))
    assert seconds == longest + 1
    assert f"save within {longest:g} s; if it takes longer, set spec.rendezvous.saveSeconds" in why


def test_time_in_which_a_process_saves_does_not_count_as_busy():
    assert until_late(Patience(300), (50, EVALUATES), (150, SAVES), (9, EVALUATES)) == (None, "")
    seconds, why = until_late(Patience(300), (50, EVALUATES), (150, SAVES), (100, EVALUATES))
    assert seconds == 211
    assert "do not save" in why


def test_all_saves_together_are_within_the_jobs_time():
    seconds, why = until_late(Patience(100), *[(20, SAVES), (1, EVALUATES)] * 9)
    assert seconds == 101
    assert "save within 100 s" in why


def test_one_of_two_that_does_not_save_counts():
    assert until_late(Patience(300), (100, [True, False]))[0] == BUSY_SECONDS + 1


def test_processes_that_wait_are_not_late():
    patience = Patience(0)
    patience.begin(0)
    patience.look(1, EVALUATES)
    patience.look(50, [])
    assert patience.look(60, []) == ""


def test_a_job_whose_pods_are_replaced_early_has_less_time():
    patience = Patience(0, rejoin_seconds=40, stop_seconds=10)
    seconds, why = until_late(patience, (700, EVALUATES))
    assert seconds == 26
    assert "within 25 s, and do not save; spec.rendezvous.rejoinSeconds leaves them no more" in why
    assert until_late(Patience(29, 40, 10), (700, SAVES))[0] == 30
    assert until_late(Patience(0, 3, 1), (700, EVALUATES))[0] == 2


def test_a_half_of_the_limit_is_time_that_is_not_saved():
    patience = Patience(600)
    assert until_late(patience, (30, EVALUATES), (200, SAVES)) == (None, "")
    assert not patience.is_half_used()
    assert until_late(patience, (30, EVALUATES), (100, SAVES), (2, EVALUATES)) == (None, "")
    assert patience.is_half_used()


def test_each_round_begins_anew():
    patience = Patience(0)
    assert until_late(patience, (100, EVALUATES))[0]
    assert until_late(patience, (60, EVALUATES)) == (None, "")

"""The simulation itself: the same seed is the same history, everything happens, and a mistake is told with its seed."""

from collections import Counter

import pytest

from elasticjob_operator import reconciler
from simulation import __main__ as command
from simulation.faults import FAULTS
from simulation.kinds import KINDS, kind_of, live
from simulation.people import DOINGS

OPERATOR_LIVES = [seed for seed in range(150) if kind_of(seed) == "operator"]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    first, second = live(seed), live(seed)
    assert first.history == second.history
    assert first.broken == ()


def test_two_seeds_are_two_histories() -> None:
    assert live(2).history != live(5).history
    assert [kind_of(seed) for seed in range(3)] == list(KINDS)


def test_all_that_can_go_wrong_does() -> None:
    happened: Counter[str] = Counter()
    for seed in OPERATOR_LIVES:
        happened.update(live(seed).happened)
    wanted = {doing.__name__ for doing in (*FAULTS, *DOINGS)}
    wanted |= {f"answer {status}" for status in (400, 403, 404, 409, 410, 422, 500)}
    wanted |= {"request lost", "answer lost", "request late", "connection reset", "server error", "watch broken"}
    wanted |= {"refused: quota", "refused: webhook denies", "refused: webhook hangs"}
    assert wanted - happened.keys() == set()


def test_a_mistake_is_told_with_the_command_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reconciler, "seconds_left", lambda *_: None)
    seed = next(seed for seed in OPERATOR_LIVES if any("ended" in why for why in live(seed).broken))
    assert command.main(["--seed", str(seed)]) == 1
    told = capsys.readouterr().out
    assert "has ended, and is not deleted after its time" in told
    assert f"make simulate SEED={seed}" in told

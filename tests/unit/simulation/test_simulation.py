# SPDX-License-Identifier: Apache-2.0
"""The simulation itself: the same seed is the same history, everything happens, and a mistake is told with its seed."""

import os
import sys
from pathlib import Path

from support.waiting import run

ROOT = Path(__file__).parents[3]
LONGEST_SECONDS = 1200  # a minute or two of processor time, beside all else
SEEDS = 6
IN_TURN = """
import sys
from simulation.__main__ import main
for seed in sys.argv[1:]:
    print("history of", seed)
    if main(["--seed", seed, "--verbose"]):
        sys.exit(1)
"""
FREES_OFTEN = f"""
import gc
gc.collect()
gc.freeze()
gc.set_threshold(200, 1, 1)
{IN_TURN}"""
WITH_AND_WITHOUT_COMPLETE = """
import sys
from simulation.__main__ import main
print("exit code", main([*sys.argv[1:], "--complete"]))
print("exit code", main(sys.argv[1:]))
"""
WITHOUT_EXPIRY = """
import sys
from elasticjob_operator.actions import expiry
from simulation import __main__ as program
expiry.expires_in = lambda *_: None
program.AT_ONCE = 1  # a life that waits in vain takes seconds
sys.exit(program.main(sys.argv[1:]))
"""


def simulation(*arguments: str, code: str) -> tuple[int, str]:
    """Exit code and what is printed, by a process of its own: what is under way at a life's end is left as it is."""
    path = os.pathsep.join(str(ROOT / name) for name in ("core", "operator", "sidecar", "trainer", "tests"))
    command = [sys.executable, "-c", code, *arguments]
    done = run(command, LONGEST_SECONDS, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT)
    return done.returncode, done.stdout


def test_the_same_seed_is_the_same_history() -> None:
    """Also after other lives of the process, and where memory is freed at other moments: a connection is closed when
    nobody refers to it any more."""
    seeds = [str(seed) for seed in range(SEEDS)]
    told = [simulation(*seeds, code=IN_TURN), simulation(*reversed(seeds), code=FREES_OFTEN)]
    assert [failed for failed, _ in told] == [0, 0]
    first, second = (sorted(text.split("history of ")[1:]) for _, text in told)
    assert first == second
    assert [history.count("\n") > 50 for history in first] == [True] * SEEDS


def test_what_never_happened_is_told_where_all_has_to() -> None:
    failed, told = simulation("--kind", "operator", "--seeds", "1", code=WITH_AND_WITHOUT_COMPLETE)
    assert failed == 0
    complete, _, rest = told.partition("exit code 1\n")
    assert "never happened in these lives: " in complete
    assert "never happened" not in rest
    assert rest.endswith("exit code 0\n")


def test_a_mistake_is_told_with_the_command_that_shows_it_again() -> None:
    failed, told = simulation("--kind", "operator", "--seeds", "30", "--seconds", "250", code=WITHOUT_EXPIRY)
    assert failed == 1
    assert "has ended, and is not deleted after its time" in told
    seed = told.rpartition("SEED=")[2].strip()
    assert f"the whole history again: make simulate SEED={seed}" in told
    again, shown = simulation("--seed", seed, code=WITHOUT_EXPIRY)
    assert (again, "has ended, and is not deleted after its time" in shown) == (1, True)

# SPDX-License-Identifier: Apache-2.0
"""`python -m simulation`: lives of jobs, one seed after the other, until the time is over or a rule is broken.

`--seconds 60` tries seeds from `--from` on; `--seed 7` one, of which `--verbose` prints the whole history. Exit code 1
when a rule was broken: then seed, sentence, the last lines of the history and the command that shows it again. It is 1
too when with `--complete` something that can go wrong did not happen in any life.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from math import inf

from simulation.kinds import KINDS, kind_of, live
from simulation.lives import Verdict

PROGRESS_SECONDS = 15.0
SHOWN_LINES = 40
AT_ONCE = 4  # seeds that a process is given
CAN_GO_WRONG = (
    *("storm", "watches_lag", "history_forgotten", "operator_frozen", "operator_cut_off", "node_dies"),
    *("container_killed", "scale", "suspend", "edit_template", "delete_job", "delete_pod", "delete_grant"),
    *("quota_changes", "preempts", "goes_away", "workload_deleted", "raise_least", "node_rejects"),
    *("delete_lease", "drain", "answer lost", "request lost", "request late", "connection reset", "server error"),
    *("watch broken", "refused: quota", "refused: webhook denies", "refused: webhook hangs"),
    *(f"answer {status}" for status in (400, 403, 404, 409, 410, 422, 500)),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="simulation", description="Lives of jobs over a simulated cluster.")
    parser.add_argument("--seconds", type=float, help="how long to try seeds (60, and without limit with --seeds)")
    parser.add_argument("--seed", type=int, help="try this one only")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many seeds to try at most")
    parser.add_argument("--complete", action="store_true", help="fail when something that can go wrong did not happen")
    parser.add_argument("--kind", choices=list(KINDS), help="only seeds of this kind")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="with --seed: print the whole history")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        verdict = live(given.seed)
        if given.verbose:
            print("\n".join(verdict.history))
        return report(verdict) if verdict.broken else _well(verdict)
    seeds, seconds = given.seeds, given.seconds
    if seconds is None:
        seconds = 60.0 if seeds is None else inf
    tried = _seeds(given.first, 2**60 if seeds is None else seeds, given.kind)
    return search(tried, seconds, given.processes, CAN_GO_WRONG if given.complete else ())


def _seeds(first: int, count: int, kind: str | None) -> range:
    """`count` of them, from `first` on."""
    if kind is None:
        return range(first, first + count)
    while kind_of(first) != kind:
        first += 1
    return range(first, first + count * len(KINDS), len(KINDS))


def search(tried: range, seconds: float, processes: int, must_happen: Iterable[str] = ()) -> int:
    """Tries these seeds, as many as there is time for; the exit code."""
    began = told = time.monotonic()
    seeds, lives, virtual, happened = 0, 0, 0.0, Counter[str]()
    with ProcessPoolExecutor(processes, initializer=_prepare) as pool:
        under_way: set[Future[list[Verdict]]] = set()
        while True:
            while tried and len(under_way) < processes + 1 and time.monotonic() - began < seconds:
                under_way.add(pool.submit(_live_some, tried[:AT_ONCE]))
                tried = tried[AT_ONCE:]
            if not under_way:
                break
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for verdict in _in_order(done):
                seeds, lives, virtual = seeds + 1, lives + verdict.jobs, virtual + verdict.seconds
                happened.update(verdict.happened)
                if verdict.broken:
                    pool.shutdown(wait=False, cancel_futures=True)
                    return report(verdict)
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                print(_progress(seeds, lives, virtual, told - began), flush=True)
    if not seeds:
        print("no seed was tried; --seconds and --seeds must be above 0")
        return 2
    print(_progress(seeds, lives, virtual, time.monotonic() - began) + f"; next is seed {tried.start}")
    print("  " + ", ".join(f"{what} {times:,}" for what, times in sorted(happened.items())))
    if missing := [what for what in must_happen if not happened[what]]:
        print(f"never happened in these lives: {', '.join(missing)}")
    return 1 if missing else 0


def report(verdict: Verdict) -> int:
    """Prints what was broken, and how to see it again; the exit code."""
    shown = [line for line in verdict.history if " leases/" not in line]
    print("\n".join(shown[-SHOWN_LINES:]))
    print(f"\nseed {verdict.seed} ({kind_of(verdict.seed)}) broke {len(verdict.broken)} of the rules:")
    for why in verdict.broken:
        print(f"  {why}")
    print(f"the whole history again: make simulate SEED={verdict.seed}", flush=True)
    return 1


def _well(verdict: Verdict) -> int:
    print(f"seed {verdict.seed}: {verdict.jobs} jobs lived {verdict.seconds:.0f} s, and no rule was broken")
    return 0


def _progress(seeds: int, lives: int, virtual: float, seconds: float) -> str:
    pace = lives / max(seconds, 1e-9) * 60
    told = f"{seeds:,} seeds, {lives:,} jobs, {virtual / 3600:.1f} h of their time"
    return f"{told} in {seconds:.0f} s: {pace:,.0f} jobs a minute"


def _prepare() -> None:
    gc.collect()
    gc.freeze()


def _live_some(seeds: range) -> list[Verdict]:
    """Of those that went well no history is kept."""
    found = (live(seed) for seed in seeds)
    return [one if one.broken else one._replace(history=[]) for one in found]


def _in_order(done: set[Future[list[Verdict]]]) -> Iterator[Verdict]:
    for verdicts in sorted((one.result() for one in done), key=lambda some: some[0].seed):
        yield from verdicts


if __name__ == "__main__":
    # sets of words are in one order then, in each process; who sets it already spares a second start
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main(sys.argv[1:]))

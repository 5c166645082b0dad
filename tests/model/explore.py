# SPDX-License-Identifier: Apache-2.0
"""Explores the models and says how far: `make explore`, or `python -m model.explore [--quick] [--alone] [MODEL]`.

Each search is deterministic: the same code gives the same numbers. A violation is told with the shortest way to it, and
ends the run with exit code 1.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

from model.composed_scope import ComposedScope
from model.landmarks import LANDMARKS, LIVE_LANDMARKS
from model.operator_scope import OperatorScope
from model.search import Count, Counterexample, Scope, Search

PROCESSES = 2


class Task(NamedTuple):
    """One search to `depth`; `quick` is the depth for a first look of some seconds."""

    model: str
    jobs: str
    scope: Callable[[], Scope[Any]]
    depth: int
    quick: int


@dataclass(frozen=True, slots=True)
class Result:
    count: Count
    notes: str
    found: Counterexample | None


TO_THE_END = 100


def operator(*landmarks: int) -> Callable[[], Scope[Any]]:
    names = list(LANDMARKS)
    return lambda: OperatorScope([names[number] for number in landmarks])


def live() -> Scope[Any]:
    return OperatorScope(LIVE_LANDMARKS)


TASKS = (
    Task("composed", "3 workers that train, 1 costly event", lambda: ComposedScope(3, 1, True), TO_THE_END, 8),
    Task("composed", "2 workers from the start, 1 costly event", lambda: ComposedScope(2, 1, False), TO_THE_END, 8),
    Task("composed", "2 workers that train, 2 costly events", lambda: ComposedScope(2, 2, True), 8, 5),
    Task("composed", "2 workers and a spare, 1 costly event", lambda: ComposedScope(2, 1, True, 1), TO_THE_END, 7),
    Task(
        "composed", "2 workers with 2 torchruns, 1 costly event", lambda: ComposedScope(2, 1, True, 0, 2), TO_THE_END, 7
    ),
    Task("operator", "jobs that form and train", operator(*range(4)), 3, 2),
    Task("operator", "jobs that live through changes", live, 3, 2),
    Task("operator", "jobs that lose or end", operator(*range(4, 12)), 3, 2),
    Task("operator", "jobs that rest, wait or replace", operator(*range(12, len(LANDMARKS))), 3, 2),
)


def explored(number: int, quick: bool) -> Result:
    task = TASKS[number]
    scope = task.scope()
    search = Search(scope)
    found = None
    try:
        search.run(task.quick if quick else task.depth)
    except Counterexample as counterexample:
        found = counterexample
    return Result(search.count, scope.notes(), found)


def explore(models: tuple[str, ...], quick: bool, processes: int) -> bool:
    """Whether all is well."""
    began, states = time.perf_counter(), 0
    chosen = [number for number, task in enumerate(TASKS) if task.model in models]
    if processes > 1:
        chosen.reverse()  # the last takes longest, and no process is to wait for it
    run = partial(explored, quick=quick)
    with get_context("spawn").Pool(processes) if processes > 1 else nullcontext() as pool:
        for number, result in zip(chosen, pool.imap(run, chosen) if pool else map(run, chosen), strict=True):
            states += result.count.states
            print("\n".join(_told(TASKS[number], result)), flush=True)
            if result.found is not None:
                return False
    seconds = time.perf_counter() - began
    print(f"{states:,} states in {seconds:.0f} s; nothing is wrong in any, and left alone each comes to rest in time")
    return True


def _told(task: Task, result: Result) -> Iterator[str]:
    count, found = result.count, result.found
    if found is not None:
        yield f"{task.model}, {task.jobs}: after {count.states:,} states: {found.sentence}\nThe shortest way to it:"
        yield from (f"  {line}" for line in found.trace)
        return
    a_second = count.states / max(count.seconds, 0.001)
    yield (
        f"{task.model}, {task.jobs}: depth {count.depth}{'' if count.cut else ' (the end)'}, {count.states:,} states "
        f"(each led to rest), {count.transitions:,} transitions, {count.seconds:.0f} s, {a_second:,.0f} states/s"
    )
    yield f"  {result.notes}"


def main() -> int:
    models = tuple(dict.fromkeys(task.model for task in TASKS))
    parser = argparse.ArgumentParser(prog="model.explore", description="Explore the models of the rendezvous.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"which of {', '.join(models)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="look for some seconds only")
    parser.add_argument("--alone", action="store_true", help="use one process, not two")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.models) - set(models)):
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(models)}")
    well = explore(tuple(asked.models) or models, asked.quick, 1 if asked.alone else PROCESSES)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`python -m restarts`: measures, prints the table, writes build/bench-restart.json after each run.

The sides follow each other, each with a job of its own; `causes` says what happens to which. An interrupt (Ctrl-C) ends
it with the table of what was measured by then.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

from cluster_rounds.digits import ENV, Side, Training, new_training

from e2e.kube import wait_until
from restarts.causes import Cause, causes_of
from restarts.examples import PACKAGES
from restarts.examples import SIDES as EXAMPLES
from restarts.pages import of_file, show
from restarts.parts import Restart, new_group, restart
from restarts.scripts import SIDES as RECORDED
from restarts.scripts import wait_until_known
from restarts.steps import BEFORE_SECONDS, change, read, steps_redone
from restarts.table import Row, table, write
from support.waiting import Deadline

JSON = Path("build/bench-restart.json")
LOGS = Path("build/bench-restart")
JOB_ENV = {**ENV, "EPOCH_SECONDS": "1"}
SIDES: dict[str, str | Side] = {
    "live": RECORDED["live"],
    "warm": RECORDED["warm"],
    "fresh": RECORDED["fresh"],
    "tqdm_warm": "warm",
    "tqdm_fresh": "ours",
    **EXAMPLES,
    "warm_spare": "warm_spare",
    "fresh_spare": "spare",
    "c10d_default": "c10d_default",
    "c10d_unshared": "c10d_unshared",
}
JOBS = SIDES | RECORDED
DEADLINE = 90.0
STARTS = 2
BEGAN = time.monotonic()


class Jobs:
    """The job of a side, and another one in its place after it was dropped."""

    def __init__(self, side: str) -> None:
        self._side = side  # of the job that is there, or is made next
        self._numbers = count(1)
        self._held = ExitStack()
        self._training: Training | None = None

    def with_workers(self, replicas: int, side: str) -> Training:
        """A job of that side that trains with so many. Raises whatever goes wrong in it."""
        if side != self._side:
            self.drop()
            self._side = side
        for left in reversed(range(STARTS)):
            try:
                training = self._started(replicas) if self._training is None else self._scaled(self._training, replicas)
                if training.side.live:
                    wait_until_known(training)
                return training
            except Exception as problem:  # of the cluster, its tools or a job: it takes no other row's figures with it
                self.drop()
                if not left:
                    raise
                say(f"{self._side}: no {replicas} workers that train, another job is started: {problem}")
        raise AssertionError("a job starts or fails")

    def drop(self) -> None:
        """End the job, if there is one. Raises nothing: its namespace may be left."""
        self._training = None
        try:
            self._held.close()
        except Exception as problem:
            say(f"{self._side}: its last job could not be cleaned up: {first_line(problem)}")

    def _started(self, replicas: int) -> Training:
        title = f"{self._side}-{next(self._numbers)}".replace("_", "-")
        env = {**JOB_ENV, **(PACKAGES if self._side.startswith("tqdm") else {})}
        training = self._held.enter_context(new_training(JOBS[self._side], title, LOGS / title, env))
        training.start(replicas)
        self._training = training
        return training

    def _scaled(self, training: Training, replicas: int) -> Training:
        if not training.has_pods(replicas):
            training.namespace.kubectl(*training.scale(replicas))
        training.wait_for(replicas)
        return training


def measure(training: Training, cause: Cause, deadline: float) -> Restart | None:
    """One run; none if the new group took no step before the deadline."""
    before = [pod["metadata"]["name"] for pod in training.pods()]
    processes = cause.after * training.side.processes
    with ExitStack() as undo:
        struck = cause.strike(training, undo)

        def trains() -> bool:
            training.read()
            return new_group(training.logs(), processes, struck.at) is not None

        try:
            wait_until(f"a new group of {cause.after} to train", trains, struck.at + deadline - time.time())
        except Deadline:
            return None
        logs = training.logs()
        group = new_group(logs, processes, struck.at)
        assert group is not None
        # now, for processes of a lost node that wake up would tell of more steps
        moments = read(training.namespace.name, struck.at - BEFORE_SECONDS) if training.side.recorded else []
    if training.side.live:
        found = change(moments, group, struck.at)
    else:
        found = restart(logs, group, (name for name in before if name != struck.lost), struck.at)
        if moments:
            found = replace(found, steps_redone=steps_redone(moments, struck.at, struck.at + found.seconds))
    return found if found.seconds <= deadline else None


def runs_of(jobs: Jobs, row: Row, title: str) -> Restart | None:
    """One run of a row, and what is said of it. Raises whatever goes wrong in it."""
    cause = causes_of(row.side)[row.cause]
    if cause.alone:
        jobs.drop()
    found = measure(jobs.with_workers(cause.before, cause.job or row.side), cause, row.deadline)
    if cause.alone or found is None:
        jobs.drop()
    if found is None:
        say(f"{title}: no first step within {row.deadline:g} s")
        return None
    say(f"{title}: {told(found, cause)}")
    return found


def told(found: Restart, cause: Cause) -> str:
    if found.all_seconds is not None:
        whole = f"{cause.after} trained after {found.all_seconds:.2f} s"
        return f"{found.seconds:.2f} s, {found.steps_redone} steps done twice, {found.lived} processes lived, {whole}"
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in found.parts.items())
    join = f", {found.from_join:.2f} s from the join" if found.from_join is not None else ""
    return f"{found.seconds:.2f} s{join}, {found.warm} of {cause.after} warm ({parts})"


def one_side(rows: list[Row], runs: int) -> Iterator[None]:
    """All runs of a side; yields after each."""
    side, jobs = rows[0].side, Jobs(rows[0].side)
    try:
        for run in range(1, runs + 1):
            for row in rows:
                title = f"{side} {row.cause} {run}"
                try:
                    row.runs.append(runs_of(jobs, row, title))
                except Exception as problem:
                    say(f"{title}: failed, and is left out: {problem}")
                    row.failures.append(first_line(problem))
                    jobs.drop()
                yield
    finally:
        jobs.drop()


def first_line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}".partition("\n")[0]


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.0f}s  {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="restarts", description=__doc__)
    parser.add_argument("-k", default="", metavar="PART", help="only those with PART in 'SIDE CAUSE'")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE", help="only these")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--c10d-runs", type=int, help="of the sides with c10d, which take minutes each; default: RUNS")
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE, metavar="SECONDS", help="for the new group's first step"
    )
    given = parser.parse_args()
    every = [Row(cause, side, given.deadline) for side in SIDES if side in given.sides for cause in causes_of(side)]
    rows = [row for row in every if given.k in f"{row.side} {row.cause}"]
    if not rows:
        known = ", ".join(f"'{row.side} {row.cause}'" for row in every)
        parser.error(f"-k: nothing has {given.k!r} in it; there are {known}")
    try:
        for side in SIDES:
            c10d = side.startswith("c10d") and given.c10d_runs is not None
            if own := [row for row in rows if row.side == side]:
                for _ in one_side(own, given.c10d_runs if c10d else given.runs):
                    write(JSON, rows)
    finally:
        print(f"{table(rows)}\n\n{JSON}", flush=True)
        if JSON.exists():
            print("\n" + "\n\n".join(show(of_file(json.loads(JSON.read_text())))), flush=True)
    if any(row.failures for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

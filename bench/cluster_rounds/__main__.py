# SPDX-License-Identifier: Apache-2.0
"""`python -m cluster_rounds`: measures, prints the table, writes build/bench-c10d-cluster.json.

Each run of an event takes all sides, one after the other, each with a job of its own. An interrupt (Ctrl-C) ends it
with the table of the runs that were whole by then.
"""

import argparse
import fcntl
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from cluster_rounds.digits import SIDES, NotTraining, Training, new_training
from cluster_rounds.table import Figure, Row, tables, write
from e2e.schedule import lock

JSON = Path("build/bench-c10d-cluster.json")
LOGS = Path("build/bench-c10d-cluster")
DEADLINE = 180.0
STARTS = 3
OTHERS_SECONDS = 2.0  # for those who wait for the lock to get it
BEGAN = time.monotonic()


class Event(NamedTuple):
    """What a user does to a training job: its workers before and after, and the arguments of kubectl."""

    before: int
    after: int
    command: Callable[[Training], list[str]]


EVENTS = {
    "scale-up": Event(3, 4, lambda training: training.scale(4)),
    "scale-down": Event(4, 3, lambda training: training.scale(3)),
    "pod-deleted": Event(3, 3, Training.delete_another),
    "rank0-deleted": Event(3, 3, Training.delete_rank_0),
}


def measure(side: str, event: Event, title: str, deadline: float) -> Figure | None:
    """One run; none if the new group did not train before the deadline."""
    with new_training(side, title, LOGS / title) as training:
        training.start(event.before)
        command = event.command(training)
        struck = time.time()
        training.namespace.kubectl(*command)
        group = training.new_group(event.after, since=struck, seconds=deadline)
        return group and Figure(trained=group.first_epoch - struck, agreed=training.agreed(group) - struck)


def measure_once_started(side: str, event: Event, title: str, deadline: float) -> Figure | None:
    """As `measure`. A job that does not start is no figure of the event's: another one is started."""
    for left in reversed(range(STARTS)):
        try:
            return measure(side, event, title, deadline)
        except NotTraining as problem:
            say(f"{title}: the job did not start: {problem}")
            if not left:
                raise
    return None


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.0f}s  {text}", file=sys.stderr, flush=True)


def turns(path: Path | None) -> AbstractContextManager[None]:
    return lock(path, fcntl.LOCK_EX) if path else nullcontext()


def main() -> None:
    parser = argparse.ArgumentParser(prog="cluster_rounds", description=__doc__)
    parser.add_argument("-k", default="", metavar="PART", help="only events with PART in their name")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE, metavar="SECONDS", help="for the new group to train"
    )
    parser.add_argument("--lock", type=Path, metavar="FILE", help="held during each run")
    given = parser.parse_args()
    rows = {name: Row(name, given.deadline) for name in EVENTS if given.k in name}
    if not rows:
        parser.error(f"-k: no event has {given.k!r} in its name; there are {', '.join(EVENTS)}")
    JSON.parent.mkdir(exist_ok=True)
    try:
        for run in range(1, given.runs + 1):
            for row in rows.values():
                with turns(given.lock):
                    one_run(row, run)
                time.sleep(OTHERS_SECONDS if given.lock else 0)
                write(JSON, list(rows.values()))
    finally:
        print(f"{tables(list(rows.values()))}\n\n{JSON}", flush=True)


def one_run(row: Row, run: int) -> None:
    """All sides, or none if it is interrupted."""
    found = {}
    for side in (name for name, one in SIDES.items() if not one.spares):
        title = f"{side.replace('_', '-')}-{row.event}-{run}"
        figure = found[side] = measure_once_started(side, EVENTS[row.event], title, row.deadline)
        say(f"{title}: " + (f"{figure.trained:.1f} s" if figure else f"not within {row.deadline:g} s"))
    for side, figure in found.items():
        row.add(side, figure)


if __name__ == "__main__":
    main()

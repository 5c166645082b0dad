# SPDX-License-Identifier: Apache-2.0
"""torchft on this machine: one of two or three replicas is killed, and another takes its place. `make bench-torchft`

The two figures of `make bench-restart`'s side `live`: the longest time in which nobody took a step, and the steps that
were done twice. There is no Kubernetes here: the replicas and the lighthouse are processes of one container, and this
program does what a launcher would do. A newcomer imports and builds its model while the others train. All settings are
torchft's defaults: a collective waits for 60 s.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from restarts.steps import DONE, Moment, longest_pause, parse, steps_redone
from torchft.coordination import LighthouseServer

JSON = Path("build/bench-torchft.json")
LOGS = Path("build/bench-torchft")
TRAIN = Path(__file__).with_name("torchft_train.py")
SIZES = 2, 3
CALM_SECONDS = 5.0  # of training before and after
STARTED_SECONDS = 240.0  # imports of several processes, on two busy cores
Processes = dict[str, "subprocess.Popen[bytes]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, list[float]]] = {}
    for size in SIZES:
        for cause, (seconds, redone) in runs_of(size, given.runs):
            row = rows.setdefault(cause, {"seconds": [], "steps_redone": []})
            row["seconds"].append(round(seconds, 3))
            row["steps_redone"].append(redone)
            print(f"{cause}: {seconds:.2f} s, {redone} steps done twice", file=sys.stderr)
    found = [{"cause": cause, "side": "torchft", **row} for cause, row in rows.items()]
    JSON.write_text(json.dumps(found, indent=1) + "\n")
    print("| cause | nobody trained for | steps done twice, at most |\n|---|---|---|")
    for cause, row in rows.items():
        seconds = row["seconds"]
        middle = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        print(f"| {cause} | {middle} | {max(row['steps_redone'])} |")


def runs_of(size: int, runs: int) -> Iterator[tuple[str, tuple[float, int]]]:
    """All runs of one group of so many replicas."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1)
    try:
        with tempfile.TemporaryDirectory() as name, replicas(Path(name), lighthouse.address()) as start:
            folder = Path(name)
            processes: Processes = {name: start(name) for name in map(str, range(size))}
            wait_until(f"{size} replicas to train", lambda: training(folder, time.time() - 1) == size)
            for run in range(runs):
                yield from one_run(folder, processes, start, str(size + run))
    finally:
        lighthouse.shutdown()


def one_run(
    folder: Path, processes: Processes, start: Callable[[str], "subprocess.Popen[bytes]"], newcomer: str
) -> Iterator[tuple[str, tuple[float, int]]]:
    """Kill a replica, and let another come."""
    time.sleep(CALM_SECONDS)
    victim = next(iter(processes))
    killed = time.time()
    process = processes.pop(victim)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until("the others to train on", lambda: training(folder, killed + CALM_SECONDS) == len(processes))
    yield f"one of {len(processes) + 1} is killed", figures(folder, processes, killed, time.time())
    came = time.time()
    processes[newcomer] = start(newcomer)
    wait_until("the newcomer to train", lambda: training(folder, time.time() - 1) == len(processes))
    survivors = {name: one for name, one in processes.items() if name != newcomer}
    yield f"its replacement, {len(survivors)} to {len(processes)}", figures(folder, survivors, came, time.time())


def figures(folder: Path, processes: Processes, since: float, until: float) -> tuple[float, int]:
    """The longest time without a step, and the steps done twice, by those that were there all the time."""
    moments = [one for one in read(folder) if one.process in processes]
    return longest_pause(moments, since, until), steps_redone(moments, since, until)


def training(folder: Path, since: float) -> int:
    """How many processes have done a step since then."""
    return len({one.process for one in read(folder) if one.what == DONE and one.at > since})


def read(folder: Path) -> list[Moment]:
    lines = (f"{file.name} {line}" for file in folder.iterdir() for line in file.read_text().splitlines())
    return parse("\n".join(lines))


def wait_until(what: str, probe: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTED_SECONDS
    while not probe():
        if time.monotonic() > deadline:
            sys.exit(f"waited {STARTED_SECONDS:g} s for {what}")
        time.sleep(0.5)


@contextmanager
def replicas(folder: Path, lighthouse: str) -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """What starts one, by its name; all are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(TRAIN), "--replica", name, "--lighthouse", lighthouse]
        with (LOGS / f"{name}.log").open("ab") as log:
            command += ["--record", str(folder / name)]
            started.append(subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=log, stdout=log))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()


if __name__ == "__main__":
    main()

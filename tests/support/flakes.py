# SPDX-License-Identifier: Apache-2.0
"""`make flakes`: runs tests N times beside two busy processes; prints which failed, how often, where, and how long.

    python -m support.flakes LEVEL N [EXPRESSION]

It starts the level's own target of make, and reads what pytest reports (`support.second_run`). With lateness on purpose
(`support.lateness`) each round has a seed of its own.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import lateness
from support.second_run import REPORTS

LEVELS = ("unit", "api", "plane", "contract", "e2e")
DIRECTORY = Path("build/flakes").absolute()
TAIL_LINES = 30
BUSY = 2

# It ends with the process that started it, however that ends.
BURN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"


@contextmanager
def busy(number: int = BUSY) -> Iterator[list[int]]:
    """So many processes compute meanwhile; their ids."""
    command = [sys.executable, "-c", BURN, str(os.getpid())]
    burning = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(number)]
    try:
        yield [process.pid for process in burning]
    finally:
        for process in burning:
            process.kill()
            process.wait()


class Tally:
    """What all rounds reported."""

    def __init__(self) -> None:
        self.rounds = 0
        self.longest: Counter[str] = Counter()  # seconds, by test
        self.where: dict[str, Counter[str]] = defaultdict(Counter)  # of tests that failed

    def add(self, reports: list[dict[str, Any]]) -> int:
        """Count one round, and return how many tests failed in it."""
        self.rounds += 1
        seconds: Counter[str] = Counter()
        failed: dict[str, str] = {}
        for report in reports:
            seconds[report["nodeid"]] += report["duration"]
            if report["outcome"] == "failed":
                failed.setdefault(report["nodeid"], last_line(report))
        self.longest |= seconds
        for test, where in failed.items():
            self.where[test][where] += 1
        return len(failed)

    def lines(self) -> Iterator[str]:
        if not self.where:
            yield f"none of {len(self.longest)} tests failed in {self.rounds} rounds"
        for test, places in sorted(self.where.items(), key=lambda one: -one[1].total()):
            yield f"failed {places.total()} of {self.rounds}  {test} ({self.longest[test]:.1f} s at most)"
            yield from (f"  {number:3} x  {where}" for where, number in places.most_common())


def last_line(report: dict[str, Any]) -> str:
    crash = report["longrepr"].get("reprcrash") if isinstance(report["longrepr"], dict) else None
    if crash:
        return f"{crash['path']}:{crash['lineno']}: {crash['message'].partition(chr(10))[0]}"
    return f"{report['when']}: {str(report['longrepr']).strip().splitlines()[-1]}"


def run_round(level: str, expression: str, number: int) -> list[dict[str, Any]]:
    """What the tests report; what they print goes to a file. Exits when they cannot be run."""
    reports, log = DIRECTORY / f"reports-{number}", DIRECTORY / f"round-{number}.log"
    reports.unlink(missing_ok=True)
    command = ["make", level, *([f"K={expression}"] if expression else [])]
    late = {lateness.SEED: f"{os.environ[lateness.SEED]}.{number}"} if lateness.is_wanted() else {}
    with log.open("w") as output:
        subprocess.run(
            command, env=os.environ | late | {REPORTS: str(reports)}, stdout=output, stderr=output, check=False
        )
    if not reports.exists():
        tail = "\n".join(log.read_text().splitlines()[-TAIL_LINES:])
        others = ", ".join(other for other in LEVELS if other != level)
        sys.exit(f"{tail}\nflakes: LEVEL={level} ran no test; is the expression K meant for another level ({others})?")
    return [json.loads(line) for line in reports.read_text().splitlines()]


def main(level: str, rounds: int, expression: str = "") -> int:
    if level not in LEVELS:
        sys.exit(f"flakes: LEVEL={level} is none of {', '.join(LEVELS)}")
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    try:
        with busy():
            for number in range(1, rounds + 1):
                began = time.monotonic()
                failed = tally.add(run_round(level, expression, number))
                print(f"round {number} of {rounds}: {time.monotonic() - began:.0f} s, {failed} failed", flush=True)
    except KeyboardInterrupt:
        return 130
    finally:
        if tally.rounds:
            print(*tally.lines(), f"what the tests printed is in {DIRECTORY}", sep="\n")
    return 1 if tally.where else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))

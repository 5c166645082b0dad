# SPDX-License-Identifier: Apache-2.0
"""What `make check` starts: ruff and mypy beside the tests, and pytest with the tests that were chosen."""

import json
import os
import signal
import subprocess
import sys
from typing import NamedTuple

from hack.check.choice import Choice
from hack.check.place import BUILD, ROOT
from hack.check.record import Record

ALONE = 20  # so few tests are not worth a second process
LEAST = 10.0  # seconds that the tests have in any case
NONE_RAN = 5  # pytest's code

CHECKS = {
    "ruff": "ruff check . && ruff format --check .",
    "mypy": "mypy core operator sidecar cli && mypy --python-version 3.10 trainer",
}


class Side:
    """A check that runs beside the tests; what it prints is shown if it fails."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log = BUILD / f"{name}.log"

    def __enter__(self) -> "Side":
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", CHECKS[self.name]], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def passed(self) -> bool:
        if self.process.wait() == 0:
            return True
        print(f"\n===== {self.name}\n{self.log.read_text()}", end="")
        return False

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()


class Outcome(NamedTuple):
    passed: bool = True
    chosen: int = 0
    ran: int = 0


def run(choice: Choice, record: Record, deadline: float) -> Outcome:
    """Until the deadline; no test is started that is known to take longer."""
    if not choice.files:
        return Outcome()
    seconds = {test: ran.seconds for test, ran in record.tests.items() if test.partition("::")[0] in choice.files}
    path = BUILD / "chosen.json"
    times = {"seconds": seconds, "deadline": deadline, "least": LEAST}
    path.write_text(json.dumps({"files": choice.files, "tests": choice.tests, **times}))
    counts = path.with_suffix(".counts")
    counts.unlink(missing_ok=True)
    left_out = sum(distance is None for distance in choice.tests.values())
    processes = "0" if 0 < len(seconds) - left_out <= ALONE else "2"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "hack.check.chosen", f"--chosen={path}"]
    words += ["-n", processes, "--maxschedchunk=4", *sorted(choice.files, key=choice.files.__getitem__)]
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    found = json.loads(counts.read_text()) if counts.exists() else {"chosen": 0, "ran": 0}
    return Outcome(code in (0, NONE_RAN), **found)

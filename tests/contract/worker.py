"""The training script of the contract tests: says who it is, then waits until it is told how to end.

Without torch, so that a worker starts in milliseconds. It appends a line to `events` in the directory CONTRACT, and
ends when there is a file `finish`, or `finish-<pod>` or `fail-<pod>`, which is removed.
"""

import json
import os
import sys
import time
from pathlib import Path

SECONDS = 120.0
CONTRACT, POD = Path(os.environ["CONTRACT"]), os.environ["CONTRACT_POD"]


def main() -> None:
    names = ("GROUP_RANK", "GROUP_WORLD_SIZE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
    line = json.dumps({"pod": POD, **{name: os.environ[name] for name in names}}) + "\n"
    with (CONTRACT / "events").open("a") as events:
        events.write(line)
    give_up = time.monotonic() + SECONDS
    parent = os.getppid()
    while os.getppid() == parent and time.monotonic() < give_up:
        if (CONTRACT / "finish").exists() or took(f"finish-{POD}"):
            return
        if took(f"fail-{POD}"):
            sys.exit(1)
        time.sleep(0.02)
    sys.exit("nobody said how to end")


def took(name: str) -> bool:
    try:
        (CONTRACT / name).unlink()
    except FileNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The training script of the contract tests: says who it is, then waits until it is told how to end.

Without torch, so that a training process starts in milliseconds; but with PROCESS_GROUP it first makes one of that
kind, and says how many workers are in it. It appends a line to `events` in the directory CONTRACT, and ends when there
is a file `finish`, or `finish-<pod>`, `fail-<pod>`, `raise-<pod>`, `lose-<pod>` (a connection) or `linger-<pod>`, which
is removed; at the last it is stopped in its `finally`, after it has made `lingers-<pod>`. With STUBBORN it ignores
SIGTERM. At `run-<pod>` it runs the command in the variable RUN to its end, without what torchrun tells of this process,
and writes the exit code to `ran-<pod>`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 600.0
CONTRACT, POD = Path(os.environ["CONTRACT"]), os.environ["CONTRACT_POD"]


def main() -> None:
    if os.environ.get("STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    names = ("GROUP_RANK", "GROUP_WORLD_SIZE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
    names += ("TORCHELASTIC_RESTART_COUNT",)
    identical = os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL")
    event = {
        "pod": POD,
        "script": Path(sys.argv[0]).name,
        "counted": count_workers(),
        "identical": identical,
        "master_address": os.environ.get("ELASTICJOB_MASTER_ADDRESS"),
        **{name: os.environ[name] for name in names},
    }
    with (CONTRACT / "events").open("a") as events:
        events.write(json.dumps(event) + "\n")
    deadline = time.monotonic() + SECONDS
    parent = os.getppid()
    while os.getppid() == parent and time.monotonic() < deadline:
        if (CONTRACT / "finish").exists() or took(f"finish-{POD}"):
            return
        if took(f"fail-{POD}"):
            sys.exit(3)
        if took(f"raise-{POD}"):
            raise RuntimeError("no such data")
        if took(f"lose-{POD}"):
            raise ConnectionResetError(104, "Connection reset by peer")
        if took(f"linger-{POD}"):
            linger()
        if took(f"run-{POD}"):
            run(os.environ["RUN"])
        time.sleep(0.02)
    sys.exit("nobody said how to end")


def count_workers() -> int | None:
    if not (kind := os.environ.get("PROCESS_GROUP")):
        return None
    import torch
    from torch import distributed

    distributed.init_process_group(kind)
    ones = torch.ones(1, dtype=torch.int64)
    distributed.all_reduce(ones)
    return int(ones)


def linger() -> None:
    """As in a `finally` that closes a process group whose other members are gone."""
    try:
        raise RuntimeError("no such data")
    finally:
        (CONTRACT / f"lingers-{POD}").touch()
        time.sleep(SECONDS)


def run(command: str) -> None:
    """As people do from a training process, with the variables taken out that they know of."""
    of_this = ("RANK", "LOCAL_", "GROUP_", "ROLE_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_this)}
    ended = subprocess.run(command.split(), env=environment, check=False, timeout=SECONDS)
    new = CONTRACT / f"running-{POD}"
    new.write_text(str(ended.returncode))
    new.rename(CONTRACT / f"ran-{POD}")


def took(name: str) -> bool:
    try:
        (CONTRACT / name).unlink()
    except FileNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()

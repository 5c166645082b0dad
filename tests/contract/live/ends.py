# SPDX-License-Identifier: Apache-2.0
"""Processes of a group that end as soon as their steps are done, while the group's threads are late.

    python ends.py PAIRS        prints the exit codes of all, as JSON

All run on one processor, and the group's threads are late (`late_threads`).
"""

import json
import os
import sys
import time

import torch
import torch._dynamo  # else each process imports it, with its first optimizer
from late_threads import let_others_be_late, on_one_processor

import elasticjob_torch
from support.ports import free_port

STEPS = 3
SECONDS = 60.0
HANGS = "hangs"


def member(rank: int, port: int) -> None:
    given = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in given.items()})
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    group = elasticjob_torch.elastic(model, optimizer)
    let_others_be_late()
    for _ in group.steps(STEPS):
        with group:
            optimizer.zero_grad()
            group.model(torch.ones(2, 4)).sum().backward()
            optimizer.step()


def pair() -> list[int] | None:
    """The processes of a new pair; None in each of them, when its steps are done."""
    port, started = free_port(), []
    for rank in range(2):
        process = os.fork()
        if not process:
            member(rank, port)
            return None
        started.append(process)
    return started


def ended(process: int) -> int | str:
    """Its exit code, a signal as a negative number."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    return HANGS


def main(pairs: int) -> None:
    on_one_processor()
    codes: list[int | str] = []
    for _ in range(pairs):
        started = pair()
        if started is None:
            return  # and the interpreter of this process ends, as a script's does
        codes += [ended(process) for process in started]
    print(json.dumps(codes))


if __name__ == "__main__":
    main(int(sys.argv[1]))

# SPDX-License-Identifier: Apache-2.0
"""A training whose processes live through changes of the group: as train.py, and each line names the process, too.

In each new group it prints what the process holds, for e2e.resources. `touch /tmp/finish` in any worker ends it in
success everywhere.
"""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

import elasticjob_torch

STEP_SECONDS = 0.2
FINISH = Path(tempfile.gettempdir(), "finish")


def tell_what_is_held(rank: int, size: int) -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    memory, threads = int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"])
    descriptors = len(os.listdir("/proc/self/fd"))
    held = f"rss_mib={memory:.1f} threads={threads} descriptors={descriptors}"
    print(f"holds: world_size={size} pid={os.getpid()} {held}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    group = elasticjob_torch.elastic(model, optimizer, on_change=tell_what_is_held)
    finish = torch.zeros(1)
    while not finish.item():
        step = group.step
        with group:
            time.sleep(STEP_SECONDS)
            optimizer.zero_grad()
            group.model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            finish.fill_(float(FINISH.exists()))
            dist.all_reduce(finish)
        if group.step > step:  # else it is done again
            number = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1  # of the round
            said = f"group={number:08x} world_size={group.size} rank={group.rank} step={group.step}"
            print(f"{said} pid={os.getpid()}", flush=True)
            elasticjob_torch.report(step=group.step)
    group.finish()


if __name__ == "__main__":
    main()

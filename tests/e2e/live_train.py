# SPDX-License-Identifier: Apache-2.0
"""A training whose processes live through changes of the group: as train.py, and each line names the process, too.

`touch /tmp/finish` in any worker ends it in success everywhere.
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


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    group = elasticjob_torch.elastic(model, optimizer)
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
    group.finish()


if __name__ == "__main__":
    main()

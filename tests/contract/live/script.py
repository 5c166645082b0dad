# SPDX-License-Identifier: Apache-2.0
"""A training script that lives through changes, below a real torchrun.

It appends a line to `events` in the directory CONTRACT for each group that it is in, and one to `steps-<pod>-<local
rank>` for each step that the optimizer has applied. It ends at the step in the file `total`, and with exit code 3 where
there is a file `fail-<pod>`, which is removed. Between two steps it takes its time where there is a file `save-<pod>`
or `busy-<pod>`, which is removed first; with the former it says that it saves. It begins when there is no file `hold`.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import elasticjob_torch
from contract.live.trainer import BATCH, batch_of, make

CONTRACT, POD = Path(os.environ["CONTRACT"]), os.environ["CONTRACT_POD"]
PACE_SECONDS = 0.03  # many of them at once leave the processors to what is tested
BUSY_SECONDS = 12.0  # longer than the tests let a process that does not say that it saves take


def append(name: str, **said: object) -> None:
    with (CONTRACT / name).open("a") as file:
        file.write(json.dumps({"pod": POD, "pid": os.getpid(), "at": time.time(), **said}) + "\n")


def changed(rank: int, size: int) -> None:
    names = ("GROUP_RANK", "GROUP_WORLD_SIZE", "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    append("events", rank=rank, size=size, **{name: os.environ[name] for name in names})


def main() -> None:
    while (CONTRACT / "hold").exists():
        time.sleep(0.01)
    torch.set_num_threads(1)
    model, optimizer, scheduler = make()
    group = elasticjob_torch.elastic(model, optimizer, schedulers=[scheduler], on_change=changed)
    steps = f"steps-{POD}-{os.environ['LOCAL_RANK']}"
    while not (CONTRACT / "total").exists() or group.step < int((CONTRACT / "total").read_text()):
        with group:
            x, y = batch_of(group.step)
            mine = slice(group.rank * BATCH // group.size, (group.rank + 1) * BATCH // group.size)
            optimizer.zero_grad()
            loss = ((group.model(x[mine]) - y[mine]) ** 2).mean()
            loss.backward()
            optimizer.step()
            append(steps, step=group.step)
            dist.all_reduce(loss.detach())
            time.sleep(PACE_SECONDS)
            fails = CONTRACT / f"fail-{POD}"
            if fails.exists():
                fails.unlink()
                sys.exit(3)
        for order, said in (("save", group.saving), ("busy", contextlib.nullcontext)):
            if (CONTRACT / f"{order}-{POD}").exists():
                with said():
                    (CONTRACT / f"{order}-{POD}").unlink()
                    time.sleep(BUSY_SECONDS)
    group.finish()


if __name__ == "__main__":
    main()

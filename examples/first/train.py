# SPDX-License-Identifier: Apache-2.0
"""Fit a line to random points, with any number of workers: just enough to see workers come and go.

Whenever the group of workers changes, torchrun starts this script again in every worker, and it goes on from the last
step that was saved.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elasticjob_torch

STEPS = int(os.environ.get("STEPS", "1500"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))  # at least this long, to have something to watch
SAVE_STEPS = int(os.environ.get("SAVE_STEPS", "20"))
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
ROUND = elasticjob_torch.current().round


def load(model: torch.nn.Module) -> int:
    """Let rank 0 load the last checkpoint; return the number of steps done, in every rank."""
    done = [0]
    if dist.get_rank() == 0 and (last := max(CHECKPOINTS.glob("step-*.pt"), default=None)):
        model.load_state_dict(torch.load(last, weights_only=True))
        done = [int(last.name.split("-")[1])]
    dist.broadcast_object_list(done)
    return done[0]


def save(model: torch.nn.Module, step: int) -> None:
    """Save whole or not at all, under a name of this round: a worker that missed its end cannot replace it."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    unfinished = CHECKPOINTS / f"saving-{ROUND}"
    torch.save(model.state_dict(), unfinished)
    unfinished.rename(CHECKPOINTS / f"step-{step:06}-round-{ROUND:06}.pt")
    for old in sorted(CHECKPOINTS.glob("step-*.pt"))[:-1]:
        old.unlink(missing_ok=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    line = torch.nn.Linear(16, 1)
    done = load(line)
    model = DistributedDataParallel(line)  # gives every rank what rank 0 has loaded
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if rank == 0:
        print(f"started: world_size={world_size} resuming from step {done}", flush=True)

    for step in range(done + 1, STEPS + 1):
        points = torch.randn(32, 16)
        loss = (model(points) - points.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP_SECONDS)
        elasticjob_torch.report(step=step, total=STEPS, loss=loss.item())
        change = elasticjob_torch.wants_restart()  # asked by all ranks, also those that do not save
        if rank == 0 and (change or step % SAVE_STEPS == 0 or step == STEPS):
            save(line, step)
            print(f"step {step}/{STEPS} world_size={world_size} loss={loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

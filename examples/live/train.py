# SPDX-License-Identifier: Apache-2.0
"""Fit a line to random points by workers that live through changes: no restart, and no step is done twice.

Whenever the group changes, the processes go on with the next step. The checkpoint is for the case in which all of them
are lost.
"""

import os
import time
from pathlib import Path

import torch

import elasticjob_torch

STEPS = int(os.environ.get("STEPS", "1500"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))  # at least this long, to have something to watch
SAVE_STEPS = int(os.environ.get("SAVE_STEPS", "100"))
BATCH = 120  # of all workers together, whatever their number
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))


def load(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint; return the number of steps done."""
    last = max(CHECKPOINTS.glob("step-*.pt"), default=None)
    if last is None:
        return 0
    saved = torch.load(last, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save whole or not at all, under a name of this round: a worker that missed its end cannot replace it."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    number = elasticjob_torch.current().round
    unfinished = CHECKPOINTS / f"saving-{number}"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unfinished)
    unfinished.rename(CHECKPOINTS / f"step-{step:06}-round-{number:06}.pt")
    for old in sorted(CHECKPOINTS.glob("step-*.pt"))[:-1]:
        old.unlink(missing_ok=True)


def points(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the step's batch: by the step's number, so that a step done again has the same points."""
    x = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))[rank::size]
    return x, x.sum(1, keepdim=True)


def train(group: elasticjob_torch.Group, optimizer: torch.optim.Optimizer) -> float:
    x, y = points(group.step, group.rank, group.size)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(group.model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = load(model, optimizer)
    group = elasticjob_torch.elastic(
        model, optimizer, step=done, on_change=lambda rank, size: print(f"rank {rank} of {size}", flush=True)
    )
    for _ in group.steps(STEPS):
        began, loss = time.monotonic(), 0.0
        with group:
            loss = train(group, optimizer)
        elasticjob_torch.report(step=group.step, total=STEPS, loss=loss)
        if group.rank == 0 and group.step % SAVE_STEPS == 0:
            with group.saving():
                save(model, optimizer, group.step)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main()

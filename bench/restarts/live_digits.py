# SPDX-License-Identifier: Apache-2.0
"""The digits training with processes that live through changes. It runs in the benchmark's pods, beside the example.

Data and model are those of examples/digits. It saves no checkpoint: a state that were lost would be seen by its steps.
Each process records when it begins a step and when the step is done, by the machine's clock.
"""

import os
import time

import torch
from record import Record
from train import build_model, load_data

import elasticjob_torch

STEPS = 10_000_000  # the job ends before
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))  # at least, so that four workers share two cores
BATCH = 128  # of all workers together, whatever their number


class News:
    """Prints what the benchmark waits for: which group there is now, and its first step."""

    def __init__(self) -> None:
        self._changed: float | None = None

    def change(self, rank: int, size: int) -> None:
        self._changed = time.monotonic()
        if rank == 0:
            print(f"started: world_size={size} in a new group", flush=True)

    def done(self, rank: int, size: int, step: int) -> None:
        if self._changed is None:
            return
        took, self._changed = time.monotonic() - self._changed, None
        print(f"rank {rank} of {size}: first step: step {took:.3f} s", flush=True)
        if rank == 0:
            print(f"step {step}/{STEPS} world_size={size}", flush=True)


def train(
    group: elasticjob_torch.Group, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> None:
    """One step, whose batch is chosen by its number."""
    chosen = torch.randint(len(labels), (BATCH,), generator=torch.Generator().manual_seed(group.step))
    mine = chosen[group.rank :: group.size]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(group.model(images[mine]), labels[mine]).backward()
    optimizer.step()


def main() -> None:
    record, news = Record(), News()
    (images, labels), _ = (part.tensors for part in load_data())
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    group = elasticjob_torch.elastic(model, optimizer, on_change=news.change)
    for _ in group.steps(STEPS):
        began = time.monotonic()
        with group:
            step = group.step  # of the round that the block may have begun with
            record.write("begins", step)
            train(group, optimizer, images, labels)
        if group.step > step:  # else it broke, and is done again
            record.write("done", step)
            news.done(group.rank, group.size, step)
        elasticjob_torch.report(step=group.step)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main()

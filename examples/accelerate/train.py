# SPDX-License-Identifier: Apache-2.0
"""Train a small network with Hugging Face Accelerate, with any number of workers.

Whenever the group of workers changes, this script is started again in every worker with the same command line, and
goes on from the last epoch that was saved.
"""

import os
import shutil
import time
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it, but after Accelerator(), where early imports end
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import elasticjob_torch
except ImportError:  # started outside of an ElasticJob
    elasticjob_torch = None

EPOCHS = int(os.environ.get("EPOCHS", "60"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))  # at least this long, to have something to watch
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
ROUND = elasticjob_torch.current().round if elasticjob_torch else 0


def build_data() -> TensorDataset:
    """Points in 16 dimensions, and whether each is in a ball: the same in every process."""
    points = torch.randn(2048, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(points, (points.norm(dim=1) < 4).long())


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))


def load(accelerator: Accelerator) -> int:
    """Resume all processes from the last checkpoint that the main process finds; return the number of epochs done."""
    if accelerator.is_main_process:
        for unfinished in CHECKPOINTS.glob("saving-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
    last = [max(CHECKPOINTS.glob("epoch-*"), default=None)]
    broadcast_object_list(last)
    if last[0] is None:
        return 0
    accelerator.load_state(str(last[0]))
    return int(last[0].name.split("-")[1])


def save(accelerator: Accelerator, epoch: int) -> None:
    """Save whole or not at all, under a name of this round: a worker that missed its end cannot replace it."""
    unfinished = CHECKPOINTS / f"saving-{ROUND}"
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unfinished.rename(CHECKPOINTS / f"epoch-{epoch:06}-round-{ROUND:06}")
        for old in sorted(CHECKPOINTS.glob("epoch-*"))[:-1]:
            shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    accelerator = Accelerator()
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = DataLoader(build_data(), batch_size=64, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    done = load(accelerator)
    accelerator.print(f"started: world_size={accelerator.num_processes} resuming from epoch {done}", flush=True)

    for epoch in range(done + 1, EPOCHS + 1):
        began = time.monotonic()
        for points, inside in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points), inside)
            accelerator.backward(loss)
            optimizer.step()
        time.sleep(max(0.0, EPOCH_SECONDS - (time.monotonic() - began)))
        save(accelerator, epoch)
        if elasticjob_torch:
            elasticjob_torch.report(step=epoch, total=EPOCHS, loss=loss.item())
        accelerator.print(f"epoch {epoch}/{EPOCHS} world_size={accelerator.num_processes} loss={loss:.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

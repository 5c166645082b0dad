# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits, with any number of workers.

Started by torchrun. Whenever the group of workers changes, torchrun starts this script again in every worker
and it resumes from the last epoch that was saved.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

try:
    import elasticjob_torch
except ImportError:  # started outside of an ElasticJob
    elasticjob_torch = None

EPOCHS = int(os.environ.get("EPOCHS", "60"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))  # at least this long, to have something to watch
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
ROUND = elasticjob_torch.current().round if elasticjob_torch else 0
TEST_SIZE = 360  # of 1,797 scans


class FirstStep:
    """Tells, once, how a new process spent the seconds between its imports and its first step."""

    def __init__(self) -> None:
        self._since, self._parts, self._told = time.monotonic(), [], False

    def part(self, name: str) -> None:
        now = time.monotonic()
        self._parts.append(f"{name} {now - self._since:.3f} s")
        self._since = now

    def done(self, *_: object) -> None:
        if not self._told:
            self._told = True
            self.part("step")
            print(
                f"rank {dist.get_rank()} of {dist.get_world_size()}: first step: {', '.join(self._parts)}", flush=True
            )


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Split the scans of 8x8 grey values the same way in every worker."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_SIZE], order[TEST_SIZE:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def save_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Save whole or not at all, under a name of this round: a worker that missed its end cannot replace it."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    unfinished = CHECKPOINTS / f"saving-{ROUND}"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, unfinished)
    unfinished.rename(CHECKPOINTS / f"epoch-{epoch:06}-round-{ROUND:06}.pt")
    for old in sorted(CHECKPOINTS.glob("epoch-*.pt"))[:-1]:
        old.unlink(missing_ok=True)


def load_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Resume all workers from what rank 0 reads, and return the number of epochs done."""
    found = [None]
    if dist.get_rank() == 0:
        for unfinished in CHECKPOINTS.glob("saving-*"):
            unfinished.unlink(missing_ok=True)
        if last := max(CHECKPOINTS.glob("epoch-*.pt"), default=None):
            found = [torch.load(last, weights_only=True)]
    dist.broadcast_object_list(found)
    checkpoint = found[0]
    if checkpoint is None:
        return 0
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader) -> float:
    """Train on this worker's share of the data; return the mean loss over all workers."""
    model.train()
    total = torch.zeros(2)
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def measure_accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    images, labels = data.tensors
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    first_step = FirstStep()
    dist.init_process_group("gloo")
    first_step.part("group")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    train_data, test_data = load_data()
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer.register_step_post_hook(first_step.done)
    done = load_checkpoint(model, optimizer)
    first_step.part("data and checkpoint")
    if rank == 0:
        print(f"started: world_size={world_size} resuming from epoch {done}", flush=True)

    parallel = DistributedDataParallel(model)
    sampler = DistributedSampler(train_data)
    batches = DataLoader(train_data, batch_size=32, sampler=sampler)
    for epoch in range(done + 1, EPOCHS + 1):
        began = time.monotonic()
        sampler.set_epoch(epoch)
        loss = train_epoch(parallel, optimizer, batches)
        time.sleep(max(0.0, EPOCH_SECONDS - (time.monotonic() - began)))
        if rank == 0:
            accuracy = measure_accuracy(model, test_data)
            save_checkpoint(model, optimizer, epoch)
            if elasticjob_torch:
                elasticjob_torch.report(step=epoch, total=EPOCHS, loss=loss, accuracy=accuracy)
            print(
                f"epoch {epoch}/{EPOCHS} world_size={world_size} loss={loss:.4f} test_accuracy={accuracy:.3f}",
                flush=True,
            )

    if rank == 0:
        print(f"test accuracy: {measure_accuracy(model, test_data):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

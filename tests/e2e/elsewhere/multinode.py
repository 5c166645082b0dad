# SPDX-License-Identifier: Apache-2.0
"""In the shape of the multi-node script in PyTorch's tutorial on fault tolerance: a Trainer class, one snapshot.

The path of the snapshot is relative, and each process of local rank 0 saves, which here is one in each worker.
"""

import argparse
import os
import time

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model: nn.Module, batches: DataLoader, save_every: int, snapshot_path: str) -> None:
        self.local_rank, self.rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.batches, self.save_every, self.snapshot_path = batches, save_every, snapshot_path
        self.epochs_run = 0
        if os.path.exists(snapshot_path):
            snapshot = torch.load(snapshot_path)
            model.load_state_dict(snapshot["model"])
            self.epochs_run = snapshot["epochs_run"]
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if self.rank == 0:
            print(f"started: world_size={self.world_size} resuming from epoch {self.epochs_run}", flush=True)

    def train(self, epochs: int, epoch_seconds: float) -> None:
        for epoch in range(self.epochs_run + 1, epochs + 1):
            self.batches.sampler.set_epoch(epoch)
            for source, target in self.batches:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(source), target).backward()
                self.optimizer.step()
            time.sleep(epoch_seconds)
            if self.local_rank == 0 and epoch % self.save_every == 0:
                self.save(epoch)
            if self.rank == 0:
                print(f"epoch {epoch}/{epochs} world_size={self.world_size}", flush=True)

    def save(self, epoch: int) -> None:
        # all workers save: under a name of its own, so that none is renamed half-written
        unfinished = f"{self.snapshot_path}.{self.rank}"
        torch.save({"model": self.model.module.state_dict(), "epochs_run": epoch}, unfinished)
        os.replace(unfinished, self.snapshot_path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("save_every", type=int)
    parser.add_argument("--epoch-seconds", type=float, default=0.0)
    args = parser.parse_args()
    init_process_group("gloo")
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(2048, 20, generator=generator), torch.rand(2048, 1, generator=generator))
    batches = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    Trainer(nn.Linear(20, 1), batches, args.save_every, "snapshot.pt").train(args.epochs, args.epoch_seconds)
    destroy_process_group()


if __name__ == "__main__":
    main()

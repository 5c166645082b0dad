# SPDX-License-Identifier: Apache-2.0
"""In the shape of PyTorch's minGPT-ddp: a small transformer of characters, dataclasses, loader workers.

The snapshot is a dataclass, written from a buffer by local rank 0, which here is one process in each worker.
"""

import io
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler

TEXT = "the quick brown fox jumps over the lazy dog. " * 40


@dataclass
class TrainerConfig:
    max_epochs: int = int(os.environ.get("EPOCHS", "10"))
    epoch_seconds: float = float(os.environ.get("EPOCH_SECONDS", "0"))
    batch_size: int = 32
    data_loader_workers: int = 2
    grad_norm_clip: float = 1.0
    snapshot_path: str = "gpt_snapshot.pt"


@dataclass
class Snapshot:
    model_state: dict[str, torch.Tensor]
    optimizer_state: dict[str, Any]
    finished_epoch: int


class Characters(Dataset):
    def __init__(self, text: str, block: int) -> None:
        self.names = sorted(set(text))
        self.data, self.block = [self.names.index(each) for each in text], block

    def __len__(self) -> int:
        return len(self.data) - self.block

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        chunk = torch.tensor(self.data[at : at + self.block + 1])
        return chunk[:-1], chunk[1:]


class GPT(nn.Module):
    def __init__(self, names: int, block: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(names, 32), nn.Parameter(torch.zeros(1, block, 32))
        self.block = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        self.head = nn.Linear(32, names)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.token(tokens) + self.position, src_mask=self.mask, is_causal=True))


class Trainer:
    def __init__(self, config: TrainerConfig, model: nn.Module, train: Dataset, test: Dataset) -> None:
        self.config = config
        self.local_rank, self.rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.train_loader, self.test_loader = self.prepare(train), self.prepare(test)
        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters(), lr=3e-4)
        self.epochs_run = self.load()
        if self.rank == 0:
            print(f"started: world_size={self.world_size} resuming from epoch {self.epochs_run}", flush=True)
        self.model = DistributedDataParallel(self.model)

    def prepare(self, data: Dataset) -> DataLoader:
        workers = self.config.data_loader_workers
        return DataLoader(data, self.config.batch_size, num_workers=workers, sampler=DistributedSampler(data))

    def load(self) -> int:
        try:
            buffer = io.BytesIO(Path(self.config.snapshot_path).read_bytes())
        except FileNotFoundError:
            return 0
        snapshot = Snapshot(**torch.load(buffer))
        self.model.load_state_dict(snapshot.model_state)
        self.optimizer.load_state_dict(snapshot.optimizer_state)
        return snapshot.finished_epoch

    def save(self, epoch: int) -> None:
        snapshot = Snapshot(self.model.module.state_dict(), self.optimizer.state_dict(), epoch)
        buffer = io.BytesIO()
        torch.save(asdict(snapshot), buffer)
        # all workers save: under a name of its own, so that none is renamed half-written
        unfinished = Path(f"{self.config.snapshot_path}.{self.rank}")
        unfinished.write_bytes(buffer.getvalue())
        unfinished.replace(self.config.snapshot_path)

    def run_epoch(self, epoch: int, loader: DataLoader, *, train: bool) -> None:
        loader.sampler.set_epoch(epoch)
        for tokens, targets in loader:
            with torch.set_grad_enabled(train):
                loss = nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
            if train:
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
                self.optimizer.step()

    def train(self) -> None:
        for epoch in range(self.epochs_run + 1, self.config.max_epochs + 1):
            self.run_epoch(epoch, self.train_loader, train=True)
            time.sleep(self.config.epoch_seconds)
            if self.local_rank == 0:
                self.save(epoch)
            self.run_epoch(epoch, self.test_loader, train=False)
            if self.rank == 0:
                print(f"epoch {epoch}/{self.config.max_epochs} world_size={self.world_size}", flush=True)


def main() -> None:
    init_process_group("gloo")
    data = Characters(TEXT, block=16)
    train, test = random_split(data, [0.9, 0.1], generator=torch.Generator().manual_seed(0))
    Trainer(TrainerConfig(), GPT(len(data.names), block=16), train, test).train()
    destroy_process_group()


if __name__ == "__main__":
    main()

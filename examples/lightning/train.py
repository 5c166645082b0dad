# SPDX-License-Identifier: Apache-2.0
"""Train a small network with PyTorch Lightning, with any number of workers.

Whenever the group of workers changes, torchrun starts this script again in every worker with the same command line,
and it goes on from the last epoch that was saved.
"""

import os
import signal
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import elasticjob_torch
except ImportError:  # started outside of an ElasticJob
    elasticjob_torch = None

EPOCHS = int(os.environ.get("EPOCHS", "60"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))  # so much longer, to have something to watch
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
ROUND = elasticjob_torch.current().round if elasticjob_torch else 0


class InBall(lightning.LightningModule):
    """Learns whether a point in 16 dimensions is in a ball."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        points, inside = batch
        loss = nn.functional.cross_entropy(self.net(points), inside)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def train_dataloader(self) -> DataLoader:
        points = torch.randn(2048, 16, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(points, (points.norm(dim=1) < 4).long()), batch_size=64, shuffle=True)


class Elastic(Callback):
    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        # torchrun ends a round by SIGTERM; Lightning's handler of it would wait for the other ranks
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        size, done = trainer.world_size, trainer.current_epoch
        trainer.print(f"started: world_size={size} resuming from epoch {done}", flush=True)

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        time.sleep(EPOCH_SECONDS)
        epoch = trainer.current_epoch + 1
        if elasticjob_torch:
            elasticjob_torch.report(step=epoch, total=EPOCHS, loss=trainer.callback_metrics["loss"].item())
        trainer.print(f"epoch {epoch}/{EPOCHS} world_size={trainer.world_size}", flush=True)


def main() -> None:
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        strategy="ddp",
        # Lightning compares these with the world's size
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        max_epochs=EPOCHS,
        callbacks=[
            Elastic(),
            # the name has the round: a worker that missed its end cannot replace a checkpoint of the next
            ModelCheckpoint(CHECKPOINTS, filename=f"{{epoch:06}}-round-{ROUND:06}"),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(InBall(), ckpt_path=max(CHECKPOINTS.glob("epoch=*.ckpt"), default=None))


if __name__ == "__main__":
    main()

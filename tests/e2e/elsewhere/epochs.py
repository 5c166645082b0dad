# SPDX-License-Identifier: Apache-2.0
"""What a framework takes for the rest of an epoch: `epochs.py FRAMEWORK`, first as two processes, then as three.

The first ones save after STEPS steps of their first epoch and end; the others go on from there to its end. Each
process prints the numbers of the samples that it has seen.
"""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, STEPS = 96, 2, 6
FOLDER = Path("saved")
RESUMES = FOLDER.exists()


class Numbers(Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(1), "labels": torch.tensor(number)}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(1, 1), []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += labels.tolist()
        return {"loss": self.layer(x).sum()}


def accelerate(model: Model) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer, batches = accelerator.prepare(
        model, optimizer, DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    )
    if RESUMES:
        accelerator.load_state(str(FOLDER / "state"))
        batches = accelerator.skip_first_batches(batches, STEPS)
    for step, batch in enumerate(batches, 1):
        accelerator.backward(wrapped(**batch)["loss"])
        optimizer.step()
        if step == STEPS and not RESUMES:
            accelerator.save_state(str(FOLDER / "state"))
            break


def transformers(model: Model) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == STEPS and not RESUMES

    args = TrainingArguments(
        output_dir=str(FOLDER),
        num_train_epochs=1,
        save_steps=STEPS,
        per_device_train_batch_size=BATCH,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model, args, train_dataset=Numbers(), callbacks=[Stop()]).train(resume_from_checkpoint=RESUMES)


def lightning(model: Model) -> None:
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import Callback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Stop(Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == STEPS and not RESUMES:
                trainer.save_checkpoint(FOLDER / "last.ckpt")
                tell(model)
                sys.exit()

    seed_everything(0)
    size = int(os.environ["WORLD_SIZE"])
    off = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", strategy="ddp", devices=size, max_epochs=1, callbacks=[Stop()], **off)
    batches = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    trainer.fit(Module(), batches, ckpt_path=FOLDER / "last.ckpt" if RESUMES else None)


def tell(model: Model) -> None:
    print(f"world_size={os.environ['WORLD_SIZE']} saw {' '.join(map(str, model.seen))}\n", end="", flush=True)


if __name__ == "__main__":
    framework = {"accelerate": accelerate, "transformers": transformers, "lightning": lightning}[sys.argv[1]]
    torch.manual_seed(0)  # the order of the samples is the same in each process and at each start
    trained = Model()
    framework(trained)
    tell(trained)

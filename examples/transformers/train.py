# SPDX-License-Identifier: Apache-2.0
"""Train a small language model with the Trainer of Hugging Face Transformers, with any number of workers.

The model is made here with random weights and learns to count. Whenever the group of workers changes, torchrun starts
this script again in every worker with the same command line, and it goes on from the last step that was saved.
"""

import os
import shutil
import time
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

try:
    import elasticjob_torch
except ImportError:  # started outside of an ElasticJob
    elasticjob_torch = None

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))  # so much longer, to have something to watch
SAVE_STEPS = int(os.environ.get("SAVE_STEPS", "50"))
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
ROUND = elasticjob_torch.current().round if elasticjob_torch else 0
NUMBERS, LENGTH = 64, 16


class Counting(torch.utils.data.Dataset):
    """Sixteen numbers in a row, from any beginning."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = (torch.arange(LENGTH) + index) % NUMBERS
        return {"input_ids": numbers, "labels": numbers}


class Elastic(TrainerCallback):
    """Tells how far the training is, and keeps the last checkpoint only."""

    def on_step_end(self, args, state, control, **_):
        time.sleep(STEP_SECONDS)
        if elasticjob_torch:
            elasticjob_torch.report(step=state.global_step, total=state.max_steps)

    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            print(f"step {state.global_step}/{state.max_steps} world_size={args.world_size} saved", flush=True)
            for old in whole_checkpoints()[:-1]:
                shutil.rmtree(old, ignore_errors=True)


def whole_checkpoints() -> list[Path]:
    """All rounds' checkpoints, the last one last. The Trainer writes its state at the end: one without is not whole."""
    found = [state.parent for state in CHECKPOINTS.glob("round-*/checkpoint-*/trainer_state.json")]
    return sorted(found, key=lambda path: (step_of(path), int(path.parent.name.split("-")[1])))


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def main() -> None:
    args = TrainingArguments(
        # of this round: a worker that missed its end cannot write into a checkpoint of the next
        output_dir=str(CHECKPOINTS / f"round-{ROUND}"),
        max_steps=STEPS,
        save_steps=SAVE_STEPS,
        logging_steps=SAVE_STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        report_to="none",
        seed=0,
    )
    torch.manual_seed(args.seed)
    size = {"vocab_size": NUMBERS, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    last = (whole_checkpoints() or [None])[-1:]
    broadcast_object_list(last)  # all go on from what rank 0 has found
    if args.process_index == 0:
        done = step_of(last[0]) if last[0] else 0
        print(f"started: world_size={args.world_size} resuming from step {done}", flush=True)
    trainer = Trainer(model, args, train_dataset=Counting(), callbacks=[Elastic()])
    trainer.train(resume_from_checkpoint=last[0] and str(last[0]))


if __name__ == "__main__":
    main()

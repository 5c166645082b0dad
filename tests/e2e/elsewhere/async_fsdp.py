# SPDX-License-Identifier: Apache-2.0
"""In the shape of PyTorch's recipe on asynchronous checkpoints: FSDP2, a Stateful for the state, DCP's async_save.

A save goes on in a thread while the next epoch trains. torch writes `.metadata` last: without it a save is not whole.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard

import elasticjob_torch

EPOCHS = int(os.environ.get("EPOCHS", "10"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))
CHECKPOINTS = Path("checkpoints")
ROUND = elasticjob_torch.current().round


class AppState(Stateful):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.epoch = model, optimizer, 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.epoch = state["epoch"]


def whole_checkpoints() -> list[Path]:
    return sorted(path.parent for path in CHECKPOINTS.glob("epoch-*/.metadata"))


def load(state: AppState) -> None:
    """All go on from what rank 0 has found."""
    last = [max(whole_checkpoints(), default=None)]
    dist.broadcast_object_list(last)
    if last[0] is not None:
        dcp.load({"app": state}, checkpoint_id=last[0])


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = AppState(model, optimizer)
    load(state)
    savers = dist.new_group()  # a save's thread and the training take turns in no order
    if rank == 0:
        print(f"started: world_size={world_size} resuming from epoch {state.epoch}", flush=True)
    saving = None
    while state.epoch < EPOCHS:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.rand(8, 16)).sum().backward()
            optimizer.step()
        time.sleep(EPOCH_SECONDS)
        state.epoch += 1
        if saving is not None:
            saving.result()
            if rank == 0:
                for old in whole_checkpoints()[:-1]:
                    shutil.rmtree(old, ignore_errors=True)
        name = CHECKPOINTS / f"epoch-{state.epoch:06}-round-{ROUND:06}"
        saving = dcp.async_save({"app": state}, checkpoint_id=name, process_group=savers)
        if rank == 0:
            print(f"epoch {state.epoch}/{EPOCHS} world_size={world_size}", flush=True)
    if saving is not None:
        saving.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

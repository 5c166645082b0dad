# SPDX-License-Identifier: Apache-2.0
"""Train a small network with FSDP, and save it by torch's distributed checkpoints, with any number of workers.

Each process holds a part of the parameters and of the optimizer's state, and saves that part. After the group has
changed there is another number of parts: `torch.distributed.checkpoint` shares what was saved out anew as it loads.
"""

import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def build_data() -> TensorDataset:
    """Points in 16 dimensions, and whether each is in a ball: the same in every process."""
    points = torch.randn(2048, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(points, (points.norm(dim=1) < 4).long())


def build_model(device: torch.device) -> nn.Module:
    """Each layer that has parameters is sharded by itself, and gathered only while it computes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Resume all processes from the last checkpoint that rank 0 finds; return the number of epochs done."""
    if dist.get_rank() == 0:
        for unfinished in CHECKPOINTS.glob("saving-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
    last = [max(CHECKPOINTS.glob("epoch-*"), default=None)]
    dist.broadcast_object_list(last)
    if last[0] is None:
        return 0
    parts, moments = get_state_dict(model, optimizer)
    dcp.load({"model": parts, "optimizer": moments}, checkpoint_id=last[0])
    set_state_dict(model, optimizer, model_state_dict=parts, optim_state_dict=moments)
    return int(last[0].name.split("-")[1])


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Save whole or not at all, under a name of this round: a worker that missed its end cannot replace it."""
    unfinished = CHECKPOINTS / f"saving-{ROUND}"
    parts, moments = get_state_dict(model, optimizer)
    dcp.save({"model": parts, "optimizer": moments}, checkpoint_id=unfinished)  # returns when all parts are there
    if dist.get_rank() == 0:
        unfinished.rename(CHECKPOINTS / f"epoch-{epoch:06}-round-{ROUND:06}")
        for old in sorted(CHECKPOINTS.glob("epoch-*"))[:-1]:
            shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = build_model(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = build_data()
    sampler = DistributedSampler(data)
    batches = DataLoader(data, batch_size=64, sampler=sampler)
    done = load(model, optimizer)
    if rank == 0:
        print(f"started: world_size={world_size} resuming from epoch {done}", flush=True)

    for epoch in range(done + 1, EPOCHS + 1):
        began = time.monotonic()
        sampler.set_epoch(epoch)
        for points, inside in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points.to(device)), inside.to(device))
            loss.backward()
            optimizer.step()
        time.sleep(max(0.0, EPOCH_SECONDS - (time.monotonic() - began)))
        save(model, optimizer, epoch)
        if elasticjob_torch:
            elasticjob_torch.report(step=epoch, total=EPOCHS, loss=loss.item())
        if rank == 0:
            print(f"epoch {epoch}/{EPOCHS} world_size={world_size} loss={loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

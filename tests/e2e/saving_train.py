"""A training that saves nothing but what `wants_restart` asks for: as train.py, with all three calls of a script.

The ranks agree, in the all-reduce of a step, that it is the last one. Rank 0 then takes its time to save it, and nobody
goes on. So the next group must begin exactly one step later, or a save was cut short.
"""

import os
import secrets
import time
from pathlib import Path

import torch
import torch.distributed as dist

import elasticjob_torch

STEP_SECONDS, SAVE_SECONDS = 0.2, 4.0
STEPS = 1_000_000
FINISH = Path("/tmp/finish")
CHECKPOINT = Path("/checkpoints", os.environ["TORCHELASTIC_RUN_ID"])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(elasticjob_torch.current(), flush=True)
    start = torch.tensor([secrets.randbits(32), int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0])
    dist.broadcast(start, src=0)
    group, done = start.tolist()
    for step in range(done + 1, STEPS + 1):
        time.sleep(STEP_SECONDS)
        wants = elasticjob_torch.wants_restart()
        sums = torch.tensor([1, int(FINISH.exists()), int(wants)])
        dist.all_reduce(sums)
        workers, finish, wanted = sums.tolist()
        print(f"group={group:08x} world_size={workers} rank={rank} step={step}", flush=True)
        elasticjob_torch.report(step=step, total=STEPS, loss=1 / step, rank=rank)
        if wanted:
            save_and_stand_still(rank, step)
        if finish:
            break
    dist.destroy_process_group()


def save_and_stand_still(rank: int, step: int) -> None:
    """Until torchrun ends this process; the calls go on, as they tell that this rank needs no more time."""
    if rank == 0:
        time.sleep(SAVE_SECONDS)
        CHECKPOINT.write_text(str(step))
    told = False
    while True:
        if elasticjob_torch.wants_restart() and not told:
            told = True
            print(f"rank {rank} was asked to save step {step}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()

"""A training that only counts: each step is one all-reduce over all workers.

Every line that it prints names the group of workers that took the step together, so that a test can tell the
training after a new round from the one before. `touch /tmp/finish` in any worker ends it in success everywhere.
"""

import os
import secrets
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_SECONDS = 0.2
STEPS = int(os.environ.get("STEPS", "1000000"))
FAIL_AT_STEP = int(os.environ.get("FAIL_AT_STEP", "0"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "0"))
FINISH = Path("/tmp/finish")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = torch.tensor(secrets.randbits(32))
    dist.broadcast(group, src=0)
    for step in range(1, STEPS + 1):
        time.sleep(STEP_SECONDS)
        sums = torch.tensor([1, int(FINISH.exists())])
        dist.all_reduce(sums)
        workers, finish = sums.tolist()
        print(f"group={group.item():08x} world_size={workers} rank={rank} step={step}", flush=True)
        if step == FAIL_AT_STEP:
            raise RuntimeError(f"FAIL_AT_STEP is {step}")
        if finish:
            break
    dist.destroy_process_group()
    if rank == 0:
        time.sleep(SAVE_SECONDS)
        print("saved", flush=True)


if __name__ == "__main__":
    main()

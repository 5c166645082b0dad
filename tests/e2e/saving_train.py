# SPDX-License-Identifier: Apache-2.0
"""A training that saves nothing but what `wants_restart` asks for: as train.py, with all three calls of a script.

The ranks agree, in the sum of a step, that it is the last one. Rank 0 then takes its time to save it, and nobody
goes on. So the next group must begin exactly one step later, or a save was cut short.
"""

import os
import secrets
import tempfile
import time
from pathlib import Path

from group import join

import elasticjob_torch

STEP_SECONDS, SAVE_SECONDS = 0.2, 4.0
STEPS = 1_000_000
FINISH = Path(tempfile.gettempdir(), "finish")
CHECKPOINT = Path(os.environ.get("CHECKPOINTS", "/checkpoints"), os.environ["TORCHELASTIC_RUN_ID"])


def main() -> None:
    processes = join()
    rank = processes.rank
    print(elasticjob_torch.current(), flush=True)
    saved = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    group, done = processes.sum(secrets.randbits(32), saved) if rank == 0 else processes.sum(0, 0)
    for step in range(done + 1, STEPS + 1):
        time.sleep(STEP_SECONDS)
        wants = elasticjob_torch.wants_restart()
        workers, finish, wanted = processes.sum(1, FINISH.exists(), wants)
        print(f"group={group:08x} world_size={workers} rank={rank} step={step}", flush=True)
        elasticjob_torch.report(step=step, total=STEPS, loss=1 / step, rank=rank)
        if wanted:
            save_and_stand_still(rank, step)
        if finish:
            break
    processes.leave()


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

# SPDX-License-Identifier: Apache-2.0
"""One replica of the digits training with torchft, of one process; torchft_kill.py starts several and kills one.

Data, model, batch and pace are those of restarts/live_digits.py, and so is the record of steps. In place of the round
there is how often this process has tried the step: torchft tries a step again that it did not commit.
"""

import argparse
import os
import time
from collections import Counter

import torch
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from train import build_model, load_data

BATCH, STEP_SECONDS = 128, 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replica", required=True)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--record", required=True, help="file for the moments of steps")
    given = parser.parse_args()
    record = os.open(given.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    tried: Counter[int] = Counter()

    def write(what: str, step: int) -> None:
        os.write(record, f"{time.time():.6f} {what} {step} {tried[step]}\n".encode())

    (images, labels), _ = (part.tensors for part in load_data())
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(),
        min_replica_size=1,
        load_state_dict=lambda saved: (
            model.load_state_dict(saved["model"]),
            optimizer.load_state_dict(saved["optim"]),
        ),
        state_dict=lambda: {"model": model.state_dict(), "optim": optimizer.state_dict()},
        replica_id=given.replica,
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=given.lighthouse,
    )
    model = DistributedDataParallel(manager, build_model())
    optimizer = Optimizer(manager, torch.optim.Adam(model.parameters(), lr=1e-3))
    while True:
        began, step = time.monotonic(), manager.current_step()
        tried[step] += 1
        write("begins", step)
        optimizer.zero_grad()  # asks the lighthouse who takes part
        chosen = torch.randint(len(labels), (BATCH,), generator=torch.Generator().manual_seed(step))
        mine = chosen[:: max(1, manager.num_participants())]
        torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
        if manager.current_step() > step:
            write("done", step)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main()

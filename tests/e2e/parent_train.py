# SPDX-License-Identifier: Apache-2.0
"""A training that starts processes of all kinds: as train.py, whose steps wait for two loader workers.

Each start of it serves a port from a session of its own, which none may have left taken. The first one of a worker
evaluates with a torchrun of its own.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from group import join
from torch.utils.data import DataLoader, IterableDataset

STEP_SECONDS = 0.2
FINISH = Path(tempfile.gettempdir(), "finish")
SERVER = "import socket, time; held = socket.create_server(('127.0.0.1', 8123)); print('serves', flush=True)\n"
EVALUATE = ["torchrun", "--no-python", "--nproc-per-node=1", "sh", "-c", 'echo "evaluated as $RANK of $WORLD_SIZE"']
OF_THIS_ROUND = ("RANK", "LOCAL_", "GROUP_", "ROLE_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")


class Steps(IterableDataset[int]):
    def __iter__(self):
        while True:
            time.sleep(STEP_SECONDS)
            yield 1


def main() -> None:
    processes = join()
    rank = processes.rank
    serve()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        evaluate()
    group = processes.sum(secrets.randbits(32) if rank == 0 else 0)[0]
    for step, _ in enumerate(DataLoader(Steps(), num_workers=2), 1):
        workers, finish = processes.sum(1, FINISH.exists())
        print(f"group={group:08x} world_size={workers} rank={rank} step={step}", flush=True)
        if finish:
            break
    processes.leave()


def serve() -> None:
    command = [sys.executable, "-c", f"{SERVER}time.sleep(1e6)"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    if not server.stdout.readline():
        raise RuntimeError("an earlier start has left its server behind")


def evaluate() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_THIS_ROUND)}
    subprocess.run(EVALUATE, env=environment, check=True)


if __name__ == "__main__":
    main()

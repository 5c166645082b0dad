# SPDX-License-Identifier: Apache-2.0
"""The moments of a process's steps, in a file that the benchmark reads after a change. It runs in the benchmark's pods.

As a script, before the example's own: `torchrun record.py train.py` trains as `torchrun train.py` does. The number of a
step is then the one that the optimizer has, which is a part of the checkpoint.
"""

import os
import runpy
import socket
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import elasticjob_torch


class Record:
    """The file of this process, a write for each line: a killed process has told all that it did."""

    def __init__(self) -> None:
        folder = Path(os.environ["CHECKPOINT_DIR"], "steps")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, step: int) -> None:
        os.write(self._file, f"{time.time():.6f} {what} {step} {elasticjob_torch.current().round}\n".encode())


def applied(optimizer: torch.optim.Optimizer) -> int:
    """How many steps an Adam has behind it."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def main() -> None:
    record = Record()
    register_optimizer_step_pre_hook(lambda optimizer, *_: record.write("begins", applied(optimizer)))
    register_optimizer_step_post_hook(lambda optimizer, *_: record.write("done", applied(optimizer) - 1))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

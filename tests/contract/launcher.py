# SPDX-License-Identifier: Apache-2.0
"""A launcher of its own options on torchrun's parser and agent, as accelerate's `launch` is.

What it has no option for comes from the environment; it always says how many processes and restarts there are to be.
"""

import argparse

from torch.distributed import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_processes", type=int, default=1)
    parser.add_argument("--rdzv_backend", default="static")
    parser.add_argument("--max_restarts", type=int, default=0)
    parser.add_argument("training_script")
    given = parser.parse_args()
    known, _ = run.get_args_parser().parse_known_args(["--", given.training_script])
    for name in ("rdzv_backend", "max_restarts"):
        setattr(known, name, getattr(given, name))
    known.nproc_per_node = str(given.num_processes)
    run.run(known)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""One training process: says that it begins, takes steps with all others until the file `finish` is there, and says
which ranks its node had."""

import json
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    folder, node = Path(os.environ["FOLDER"]), int(os.environ["NODE"])
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    rank, weights = dist.get_rank(), torch.eye(64)
    (folder / f"started-{node}-{os.getpid()}").touch()
    while True:
        ends = torch.tensor([int(rank == 0 and (folder / "finish").exists())])
        dist.all_reduce(ends)
        if ends.item():
            break
        for _ in range(20):  # as a training does: what is cut off is missing
            weights = torch.tanh(weights @ weights)
    nodes: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(nodes, node)
    ranks = [other for other, where in enumerate(nodes) if where == node]
    (folder / f"ended-{node}-{rank}").write_text(json.dumps({"node": node, "rank": rank, "ranks": ranks}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""One node's torchrun: `agent HOST PORT FOLDER NODE PROCESSES`. The folder has what a kubelet puts into a pod."""

import os
import sys
from pathlib import Path

from torch.distributed import run
from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

from contract.overload.inside import NODES
from elasticjob_torch.kubernetes import handler
from elasticjob_torch.kubernetes.access import InClusterConfig


def main(host: str, port: str, folder: str, node: str, processes: str) -> None:
    rendezvous_handler_registry.register("kubernetes", handler.create_handler)
    handler.find_access = lambda: InClusterConfig(host, int(port), Path(folder))  # type: ignore[assignment]
    os.environ.update(FOLDER=folder, NODE=node)
    run.main(
        [
            "--rdzv-backend=kubernetes",
            "--rdzv-endpoint=digits",
            "--rdzv-id=overload",
            "--rdzv-conf=last_call_timeout=60",
            f"--nnodes={len(NODES)}",
            f"--nproc-per-node={processes}",
            f"--local-addr=127.0.0.{int(node) + 1}",
            "--max-restarts=3",
            str(Path(__file__).with_name("worker.py")),
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

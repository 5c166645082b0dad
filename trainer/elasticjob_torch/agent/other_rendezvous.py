# SPDX-License-Identifier: Apache-2.0
"""Ends a torchrun that was started in a worker with another rendezvous than the job's.

Each such worker would train by itself, beside the others and on their checkpoints, while the job waits for all of them.
Options take precedence over the environment by which a job names its rendezvous, so they may come from a script in the
image.

torch loads this package in that torchrun too, see `elasticjob_torch`, so this is cheap to import and needs no torch.
Below a living agent, in the training itself, any rendezvous is allowed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from elasticjob_torch.agent.orphans import agent_above

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOBS_OWN = "elasticjob"
ON_PURPOSE = "env -u PET_RDZV_BACKEND torchrun --standalone --nnodes=1 --max-restarts=0 ..."
STANDALONE, BACKEND = "--standalone", "--rdzv-backend"


def guard(registry: Any) -> None:
    """Have torch's `registry` of rendezvous backends refuse all but the job's when one is to be used.

    torchrun, `elastic_launch` and accelerate look backends up there.
    """
    create = registry.create_handler

    def create_handler(params: Any) -> Any:
        if (refusal := refusal_of(params.backend, sys.argv, os.environ)) is not None:
            raise SystemExit(f"{JOBS_OWN}: {refusal}")
        return create(params)

    registry.create_handler = create_handler


def refusal_of(backend: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return a sentence on why this process must not use that `backend`; None if it may."""
    if backend == JOBS_OWN or environment.get("PET_RDZV_BACKEND") != JOBS_OWN or agent_above(environment):
        return None
    return (
        f"{_chosen_by(backend, arguments, environment)} passes over the job's rendezvous, and this worker would train "
        f"alone: leave it out; a preparation before training may use `{ON_PURPOSE}`"
    )


def _chosen_by(backend: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the option or variable that chose the `backend`, as the user wrote it. argparse accepts the beginning of
    an option for the whole."""
    given = [word.partition("=")[0].replace("_", "-") for word in arguments[1:] if word.startswith("--")]
    if backend == "c10d":  # implied by --standalone, whatever else is given
        if any(STANDALONE.startswith(name) and len(name) > len("--") for name in given):
            return STANDALONE
        if environment.get("PET_STANDALONE", "0") != "0":
            return "PET_STANDALONE in the container's environment"
    if any(BACKEND.startswith(name) and name.startswith("--rdzv-b") for name in given):
        return f"{BACKEND} {backend}"
    program = os.path.basename(arguments[0]) if arguments else ""
    return f"the rdzv_backend {backend!r} of {program or 'this program'}"

# SPDX-License-Identifier: Apache-2.0
"""The private calls of torch that living through a change needs, each with what happens where torch lacks it."""

from __future__ import annotations

from typing import Any

from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

_PARTS = ("_build_params_for_reducer", "_ddp_init_helper", "reducer", "process_group")


def renew(ddp: DistributedDataParallel, options: dict[str, Any]) -> DistributedDataParallel:
    """Return a DDP over the present group: the same object with a new reducer, or else a new object.

    `DistributedDataParallel._update_process_group` is not enough where a member joins. Members that stay would keep the
    order of buckets that they have learned, a newcomer has the first order, and the all-reduce mixes their gradients
    without an error. Without the private parts (another torch) a new DDP is made, a collective; the reducer of the old
    one removes its hooks as it is collected.
    """
    hooks = getattr(getattr(ddp, "reducer", None), "_remove_autograd_hooks", None)
    if hooks is None or not all(hasattr(ddp, part) for part in _PARTS):
        module = ddp.module
        del ddp
        return DistributedDataParallel(module, **options)
    hooks()
    ddp.process_group = distributed_c10d._get_default_group()
    ddp._has_rebuilt_buckets = False
    parameters, sparse = ddp._build_params_for_reducer()
    names = {parameter: name for name, parameter in ddp.module.named_parameters()}
    ddp._ddp_init_helper(
        parameters, sparse, {number: names[one] for number, one in enumerate(parameters)}, ddp.static_graph
    )
    return ddp


def begin_anew(scaler: Any) -> None:
    """Let a `GradScaler` forget that it has unscaled in this step, which would be an error in a step done again.

    Anything else stays as it is. If another torch keeps this elsewhere, the step done again ends with that error.
    """
    stages = getattr(scaler, "_per_optimizer_states", None)
    if isinstance(stages, dict):
        stages.clear()


def subgroups() -> int:
    """Return how many process groups exist beside the whole one; 0 if this torch does not tell."""
    world = getattr(distributed_c10d, "_world", None)
    return max(0, len(getattr(world, "pg_map", ())) - 1)

# SPDX-License-Identifier: Apache-2.0
"""The private calls of torch that living through a change needs, each with what happens where torch lacks it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

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
    getattr(ddp, "_comm_hooks", []).clear()  # they were the old reducer's
    ddp.process_group = distributed_c10d._get_default_group()
    ddp._has_rebuilt_buckets = False
    parameters, sparse = ddp._build_params_for_reducer()
    names = {parameter: name for name, parameter in ddp.module.named_parameters()}
    ddp._ddp_init_helper(
        parameters, sparse, {number: names[one] for number, one in enumerate(parameters)}, ddp.static_graph
    )
    return ddp


# Sets the timeout of the present group's collectives. None if this torch has nothing for that: a group then has one
# timeout, for connecting its members and for their collectives. (`_set_pg_timeout` leaves gloo's as it was.)
set_timeout: Callable[[timedelta], None] | None = getattr(distributed_c10d, "set_timeout", None)


def forget_groups() -> None:
    """Forget that there were groups: torch numbers them, also those that have not formed, and all members have to give
    the next one the same number. Without the private counter (another torch) it goes on."""
    world: Any = getattr(distributed_c10d, "_world", None)
    if hasattr(world, "group_count"):
        world.group_count = 0


def begin_anew(scaler: Any) -> None:
    """Let a `GradScaler` forget that it has unscaled in this step, which would be an error in a step done again.

    Anything else stays as it is. If another torch keeps this elsewhere, the step done again ends with that error.
    """
    stages = getattr(scaler, "_per_optimizer_states", None)
    if isinstance(stages, dict):
        stages.clear()


def aborts_present_group() -> Callable[[], None]:
    """Return what aborts the collectives of the group that is the present one now, and of no other: NCCL's alone.

    Without the private call (another torch) they end with the collective's timeout.
    """
    abort, group = getattr(distributed_c10d, "_abort_process_group", None), distributed_c10d._get_default_group()

    def end() -> None:
        if abort is not None:
            with contextlib.suppress(ValueError):  # it is not there any more
                abort(group)

    return end


def backends() -> list[object]:
    """Return the backends of all groups, which have the groups' threads.

    The end of a backend waits for its threads, and a thread of gloo needs Python to let go of a collective's tensors.
    Where Python drops the last reference, torch lets Python go on meanwhile. Where C++ does, as at the end of a DDP's
    reducer, torch 2.6 does not, and both wait for ever. So these references have to be the last. Without the private
    parts (another torch) the list is empty.
    """
    groups = getattr(getattr(distributed_c10d, "_world", None), "pg_map", ())
    found: list[object] = []
    for group in groups:
        for device in getattr(group, "_device_types", ()):
            with contextlib.suppress(RuntimeError):  # it has none for this device
                found.append(group._get_backend(device))
    return found


def subgroups() -> int:
    """Return how many process groups exist beside the whole one; 0 if this torch does not tell."""
    world = getattr(distributed_c10d, "_world", None)
    return max(0, len(getattr(world, "pg_map", ())) - 1)

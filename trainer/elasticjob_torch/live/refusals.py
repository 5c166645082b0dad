# SPDX-License-Identifier: Apache-2.0
"""Refuses everything that cannot live through a change of the group, with one sentence for each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from elasticjob_torch.live.state import Registry

# Libraries that wrap the model in DDP themselves, and keep rank and size: by module, the attribute that shows their use
_FRAMEWORKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "accelerate.state": ("Accelerate", lambda module: bool(module.PartialState._shared_state)),
    "transformers.trainer": ("transformers' Trainer", lambda module: _has_instance(module.Trainer)),
    "lightning.pytorch.trainer.trainer": ("Lightning", lambda module: _has_instance(module.Trainer)),
    "pytorch_lightning.trainer.trainer": ("Lightning", lambda module: _has_instance(module.Trainer)),
}
_RESTART = "leave elastic() out, and the training restarts from its checkpoint at a change"


class CannotLive(TypeError):
    """This training cannot live through changes. The message is a sentence for the user."""


def refuse(model: Any, optimizer: Any, options: Mapping[str, Any], subgroups: int) -> None:
    """Raises `CannotLive`, which names the object and the remedy, if this training cannot live through changes."""
    if not isinstance(model, torch.nn.Module):
        raise CannotLive(f"elastic(): model must be one torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise CannotLive("elastic(): model is wrapped in DistributedDataParallel; pass the module itself")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise CannotLive(f"elastic(): optimizer must be one torch.optim.Optimizer, not {type(optimizer).__name__}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CannotLive("elastic(): model has no parameter that needs a gradient")
    if name := _sharded(model):
        raise CannotLive(f"elastic(): model is sharded ({name}), and a shard is lost with its process; {_RESTART}")
    if options.get("static_graph"):
        raise CannotLive("elastic(): static_graph cannot be learned anew in a new group; leave it out of ddp=")
    for option in ("process_group", "device_mesh", "mixed_precision"):
        if options.get(option) is not None:
            raise CannotLive(f"elastic(): {option} does not live through a change; leave it out of ddp=")
    if subgroups:
        raise CannotLive(
            f"elastic(): there are {subgroups} process groups beside the whole one; make them in on_change=, which is "
            "called in each new group"
        )
    if torch.distributed.is_initialized():
        raise CannotLive("elastic(): the process group exists already; leave init_process_group() out")
    if framework := _framework():
        raise CannotLive(f"elastic(): {framework} is in use, which keeps rank and size; {_RESTART}")


def refuse_state(registry: Registry) -> None:
    """Raises `CannotLive` if the state of something registered is not of plain types."""
    if name := registry.unreadable():
        raise CannotLive(
            f"elastic(): the state_dict() of {name} has objects of other types than numbers, strings, lists, tuples, "
            "dicts and tensors, and no member reads those from the network; give it such a state_dict()"
        )


def _sharded(model: torch.nn.Module) -> str:
    """Return what shows that the model is sharded; empty if nothing does."""
    for module in model.modules():
        if "FSDP" in type(module).__name__ or type(module).__name__ == "FullyShardedDataParallel":
            return type(module).__name__
    for name, parameter in model.named_parameters():
        if type(parameter.data).__name__ in ("DTensor", "ShardedTensor"):
            return f"{name} is a {type(parameter.data).__name__}"
    return ""


def _framework() -> str:
    for name, (words, is_used) in _FRAMEWORKS.items():
        module = sys.modules.get(name)
        try:
            if module is not None and is_used(module):
                return words
        except Exception:  # noqa: S112 - another version of it, whatever it has become, is not known to be in use
            continue
    return ""


def _has_instance(kind: type[Any]) -> bool:
    import gc

    return any(type(one) is kind or isinstance(one, kind) for one in gc.get_objects())

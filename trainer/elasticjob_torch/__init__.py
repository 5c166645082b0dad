# SPDX-License-Identifier: Apache-2.0
"""The torchrun rendezvous backend "elasticjob", and the functions for training scripts.

torch loads this package through the entry-point group ``torchrun.handlers`` in every process that imports its elastic
agent, whichever backend that process uses. So importing it must be cheap and without side effects: nearly everything
else is imported when a handler is made, or when a script names it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

    from elasticjob_torch.live.group import Group, elastic
    from elasticjob_torch.script.api import Current, current, report, wants_restart

__all__ = ["creator", "Current", "current", "Group", "elastic", "report", "wants_restart"]


def _create(params: RendezvousParameters) -> RendezvousHandler:
    from elasticjob_torch.agent.creation import create_handler
    from elasticjob_torch.warm.launch import switch_on

    return create_handler(params, switch_on)


def creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes the handler; torch calls this once, at import.

    From then on torch refuses any other rendezvous in a worker of a job.
    """
    api = sys.modules.get("torch.distributed.elastic.rendezvous.api")  # loaded wherever torch makes this call
    if api is not None:
        from elasticjob_torch.agent.other_rendezvous import guard

        guard(api.rendezvous_handler_registry)
    return _create


def __getattr__(name: str) -> Any:
    """Import the functions for scripts at their first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home: Any
    if name in ("Group", "elastic"):
        from elasticjob_torch.live import group as home
    else:
        from elasticjob_torch.script import api as home
    value = globals()[name] = getattr(home, name)
    return value

"""The torchrun rendezvous backend "elasticjob".

torch loads this package through the entry-point group ``torchrun.handlers`` in every process that
imports its elastic agent, whichever backend that process uses. So importing it must stay cheap and
free of side effects: everything else is imported when a handler is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

__all__ = ["creator"]


def _create(params: RendezvousParameters) -> RendezvousHandler:
    from elasticjob_torch.handler import create_handler

    return create_handler(params)


def creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes the handler; torch calls this once, at import."""
    return _create

# SPDX-License-Identifier: Apache-2.0
"""The torchrun rendezvous backend "kubernetes": torch's own dynamic rendezvous, kept in a ConfigMap.

For pods without an ElasticJob operator: bare ones, or those of a Job, a JobSet or a StatefulSet. It needs a service
account that may read and write two ConfigMaps, and nothing else. Importing it must be cheap, see `elasticjob_torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

__all__ = ["creator"]


def _create(params: RendezvousParameters) -> RendezvousHandler:
    from elasticjob_torch.kubernetes.handler import create_handler

    return create_handler(params)


def creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes the handler; torch calls this once, at import."""
    return _create

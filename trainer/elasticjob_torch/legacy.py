# SPDX-License-Identifier: Apache-2.0
"""The rendezvous in the shape that it had in torchelastic 0.1 and 0.2, for scripts written against that::

    from elasticjob_torch.legacy import RendezvousHandlerFactory

    handler = RendezvousHandlerFactory().create_rdzv_handler(parameters)
    store, rank, world_size = handler.next_rendezvous()

The rendezvous is that of `elasticjob_torch.agent.creation`; here are only the older names and shapes. The exceptions
are kinds of today's, so that code which catches either works.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
)

from elasticjob_torch.agent.creation import create_handler
from elasticjob_torch.agent.joined import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.distributed import Store

__all__ = [
    "LegacyRendezvousHandler",
    "RendezvousClosedException",
    "RendezvousHandlerFactory",
    "RendezvousNonRetryableError",
    "RendezvousTimeoutException",
]


class RendezvousClosedException(RendezvousClosedError):  # type: ignore[misc]
    """The rendezvous is closed: no worker can join any more."""


class RendezvousTimeoutException(RendezvousTimeoutError):  # type: ignore[misc]
    """No round was formed in time."""


class RendezvousNonRetryableError(RendezvousError):  # type: ignore[misc]
    """Another failure; a retry by this process is useless."""


class LegacyRendezvousHandler:
    """A handler whose `next_rendezvous` returns a tuple, and which raises the older exceptions.

    Raises:
        RendezvousClosedException, RendezvousTimeoutException: by `next_rendezvous`.
        RendezvousNonRetryableError: by `next_rendezvous` and `set_closed`.
        SystemExit: code 0, by `next_rendezvous`, when this worker is scaled away or the job is complete.
    """

    def __init__(self, handler: RendezvousHandler) -> None:
        self._handler = handler

    def next_rendezvous(self) -> tuple[Store, int, int]:
        """Wait for the next round; return its store, this agent's rank, and the number of agents."""
        with _older_errors():
            info = self._handler.next_rendezvous()
        return info.store, info.rank, info.world_size

    def is_closed(self) -> bool:
        return bool(self._handler.is_closed())

    def set_closed(self) -> None:
        with _older_errors():
            self._handler.set_closed()

    def num_nodes_waiting(self) -> int:
        """Return more than 0 when the round in use is no longer the formed one."""
        return int(self._handler.num_nodes_waiting())

    def get_backend(self) -> str:
        return str(self._handler.get_backend())

    def get_run_id(self) -> str:
        return str(self._handler.get_run_id())

    def shutdown(self) -> bool:
        """End this agent's membership; return whether that is recorded."""
        return bool(self._handler.shutdown())


class RendezvousHandlerFactory:
    """Makes handlers by the name of their backend; ``elasticjob`` is registered from the start."""

    def __init__(self) -> None:
        self._creators: dict[str, Callable[[RendezvousParameters], Any]] = {BACKEND: _create}

    def register(self, backend: str, creator: Callable[[RendezvousParameters], Any]) -> None:
        """Add a backend. Raises ValueError if the name is taken."""
        if backend in self._creators:
            raise ValueError(f"the rendezvous backend '{backend}' is registered already; use another name")
        self._creators[backend] = creator

    def create_rdzv_handler(self, params: RendezvousParameters) -> Any:
        """Make the handler for ``params.backend``. Raises ValueError if that is not registered."""
        creator = self._creators.get(params.backend)
        if creator is None:
            known = ", ".join(sorted(self._creators))
            raise ValueError(f"the rendezvous backend '{params.backend}' is not registered; known are: {known}")
        return creator(params)

    create_handler = create_rdzv_handler  # its name in torch 1.8


def _create(params: RendezvousParameters) -> LegacyRendezvousHandler:
    return LegacyRendezvousHandler(create_handler(params))


@contextmanager
def _older_errors() -> Iterator[None]:
    try:
        yield
    except RendezvousClosedError as error:
        raise RendezvousClosedException(str(error)) from error
    except RendezvousTimeoutError as error:
        raise RendezvousTimeoutException(str(error)) from error
    except RendezvousError as error:
        raise RendezvousNonRetryableError(str(error)) from error

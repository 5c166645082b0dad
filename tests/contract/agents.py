# SPDX-License-Identifier: Apache-2.0
"""What an elastic agent does with its rendezvous, without training processes: each is one thread of this process."""

from __future__ import annotations

import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from torch.distributed.elastic.agent.server.api import _TERMINAL_STATE_SYNC_ID
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.utils.store import _barrier_nonblocking

from support.waiting import result_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contract.plane import View

T = TypeVar("T")

SECONDS = 240.0  # as long as `plane.WAIT_SECONDS`, for the same reason


def parameters(pod: View, **config: Any) -> RendezvousParameters:
    """What torchrun makes of the trainer's environment."""
    environment = pod["environment"]
    least, _, most = environment["PET_NNODES"].partition(":")
    return RendezvousParameters(
        backend=environment["PET_RDZV_BACKEND"],
        endpoint=environment["PET_RDZV_ENDPOINT"],
        run_id=environment["PET_RDZV_ID"],
        min_nodes=int(least),
        max_nodes=int(most),
        **{"sidecar_timeout": "30", **config},
    )


class Agent:
    """One agent in the pod `pod`. Its handler is made at once, and used from one thread only, as torch does."""

    def __init__(self, pod: View, **config: Any) -> None:
        self.pod = pod
        self._stopped = False
        self._info: RendezvousInfo | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=pod["name"])
        self._made: Future[RendezvousHandler] = self._thread.submit(get_rendezvous_handler, parameters(pod, **config))

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def handler(self) -> RendezvousHandler:
        return result_of(self._made, SECONDS)

    def do(self, call: Callable[[RendezvousHandler], T]) -> Future[T]:
        return self._thread.submit(lambda: call(self._made.result()))

    def join(self) -> Future[RendezvousInfo]:
        """Ask for the next round."""
        return self.do(self._join)

    def waiting(self) -> int:
        return result_of(self.do(lambda handler: handler.num_nodes_waiting()), SECONDS)

    def succeed(self) -> Future[bool]:
        """End as an agent does whose training processes have succeeded, but without waiting for the others'."""
        return self.do(self._succeed)

    def _join(self, handler: RendezvousHandler) -> RendezvousInfo:
        self._info = handler.next_rendezvous()
        return self._info

    def _succeed(self, handler: RendezvousHandler) -> bool:
        assert self._info is not None
        _barrier_nonblocking(self._info.store, self._info.world_size, _TERMINAL_STATE_SYNC_ID)
        return handler.shutdown()

    def fail(self, error: type[BaseException] = RuntimeError) -> Future[bool]:
        """End as an agent does whose training processes have failed."""
        return self.do(lambda handler: _shut_down(handler, error("the workers failed")))

    def stop(self) -> None:
        """End as after a signal, which announces nothing; more calls do nothing."""
        if self._stopped:
            return
        self._stopped = True
        stopped = SignalException("stopped", signal.SIGTERM)
        self.do(lambda handler: _shut_down(handler, stopped))
        self._thread.shutdown(wait=False)


def _shut_down(handler: RendezvousHandler, error: BaseException) -> bool:
    try:
        raise error  # noqa: TRY301
    except BaseException:
        return handler.shutdown()


def form(agents: Sequence[Agent], seconds: float = SECONDS) -> list[RendezvousInfo]:
    """All join; returns what each was told, in the order of `agents`."""
    joins = [agent.join() for agent in agents]
    return [result_of(join, seconds) for join in joins]


def until(
    condition: Callable[[], T], what: str, seconds: float = SECONDS, seen: Callable[[], object] | None = None
) -> T:
    """Return what `condition` says, as soon as that is true. At the deadline the error tells what `seen` says."""
    return wait_until(what, condition, seconds, seen, pause=0.05)

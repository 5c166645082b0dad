# SPDX-License-Identifier: Apache-2.0
"""Waits for a group's collectives: each wait ends with its collective, or when the group is cut.

gloo does not tell every collective that a connection has ended. It does not tell a collective that has received half a
message. If that collective fails, gloo reads nothing more from its connection, so the other collectives on it are not
told either. So a thread that can be left behind waits for gloo itself.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.futures import Future

log = logging.getLogger(__name__)

THREAD = "elasticjob-collectives"
_CUT = "the process group was cut: a member may be lost"
_SETTLE_SECONDS = 10.0  # for threads that have only to be given a processor
_SETTLE_AGAIN_SECONDS, _ENDED_AGAIN_SECONDS = 0.001, 0.05


@dataclass(frozen=True)
class FailedCollective:
    """The error of a collective. No exception: a future that has one is kept for ever by it, as its traceback has the
    future, of which the garbage collector knows nothing."""

    kind: type[Exception]
    message: str

    def error(self) -> Exception:
        """Return it as it is raised."""
        return self.kind(self.message) if issubclass(self.kind, RuntimeError) else RuntimeError(self.message)


class Collectives:
    """The collectives of one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut = False
        self._waits: set[Future[Any]] = set()
        self._works: queue.SimpleQueue[tuple[Any, Any, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lent: list[weakref.ref[torch.Tensor]] = []

    def wait(self, work: Any, value: torch.Tensor | None = None) -> None:
        """Wait for a collective that was begun with ``async_op=True``; ``value``: where its result comes.

        If the group is cut meanwhile, gloo may go on for a moment to write into its tensors.

        Raises:
            RuntimeError: it failed, or the group was cut.
        """
        if work.is_completed():
            work.wait()  # raises what it failed of
        else:
            value_of(self.future(work, value))

    def future(self, work: Any, value: torch.Tensor | None) -> Future[Any]:
        """Return a future for `value_of`. It has ``value`` once the collective has ended, or the error of `wait`."""
        future: Future[Any] = Future()
        with self._lock:
            if self._cut:
                future.set_result(FailedCollective(RuntimeError, _CUT))
            else:
                self._waits.add(future)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            self._works.put((work, value, future))
        return future

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, for a collective. `settle` waits until gloo has let go of it: who keeps it delays that."""
        self._lent = [one for one in self._lent if one() is not None]
        self._lent.append(weakref.ref(tensor))
        return tensor

    def cut(self) -> None:
        """End all waits, and those to come. May be called from any thread."""
        with self._lock:
            self._cut = True
            waits, self._waits = self._waits, set()
        for future in waits:
            future.set_result(FailedCollective(RuntimeError, _CUT))

    def settle(self) -> None:
        """Return when no thread has anything left to do for the collectives, all of which have ended.

        gloo's threads let go of a tensor after its collective has ended, perhaps much later. They need Python for that,
        as this object's thread does. In a process that ends they find none, and abort the process; and torch 2.6 keeps
        all of Python waiting for them when a group ends.
        """
        thread, deadline = self._close(), time.monotonic() + _SETTLE_SECONDS
        while (thread is not None and thread.is_alive()) or self._is_lent():
            if time.monotonic() > deadline:
                log.warning("threads of the group have more to do after %g s; SIGABRT may follow", _SETTLE_SECONDS)
                return
            time.sleep(_SETTLE_AGAIN_SECONDS)
        if thread is not None:
            thread.join()

    def wait_until_ended(self) -> None:
        """As `settle`, but after a cut: collectives may go on, each until its timeout at the latest."""
        if (thread := self._close()) is not None:
            thread.join()
        while self._is_lent():
            time.sleep(_ENDED_AGAIN_SECONDS)

    def _close(self) -> threading.Thread | None:
        """Let the thread end after the last wait, and return it. A wait that comes later has another one."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._works.put(None)
        return thread

    def _is_lent(self) -> bool:
        return any(one() is not None for one in self._lent)

    def _run(self) -> None:
        while (item := self._works.get()) is not None:
            work, value, future = item
            try:
                work.wait()
                if value is not None and value.is_cuda:  # gloo has copied it back in a stream of its own
                    torch.cuda.current_stream(value.device).synchronize()
            except Exception as error:
                self._end(future, FailedCollective(type(error), str(error)))
            else:
                self._end(future, value)
            del item, work, value, future

    def _end(self, future: Future[Any], result: torch.Tensor | FailedCollective | None) -> None:
        with self._lock:
            if future not in self._waits:
                return  # it was cut
            self._waits.remove(future)
        future.set_result(result)


def value_of(future: Future[Any]) -> Any:
    """Wait for a future of `Collectives`, and return its value, or raise its error."""
    result = future.wait()
    if isinstance(result, FailedCollective):
        raise result.error()
    return result

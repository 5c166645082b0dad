# SPDX-License-Identifier: Apache-2.0
"""Waits for a group's collectives: each wait ends with its collective, or when the group is cut.

gloo does not tell every collective that a connection has ended. One of which half a message has come hears nothing of
it. Nor do the others on a connection of which half a message has come for a collective that has failed: gloo reads
nothing more from it. So gloo itself is waited for in a thread that can be left behind.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from torch.futures import Future

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

THREAD = "elasticjob-collectives"
_CUT = "the process group was cut: a member may be lost"
_SETTLE_SECONDS = 10.0  # for threads that have only to be given a processor
_SETTLE_AGAIN_SECONDS = 0.001


class Collectives:
    """The collectives of one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut = False
        self._open: list[Future[Any]] = []
        self._works: queue.SimpleQueue[tuple[Any, Any, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lent: list[weakref.ref[torch.Tensor]] = []

    def wait(self, work: Any) -> None:
        """Wait for a collective that was begun with ``async_op=True``.

        If the group is cut meanwhile, gloo may go on for a moment to write into its tensors.

        Raises:
            RuntimeError: it failed, or the group was cut.
        """
        if work.is_completed():
            work.wait()  # raises what it failed of
        else:
            self.future(work, None).wait()

    def future(self, work: Any, value: Any) -> Future[Any]:
        """Return a future that has ``value`` once the collective has ended, or the error that `wait` raises."""
        future: Future[Any] = Future()
        with self._lock:
            if self._cut:
                future.set_exception(RuntimeError(_CUT))
                return future
            self._open.append(future)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
        self._works.put((work, value, future))
        return future

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, for a collective that may be the process's last; nobody else may keep it."""
        self._lent = [one for one in self._lent if one() is not None]
        self._lent.append(weakref.ref(tensor))
        return tensor

    def cut(self) -> None:
        """End all waits, and those to come. May be called from any thread."""
        with self._lock:
            self._cut = True
            waiting, self._open = self._open, []
        for future in waiting:
            future.set_exception(RuntimeError(_CUT))

    def close(self) -> None:
        """No wait is to come: the thread ends after the last."""
        self._works.put(None)

    def settle(self) -> None:
        """Return when no thread has anything left to do for the collectives, all of which have ended.

        gloo's threads let go of a tensor after its collective has ended, perhaps much later. They need Python for that,
        as this object's thread does: in a process that ends they find none, and abort the process.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        self.close()
        while self._has_more_to_do():
            if time.monotonic() > deadline:
                log.warning("threads of the group have more to do after %g s; SIGABRT may follow", _SETTLE_SECONDS)
                return
            time.sleep(_SETTLE_AGAIN_SECONDS)
        if self._thread is not None:
            self._thread.join()

    def _has_more_to_do(self) -> bool:
        runs = self._thread is not None and self._thread.is_alive()
        return runs or any(one() is not None for one in self._lent)

    def join(self) -> None:
        """Return when each collective that was waited for has ended, after a cut too: at its timeout at the latest."""
        self.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (item := self._works.get()) is not None:
            work, value, future = item
            try:
                work.wait()
            except RuntimeError as error:
                self._end(future, error)
            else:
                self._end(future, value)
            del item, work, value, future

    def _end(self, future: Future[Any], how: Any) -> None:
        with self._lock:
            if future not in self._open:
                return  # it was cut
            self._open.remove(future)
        if isinstance(how, Exception):
            future.set_exception(how)
        else:
            future.set_result(how)

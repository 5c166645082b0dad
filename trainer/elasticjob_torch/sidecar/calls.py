# SPDX-License-Identifier: Apache-2.0
"""Runs calls that may hang in C++ on a thread of their own, so that the caller never hangs with them.

torch's TCPStore blocks without limit and ignores signals on a connection that stays open but silent. The agent's main
thread therefore waits here, in Python, where a signal or the end of the round interrupts it. A call that hangs keeps
its thread; the thread is a daemon and serves nothing else afterwards. Callers on several threads take turns, as on a
TCPStore itself.

A thread that returns from C++ while Python ends is unwound there, which aborts the process. So the process's end waits
a little for calls in progress.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SLICE_SECONDS = 0.1
_PARTING_SECONDS = 5.0  # for calls in progress when Python ends; a longer one hangs, and does not return then


class Interrupted(Exception):
    """The call was abandoned: the round ended, or the time ran out. Its effect is unknown."""


class _Task(Generic[T]):
    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._result: T | None = None
        self._error: BaseException | None = None
        self.done = threading.Event()
        _under_way.add(self)

    def execute(self) -> None:
        try:
            self._result = self._run()
        except BaseException as error:  # passed to the waiting caller, whatever it is
            self._error = error
        _under_way.discard(self)
        self.done.set()

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


_under_way: set[_Task[Any]] = set()


@atexit.register
def _part() -> None:
    deadline = time.monotonic() + _PARTING_SECONDS
    for task in list(_under_way):
        task.done.wait(max(0.0, deadline - time.monotonic()))


class CallThread:
    """One daemon thread that makes calls in order. It ends with `end`, or when this object is dropped.

    Args:
        has_ended: asked ten times a second during a call; True abandons the call.
    """

    def __init__(self, has_ended: Callable[[], bool]) -> None:
        self._has_ended = has_ended
        self._turn = threading.Lock()
        self._done = threading.Event()  # of the last call
        self._done.set()
        self._tasks: queue.SimpleQueue[_Task[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._tasks,), name="elasticjob-store", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._tasks.put, None).atexit = False

    def call(self, run: Callable[[], T], seconds: float) -> T:
        """Make the call and return its result, or raise its exception.

        Raises:
            Interrupted: the round ended, or the call and the calls before it took more than ``seconds``.
        """
        deadline = time.monotonic() + seconds
        self._await(lambda: self._turn.acquire(timeout=_SLICE_SECONDS), deadline, seconds)
        try:
            if not self._done.is_set():  # it was abandoned, and keeps the thread busy
                raise Interrupted("an earlier call to the store has not returned")
            task = _Task(run)
            self._done = task.done
            self._tasks.put(task)
            self._await(lambda: task.done.wait(_SLICE_SECONDS), deadline, seconds)
        finally:
            self._turn.release()
        return task.outcome()

    def end(self, last: Callable[[], None]) -> None:
        """Run ``last`` when the thread is free, then end the thread; returns at once."""
        self._tasks.put(_Task(last))
        self._tasks.put(None)

    def close(self) -> None:
        """End the thread, and wait for that, unless it is busy with a call that was abandoned."""
        self._tasks.put(None)
        if self._done.is_set():
            self._thread.join()

    def _await(self, came: Callable[[], bool], deadline: float, seconds: float) -> None:
        while not came():
            if self._has_ended():
                raise Interrupted("the round ended")
            if time.monotonic() > deadline:
                raise Interrupted(f"timeout: the store did not answer within {seconds:g} s")


def _work(tasks: queue.SimpleQueue[_Task[Any] | None]) -> None:
    """Run tasks. It refers only to the queue, so that the thread keeps no object alive."""
    while (task := tasks.get()) is not None:
        task.execute()
        del task  # a kept result would keep a store, and its server, alive

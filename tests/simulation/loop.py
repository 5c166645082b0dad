# SPDX-License-Identifier: Apache-2.0
"""An event loop without input or output: time stands still while anything is left to do, then jumps to what is next.

What one process of the simulation does runs in a context of its own, which every task and callback that it makes
inherits. So the loop knows whose each callback is, and a process can be frozen or killed between any two of them.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

START_SECONDS = 1000.0  # where clocks begin: 0 would hide what takes a time for "never"

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
NOBODY = Context()  # of what belongs to no process: API server, network, nodes


class Deadlock(Exception):
    """Nothing is due any more, and what was waited for has not come."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Single-threaded and without sockets; the same calls in the same order give the same history."""

    def __init__(self) -> None:
        super().__init__()
        self._now = START_SECONDS
        self._asked = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # due when, asked for as which
        self.turns = self.tasks_made = 0
        self.set_task_factory(_kept_task)
        self.set_exception_handler(self._on_exception)
        self.failures: list[dict[str, Any]] = []  # what no task and no caller has caught

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As asyncio's own, less what is asked of threads and closed loops."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_outside(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Like `call_later`, for what goes on whatever becomes of the process that asks for it."""
        return self.call_at(self._now + delay, callback, *args, context=NOBODY)

    def add_signal_handler(self, number: int, callback: Callable[..., object], *args: Any) -> None:
        """Of the process that asks for it."""
        process = PROCESS.get()
        assert process is not None
        process.handlers[number] = lambda: callback(*args)

    def remove_signal_handler(self, number: int) -> bool:
        process = PROCESS.get()
        return process is not None and process.handlers.pop(number, None) is not None

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """What is due at the same time happens in the order in which it was asked for, which a heap alone forgets."""
        self._asked += 1
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._asked, timer))
        return timer

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and not process.runs:
                process.hold(handle)
                continue
            self.turns += 1
            handle._run()

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        pass  # it is dropped when it would be due

    def _process_events(self, _: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # there is one thread

    def __del__(self) -> None:
        pass  # it holds nothing that has to be closed


class Process:
    """What one program of the simulation runs: it can be frozen, woken, and killed without a last word."""

    def __init__(self, loop: VirtualLoop, name: str, *, skew: float = 0.0) -> None:
        self.name, self.skew = name, skew
        self.frozen = self.dead = False
        self.woken_at = -1.0
        self.tasks: set[asyncio.Task[Any]] = set()  # else those of a dead process would end when their memory is freed
        self.handlers: dict[int, Callable[[], object]] = {}  # of signals
        self.on_end: list[Callable[[], object]] = []  # called when it has ended, in whichever way
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    @property
    def runs(self) -> bool:
        return not (self.frozen or self.dead)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self._context)

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Soon, as a part of this process: how a signal comes."""
        self._loop.call_soon(callback, *args, context=self._context)

    def signal(self, number: int) -> None:
        """Without a handler it is the end."""
        handler = self.handlers.get(number)
        if handler is None:
            self.kill()
        else:
            self.call(handler)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen, self.woken_at = False, self._loop.time()
        held, self._held = self._held, []
        for handle in held:
            self._loop._ready.append(handle)  # type: ignore[attr-defined]

    def kill(self) -> None:
        """It does nothing any more; what it held open is closed."""
        if self.dead:
            return
        self.dead = True
        self._held = []
        for callback in self.on_end:
            self._loop.call_outside(0, callback)

    def hold(self, handle: asyncio.Handle) -> None:
        if not self.dead:
            self._held.append(handle)


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """Sets of tasks, as asyncio's own, are in the same order for the same seed: not in that of their addresses."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self.number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


def _kept_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    assert isinstance(loop, VirtualLoop)
    loop.tasks_made += 1
    task: asyncio.Task[Any] = _Task(loop.tasks_made, work, loop=loop, **options)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    context = options.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard, context=NOBODY)
    return task

# SPDX-License-Identifier: Apache-2.0
"""Waits of the tests, each with an end: what does not come in time raises `Deadline`, and nothing else does.

A test that fails by it alone is run once more (`support.second_run`), so it may say only that a wait timed out: what
was seen and is wrong is an `AssertionError`. Only the standard library is needed.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import threading
import time
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

T = TypeVar("T")

DEADLINE = 60.0  # for what takes a second at most: met at a third of the speed, beside two processes that compute


class Deadline(Exception):
    """A wait timed out; the message says for what and how long it waited, and what was last seen."""

    def __init__(self, what: str, seconds: float, seen: object = None) -> None:
        super().__init__(f"waited {seconds:g} s for {what}" + ("" if seen is None else f"; last seen: {seen}"))


def wait_until(
    what: str,
    condition: Callable[[], T | None],
    seconds: float = DEADLINE,
    seen: Callable[[], object] | None = None,
    pause: float = 0.01,
) -> T:
    """Return what `condition` gives, as soon as that is true. Raises Deadline, which tells what `seen` gives."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= end:
            raise Deadline(what, seconds, seen() if seen else found)
        time.sleep(pause)
    return found


def settled(value: T, why: str) -> T:
    """`value`, which is read outside of a wait and is final: `why` says what keeps it from moving on.

    An assertion on anything else that moves is one about a moment; `support.moments` finds those.
    """
    assert why
    return value


async def until(
    condition: Callable[[], Any], what: str | None = None, seconds: float = DEADLINE, pause: float = 0.001
) -> Any:
    """Return what `condition`, a coroutine function or another, gives, as soon as that is true.

    Raises Deadline, which without `what` quotes the condition.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if loop.time() >= end:
            raise Deadline(what or _source(condition), seconds, repr(found))
        await asyncio.sleep(pause)


@asynccontextmanager
async def within(what: str, seconds: float = DEADLINE) -> AsyncIterator[None]:
    """What is done in it has this time. Raises Deadline, which names `what` is waited for."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise Deadline(what, seconds) from error
        raise


@contextmanager
def in_time(what: str, seconds: float) -> Iterator[None]:
    """What is done in it takes no longer; it has an end of its own. Raises Deadline."""
    began = time.monotonic()
    yield
    if (took := time.monotonic() - began) > seconds:
        raise Deadline(what, seconds, f"it took {took:.1f} s")


def result_of(future: futures.Future[T], seconds: float = DEADLINE, what: str = "the end of a call") -> T:
    """The result of a call that goes on elsewhere, or its error. Raises Deadline."""
    if not futures.wait([future], seconds).done:
        raise Deadline(what, seconds)
    return future.result()


def acquired(semaphore: threading.Semaphore, what: str, seconds: float = DEADLINE) -> None:
    """Take one from it. Raises Deadline."""
    if not semaphore.acquire(timeout=seconds):
        raise Deadline(what, seconds)


def happened(event: threading.Event, what: str, seconds: float = DEADLINE) -> None:
    """Return when the event is set. Raises Deadline."""
    if not event.wait(seconds):
        raise Deadline(what, seconds)


def joined(thread: threading.Thread, seconds: float = DEADLINE) -> None:
    """Return when the thread has ended. Raises Deadline."""
    thread.join(seconds)
    if thread.is_alive():
        raise Deadline(f"the end of thread {thread.name}", seconds)


def run(command: Sequence[Any], seconds: float = DEADLINE, **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run`, with what the command prints as text, unless `options` say otherwise. Raises Deadline."""
    if not {"stdout", "stderr"} & options.keys():
        options.setdefault("capture_output", True)
    try:
        return subprocess.run(command, text=True, timeout=seconds, check=options.pop("check", False), **options)
    except subprocess.TimeoutExpired as error:
        printed = [
            text.decode(errors="replace") if isinstance(text, bytes) else text or ""
            for text in (error.stdout, error.stderr)
        ]
        raise Deadline(f"the end of {' '.join(map(str, command))}", seconds, "\n".join(printed)) from error


def exit_code(process: Any, seconds: float = DEADLINE) -> int:
    """The exit code of a process, when it has ended. Raises Deadline."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise Deadline(f"the end of {error.cmd}", seconds) from error


def _source(condition: Callable[[], Any]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)

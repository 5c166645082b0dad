# SPDX-License-Identifier: Apache-2.0
"""Requests that are made at once, each in a daemon thread. So an interrupt ends the program even while the API server
does not answer."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

AT_ONCE = 6  # requests at once for one list

A = TypeVar("A")
T = TypeVar("T")


class Pending(Generic[T]):
    """A request that is in progress from its creation."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._error: BaseException | None = None
        self._answer: T
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """Waits for the answer and returns it. Raises what the request raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except BaseException as error:  # raised again where the answer is used
            self._error = error


def each(ask: Callable[[A], T], about: Sequence[A]) -> list[T]:
    """The answers for all items, in their order. Raises the first error."""

    def some(begin: int) -> list[T]:
        return [ask(one) for one in about[begin::AT_ONCE]]

    parts = [Pending(lambda begin=begin: some(begin)) for begin in range(min(AT_ONCE, len(about)))]  # type: ignore[misc]
    answers = [part.result() for part in parts]
    return [answers[index % AT_ONCE][index // AT_ONCE] for index in range(len(about))]

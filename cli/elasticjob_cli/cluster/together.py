# SPDX-License-Identifier: Apache-2.0
"""Requests that are made at once, each in a thread that the end of the program does not wait for, so that an interrupt
ends it while the API server is silent."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

AT_ONCE = 6  # requests about the things of one list

A = TypeVar("A")
T = TypeVar("T")


class Pinged(Generic[T]):
    """A question that was just asked."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._error: BaseException | None = None
        self._answer: T
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """The answer, once it is there. Raises what the question raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except BaseException as error:  # it is raised where the answer is wanted
            self._error = error


def each(ask: Callable[[A], T], about: Sequence[A]) -> list[T]:
    """The answers about all of them, in their order; raises the first error."""

    def some(begin: int) -> list[T]:
        return [ask(one) for one in about[begin::AT_ONCE]]

    parts = [Pinged(lambda begin=begin: some(begin)) for begin in range(min(AT_ONCE, len(about)))]  # type: ignore[misc]
    answers = [part.result() for part in parts]
    return [answers[index % AT_ONCE][index // AT_ONCE] for index in range(len(about))]

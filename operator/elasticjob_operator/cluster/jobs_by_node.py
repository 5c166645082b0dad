# SPDX-License-Identifier: Apache-2.0
"""Which jobs have pods on a node: an event of a node concerns few of the pods that there may be."""

from collections.abc import Iterable
from typing import Generic, TypeVar

J = TypeVar("J", bound=tuple[str, str])


class JobsByNode(Generic[J]):
    """Each node with the jobs of its pods: a job is there once for each of them, so that the last one ends it."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[J, ...]] = {}  # of which most have one: a tuple takes the least memory

    def move(self, job: J, before: str, now: str) -> None:
        """A pod of `job` was on the node `before`, and is on `now`; empty for none."""
        if before == now:
            return
        if before:
            left = list(self._jobs[before])
            left.remove(job)
            self._jobs[before] = tuple(left)
            if not left:
                del self._jobs[before]
        if now:
            self._jobs[now] = (*self._jobs.get(now, ()), job)

    def on(self, nodes: Iterable[str]) -> set[J]:
        return {job for node in nodes for job in self._jobs.get(node, ())}

"""What a trainer printed, and when: the node's clock, which in a local cluster is the test's."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from e2e.kube import Namespace

STEP = re.compile(r"group=(\w+) world_size=(\d+) rank=(\d+) step=(\d+)")


class Line(NamedTuple):
    at: float  # seconds since the epoch
    text: str


class Step(NamedTuple):
    group: str
    world_size: int
    rank: int
    step: int


@dataclass(frozen=True, slots=True)
class TrainerLog:
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, namespace: Namespace, pod: str, container: str, last: int = -1) -> "TrainerLog":
        """The `last` lines, or all; none while the container has not started."""
        options = ["--container", container, "--timestamps", f"--tail={last}"]
        return cls.parse(namespace.try_kubectl("logs", pod, *options).output)

    @classmethod
    def parse(cls, text: str) -> "TrainerLog":
        stamped = (line.split(" ", 1) for line in text.splitlines())
        return cls(tuple(Line(datetime.fromisoformat(at).timestamp(), rest) for at, rest in stamped))

    def when(self, text: str) -> float | None:
        """The moment of the first line with `text` in it."""
        return next((line.at for line in self.lines if text in line.text), None)

    def steps(self, group: str | None = None) -> list[Step]:
        """The steps that were taken, all of them or those in `group`."""
        found = [STEP.search(line.text) for line in self.lines]
        steps = [Step(one[1], int(one[2]), int(one[3]), int(one[4])) for one in found if one]
        return [step for step in steps if group in (None, step.group)]

"""What a trainer printed, and when: the node's clock, which in a local cluster is the test's."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from e2e.api import ask
from e2e.kube import Namespace

STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\S+) (.*)")
STEP = re.compile(r"group=(\w+) world_size=(\d+) rank=(\d+) step=(\d+)")
COMPLETE = "Rendezvous complete for workers"  # of an agent, with LOGLEVEL=INFO
# of examples/digits, which only rank 0 prints
STARTED = re.compile(r"started: world_size=(\d+) ")
EPOCH = re.compile(r"epoch \d+/\d+ world_size=")


class Line(NamedTuple):
    at: float  # seconds since the epoch
    text: str


class Step(NamedTuple):
    group: str
    world_size: int
    rank: int
    step: int


class Group(NamedTuple):
    """A group of workers of examples/digits, as its rank 0 tells of it."""

    started: float
    world_size: int
    first_epoch: float = math.inf  # its end; all workers take part in each of its steps

    @property
    def trained(self) -> bool:
        return math.isfinite(self.first_epoch)


@dataclass(frozen=True, slots=True)
class TrainerLog:
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, namespace: Namespace, pod: str, container: str, last: int = -1) -> "TrainerLog":
        """The `last` lines, or all; none while the container has not started, or nobody answers."""
        tail = {} if last < 0 else {"tailLines": last}
        path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/log"
        return cls.parse(ask(path, container=container, timestamps="true", **tail) or "")

    @classmethod
    def parse(cls, text: str) -> "TrainerLog":
        """Lines of `kubectl logs --timestamps`. A progress bar makes several of one, and only the first is stamped."""
        found = (STAMPED.fullmatch(line) for line in text.splitlines())
        return cls(tuple(Line(datetime.fromisoformat(one[1]).timestamp(), one[2]) for one in found if one))

    def when(self, text: str) -> float | None:
        """The moment of the first line with `text` in it."""
        return next((line.at for line in self.lines if text in line.text), None)

    def steps(self, group: str | None = None) -> list[Step]:
        """The steps that were taken, all of them or those in `group`."""
        found = [STEP.search(line.text) for line in self.lines]
        steps = [Step(one[1], int(one[2]), int(one[3]), int(one[4])) for one in found if one]
        return [step for step in steps if group in (None, step.group)]

    def groups(self) -> list[Group]:
        """The groups that this worker led as rank 0 of examples/digits, the oldest first."""
        led: list[Group] = []
        for line in self.lines:
            if started := STARTED.match(line.text):
                led.append(Group(line.at, int(started[1])))
            elif led and not led[-1].trained and EPOCH.match(line.text):
                led[-1] = led[-1]._replace(first_epoch=line.at)
        return led

# SPDX-License-Identifier: Apache-2.0
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
# of an agent, with LOGLEVEL=INFO
RESTARTS = "will restart worker group"
JOINS = "Rendezvous'ing worker group"
COMPLETE = "Rendezvous complete for workers"
# of the plug-in
IN_ROUND = re.compile(r"elasticjob: round \d+: rank ")
PRESTARTED = re.compile(r"elasticjob: prestarted for the (first|next) round")
ASKS = "elasticjob: asking for the next round"  # if that had to wait for its processes
WARM = re.compile(r"process \d+ starts warm")
# of the examples: what only rank 0 prints, and what each process of examples/digits does
STARTED = re.compile(r"started: world_size=(\d+) ")
EPOCH = re.compile(r"(?:epoch|step) \d+/\d+ world_size=")
FIRST_STEP = re.compile(r"rank (\d+) of (\d+): first step: (.*)")
PART = re.compile(r"([\w ]+) ([\d.]+) s(?:, |$)")


class Line(NamedTuple):
    at: float  # seconds since the epoch
    text: str


class Step(NamedTuple):
    group: str
    world_size: int
    rank: int
    step: int


class Group(NamedTuple):
    """A group of workers of an example, as its rank 0 tells of it."""

    started: float
    world_size: int
    first_epoch: float = math.inf  # its end; all workers take part in each of its steps

    @property
    def trained(self) -> bool:
        return math.isfinite(self.first_epoch)


class FirstStep(NamedTuple):
    """When a process of examples/digits had done its first step, and the seconds of what it did before, in order."""

    at: float
    rank: int
    world_size: int
    parts: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrainerLog:
    lines: tuple[Line, ...]

    @classmethod
    def read(
        cls, namespace: Namespace, pod: str, container: str, last: int = -1, previous: bool = False
    ) -> "TrainerLog":
        """The `last` lines, or all; none while the container has not started, or nobody answers.

        `previous` are those of the container before it was started again.
        """
        options = ({"tailLines": last} if last >= 0 else {}) | ({"previous": "true"} if previous else {})
        path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/log"
        return cls.parse(ask(path, container=container, timestamps="true", **options) or "")

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

    def is_prestarted(self) -> bool:
        """Whether this worker's processes for the next round are ready, in a job with `warmRestart`."""
        last = [line.text for line in self.lines if PRESTARTED.match(line.text) or IN_ROUND.match(line.text)][-1:]
        return any(map(PRESTARTED.match, last))

    def groups(self) -> list[Group]:
        """The groups that this worker led as rank 0 of an example, the oldest first."""
        led: list[Group] = []
        for line in self.lines:
            if started := STARTED.match(line.text):
                led.append(Group(line.at, int(started[1])))
            elif led and not led[-1].trained and EPOCH.match(line.text):
                led[-1] = led[-1]._replace(first_epoch=line.at)
        return led

    def first_steps(self) -> list[FirstStep]:
        """Of all processes of examples/digits that ran here, the oldest first."""
        found = ((line.at, FIRST_STEP.fullmatch(line.text)) for line in self.lines)
        parts = ((at, one, dict(PART.findall(one[3]))) for at, one in found if one)
        return [
            FirstStep(at, int(one[1]), int(one[2]), {name: float(took) for name, took in named.items()})
            for at, one, named in parts
        ]

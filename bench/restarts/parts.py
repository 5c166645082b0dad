# SPDX-License-Identifier: Apache-2.0
"""The first step of a new group, and where the time before it went: from the logs of its members, whatever the side.

Parts follow each other and add up to the whole. Each ends when the last of those whom it concerns is through:

    told                 the survivors' agents know that their round is over
    stopped              they have ended their training processes
    joined               the newcomers' agents ask for a round: pod and torchrun are there, and what is imported before
    agreed               all agents are out of their rendezvous
    process              all training processes are through the head of the script, which is mostly imports
    ...                  what the script itself tells of its own time until its first step, in its words

One that nobody's log shows is left out, and its time is in the next.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from e2e.trainer_log import ASKS, COMPLETE, JOINS, RESTARTS, WARM, FirstStep, Line, TrainerLog

TOLD = re.compile(rf"{RESTARTS}|closing signal SIG|Rendezvous\w*Error")


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the new group: what its trainer printed since the cause, and its first step."""

    lines: Sequence[Line]
    is_new: bool
    step: FirstStep

    def told(self) -> float | None:
        return None if self.is_new else self._first(TOLD)

    def stopped(self) -> float | None:
        told = self.told()
        return None if told is None else self._first(re.compile(JOINS), since=told)

    def joined(self) -> float | None:
        if not self.is_new:
            return None
        return self._first(re.compile(ASKS)) or self._first(re.compile(JOINS))

    def agreed(self) -> float | None:
        """The last time before its step: a group may have failed in between."""
        return max((line.at for line in self.lines if COMPLETE in line.text and line.at < self.step.at), default=None)

    def is_warm(self) -> bool:
        """Whether its process was a prestarted one."""
        return any(WARM.search(line.text) for line in self.lines if line.at < self.step.at)

    def own(self) -> dict[str, float]:
        """When the script began, as `process`, and when it was through each of its own parts."""
        took = self.step.parts
        began = self.step.at - sum(took.values())
        return dict(zip(["process", *took], accumulate(took.values(), initial=began), strict=True))

    def _first(self, wanted: re.Pattern[str], since: float = 0.0) -> float | None:
        return next((line.at for line in self.lines if line.at >= since and wanted.search(line.text)), None)


@dataclass(frozen=True, slots=True)
class Restart:
    """How a new group came to its first step, in seconds since the cause or the newcomers' join.

    Of a training that lives through the change, `seconds` is the longest time in which nobody took a step.
    """

    seconds: float
    parts: dict[str, float]
    from_join: float | None = None  # None without newcomers
    warm: int = 0  # members whose processes were prestarted ones
    steps_redone: int | None = None  # that an earlier group had begun; None where processes do not record their steps
    # of a training that lives through the change
    all_seconds: float | None = None  # from the cause until every member of the new group has taken a step
    lived: int | None = None  # processes that have taken steps before and after


def new_group(logs: Mapping[str, TrainerLog], size: int, since: float) -> dict[str, FirstStep] | None:
    """The first whole group of `size` that took a step after `since`: its members' first steps by pod."""
    found = [(step, pod) for pod, log in logs.items() for step in log.first_steps() if step.at > since]
    members: dict[int, tuple[str, FirstStep]] = {}
    for step, pod in sorted(found, key=lambda one: one[0].at):
        if step.world_size != size:
            continue
        members = {rank: one for rank, one in members.items() if one[0] != pod} | {step.rank: (pod, step)}
        if len(members) == size:
            return dict(members.values())
    return _started(logs, size, since)


def _started(logs: Mapping[str, TrainerLog], size: int, since: float) -> dict[str, FirstStep] | None:
    """Of a script that tells of no first steps: when its rank 0 said that it has started, and has trained since."""
    if any(log.first_steps() for log in logs.values()):
        return None
    groups = [(group, pod) for pod, log in logs.items() for group in log.groups()]
    found = [one for one in groups if one[0].started > since and one[0].world_size == size and one[0].trained]
    if not found:
        return None
    group, pod = min(found)
    return {pod: FirstStep(group.started, 0, size, {})}


def restart(
    logs: Mapping[str, TrainerLog], group: Mapping[str, FirstStep], survivors: Iterable[str], cause: float
) -> Restart:
    """What became of `group` since the cause; `survivors` are pods that were there before and stay."""
    old = set(survivors)
    members = [
        Member([line for line in logs[pod].lines if line.at >= cause], pod not in old, step)
        for pod, step in group.items()
    ]
    first_step = max(member.step.at for member in members)
    joined = latest(member.joined() for member in members)
    from_join = None if joined is None else first_step - joined
    warm = sum(member.is_warm() for member in members)
    return Restart(first_step - cause, split(cause, moments(members)), from_join, warm)


def moments(members: Sequence[Member]) -> dict[str, float]:
    """When the last was through each part that is seen, in their order: newcomers may join before others are told."""
    of_agents = {
        "told": latest(member.told() for member in members),
        "stopped": latest(member.stopped() for member in members),
        "joined": latest(member.joined() for member in members),
    }
    own = [member.own() for member in members]
    seen = {name: at for name, at in of_agents.items() if at is not None}
    found = dict(sorted(seen.items(), key=lambda one: one[1]))
    if (agreed := latest(member.agreed() for member in members)) is not None:
        found["agreed"] = agreed
    return found | {name: max(one[name] for one in own if name in one) for name in own[0]}


def split(cause: float, reached: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each part; one that ended before the part ahead of it took none."""
    ends = list(accumulate(reached.values(), max, initial=cause))
    return {name: end - begin for name, begin, end in zip(reached, ends, ends[1:], strict=False)}


def latest(found: Iterable[float | None]) -> float | None:
    return max((at for at in found if at is not None), default=None)

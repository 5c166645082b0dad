# SPDX-License-Identifier: Apache-2.0
"""What a change cost in steps: from the lines that record.py has written.

A round does those steps again that an earlier round had begun, from its own first one on. A step that one member had
applied before the group broke is not: the others receive that member's state, and go on with the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from e2e.kind_machines import CHECKPOINTS, CONTROL_PLANE
from e2e.kube import succeed
from e2e.trainer_log import FirstStep
from restarts.parts import Restart

BEGINS, DONE = "begins", "done"
BEFORE_SECONDS = 20.0  # before the cause: the last steps of the group that was


class Moment(NamedTuple):
    """A process begins a step, or has done it; the seconds are since the epoch."""

    at: float
    process: str
    what: str
    step: int
    round: int


def read(namespace: str, since: float) -> list[Moment]:
    """All moments of a job's processes since then, in order. Raises Failed."""
    # by a node that no cause stops
    folder = f"{CHECKPOINTS}/{namespace}/steps"
    newer = f"cd {folder} && awk '$1 >= {since:.6f} {{print FILENAME, $0}}' *"
    return parse(succeed("docker", "exec", CONTROL_PLANE, "sh", "-c", newer))


def parse(text: str) -> list[Moment]:
    """Of lines with process, moment, what happened, step and round. A line that is not whole is left out."""
    whole = (words for line in text.splitlines() if len(words := line.split()) == len(Moment._fields))
    return sorted(Moment(float(at), process, what, int(step), int(number)) for process, at, what, step, number in whole)


def change(moments: Sequence[Moment], group: Mapping[str, FirstStep], cause: float) -> Restart:
    """What a change cost, from the cause until every member of the new group has taken a step."""
    end = max(step.at for step in group.values())
    return Restart(
        longest_pause(moments, cause, end),
        parts={},
        steps_redone=steps_redone(moments, cause, end),
        all_seconds=end - cause,
        lived=lived(moments, cause, end),
    )


def longest_pause(moments: Iterable[Moment], since: float, until: float) -> float:
    """The longest time without a step of anybody, of those that reach into the time between the two moments."""
    done = [one.at for one in moments if one.what == DONE]
    return max(after - before for before, after in pairwise(done) if after > since and before < until)


def steps_redone(moments: Iterable[Moment], since: float, until: float) -> int:
    """Steps that an earlier round had begun, of all rounds that begin their first step between the two moments."""
    furthest: dict[int, int] = {}  # the last step that was begun, by round
    again = 0
    for one in moments:
        if one.what != BEGINS or one.at > until:
            continue
        if one.round not in furthest and one.at > since:
            before = max((step for number, step in furthest.items() if number < one.round), default=-1)
            again += max(0, before + 1 - one.step)
        furthest[one.round] = max(furthest.get(one.round, -1), one.step)
    return again


def lived(moments: Iterable[Moment], since: float, until: float) -> int:
    """The processes that have done steps before the first moment, and in the last round until the second one."""
    done = [one for one in moments if one.what == DONE and one.at <= until]
    last = max(one.round for one in done)
    return len({one.process for one in done if one.at <= since} & {one.process for one in done if one.round == last})

# SPDX-License-Identifier: Apache-2.0
"""What happens to a job that trains."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from cluster_rounds.digits import NotTraining, Training

from e2e.diagnosis import SYSTEM
from e2e.disruption import paused_node, signal_worker_process
from e2e.job import TRAINER
from e2e.operator import lead_from_elsewhere
from restarts.examples import SIDES as EXAMPLES


class Strike(NamedTuple):
    """When it happened, in seconds since the epoch, and to which pod if it is none of the next group."""

    at: float
    lost: str = ""


class Cause(NamedTuple):
    """The workers before and after, and what does it; `undo` ends what lasts. `alone`: the job is not used before or
    after it."""

    before: int
    after: int
    strike: Callable[[Training, ExitStack], Strike]
    alone: bool = False


def scale(training: Training, undo: ExitStack, replicas: int) -> Strike:
    return kubectl(training, training.scale(replicas))


def kill_process(training: Training, undo: ExitStack) -> Strike:
    """Not rank 0's."""
    return Strike(signal_worker_process(training.another(), TRAINER))


def lose_node(training: Training, undo: ExitStack) -> Strike:
    """It stands still, with one of two members: not that beside which a spare is, nor pod 0, where c10d's store is.
    Raises NotTraining where the scheduler has put them otherwise."""
    pods = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in training.pods()}
    members = [name for name in pods if training.logs()[name].first_steps()]
    staying = [name for name in pods if name not in members] or members[:1]
    lost = [name for name in members if pods[name] not in {pods[one] for one in staying}]
    if len(members) != 2 or len(lost) != 1:
        raise NotTraining(f"no node has one of two members, and nobody who has to stay: {pods}")
    node = pods[lost[0]]
    lead_from_elsewhere(SYSTEM, node)
    training.unreachable.add(node)
    undo.enter_context(paused_node(node))
    return Strike(time.time(), lost[0])


def delete_pod(training: Training, undo: ExitStack) -> Strike:
    """Not rank 0's."""
    lost = training.another()["metadata"]["name"]
    return kubectl(training, ["delete", "pod", lost, "--wait=false"])._replace(lost=lost)


def kubectl(training: Training, command: list[str]) -> Strike:
    at = time.time()
    training.namespace.kubectl(*command)
    return Strike(at)


# in an order that brings the job back to where it began
CHANGES = {
    "scale-down": Cause(4, 3, partial(scale, replicas=3)),
    "process-killed": Cause(3, 3, kill_process),
    "pod-deleted": Cause(3, 3, delete_pod),
    "scale-up": Cause(3, 4, partial(scale, replicas=4)),
}
NODE = "node-lost"
OF_AN_EXAMPLE = {"process-killed": Cause(2, 2, kill_process), "scale-down": Cause(2, 1, partial(scale, replicas=1))}


def causes_of(side: str) -> Mapping[str, Cause]:
    """A lost node is for those with a spare, and for c10d, which goes on without the worker. The frameworks' imports
    are many: two workers at most share two cores."""
    if side in EXAMPLES:
        return OF_AN_EXAMPLE
    if side.endswith("spare"):
        return {"pod-deleted": CHANGES["pod-deleted"], NODE: Cause(2, 2, lose_node, alone=True)}
    return {**CHANGES, NODE: Cause(2, 1, lose_node, alone=True)} if side.startswith("c10d") else CHANGES

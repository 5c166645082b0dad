# SPDX-License-Identifier: Apache-2.0
"""What happens to a job that trains."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from cluster_rounds.digits import NotTraining, Training

from e2e.diagnosis import SYSTEM
from e2e.disruption import paused_node, signal_worker_process, uncordon
from e2e.job import TRAINER
from e2e.kube import ENVIRONMENT, wait_until
from e2e.operator import lead_from_elsewhere
from e2e.trainer_log import FirstStep
from restarts.examples import SIDES as EXAMPLES
from restarts.parts import new_group

DRAINED_SECONDS = 60  # for kubectl drain to end, once the group has changed
SMALLER_SECONDS = 60  # for the others to train on without a worker


class Strike(NamedTuple):
    """When it happened, in seconds since the epoch, and to which pod if it is none of the next group."""

    at: float
    lost: str = ""


class Cause(NamedTuple):
    """The workers before and after, and what does it; `undo` ends what lasts. `alone`: the job is not used before or
    after it. `job`: the side whose job it is, where that is not the row's."""

    before: int
    after: int
    strike: Callable[[Training, ExitStack], Strike]
    alone: bool = False
    job: str = ""


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


def let_in_a_replacement(training: Training, undo: ExitStack) -> Strike:
    """Of a deleted pod. It begins once the others train without it, as processes do that live through changes."""
    others = (len(training.pods()) - 1) * training.side.processes
    lost = delete_pod(training, undo)

    def trains() -> dict[str, FirstStep] | None:
        training.read()
        return new_group(training.logs(), others, lost.at)

    smaller = wait_until(f"{others} workers that train without {lost.lost}", trains, SMALLER_SECONDS)
    return lost._replace(at=max(step.at for step in smaller.values()))


def drain_node(training: Training, undo: ExitStack) -> Strike:
    """`kubectl drain` of the job's pods, on the node that has the fewest of them. Raises NotTraining where one node has
    all."""
    pods = Counter(pod["spec"]["nodeName"] for pod in training.pods())
    if len(pods) < 2:
        raise NotTraining(f"one node has all workers, and nobody would live through its drain: {dict(pods)}")
    node = min(sorted(pods), key=pods.__getitem__)
    at = time.time()
    undo.enter_context(draining(node))
    return Strike(at)


@contextmanager
def draining(node: str) -> Iterator[None]:
    """It goes on meanwhile, and is waited for; then the node takes pods again."""
    options = ["--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=elasticjob.io/job"]
    with subprocess.Popen(
        ["kubectl", "drain", node, *options], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as drain:
        try:
            yield
            wait_until(f"kubectl drain {node} to end", lambda: drain.poll() is not None, DRAINED_SECONDS)
            if drain.returncode:
                raise NotTraining(f"kubectl drain {node} ended with code {drain.returncode}")
        finally:
            drain.kill()
            uncordon(node)


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


# of processes that live through changes, in such an order that two nodes have workers before the drain
LIVE = {
    "scale-down": CHANGES["scale-down"],
    "process-killed": CHANGES["process-killed"],
    "pod-deleted": CHANGES["pod-deleted"],
    "replacement": Cause(3, 3, let_in_a_replacement),
    "drain": Cause(3, 3, drain_node),
    "scale-up": CHANGES["scale-up"],
    NODE: Cause(2, 1, lose_node, alone=True),
    "pod-deleted-at-minimum": Cause(3, 3, delete_pod, alone=True, job="live_spare"),
}


def causes_of(side: str) -> Mapping[str, Cause]:
    """A lost node is for those with a spare, and for those that go on without the worker: c10d, and processes that live
    through changes. The frameworks' imports are many: two workers at most share two cores."""
    if side == "live":
        return LIVE
    if side in EXAMPLES:
        return OF_AN_EXAMPLE
    if side.endswith("spare"):
        return {"pod-deleted": CHANGES["pod-deleted"], NODE: Cause(2, 2, lose_node, alone=True)}
    return {**CHANGES, NODE: Cause(2, 1, lose_node, alone=True)} if side.startswith("c10d") else CHANGES

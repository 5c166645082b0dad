# SPDX-License-Identifier: Apache-2.0
"""A step of a job takes time in proportion to its workers, whatever they do: while one of thousands is quadratic, the
event loop stands still and the Lease is lost."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from support.operator_objects import Object, pod, record, trainer
from support.operator_objects import job as job_of
from support.recorded_job import KEY, RecordedJob, reconciler

FEW, TIMES = 128, 8
RUNS = "2026-01-02T03:04:05Z"
MOST = 2.5  # times as long for each worker; if each looked at all others, it would be 8

Made = Callable[[int], tuple[list[Object], list[Object]]]


def of_status(request: Object | None = None, **status: Any) -> Made:
    """Pods with this status, each on a node of its own, and records with this request."""

    def make(size: int) -> tuple[list[Object], list[Object]]:
        said = {"request": request} if request else {}
        pods = [pod(index, **status) for index in range(size)]
        for index, one in enumerate(pods):
            one["spec"]["nodeName"] = f"n{index}"
        return pods, [record(index, **said) for index in range(size)]

    return make


def running(**request: Any) -> Made:
    ready = [{"type": "Ready", "status": "True"}]
    states = [trainer(running={"startedAt": RUNS})]
    return of_status(request or None, phase="Running", containerStatuses=states, conditions=ready)


def invalid(size: int) -> tuple[list[Object], list[Object]]:
    return running()(size)[0], [record(index, address="nonsense") for index in range(size)]


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
JOINED = running(type="Join", after=0, cause="Started")
FAILED = of_status(phase="Failed", containerStatuses=[trainer(terminated={"exitCode": 1})])
# one after the other; the last is measured
SITUATIONS: dict[str, list[Made]] = {
    "no pod yet": [lambda _: ([], [])],
    "pending": [of_status(phase="Pending")],
    "unschedulable": [of_status(phase="Pending", conditions=[UNSCHEDULABLE])],
    "silent": [running()],
    "joined": [JOINED],
    "joined again": [JOINED, running(type="Join", after=1, cause="WorkerFailed")],
    "crashing": [
        of_status(
            phase="Running",
            containerStatuses=[trainer(3, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1})],
        )
    ],
    "failed": [JOINED, FAILED],
    "finished": [JOINED, of_status({"type": "Finish", "round": 1, "stage": 1}, phase="Succeeded")],
    "invalid": [invalid],
}


async def seconds(size: int, situations: list[Made], *, drained: bool) -> float:
    """Processor time of a step that finds all as it was before. `drained`: every node is."""
    recorded = RecordedJob(job_of(replicas=size, minReplicas=size, maxReplicas=size))
    if drained:
        taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        recorded.nodes_there = [
            {"metadata": {"name": f"n{index}"}, "spec": {"taints": taints}} for index in range(size)
        ]
    made, took = reconciler(recorded), list[float]()
    for make in situations:
        recorded.there, recorded.records = make(size)
        await made._memories._reflector.list_all(anew=True)
        for _ in range(3):
            recorded.now += 1.0
            began = time.thread_time()
            await made.reconcile(KEY)
            took.append(time.thread_time() - began)
    return min(took[-2:])


@pytest.mark.parametrize(
    ("situation", "drained"),
    [*((one, False) for one in SITUATIONS), ("silent", True), ("joined", True), ("failed", True)],
)
async def test_a_step_takes_time_in_proportion_to_its_workers(situation: str, drained: bool) -> None:
    few, many = [await seconds(size, SITUATIONS[situation], drained=drained) for size in (FEW, FEW * TIMES)]
    assert many < MOST * TIMES * few, f"{FEW} workers take {1000 * few:.1f} ms, {TIMES} times as many {1000 * many:.1f}"

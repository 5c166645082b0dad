# SPDX-License-Identifier: Apache-2.0
"""A step of a job takes time in proportion to its workers, whatever they do: while one of thousands is quadratic, the
event loop stands still and the Lease is lost."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from support.operator_objects import ID, Object, pod, record, trainer
from support.operator_objects import job as job_of
from support.recorded_job import KEY, RecordedJob, reconciler

FEW, TIMES = 128, 8
RUNS = "2026-01-02T03:04:05Z"
MOST = 2.5  # times as long for each worker; if each looked at all others, it would be 8

Made = Callable[[int], tuple[list[Object], list[Object]]]


def of_status(request: Object | None = None, **status: Any) -> Made:
    """Pods with this status, and records with this request."""

    def make(size: int) -> tuple[list[Object], list[Object]]:
        said = {"request": request} if request else {}
        return [pod(index, **status) for index in range(size)], [record(index, **said) for index in range(size)]

    return make


def running() -> Object:
    ready = [{"type": "Ready", "status": "True"}]
    return {"phase": "Running", "containerStatuses": [trainer(running={"startedAt": RUNS})], "conditions": ready}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
SITUATIONS = {
    "no pod yet": lambda _: ([], []),
    "pending": of_status(phase="Pending"),
    "unschedulable": of_status(phase="Pending", conditions=[UNSCHEDULABLE]),
    "silent": of_status(**running()),
    "joined": of_status({"type": "Join", "after": 0, "cause": "Started"}, **running()),
    "crashing": of_status(
        phase="Running", containerStatuses=[trainer(3, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1})]
    ),
    "failed": of_status(phase="Failed", containerStatuses=[trainer(terminated={"exitCode": 1})]),
    "finished": of_status({"type": "Finish", "round": 1, "stage": 1}, phase="Succeeded"),
    "invalid": lambda size: (
        [pod(index, **running()) for index in range(size)],
        [record(index, address="nonsense", id=ID) for index in range(size)],
    ),
}


async def seconds(size: int, make: Made) -> float:
    """Processor time of a step that finds all as it was before, or replaced."""
    recorded = RecordedJob(job_of(replicas=size, minReplicas=size, maxReplicas=size))
    made, took = reconciler(recorded), []
    for _ in range(4):
        recorded.there, recorded.records = make(size)
        recorded.now += 1.0
        began = time.thread_time()
        await made.reconcile(KEY)
        took.append(time.thread_time() - began)
    return min(took[1:])


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_a_step_takes_time_in_proportion_to_its_workers(situation: str) -> None:
    few, many = [await seconds(size, SITUATIONS[situation]) for size in (FEW, FEW * TIMES)]
    assert many < MOST * TIMES * few, f"{FEW} workers take {1000 * few:.1f} ms, {TIMES} times as many {1000 * many:.1f}"

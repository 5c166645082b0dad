# SPDX-License-Identifier: Apache-2.0
"""The operator's process: it stands by, waits for the CRDs, and ends its execution with a lost Lease."""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elasticjob_operator import app, loop_watch, metrics
from elasticjob_operator.cluster import leader
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.options import parse
from support.operator_metrics import forget_term
from support.operator_objects import job
from support.ports import free_port
from support.recording_server import RecordingServer
from support.waiting import until, within

LEASE = "leases/elasticjob-operator"


@pytest.fixture(autouse=True)
def process_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It keeps its signals, and its metrics forget the term."""
    monkeypatch.setattr(app, "hold_signals", lambda: None)
    monkeypatch.setattr(app, "hear_signals", lambda _: None)
    yield
    forget_term()


async def test_a_lost_lease_ends_all_work_and_the_execution(
    leases: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms: list[asyncio.Task[None]] = []

    async def work(*_: object) -> None:
        this = asyncio.current_task()
        assert this is not None
        terms.append(this)
        await asyncio.Event().wait()

    async def connect() -> Kube:
        return leases.client()

    monkeypatch.setattr(app, "_work", work)
    monkeypatch.setattr(Kube, "connect", connect)
    options = parse(["--sidecar-image=x", "--lease-namespace=ops", "--health-port=18399"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    await until(lambda: terms)
    leases.network.open.clear()
    async with within("the end of the execution"):
        assert await running is app.End.LEASE_LOST
    assert terms[0].cancelled()
    leases.network.open.set()
    running = asyncio.create_task(app.run(options))
    await until(lambda: len(terms) == 2)
    running.cancel()
    assert await running is app.End.SIGNAL
    assert (
        leases.objects[LEASE]["spec"] | {"holderIdentity": "", "leaseTransitions": 2} == leases.objects[LEASE]["spec"]
    )


async def test_crds_that_come_late_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "CRDS_SECONDS", 0.05)
    api = RecordingServer()
    crds = [api.served.popitem() for _ in ("elasticworkers", "elasticjobs")]
    waiting = asyncio.create_task(app.until_served(api.client()))
    await until(lambda: caplog.messages)
    assert caplog.messages[0] == "the API server does not serve elasticjobs and elasticworkers: waiting for the CRDs"
    api.served.update([crds.pop()])
    await until(lambda: "the API server does not serve elasticworkers: waiting for the CRDs" in caplog.messages)
    api.served.update(crds)
    async with within("the CRDs to be served"):
        await waiting


@asynccontextmanager
async def operator(api: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["asyncio.Task[app.End]"]:
    """The whole of it, with kopf, beside one job."""

    async def connect() -> Kube:
        return api.client()

    quick = leader.LeaseTimes(renew=0.01, request=5.0, lost_after=20.0, duration=25.0)
    monkeypatch.setattr(leader, "times_of", lambda _: quick)
    monkeypatch.setattr(Kube, "connect", connect)
    api.objects["elasticjobs/digits"] = job()
    options = parse(["--sidecar-image=x", "--lease-namespace=ml", f"--health-port={free_port()}"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait({running})


def awaited() -> float:
    return next(metric.samples[0].value for metric in metrics.JOBS_AWAITING_STEP.collect())


def take_lease(api: RecordingServer, holder: str) -> None:
    with api.objects.edited(LEASE) as lease:
        lease["spec"] |= {"holderIdentity": holder, "leaseDurationSeconds": leader.LONGEST_SECONDS}


async def test_a_signal_while_a_lost_term_ends_ends_the_process(
    api: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf takes signals for itself; the pod would hang in Terminating until it is killed."""

    class Stopping(app.WorkQueue[Any]):
        async def stop(self) -> None:
            if not self._stopped:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.05)  # the event loop has heard of it
            await super().stop()

    monkeypatch.setattr(app, "WorkQueue", Stopping)
    async with operator(api, monkeypatch) as running:
        await until(lambda: list(metrics.JOBS.known()), "the job")
        take_lease(api, "two")
        async with within("the process to end"):
            assert await asyncio.shield(running) is app.End.SIGNAL
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "two"


async def test_the_lease_has_connections_of_its_own(api: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a renewal waits behind a take-over's hundreds of requests."""
    asked: defaultdict[int, set[bool]] = defaultdict(set)
    request = Kube.request

    async def noted(self: Kube, method: str, path: str, *given: Any, **more: Any) -> Any:
        asked[id(self)].add("/leases" in path)
        return await request(self, method, path, *given, **more)

    monkeypatch.setattr(Kube, "request", noted)
    async with operator(api, monkeypatch):
        await until(lambda: list(metrics.JOBS.known()) and awaited() == 0, "the job's first step")
    assert sorted(asked.values(), key=list) == [{False}, {True}]


async def test_an_event_loop_that_stands_still_is_noticed() -> None:
    metrics.LOOP_STALL.set(0)
    looking = asyncio.create_task(loop_watch.watch_loop(metrics.LOOP_STALL.set))
    await asyncio.sleep(2 * loop_watch.LOOK_SECONDS)
    time.sleep(5 * loop_watch.LOOK_SECONDS)  # noqa: ASYNC251 - that is the fault
    await until(lambda: metrics.LOOP_STALL._value.get() >= 3 * loop_watch.LOOK_SECONDS)
    looking.cancel()
